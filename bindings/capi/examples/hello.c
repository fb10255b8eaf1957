// Answers requests with the name of their client's program, and WebSocket messages with their
// number on the connection.
//
// cc -I bindings/capi/include -o hello bindings/capi/examples/hello.c
//     target/release/libdwell.a -lpthread -ldl -lm

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dwell.h"

#define TEXT(text) (const uint8_t *)(text), strlen(text)

static void answer(dwell_engine *engine, const dwell_batch *batch, size_t place) {
    uint64_t handle = batch->events[place].handle;
    dwell_request request;
    dwell_span value;
    if (dwell_engine_request(engine, place, &request) != DWELL_OK)
        return;
    if (dwell_engine_request_header(engine, place, "Upgrade", &value) == DWELL_OK)
        dwell_upgrade(engine, handle, 0, NULL, 0, request.head.start, request.head.length);
    else if (dwell_engine_request_header(engine, place, "User-Agent", &value) == DWELL_OK)
        dwell_answer(engine, handle, 200, 0, TEXT("Content-Type: text/plain\n"), value.start,
                     value.length);
    else
        dwell_answer(engine, handle, 400, 0, NULL, 0, TEXT("who are you?\n"));
}

static void handle(dwell_engine *engine, const dwell_batch *batch, size_t place) {
    const dwell_event *event = &batch->events[place];
    switch (event->kind) {
    case DWELL_REQUEST:
        answer(engine, batch, place);
        break;
    case DWELL_WEBSOCKET_OPENED:
        dwell_set_data(engine, event->handle, calloc(1, sizeof(unsigned)));
        break;
    case DWELL_WEBSOCKET_MESSAGE: {
        unsigned *count = dwell_data(engine, event->handle);
        char text[32];
        if (count != NULL) {
            snprintf(text, sizeof text, "%u", ++*count);
            dwell_send(engine, event->handle, true, 0, TEXT(text));
        }
        break;
    }
    case DWELL_WEBSOCKET_CLOSED:
        free(dwell_data(engine, event->handle));
        break;
    }
}

int main(int count, char **arguments) {
    dwell_options options = {.size = sizeof options};
    dwell_engine *engine;
    dwell_batch batch;
    uint16_t port;
    dwell_options_default(&options);
    options.idle_timeout_ms = 30000;
    options.h2c = true;
    if (dwell_engine_new(&options, &engine) != DWELL_OK)
        return 1;
    if (dwell_engine_listen(engine, count > 1 ? arguments[1] : "127.0.0.1:0", &port) != DWELL_OK)
        return 1;
    printf("port %u\n", port);
    fflush(stdout);
    while (dwell_engine_turn(engine, NULL, 0, -1, &batch) == DWELL_OK)
        for (size_t place = 0; place < batch.count; place++)
            handle(engine, &batch, place);
    dwell_engine_free(engine);
    return 1;
}
