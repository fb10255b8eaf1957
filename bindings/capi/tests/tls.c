// A host in C with clients under TLS: by a listener of the engine's, by one of its own that the
// engine takes over, and by one on which it accepts itself. It prints the three ports, answers
// until it is asked for /end, and exits with 0 when all is as it should be.
//
//     tls CERTIFICATE KEY OTHER_KEY

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
    static uint8_t room[4][8192];
    static size_t used;
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && used < 4);
    dwell_span span = {room[used], fread(room[used], 1, sizeof room[used], file)};
    fclose(file);
    used++;
    return span;
}

static dwell_tls *certificates(const char *certificate, const char *key, const char *other_key) {
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

// Answers /suite with the cipher suite and /file with a file, and sends all other bodies back.
static bool answered(size_t place) {
    uint64_t handle = batch.events[place].handle;
    dwell_request request;
    CHECK_OK(dwell_engine_request(engine, place, &request));
    CHECK((request.flags & DWELL_SECURE) != 0 && request.flags >> 16 != 0);
    if (is_for(request, "/detach")) {
        CHECK_OK(dwell_detach(engine, handle));
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
    CHECK(argc == 4);
    dwell_tls *tls = certificates(argv[1], argv[2], argv[3]);
    dwell_options options = {.size = sizeof options};
    CHECK_OK(dwell_options_default(&options));
    options.output_bytes_max = 64 << 20;
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
    CHECK(statistics.connections == 0);
    close(own);
    dwell_engine_free(engine);
    puts("all is as it should be");
    return 0;
}
