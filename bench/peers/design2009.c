/*
 * The design of 2009 as a peer: libevent's HTTP server, one blocking libmemcached get per request.
 *
 * The path without its query is the key; a hit is answered 200 with the value, anything else 404
 * (the original dropped the connection, which no load generator can tell from a failure). One
 * thread, keep-alive to clients and to memcached.
 *
 * Usage: design2009 PORT MEMCACHED_PORT..., on 127.0.0.1 only.
 */
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES_MAX = 125 };

static const char HOST[] = "127.0.0.1";

static void answer(struct evhttp_request *request, void *argument)
{
    memcached_st *servers = argument;
    const char *key = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    size_t key_length = key == NULL ? 0 : strlen(key);
    if (key_length == 0 || key_length > KEY_BYTES_MAX) {
        evhttp_send_error(request, HTTP_BADREQUEST, NULL);
        return;
    }
    size_t value_length;
    uint32_t flags;
    memcached_return_t outcome;
    char *value = memcached_get(servers, key, key_length, &value_length, &flags, &outcome);
    if (outcome != MEMCACHED_SUCCESS) {
        free(value);
        evhttp_send_error(request, HTTP_NOTFOUND, NULL);
        return;
    }
    evbuffer_add(evhttp_request_get_output_buffer(request), value, value_length);
    free(value);
    evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type", "text/plain");
    evhttp_send_reply(request, HTTP_OK, "OK", NULL);
}

static int port_of(const char *text)
{
    char *end;
    long port = strtol(text, &end, 10);
    if (*end != '\0' || port < 1 || port > 65535) {
        fprintf(stderr, "not a port: %s\n", text);
        exit(2);
    }
    return (int)port;
}

int main(int count, char **arguments)
{
    if (count < 3) {
        fputs("usage: design2009 PORT MEMCACHED_PORT...\n", stderr);
        return 2;
    }
    memcached_st *servers = memcached_create(NULL);
    memcached_behavior_set(servers, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
    for (int index = 2; index < count; index++)
        memcached_server_add(servers, HOST, (in_port_t)port_of(arguments[index]));

    struct event_base *base = event_base_new();
    struct evhttp *http = evhttp_new(base);
    evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST);
    evhttp_set_gencb(http, answer, servers);
    if (evhttp_bind_socket(http, HOST, (unsigned short)port_of(arguments[1])) != 0) {
        perror("bind");
        return 1;
    }
    return event_base_dispatch(base) == 0 ? 0 : 1;
}
