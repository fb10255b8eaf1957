// A host in C with clients under TLS: by a listener of the engine's, by one of its own that the
// engine takes over, and by one on which it accepts itself. It prints the three ports, answers
// until it is asked for /end, and exits with 0 when all is as it should be.
//
//     tls CERTIFICATE KEY OTHER_KEY CLIENT_CA [http2]

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "dwell.h"

static dwell_engine *engine;
static dwell_batch batch;
// Handshakes that were told to be complete, and the reasons of those that have failed.
static size_t secured;
static char reasons[65536];

static int listener(uint16_t *port) {
    int made = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(made, (struct sockaddr *)&address, size) == 0 && listen(made, 8) == 0);
    CHECK(getsockname(made, (struct sockaddr *)&address, &size) == 0);
    *port = ntohs(address.sin_port);
    return made;
}

static dwell_span contents(const char *path) {
    static uint8_t room[8][8192];
    static size_t used;
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && used < 8);
    dwell_span span = {room[used], fread(room[used], 1, sizeof room[used], file)};
    fclose(file);
    used++;
    return span;
}

// Options of client certificates that cannot be, and such as can.
static void asking(dwell_tls_options options, const char *client_ca) {
    dwell_tls *tls = NULL;
    char text[256];
    CHECK(options.client_certificates == DWELL_CLIENTS_NOT_ASKED && !options.host_verifies);
    options.client_certificates = 3;
    CHECK(dwell_tls_new(&options, &tls) == DWELL_INVALID);
    options.client_certificates = DWELL_CLIENTS_NOT_ASKED;
    options.host_verifies = true;
    CHECK(dwell_tls_new(&options, &tls) == DWELL_INVALID);
    options.host_verifies = false;
    options.client_ca = contents(client_ca);
    CHECK(dwell_tls_new(&options, &tls) == DWELL_INVALID);
    options.client_certificates = DWELL_CLIENTS_REQUIRED;
    options.host_verifies = true;
    CHECK(dwell_tls_new(&options, &tls) == DWELL_INVALID);
    options.host_verifies = false;
    CHECK_OK(dwell_tls_new(&options, &tls));
    dwell_tls_free(tls);
    options.client_ca.length = 0;
    CHECK(dwell_tls_new(&options, &tls) == DWELL_CERTIFICATE);
    options.client_ca_file = "/nowhere/ca.pem";
    CHECK(dwell_tls_new(&options, &tls) == DWELL_SYSTEM);
    CHECK(dwell_last_error(text, sizeof text) == ENOENT && strstr(text, "/nowhere/ca.pem") != NULL);
    // A host that was compiled before there were these options.
    options.size = offsetof(dwell_tls_options, client_certificates);
    CHECK_OK(dwell_tls_new(&options, &tls));
    dwell_tls_free(tls);
    dwell_tls_options_default(&options);
    CHECK(options.size == offsetof(dwell_tls_options, client_certificates));
    CHECK(options.client_certificates == DWELL_CLIENTS_REQUIRED);
}

static dwell_tls *certificates(char **files) {
    const char *certificate = files[0], *key = files[1], *other_key = files[2];
    dwell_tls *tls = NULL;
    dwell_tls_options options = {.size = 0};
    CHECK(dwell_tls_options_default(NULL) == DWELL_INVALID);
    CHECK(dwell_tls_options_default(&options) == DWELL_INVALID);
    CHECK(dwell_tls_new(&options, &tls) == DWELL_INVALID);
    CHECK(dwell_tls_new(NULL, &tls) == DWELL_INVALID);
    options.size = sizeof options;
    CHECK_OK(dwell_tls_options_default(&options));
    CHECK(options.handshakes_max == 1000 && options.certificate_count == 0);
    CHECK(dwell_tls_new(&options, &tls) == DWELL_INVALID);
    dwell_certificate pair = {.certificate_file = certificate};
    options.certificates = &pair;
    options.certificate_count = 1;
    CHECK(dwell_tls_new(&options, &tls) == DWELL_INVALID);
    char text[256];
    pair.key_file = "/nowhere/key.pem";
    CHECK(dwell_tls_new(&options, &tls) == DWELL_SYSTEM);
    CHECK(dwell_last_error(text, sizeof text) == ENOENT && strstr(text, pair.key_file) != NULL);
    pair.key_file = other_key;
    CHECK(dwell_tls_new(&options, &tls) == DWELL_CERTIFICATE && tls == NULL);
    CHECK(dwell_last_error(text, sizeof text) == 0 && strstr(text, other_key) != NULL);
    pair = (dwell_certificate){.certificate = contents(certificate), .key = contents(key)};
    CHECK_OK(dwell_tls_new(&options, &tls));
    dwell_tls_free(tls);
    pair = (dwell_certificate){.certificate_file = certificate, .key_file = key};
    CHECK(dwell_tls_new(&options, NULL) == DWELL_INVALID);
    asking(options, files[3]);
    options.client_ca_file = files[3];
    options.client_certificates = DWELL_CLIENTS_ASKED;
    options.keeps_server_names = true;
    CHECK_OK(dwell_tls_new(&options, &tls));
    CHECK_OK(dwell_tls_reload(tls));
    CHECK(dwell_tls_reload(NULL) == DWELL_INVALID);
    dwell_tls_free(NULL);
    return tls;
}

static bool is_for(dwell_request request, const char *target) {
    return request.target.length == strlen(target)
        && memcmp(request.target.start, target, request.target.length) == 0;
}

// The facts of a client that has asked for dwell.test.
static dwell_tls_facts facts_of(uint64_t handle) {
    dwell_tls_facts facts = {.size = 4};
    CHECK(dwell_engine_tls_facts(engine, handle, NULL) == DWELL_INVALID);
    CHECK(dwell_engine_tls_facts(engine, handle, &facts) == DWELL_INVALID);
    facts.size = sizeof facts;
    CHECK(dwell_engine_tls_facts(engine, 0, &facts) == DWELL_STALE);
    CHECK_OK(dwell_engine_tls_facts(engine, handle, &facts));
    CHECK(facts.size == sizeof facts && facts.cipher_suite != 0);
    CHECK((facts.version == 0x0304) == (facts.cipher_suite >> 8 == 0x13));
    CHECK(!facts.is_resumed && facts.is_verified == (facts.certificate_count > 0));
    return facts;
}

// Answers with the subject of the client's certificate.
static void told_who(uint64_t handle, uint64_t connection) {
    dwell_span der = {NULL, 0}, again = {NULL, 0};
    char subject[256] = "nobody";
    dwell_tls_facts facts = facts_of(handle);
    CHECK(strcmp(facts.server_name, "dwell.test") == 0 && facts.has_protocol);
    dwell_status status = dwell_engine_peer_certificate(engine, handle, 0, &der);
    if (status == DWELL_OK) {
        CHECK(facts.certificate_count == 1);
        CHECK_OK(dwell_engine_peer_certificate(engine, connection, 0, &again));
        CHECK(again.start == der.start && again.length == der.length);
        CHECK_OK(dwell_engine_peer_certificate(engine, handle, 0, NULL));
        CHECK_OK(dwell_engine_peer_subject(engine, handle, subject, sizeof subject));
        CHECK_OK(dwell_engine_peer_subject(engine, handle, NULL, 0));
    } else {
        CHECK(status == DWELL_ABSENT && facts.certificate_count == 0);
        CHECK(dwell_engine_peer_subject(engine, handle, subject, 1) == DWELL_ABSENT);
    }
    CHECK(dwell_engine_peer_certificate(engine, handle, 1, &again) == DWELL_ABSENT);
    CHECK(dwell_engine_peer_certificate(engine, 0, 0, &again) == DWELL_STALE);
    CHECK(dwell_engine_peer_subject(engine, 0, subject, 1) == DWELL_STALE);
    const uint8_t *body = (const uint8_t *)subject;
    CHECK_OK(dwell_answer(engine, handle, 200, 0, NULL, 0, body, strlen(subject)));
}

// What a certificate is pointed to by outlives its connection, until the next turn.
static void outlived(uint64_t handle) {
    dwell_span der;
    CHECK_OK(dwell_engine_peer_certificate(engine, handle, 0, &der));
    uint8_t *copy = malloc(der.length);
    CHECK(copy != NULL && der.length > 2 && der.start[0] == 0x30);
    memcpy(copy, der.start, der.length);
    CHECK_OK(dwell_abort(engine, handle));
    CHECK(memcmp(copy, der.start, der.length) == 0);
    free(copy);
}

// Answers /suite with the cipher suite, /version with that of HTTP, /who with the name of the
// client, /reasons with those of handshakes that have failed, and /file with a file, and sends all
// other bodies back.
static bool answered(size_t place) {
    uint64_t handle = batch.events[place].handle;
    dwell_request request;
    CHECK_OK(dwell_engine_request(engine, place, &request));
    CHECK((request.flags & DWELL_SECURE) != 0 && request.flags >> 16 != 0);
    if (is_for(request, "/detach")) {
        CHECK_OK(dwell_detach(engine, handle));
    } else if (is_for(request, "/who")) {
        CHECK(request.flags & DWELL_NAMED && request.flags & DWELL_AGREED);
        CHECK(!(request.flags & DWELL_RESUMED));
        told_who(handle, batch.events[place].other);
    } else if (is_for(request, "/version")) {
        const char *version = request.flags & DWELL_HTTP2 ? "HTTP/2" : "HTTP/1.1";
        const uint8_t *body = (const uint8_t *)version;
        CHECK_OK(dwell_answer(engine, handle, 200, 0, NULL, 0, body, strlen(version)));
    } else if (is_for(request, "/outlived")) {
        outlived(handle);
    } else if (is_for(request, "/reasons")) {
        const uint8_t *body = (const uint8_t *)reasons;
        CHECK_OK(dwell_answer(engine, handle, 200, 0, NULL, 0, body, strlen(reasons)));
    } else if (is_for(request, "/file")) {
        FILE *file = tmpfile();
        CHECK(file != NULL);
        for (int line = 0; line < 50000; line++)
            fprintf(file, "%07d\n", line);
        fflush(file);
        CHECK_OK(dwell_begin(engine, handle, 200, 0, NULL, 0, 400000));
        int copy = dup(fileno(file));
        CHECK_OK(dwell_engine_write_file(engine, handle, DWELL_FINISH, copy, 0, 400000));
        fclose(file);
    } else if (request.flags & DWELL_BODY_FOLLOWS) {
        CHECK_OK(dwell_grant(engine, handle, UINT64_MAX / 2));
        CHECK_OK(dwell_begin(engine, handle, 200, 0, NULL, 0, request.content_length));
    } else {
        char suite[16];
        snprintf(suite, sizeof suite, "%04x", (unsigned)(request.flags >> 16));
        CHECK_OK(dwell_answer(engine, handle, 200, 0, NULL, 0, (const uint8_t *)suite, 4));
    }
    return is_for(request, "/end");
}

static bool handled(size_t place) {
    const dwell_event *event = &batch.events[place];
    switch (event->kind) {
    case DWELL_REQUEST:
        return answered(place);
    case DWELL_SECURED: {
        // A client may be gone by the time that its handshake is told of.
        dwell_tls_facts facts = {.size = sizeof facts};
        if (dwell_engine_tls_facts(engine, event->handle, &facts) != DWELL_STALE)
            facts_of(event->handle);
        secured++;
        break;
    }
    case DWELL_INSECURE: {
        size_t used = strlen(reasons);
        CHECK(event->length > 0 && used + event->length + 2 < sizeof reasons);
        memcpy(reasons + used, batch.data + event->start, event->length);
        strcpy(reasons + used + event->length, "\n");
        break;
    }
    case DWELL_BODY:
        CHECK_OK(dwell_write(engine, event->handle, 0, batch.data + event->start, event->length));
        break;
    case DWELL_BODY_END:
        CHECK_OK(dwell_write(engine, event->handle, DWELL_FINISH, NULL, 0));
        break;
    case DWELL_DETACHED:
        // Its keys are the engine's.
        CHECK(dwell_engine_take_descriptor(engine, event->handle) == -1);
    }
    return false;
}

int main(int argc, char **argv) {
    CHECK(argc == 5 || argc == 6);
    dwell_tls *tls = certificates(argv + 1);
    dwell_options options = {.size = sizeof options};
    CHECK_OK(dwell_options_default(&options));
    options.output_bytes_max = 64 << 20;
    CHECK(!options.reports_handshakes);
    options.reports_handshakes = true;
    CHECK(!options.http2);
    options.http2 = argc == 6;
    CHECK_OK(dwell_engine_new(&options, &engine));
    uint16_t ports[3];
    CHECK(dwell_engine_listen_tls(engine, "127.0.0.1:0", NULL, NULL) == DWELL_INVALID);
    CHECK(dwell_engine_listen_tls(engine, NULL, tls, NULL) == DWELL_INVALID);
    CHECK(dwell_engine_adopt_listener_tls(engine, -1, tls) == DWELL_INVALID);
    CHECK(dwell_engine_adopt_tls(engine, -1, tls, NULL) == DWELL_INVALID);
    CHECK_OK(dwell_engine_listen_tls(engine, "127.0.0.1:0", tls, &ports[0]));
    CHECK_OK(dwell_engine_adopt_listener_tls(engine, listener(&ports[1]), tls));
    int own = listener(&ports[2]);
    printf("ports %d %d %d\n", ports[0], ports[1], ports[2]);
    fflush(stdout);
    bool is_over = false;
    while (!is_over) {
        CHECK_OK(dwell_engine_turn(engine, NULL, 0, 20, &batch));
        for (size_t place = 0; place < batch.count; place++)
            is_over |= handled(place);
        int client;
        uint64_t connection = 0;
        while ((client = accept(own, NULL, NULL)) >= 0) {
            CHECK_OK(dwell_engine_adopt_tls(engine, client, tls, &connection));
            CHECK(connection != 0);
        }
    }
    // What was made with them goes on without.
    dwell_tls_free(tls);
    CHECK_OK(dwell_engine_drain(engine));
    dwell_statistics statistics = {.connections = 1};
    for (int turns = 0; turns < 1000 && statistics.connections > 0; turns++) {
        CHECK_OK(dwell_engine_turn(engine, NULL, 0, 20, &batch));
        CHECK_OK(dwell_engine_statistics(engine, &statistics));
    }
    CHECK(statistics.connections == 0 && secured > 0);
    close(own);
    dwell_engine_free(engine);
    puts("all is as it should be");
    return 0;
}
