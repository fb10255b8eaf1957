// A host in C that uses every function of dwell.h. It exits with 0 when all is as it should be.

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "dwell.h"

#define TEXT(text) (const uint8_t *)(text), strlen(text)

static dwell_engine *engine;
static dwell_batch batch;
static size_t next_event;
static uint16_t port;

// Turns until something of this kind has happened, and returns its place in the batch. What
// happens before it is passed over; what is in its batch behind it is looked at by the next call.
static const dwell_event *wait_for(dwell_event_kind kind) {
    for (int turns = 0; turns < 100; turns++) {
        while (next_event < batch.count) {
            const dwell_event *event = &batch.events[next_event++];
            if (event->kind == (uint32_t)kind)
                return event;
        }
        CHECK_OK(dwell_engine_turn(engine, NULL, 0, 1000, &batch));
        next_event = 0;
    }
    fprintf(stderr, "event %d does not happen\n", (int)kind);
    exit(1);
}

static bool bytes_are(const dwell_event *event, const char *text) {
    return event->length == strlen(text)
        && memcmp(batch.data + event->start, text, event->length) == 0;
}

static bool span_is(dwell_span span, const char *text) {
    return span.length == strlen(text) && memcmp(span.start, text, span.length) == 0;
}

static int connected(uint16_t to) {
    int client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(client >= 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(to)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
    return client;
}

static void say(int client, const char *text) {
    CHECK(send(client, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
}

// Reads until what came ends with `end`, turning meanwhile; with null, until the peer closes.
static void expect(int client, const char *end) {
    static char text[65536];
    size_t length = 0;
    for (int rounds = 0; rounds < 10000; rounds++) {
        ssize_t got = recv(client, text + length, sizeof text - length - 1, MSG_DONTWAIT);
        if (got == 0 && end == NULL)
            return;
        if (got > 0)
            length += (size_t)got;
        text[length] = 0;
        size_t tail = end == NULL ? SIZE_MAX : strlen(end);
        if (tail <= length && memcmp(text + length - tail, end, tail) == 0)
            return;
        if (got < 0 && next_event >= batch.count) {
            CHECK_OK(dwell_engine_turn(engine, NULL, 0, 1, &batch));
            next_event = 0;
        } else if (got < 0) {
            usleep(1000);
        }
    }
    fprintf(stderr, "client was sent: %s\n", text);
    exit(1);
}

// One order as dwell_engine_turn, dwell_engine_submit and dwell_remote_submit take them.
static size_t write_order(uint8_t *to, uint16_t operation, uint16_t status, uint64_t handle,
                          const char *body) {
    uint32_t flags = 0, fields_length = 0, length = (uint32_t)strlen(body);
    uint64_t argument = 0;
    size_t whole = (32 + length + 7) / 8 * 8;
    memset(to, 0, whole);
    memcpy(to, &operation, 2);
    memcpy(to + 2, &status, 2);
    memcpy(to + 4, &flags, 4);
    memcpy(to + 8, &handle, 8);
    memcpy(to + 16, &argument, 8);
    memcpy(to + 24, &fields_length, 4);
    memcpy(to + 28, &length, 4);
    memcpy(to + 32, body, length);
    return whole;
}

static uint64_t requested(int client, const char *request) {
    say(client, request);
    return wait_for(DWELL_REQUEST)->handle;
}

#define GET "GET /a?b HTTP/1.1\r\nHost: h\r\nX-Two: 2\r\n\r\n"

static void nothing_and_nobody(void) {
    uint64_t number;
    int64_t wait;
    CHECK(strlen(dwell_version()) > 0);
    CHECK(strcmp(dwell_status_text(DWELL_OK), "done") == 0);
    CHECK(strlen(dwell_status_text(12345)) > 0);
    CHECK(dwell_options_default(NULL) == DWELL_INVALID);
    CHECK(dwell_engine_new(NULL, NULL) == DWELL_INVALID);
    CHECK(dwell_engine_fileno(NULL) == -1);
    CHECK(dwell_engine_wait_ms(NULL) == -1);
    CHECK(dwell_engine_turn(NULL, NULL, 0, 0, &batch) == DWELL_INVALID && batch.count == 0);
    CHECK(dwell_engine_submit(NULL, NULL, 0, &number, &wait) == DWELL_INVALID);
    CHECK(dwell_engine_statistics(NULL, NULL) == DWELL_INVALID);
    CHECK(dwell_answer(NULL, 1, 200, 0, NULL, 0, NULL, 0) == DWELL_INVALID);
    CHECK(dwell_engine_remote(NULL) == NULL);
    CHECK(dwell_remote_submit(NULL, NULL, 0) == DWELL_INVALID);
    dwell_remote_wake(NULL);
    dwell_remote_free(NULL);
    dwell_engine_free(NULL);
}

static void options_and_addresses(void) {
    struct {
        dwell_options known;
        uint64_t later;
    } grown = {.known = {.size = sizeof grown}, .later = 7};
    CHECK_OK(dwell_options_default(&grown.known));
    CHECK(grown.known.size == sizeof grown.known && grown.later == 7);
    grown.known.size = sizeof grown;
    CHECK(dwell_engine_new(&grown.known, &engine) == DWELL_INVALID);
    dwell_options options = {.size = offsetof(dwell_options, body_credit)};
    CHECK(dwell_options_default(&options) == DWELL_INVALID && options.head_bytes_max == 0);
    options.size = 0;
    CHECK(dwell_options_default(&options) == DWELL_INVALID);
    CHECK(dwell_engine_new(&options, &engine) == DWELL_INVALID);
    // A host that was compiled before the last of them.
    options.size = offsetof(dwell_options, body_rate_min);
    CHECK_OK(dwell_options_default(&options));
    CHECK(options.size == offsetof(dwell_options, body_rate_min) && options.body_rate_min == 0);
    options.size = sizeof options;
    CHECK_OK(dwell_options_default(&options));
    CHECK(options.body_rate_min == 512);
    options.head_bytes_max = 1 << 20;
    CHECK(dwell_engine_new(&options, &engine) == DWELL_INVALID);
    CHECK_OK(dwell_options_default(&options));
    options.body_credit = 2;
    options.reports_connections = true;
    CHECK_OK(dwell_engine_new(&options, &engine));
    CHECK(dwell_engine_fileno(engine) >= 0);
    CHECK(dwell_engine_turn(engine, NULL, 0, 0, NULL) == DWELL_INVALID);
    CHECK(dwell_engine_listen(engine, NULL, NULL) == DWELL_INVALID);
    CHECK(dwell_engine_listen(engine, "nowhere", NULL) == DWELL_INVALID);
    CHECK(dwell_engine_listen(engine, "192.0.2.1:1", NULL) == DWELL_SYSTEM);
    char text[256], crumb[4] = "xxx";
    CHECK(dwell_last_error(text, sizeof text) != 0 && strlen(text) > 0);
    dwell_last_error(crumb, sizeof crumb);
    CHECK(crumb[0] == text[0] && crumb[3] == 0);
    CHECK_OK(dwell_engine_listen(engine, "127.0.0.1:0", &port));
    CHECK(port != 0);
    CHECK(dwell_engine_wait_ms(engine) >= -1);
}

static void requests_and_answers(int client) {
    uint64_t handle = requested(client, GET);
    const size_t place = next_event - 1;
    dwell_request request;
    dwell_span name, value;
    CHECK_OK(dwell_engine_request(engine, place, &request));
    CHECK(span_is(request.method, "GET") && span_is(request.target, "/a?b"));
    CHECK(span_is(request.head, GET) && request.peer_address.length > 0);
    CHECK(request.flags == DWELL_KEEP_ALIVE && request.field_count == 2);
    CHECK_OK(dwell_engine_request_field(engine, place, 1, &name, &value));
    CHECK(span_is(name, "X-Two") && span_is(value, "2"));
    CHECK(dwell_engine_request_field(engine, place, 2, &name, &value) == DWELL_INVALID);
    CHECK(dwell_engine_request(engine, 12345, &request) == DWELL_INVALID);
    CHECK_OK(dwell_engine_request_header(engine, place, "x-TWO", &value));
    CHECK(span_is(value, "2"));
    CHECK(dwell_engine_request_header(engine, place, "X-Tw", &value) == DWELL_ABSENT);
    CHECK(dwell_engine_request_header(engine, place, NULL, &value) == DWELL_INVALID);
    CHECK(dwell_engine_request_header(engine, 12345, "Host", &value) == DWELL_INVALID);
    char address[64];
    CHECK_OK(dwell_engine_local_address(engine, handle, address, sizeof address));
    CHECK(strncmp(address, "127.0.0.1:", 10) == 0);
    // The target is still in the batch, and may be given back.
    CHECK_OK(dwell_answer(engine, handle, 200, 0, TEXT("X-One: 1\nContent-Length: 999\n"), request.target.start,
                          request.target.length));
    expect(client, "\r\nX-One: 1\r\nContent-Length: 4\r\n\r\n/a?b");
    CHECK(dwell_answer(engine, handle, 200, 0, NULL, 0, NULL, 0) == DWELL_STALE);
    CHECK(dwell_engine_local_address(engine, handle, address, sizeof address) == DWELL_STALE);

    handle = requested(client, GET);
    CHECK_OK(dwell_informational(engine, handle, 103, TEXT("Link: </a>\n")));
    CHECK_OK(dwell_begin(engine, handle, 200, 0, NULL, 0, UINT64_MAX));
    CHECK(dwell_answer(engine, handle, 200, 0, NULL, 0, NULL, 0) == DWELL_MISPLACED);
    CHECK_OK(dwell_write(engine, handle, DWELL_NOTIFY, TEXT("one")));
    CHECK(dwell_engine_wait_ms(engine) == 0);
    CHECK(wait_for(DWELL_WRITABLE)->handle == handle);
    FILE *file = tmpfile();
    CHECK(file != NULL && fputs("<file>", file) >= 0 && fflush(file) == 0);
    CHECK_OK(dwell_engine_write_file(engine, handle, DWELL_FINISH, dup(fileno(file)), 1, 4));
    fclose(file);
    expect(client, "3\r\none\r\n4\r\nfile\r\n0\r\n\r\n");

    handle = requested(client, GET);
    CHECK_OK(dwell_begin(engine, handle, 200, 0, NULL, 0, UINT64_MAX));
    CHECK_OK(dwell_write(engine, handle, 0, TEXT("one")));
    CHECK_OK(dwell_finish(engine, handle, TEXT("X-Sum: 7\n")));
    expect(client, "3\r\none\r\n0\r\nX-Sum: 7\r\n\r\n");
}

// A stream of HTTP/2: its request, its answer with trailers, and its end by the client.
static void streams_of_http2(void) {
    dwell_engine *before = engine;
    dwell_options options = {.size = sizeof options};
    CHECK_OK(dwell_options_default(&options));
    CHECK(!options.h2c && !options.websocket_streams && !options.counts_work);
    options.h2c = options.reports_connections = options.counts_work = true;
    CHECK_OK(dwell_engine_new(&options, &engine));
    uint16_t own;
    CHECK_OK(dwell_engine_listen(engine, "127.0.0.1:0", &own));
    int client = connected(own);
    say(client, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    const char settings[] = "\0\0\0\4\0\0\0\0\0";
    // GET http://h/, on streams 1 and 3.
    const char first[] = "\0\0\6\1\5\0\0\0\1\x82\x86\x84\x41\1h";
    const char second[] = "\0\0\6\1\5\0\0\0\3\x82\x86\x84\x41\1h";
    CHECK(send(client, settings, sizeof settings - 1, MSG_NOSIGNAL) > 0);
    CHECK(send(client, first, sizeof first - 1, MSG_NOSIGNAL) > 0);
    uint64_t connection = wait_for(DWELL_OPENED)->handle;
    const dwell_event *event = wait_for(DWELL_REQUEST);
    uint64_t handle = event->handle;
    CHECK(event->other == connection);
    dwell_request request;
    CHECK_OK(dwell_engine_request(engine, next_event - 1, &request));
    CHECK((request.flags & DWELL_HTTP2) != 0 && span_is(request.target, "/"));
    CHECK_OK(dwell_begin(engine, handle, 200, 0, NULL, 0, UINT64_MAX));
    CHECK_OK(dwell_write(engine, handle, 0, TEXT("one")));
    CHECK_OK(dwell_finish(engine, handle, TEXT("X-Sum: 7\n")));
    // The trailers end the stream: a literal field whose value ends the block.
    expect(client, "7");
    CHECK(dwell_finish(engine, handle, NULL, 0) == DWELL_STALE);
    CHECK(send(client, second, sizeof second - 1, MSG_NOSIGNAL) > 0);
    event = wait_for(DWELL_REQUEST);
    handle = event->handle;
    CHECK(event->other == connection);
    const char reset[] = "\0\0\4\3\0\0\0\0\3\0\0\0\x08";
    CHECK(send(client, reset, sizeof reset - 1, MSG_NOSIGNAL) > 0);
    CHECK(wait_for(DWELL_GONE)->handle == handle);
    // It counts until its host has done with it.
    CHECK_OK(dwell_done(engine, handle));
    CHECK(dwell_done(engine, handle) == DWELL_STALE);
    close(client);
    CHECK(wait_for(DWELL_CLOSED)->handle == connection);
    dwell_engine_free(engine);
    engine = before;
    batch.count = next_event = 0;
}

static void bodies(int client) {
    uint64_t handle = requested(client, "POST / HTTP/1.1\r\nHost: h\r\n"
                                        "Transfer-Encoding: chunked\r\n\r\n"
                                        "2\r\nab\r\n2\r\ncd\r\n0\r\nX-Sum: 7\r\n\r\n");
    char body[8] = "";
    const dwell_event *event;
    while (strlen(body) < 4) {
        CHECK_OK(dwell_grant(engine, handle, 5));
        event = wait_for(DWELL_BODY);
        CHECK(event->handle == handle && strlen(body) + event->length <= 4);
        strncat(body, (const char *)batch.data + event->start, event->length);
    }
    CHECK(strcmp(body, "abcd") == 0);
    CHECK_OK(dwell_grant(engine, handle, 100));
    CHECK(bytes_are(wait_for(DWELL_BODY_END), "X-Sum:7\n"));
    CHECK_OK(dwell_answer(engine, handle, 204, DWELL_CLOSE, NULL, 0, NULL, 0));
    expect(client, NULL);
    close(client);
}

static void raw_streams(void) {
    int client = connected(port);
    uint64_t handle = requested(client, GET "early"), stream;
    CHECK_OK(dwell_detach(engine, handle));
    const dwell_event *event = wait_for(DWELL_DETACHED);
    CHECK(event->handle == handle && bytes_are(event, "early"));
    int descriptor = dwell_engine_take_descriptor(engine, handle);
    CHECK(descriptor >= 0 && dwell_engine_take_descriptor(engine, handle) == -1);
    CHECK_OK(dwell_engine_adopt_stream(engine, descriptor, TEXT("early"), &stream));
    CHECK(bytes_are(wait_for(DWELL_STREAM_DATA), "early"));
    CHECK_OK(dwell_pause(engine, stream));
    say(client, "late");
    CHECK_OK(dwell_write(engine, stream, DWELL_NOTIFY, TEXT("answer")));
    CHECK(wait_for(DWELL_WRITABLE)->handle == stream);
    expect(client, "answer");
    CHECK_OK(dwell_resume(engine, stream));
    CHECK(bytes_are(wait_for(DWELL_STREAM_DATA), "late"));
    CHECK_OK(dwell_close(engine, stream, 0, NULL, 0));
    expect(client, NULL);
    close(client);
    CHECK(wait_for(DWELL_STREAM_CLOSED)->handle == stream);
    CHECK(dwell_engine_adopt_stream(engine, -1, NULL, 0, NULL) == DWELL_INVALID);
}

#define HANDSHAKE                                                           \
    "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n"                 \
    "Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"    \
    "Sec-WebSocket-Version: 13\r\n\r\n"

static void web_sockets(void) {
    int client = connected(port);
    uint64_t handle = requested(client, HANDSHAKE);
    CHECK(dwell_upgrade(engine, handle, 0, NULL, 0, TEXT("no head")) == DWELL_MALFORMED);
    CHECK_OK(dwell_upgrade(engine, handle, DWELL_PLAIN, NULL, 0, TEXT(HANDSHAKE)));
    const dwell_event *event = wait_for(DWELL_WEBSOCKET_OPENED);
    CHECK(event->other == handle);
    uint64_t socket = event->handle;
    expect(client, "\r\n\r\n");
    // "hi", masked with zeros.
    CHECK(send(client, "\x81\x82\0\0\0\0hi", 8, MSG_NOSIGNAL) == 8);
    event = wait_for(DWELL_WEBSOCKET_MESSAGE);
    CHECK(event->handle == socket && event->detail == 1 && bytes_are(event, "hi"));
    CHECK_OK(dwell_send(engine, socket, true, 7, TEXT("ho")));
    expect(client, "\x81\x02ho");
    CHECK_OK(dwell_ping(engine, socket, TEXT("p")));
    expect(client, "\x89\x01p");
    CHECK(send(client, "\x8a\x81\0\0\0\0p", 7, MSG_NOSIGNAL) == 7);
    CHECK(bytes_are(wait_for(DWELL_WEBSOCKET_PONG), "p"));
    CHECK(dwell_close(engine, socket, 1000, (const uint8_t *)"\xff", 1) == DWELL_MALFORMED);
    CHECK_OK(dwell_close(engine, socket, 1000, TEXT("bye")));
    CHECK(send(client, "\x88\x82\0\0\0\0\x03\xe8", 8, MSG_NOSIGNAL) == 8);
    CHECK(wait_for(DWELL_WEBSOCKET_CLOSED)->detail == 1000);
    close(client);

    client = connected(port);
    handle = requested(client, GET);
    CHECK_OK(dwell_upgrade(engine, handle, 0, NULL, 0, TEXT(GET)));
    CHECK(wait_for(DWELL_UPGRADE_REFUSED)->detail == 400);
    close(client);
}

// A connected pair: the client's end, and in `ours` the one for the engine. Over TCP the first
// write to a peer that has gone makes it reset, over a unix socket it fails at once.
static int pair_of(bool is_tcp, int *ours) {
    int pair[2];
    if (!is_tcp) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        *ours = pair[1];
        return pair[0];
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    pair[0] = connected(ntohs(address.sin_port));
    *ours = accept(listener, NULL, NULL);
    close(listener);
    return pair[0];
}

// Writes as `form` says to a client that has gone; the engine is told so by the system meanwhile.
static void written_to_nobody(bool is_tcp, char form) {
    static uint8_t large[300000];
    int ours, client = pair_of(is_tcp, &ours);
    uint64_t connection, handle;
    CHECK_OK(dwell_engine_adopt(engine, ours, &connection));
    handle = requested(client, form == 's' ? HANDSHAKE : GET);
    if (form == 's') {
        CHECK_OK(dwell_upgrade(engine, handle, DWELL_PLAIN, NULL, 0, TEXT(HANDSHAKE)));
        handle = wait_for(DWELL_WEBSOCKET_OPENED)->handle;
    } else if (form == 'r') {
        CHECK_OK(dwell_detach(engine, handle));
        wait_for(DWELL_DETACHED);
        int descriptor = dwell_engine_take_descriptor(engine, handle);
        CHECK_OK(dwell_engine_adopt_stream(engine, descriptor, NULL, 0, &handle));
    } else if (form == 'f' || form == 'w') {
        // Pieces of a file follow the head alone, without a chunk's size in between.
        uint64_t length = form == 'f' ? 3 * sizeof large : UINT64_MAX;
        CHECK_OK(dwell_begin(engine, handle, 200, 0, NULL, 0, length));
        expect(client, "\r\n\r\n");
    }
    close(client);
    if (form == 'a') {
        CHECK_OK(dwell_informational(engine, handle, 103, NULL, 0));
        CHECK_OK(dwell_answer(engine, handle, 200, 0, NULL, 0, large, sizeof large));
    } else if (form == 'f' || form == 'w') {
        FILE *file = tmpfile();
        CHECK(file != NULL && fwrite(large, sizeof large, 1, file) == 1 && fflush(file) == 0);
        // The first piece makes the peer reset, the second one meets that.
        for (int pieces = 0; pieces < 3; pieces++) {
            dwell_status status = form == 'f'
                ? dwell_engine_write_file(engine, handle, 0, dup(fileno(file)), 0, sizeof large)
                : dwell_write(engine, handle, 0, large, sizeof large);
            CHECK(status == DWELL_OK || status == DWELL_STALE || status == DWELL_FULL);
        }
        fclose(file);
    } else {
        for (int pieces = 0; pieces < 3; pieces++) {
            dwell_status status = form == 's'
                ? dwell_send(engine, handle, false, 0, large, sizeof large)
                : dwell_write(engine, handle, 0, large, sizeof large);
            CHECK(status == DWELL_OK || status == DWELL_STALE || status == DWELL_FULL);
        }
    }
    dwell_event_kind end = form == 's' ? DWELL_WEBSOCKET_CLOSED
        : form == 'r'                  ? DWELL_STREAM_CLOSED
                                       : DWELL_CLOSED;
    wait_for(end);
}

// This program leaves SIGPIPE as it is, which ends a process.
static void clients_that_go(void) {
    struct sigaction action;
    CHECK(sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    for (const char *form = "afwsr"; *form != 0; form++) {
        written_to_nobody(true, *form);
        written_to_nobody(false, *form);
    }
    sigset_t signals;
    CHECK(sigpending(&signals) == 0 && !sigismember(&signals, SIGPIPE));
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &signals) == 0 && !sigismember(&signals, SIGPIPE));
}

static void sockets_of_the_host(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 8) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    int client = connected(ntohs(address.sin_port));
    uint64_t connection;
    CHECK_OK(dwell_engine_adopt(engine, accept(listener, NULL, NULL), &connection));
    say(client, GET);
    const dwell_event *event = wait_for(DWELL_REQUEST);
    CHECK(event->other == connection);
    CHECK_OK(dwell_abort(engine, connection));
    CHECK(wait_for(DWELL_GONE)->kind == DWELL_GONE);
    CHECK(wait_for(DWELL_CLOSED)->handle == connection);
    close(client);

    CHECK_OK(dwell_engine_adopt_listener(engine, listener));
    client = connected(ntohs(address.sin_port));
    CHECK(dwell_answer(engine, requested(client, GET), 200, 0, NULL, 0, TEXT("own")) == DWELL_OK);
    expect(client, "own");
    close(client);
    CHECK(dwell_engine_adopt_listener(engine, -1) == DWELL_INVALID);
}

static char socket_folder[64];

static void unix_sockets(void) {
    char folder[] = "/tmp/dwell-host-XXXXXX";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(mkdtemp(folder) != NULL);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", folder);
    CHECK_OK(dwell_engine_listen_unix(engine, address.sun_path));
    CHECK(dwell_engine_listen_unix(engine, folder) == DWELL_SYSTEM);
    CHECK(dwell_engine_listen_unix(engine, NULL) == DWELL_INVALID);
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
    uint64_t handle = requested(client, GET);
    dwell_request request;
    CHECK_OK(dwell_engine_request(engine, next_event - 1, &request));
    CHECK(request.peer_address.length == 0);
    CHECK_OK(dwell_answer(engine, handle, 200, 0, NULL, 0, TEXT("near")));
    expect(client, "near");
    close(client);
    // Not before the engine has removed its socket.
    strcpy(socket_folder, folder);
}

static void data_of_the_host(void) {
    int mine, other, ours, client = pair_of(true, &ours);
    uint64_t connection;
    CHECK_OK(dwell_engine_adopt(engine, ours, &connection));
    CHECK_OK(dwell_set_data(engine, connection, &mine));
    uint64_t handle = requested(client, GET);
    CHECK(dwell_data(engine, handle) == NULL && dwell_data(engine, connection) == &mine);
    CHECK_OK(dwell_set_data(engine, handle, &other));
    CHECK(dwell_data(engine, handle) == &other);
    CHECK_OK(dwell_set_data(engine, handle, NULL));
    CHECK(dwell_data(engine, handle) == NULL);
    CHECK_OK(dwell_answer(engine, handle, 200, 0, NULL, 0, TEXT("kept")));
    CHECK(dwell_set_data(engine, handle, &other) == DWELL_STALE);
    expect(client, "kept");

    handle = requested(client, HANDSHAKE);
    CHECK_OK(dwell_upgrade(engine, handle, DWELL_PLAIN, NULL, 0, TEXT(HANDSHAKE)));
    uint64_t socket = wait_for(DWELL_WEBSOCKET_OPENED)->handle;
    expect(client, "\r\n\r\n");
    CHECK_OK(dwell_set_data(engine, socket, &other));
    close(client);
    // It is there when the end is told, for the host to free it.
    const dwell_event *event = wait_for(DWELL_WEBSOCKET_CLOSED);
    CHECK(event->handle == socket && dwell_data(engine, socket) == &other);
    CHECK(dwell_set_data(engine, socket, &mine) == DWELL_STALE);

    uint64_t stream;
    client = pair_of(false, &ours);
    CHECK_OK(dwell_engine_adopt_stream(engine, ours, NULL, 0, &stream));
    CHECK_OK(dwell_set_data(engine, stream, &mine));
    CHECK(dwell_data(engine, stream) == &mine);
    close(client);
    wait_for(DWELL_STREAM_PEER_CLOSED);
    CHECK_OK(dwell_close(engine, stream, 0, NULL, 0));
    CHECK(wait_for(DWELL_STREAM_CLOSED)->handle == stream);
    CHECK(dwell_data(engine, stream) == &mine);
    CHECK(dwell_set_data(engine, stream, &other) == DWELL_STALE);
    CHECK(dwell_set_data(engine, 12345, &mine) == DWELL_STALE && dwell_data(NULL, 1) == NULL);
}

static void many_orders_at_once(void) {
    static uint8_t orders[512];
    int client = connected(port);
    uint64_t handle = requested(client, GET), stale;
    int64_t wait;
    size_t length = write_order(orders, 6, 0, 12345, "");
    length += write_order(orders + length, 2, 200, handle, "whole");
    CHECK_OK(dwell_engine_submit(engine, orders, length, &stale, &wait));
    CHECK(stale == 1 && wait >= -1);
    expect(client, "whole");
    handle = requested(client, GET);
    length = write_order(orders, 2, 200, handle, "turned");
    CHECK_OK(dwell_engine_turn(engine, orders, length, 0, &batch));
    next_event = 0;
    expect(client, "turned");
    CHECK(dwell_engine_submit(engine, orders, 7, &stale, &wait) == DWELL_MALFORMED);
    CHECK(dwell_engine_turn(engine, orders, 7, 0, &batch) == DWELL_MALFORMED);
    CHECK(batch.count == 0);
    next_event = 0;
    close(client);
}

struct elsewhere {
    dwell_remote *remote;
    uint64_t handle;
    atomic_bool has_woken;
};

static void *answer_from_elsewhere(void *argument) {
    struct elsewhere *elsewhere = argument;
    uint8_t order[64];
    // The engine is waiting, in another thread.
    while (dwell_grant(engine, 12345, 1) != DWELL_BUSY)
        usleep(1000);
    CHECK(dwell_engine_remote(engine) == NULL);
    atomic_store(&elsewhere->has_woken, true);
    dwell_remote_wake(elsewhere->remote);
    size_t length = write_order(order, 2, 200, elsewhere->handle, "from afar");
    CHECK_OK(dwell_remote_submit(elsewhere->remote, order, length));
    return NULL;
}

static void other_threads(void) {
    int client = connected(port);
    struct elsewhere elsewhere = {dwell_engine_remote(engine), requested(client, GET), false};
    CHECK(elsewhere.remote != NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, answer_from_elsewhere, &elsewhere) == 0);
    // It is the first to enter, or the second one that waits. A turn may also end by a readiness
    // of which nothing comes.
    dwell_status turned;
    do {
        turned = dwell_engine_turn(engine, NULL, 0, 60000, &batch);
        CHECK(turned == DWELL_OK || turned == DWELL_BUSY);
        if (turned == DWELL_BUSY)
            usleep(100);
    } while (turned == DWELL_BUSY || !atomic_load(&elsewhere.has_woken));
    next_event = 0;
    CHECK(pthread_join(thread, NULL) == 0);
    expect(client, "from afar");
    close(client);
    dwell_remote_free(elsewhere.remote);
}

static void the_end(void) {
    int waiting = connected(port), idle = connected(port);
    uint64_t handle = requested(waiting, GET);
    CHECK_OK(dwell_engine_drain(engine));
    CHECK_OK(dwell_answer(engine, handle, 200, 0, NULL, 0, TEXT("last")));
    expect(waiting, NULL);
    CHECK_OK(dwell_engine_close_all(engine));
    CHECK(dwell_engine_wait_ms(engine) == 0);
    expect(idle, NULL);
    close(waiting);
    close(idle);
    dwell_statistics statistics;
    CHECK_OK(dwell_engine_statistics(engine, &statistics));
    CHECK(statistics.connections + statistics.websockets + statistics.streams == 0);
    CHECK(statistics.held == 0 && statistics.stale > 0 && statistics.requests > 10);
    dwell_remote *remote = dwell_engine_remote(engine);
    dwell_engine_free(engine);
    CHECK(rmdir(socket_folder) == 0);
    // The engine is gone, and nobody hears it.
    CHECK_OK(dwell_remote_submit(remote, NULL, 0));
    dwell_remote_wake(remote);
    dwell_remote_free(remote);
}

int main(void) {
    nothing_and_nobody();
    options_and_addresses();
    int client = connected(port);
    requests_and_answers(client);
    bodies(client);
    raw_streams();
    web_sockets();
    streams_of_http2();
    clients_that_go();
    sockets_of_the_host();
    unix_sockets();
    data_of_the_host();
    many_orders_at_once();
    other_threads();
    the_end();
    puts("all is as it should be");
    return 0;
}
