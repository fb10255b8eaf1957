// Dwell: HTTP, WebSocket and raw streams for hosts that have a scheduler of their own.
//
// Made from bindings/capi by cbindgen; do not edit it.
//
// A host makes an engine, turns it, and answers what a turn tells. Nothing calls back.
//
//     dwell_engine *engine;
//     dwell_batch batch;
//     dwell_engine_new(NULL, &engine);
//     dwell_engine_listen(engine, "127.0.0.1:8080", NULL);
//     while (dwell_engine_turn(engine, NULL, 0, -1, &batch) == DWELL_OK)
//         for (size_t i = 0; i < batch.count; i++)
//             if (batch.events[i].kind == DWELL_REQUEST)
//                 dwell_answer(engine, batch.events[i].handle, 200, 0, NULL, 0,
//                              (const uint8_t *)"hello", 5);
//
// Waiting: a host that waits by itself watches dwell_engine_fileno for input, takes turns with a
// timeout of 0 until one tells nothing and wait_ms is not 0, and takes the next one not later than
// wait_ms says. The descriptor tells nothing of what orders between two turns have brought about:
// after them dwell_engine_wait_ms says how long the next turn may wait.
//
// Ownership: what dwell_..._new and dwell_engine_remote return is the caller's, to be freed once by
// the function of the same name. What a batch points to is the engine's, until its next turn.
// Everything that is passed in is copied before a call returns, and may be part of a batch; but
// descriptors: one that is given to an engine is the engine's from then on, whatever is returned.
//
// Threads: an engine may move from thread to thread, but has room for one at a time; a second one
// is refused with DWELL_BUSY. A dwell_remote and a dwell_tls may be used by all threads at once.
//
// Signals: nothing that a client does raises SIGPIPE in the host, whatever the host has it do: a
// write to a client that has gone only ends that connection. The engine changes no signal's action,
// and blocks SIGPIPE in the thread that turns it only while the system copies a piece of a file. A
// descriptor that dwell_engine_take_descriptor returned is the host's: use MSG_NOSIGNAL there.
//
// Handles: 64 bits that name a request, a connection, a WebSocket or a raw stream. An order for one
// that names nothing any more returns DWELL_STALE. Of one kind a handle comes again when its place
// in the engine's table has had sixteen million others: forget it when its end is told.
//
// TLS: dwell_tls_new reads certificates, with which an engine listens or serves a client that was
// accepted elsewhere; dwell_tls_reload reads their files again. Requests have DWELL_SECURE then.
// TLS 1.3 and 1.2 are spoken, and http/1.1 or h2 is agreed on where a client asks (ALPN). Clients may
// be asked for a certificate, and with reports_handshakes the end of each handshake is told.
//
// HTTP/2: with the option h2c it is spoken without TLS, to clients that begin with it, and with
// http2 under TLS, to those that choose it. Each stream is a request of its own, whose flags have
// DWELL_HTTP2, and whose event names the connection that all of them came on. Answer it by
// dwell_answer, or by dwell_begin, dwell_write and dwell_finish. An order to abort or to close it
// ends its stream; one for the connection ends all of them.
//
// Data: dwell_set_data keeps a pointer of the host's with a handle, and dwell_data returns it, also
// when the end of the handle is told; a new handle has none.
//
// Null: a null engine, remote or result returns DWELL_INVALID or does nothing; null bytes are no
// bytes. No entry unwinds or aborts: a fault within returns DWELL_BROKEN from then on.
//
// Orders: besides the functions that order one thing, orders can be written behind one another, and
// be given to dwell_engine_turn, dwell_engine_submit or, from any thread, dwell_remote_submit. Each
// is a header of 32 bytes in the machine's order, then `fields_length` bytes of field lines, then
// the other bytes, then zeros up to a multiple of 8:
//
//     uint16_t operation, status; uint32_t flags; uint64_t handle, argument;
//     uint32_t fields_length, length (of fields and bytes together);
//
// Operations: 1 write (flags, argument: mark of a raw stream, fields: trailers, with
// DWELL_FINISH), 2 answer (status, flags, fields), 3 begin (status, flags, argument: length or
// UINT64_MAX, fields), 4 informational (status, fields), 5 grant (argument: bytes), 6 abort, 7
// close (status: code; bytes: reason), 8 detach, 9 upgrade (flags, fields, bytes: head), 10 send
// (flags: 1 for text; argument: mark), 11 ping, 12 pause, 13 resume. A connection whose order
// cannot be carried out, for another reason than that it is gone, is closed; but a ping without
// room is left out.
//
// A request in a batch: the bytes of its event are the head, the peer's address as text and, from
// `detail` on and not aligned, a table of uint32_t: flags, bytes of the head, start and length of
// method, target and peer address, count of fields, content length (low half, high half), for each
// field start and length of name and value, and with DWELL_NAMED those of the name that the client
// has asked for. dwell_engine_request reads it for you.


#ifndef DWELL_H
#define DWELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The outcome of a call. Numbers are never given again.
typedef enum dwell_status {
  // It was done.
  DWELL_OK = 0,
  // The handle names nothing any more; nothing was done.
  DWELL_STALE = 1,
  // It does not fit what the handle names, or not now; nothing was done.
  DWELL_MISPLACED = 2,
  // The peer takes no more for now; nothing was done.
  DWELL_FULL = 3,
  // Bytes that should be orders or a request cannot be read.
  DWELL_MALFORMED = 4,
  // An argument is null, or has no such value.
  DWELL_INVALID = 5,
  // The system refused; dwell_last_error returns its error.
  DWELL_SYSTEM = 6,
  // Another thread is inside this engine.
  DWELL_BUSY = 7,
  // The engine has failed for good, by an error of its own; it can only be freed.
  DWELL_BROKEN = 8,
  // The request has no such field, or the client has shown no such certificate.
  DWELL_ABSENT = 9,
  // A certificate or its key cannot be used; dwell_last_error returns why.
  DWELL_CERTIFICATE = 10,
} dwell_status;

// The kind of an event. Numbers are never given again.
typedef enum dwell_event_kind {
  // A request came; an answer is owed to its handle, which is new. `other` is its connection.
  DWELL_REQUEST = 1,
  // A piece of the body of a request.
  DWELL_BODY = 2,
  // The body of a request is complete; the bytes are trailer fields, `name:value` and a line
  // feed each. The end of a chunked body comes only while some of it is granted.
  DWELL_BODY_END = 3,
  // All that was written is out, after a write with DWELL_NOTIFY; or, of WebSocket and raw
  // streams, after a time in which something was not. Of those, `detail` is the last mark that
  // they were given with what is out; 0 if there was none.
  DWELL_WRITABLE = 4,
  // The client of a request has ended its sending side. It may still read an answer.
  DWELL_PEER_CLOSED = 5,
  // The client has left: the handle names nothing from now on.
  DWELL_GONE = 6,
  // The connection of a request has left the engine: take it with
  // dwell_engine_take_descriptor before the next turn, in which it is closed. The bytes are
  // what was read and not handed over: what is left of the body, as it came, and what the
  // client has sent behind its request.
  DWELL_DETACHED = 7,
  // A client has connected; the handle is of the connection.
  DWELL_OPENED = 8,
  // A client is gone, or its connection has left HTTP.
  DWELL_CLOSED = 9,
  // A request has become a WebSocket: `other` is the handle it had.
  DWELL_WEBSOCKET_OPENED = 10,
  // A WebSocket message; `detail` is 1 for text and 2 for binary.
  DWELL_WEBSOCKET_MESSAGE = 11,
  // A pong came on a WebSocket.
  DWELL_WEBSOCKET_PONG = 12,
  // A WebSocket has ended; `detail` is the close code, the bytes are the reason.
  DWELL_WEBSOCKET_CLOSED = 13,
  // Bytes came on a raw stream.
  DWELL_STREAM_DATA = 14,
  // The peer of a raw stream sends no more; it may still read.
  DWELL_STREAM_PEER_CLOSED = 15,
  // A raw stream has ended; `detail` is 0 where it was in order.
  DWELL_STREAM_CLOSED = 16,
  // A handshake was refused and answered; `detail` is the status. The handle names nothing from
  // now on.
  DWELL_UPGRADE_REFUSED = 17,
  // The handshake of a client under TLS is complete, before its first request; the handle is of
  // the connection. dwell_engine_tls_facts and dwell_engine_peer_certificate answer from now on.
  DWELL_SECURED = 18,
  // The handshake of a client has failed, which ends its connection; the bytes are the reason in
  // words.
  DWELL_INSECURE = 19,
} dwell_event_kind;

// Flags of a request, as bits.
typedef enum dwell_request_flag {
  // The body follows as events.
  DWELL_BODY_FOLLOWS = 1,
  // The version is HTTP/1.0.
  DWELL_HTTP10 = 2,
  // The client keeps the connection open for another request.
  DWELL_KEEP_ALIVE = 4,
  // The client waits for a 100 (Continue) before its body, if that has not come already.
  DWELL_EXPECTS_CONTINUE = 8,
  // The body is chunked, so its length is not known.
  DWELL_CHUNKED = 16,
  // The client speaks TLS: flags >> 16 is the number of its cipher suite, which is from 0x1301
  // to 0x1303 for TLS 1.3 and another one for TLS 1.2. Without TLS it is 0.
  DWELL_SECURE = 32,
  // The client goes on with an earlier session of TLS.
  DWELL_RESUMED = 64,
  // The client has agreed on `http/1.1`, or with DWELL_HTTP2 on `h2` (ALPN).
  DWELL_AGREED = 128,
  // The table of the request ends with the name that the client has asked for (SNI).
  DWELL_NAMED = 256,
  // The request came on a stream of HTTP/2. Its head is written as HTTP/1.1 would have it, with
  // `Transfer-Encoding: chunked` for a body of unknown length, which no client has sent.
  DWELL_HTTP2 = 512,
} dwell_request_flag;

// Flags of a write, as bits.
typedef enum dwell_write_flag {
  // The bytes are the last ones of the answer.
  DWELL_FINISH = 1,
  // The connection closes after the answer.
  DWELL_CLOSE = 2,
  // Reports DWELL_WRITABLE, once, when all is out. It is not reported for a response that this
  // write ends, as its handle names nothing then.
  DWELL_NOTIFY = 4,
} dwell_write_flag;

// Flags of an upgrade, as bits.
typedef enum dwell_upgrade_flag {
  // Pages of any origin may connect, not only those of the same host.
  DWELL_ANY_ORIGIN = 1,
  // Messages are not compressed.
  DWELL_PLAIN = 2,
} dwell_upgrade_flag;

// Clients that are asked for a certificate.
typedef enum dwell_client_certificates {
  // None is asked.
  DWELL_CLIENTS_NOT_ASKED = 0,
  // All are asked; one that shows none is served as well.
  DWELL_CLIENTS_ASKED = 1,
  // All are asked; one that shows none is refused.
  DWELL_CLIENTS_REQUIRED = 2,
} dwell_client_certificates;

// HTTP, WebSocket and raw streams on one loop. Not for two threads at once, but for one after
// another; a second one is refused with DWELL_BUSY.
typedef struct dwell_engine dwell_engine;

// Orders of other threads to one engine. Any number of threads may use it at once, and it may
// outlive the engine.
typedef struct dwell_remote dwell_remote;

// Certificates of servers. All threads may use one at once, and several engines.
typedef struct dwell_tls dwell_tls;

// Limits and events of an engine: set `size`, let dwell_options_default fill in the rest, then
// change the values you want.
typedef struct dwell_options {
  // The size of this struct where the host was compiled, `sizeof(dwell_options)`. Later versions
  // of the library have further options at its end, which are at their defaults for older hosts.
  size_t size;
  // Bytes of a request head, at most 65535.
  uint64_t head_bytes_max;
  // Field lines of a request, at most 128.
  uint64_t field_count_max;
  // Bytes of a request target.
  uint64_t target_bytes_max;
  // Connections held at once.
  uint64_t connections_max;
  // Requests answered on one connection before it is closed.
  uint64_t requests_per_connection_max;
  // Bytes of a body; more gets 413.
  uint64_t body_bytes_max;
  // Bytes of a body that come without a grant.
  uint64_t body_credit;
  // Bytes of an unread body that are read and discarded, so that the connection can go on.
  uint64_t unread_body_bytes_max;
  // Bytes of output that may wait for a peer before more is refused.
  uint64_t output_bytes_max;
  // From the first byte of a request to the end of its head, in milliseconds.
  uint64_t header_timeout_ms;
  // Milliseconds to wait for a body that was granted, besides the time of its bytes at
  // `body_rate_min`.
  uint64_t body_timeout_ms;
  // From an answer to the first byte of the next request.
  uint64_t idle_timeout_ms;
  // Milliseconds for which a peer may take nothing of its queued output.
  uint64_t write_timeout_ms;
  // Bytes of a WebSocket message.
  uint64_t message_bytes_max;
  // The silence after which a WebSocket is sent a ping; 0 for none.
  uint64_t ping_interval_ms;
  // Field names are handed over with capitals at the start and after hyphens.
  bool canonical_names;
  // DWELL_OPENED and DWELL_CLOSED are reported.
  bool reports_connections;
  // A client that has ended its sending side is given its answer all the same.
  bool half_close;
  // The host bounds its own waits: body and write timeouts run for what is left of a request
  // that was answered, not while it is held. WebSockets and raw streams have no write timeout.
  bool host_deadlines;
  // From the beginning of a connection, or the end of its handshake of TLS, to the first byte of
  // its first request; 0 for the idle timeout.
  uint64_t first_request_timeout_ms;
  // Bytes a second that a client sends at least of a body; with 0 a single byte is enough in
  // each `body_timeout_ms`. Bounds nothing while the host has its own deadlines.
  uint64_t body_rate_min;
  // DWELL_SECURED and DWELL_INSECURE are reported.
  bool reports_handshakes;
  // HTTP/2 is spoken without TLS, to clients that begin with it (prior knowledge). Requests on
  // its streams have DWELL_HTTP2. Their answers have to be begun or whole: orders with bytes as
  // they are, and dwell_detach, end the stream.
  bool h2c;
  // HTTP/2 is offered to clients under TLS (`h2`, by ALPN), and spoken to those that choose it.
  // All else is as with `h2c`.
  bool http2;
  // Clients may open WebSockets on streams of HTTP/2 (RFC 8441), which browsers then do: the
  // request is that of HTTP/1.1, and dwell_upgrade accepts it.
  bool websocket_streams;
  // The host tells by dwell_done when it has done with a request of HTTP/2 that was told as
  // DWELL_GONE, or was upgraded: until then it counts among those that its client may have.
  bool counts_work;
} dwell_options;

// One thing that happened.
typedef struct dwell_event {
  // The request or connection that it happened to.
  uint64_t handle;
  // Another handle, as the kind says.
  uint64_t other;
  // A dwell_event_kind.
  uint32_t kind;
  // A detail, whose meaning the kind defines.
  uint32_t detail;
  // The place in the data of the batch where its bytes begin.
  size_t start;
  // The number of its bytes.
  size_t length;
} dwell_event;

// The events of a turn. Both arrays are the engine's and live until its next turn, or its end.
typedef struct dwell_batch {
  // The events, in order.
  const struct dwell_event *events;
  // The number of events.
  size_t count;
  // The bytes that they speak of.
  const uint8_t *data;
  // The number of bytes.
  size_t data_length;
  // Milliseconds that the next turn may wait at most; 0 when work is left, -1 for ever. Orders
  // that are given meanwhile may shorten it: dwell_engine_wait_ms returns the new value.
  int64_t wait_ms;
} dwell_batch;

// Counters of an engine since its start, and its current sizes.
typedef struct dwell_statistics {
  // Clients that were given a place.
  uint64_t accepted;
  // Clients that were turned away.
  uint64_t refused;
  // Requests that were handed over.
  uint64_t requests;
  // Requests that the engine answered by itself.
  uint64_t rejected;
  // Clients that took nothing of their answer for too long.
  uint64_t write_timeouts;
  // Orders whose handle named nothing any more.
  uint64_t stale;
  // Requests whose response is owed now.
  uint64_t held;
  // HTTP connections open now.
  uint64_t connections;
  // WebSockets open now.
  uint64_t websockets;
  // Raw streams open now.
  uint64_t streams;
  // Turns that were taken.
  uint64_t turns;
} dwell_statistics;

// The facts of a handshake that is over. Set `size` before the call.
typedef struct dwell_tls_facts {
  // The size of this struct where the host was compiled, `sizeof(dwell_tls_facts)`.
  size_t size;
  // The version: 0x0304 for TLS 1.3, 0x0303 for TLS 1.2.
  uint16_t version;
  // The number of the cipher suite.
  uint16_t cipher_suite;
  // An earlier session goes on.
  bool is_resumed;
  // The client has agreed on `http/1.1`, or `h2` where that is offered (ALPN).
  bool has_protocol;
  // The engine has verified the client's certificate.
  bool is_verified;
  // The number of certificates that the client has shown.
  size_t certificate_count;
  // The name that the client has asked for (SNI), with a zero behind it; empty for none, and
  // where `keeps_server_names` was not set.
  char server_name[256];
} dwell_tls_facts;

// Bytes that belong to another object.
typedef struct dwell_span {
  // The first of them.
  const uint8_t *start;
  // The number of bytes.
  size_t length;
} dwell_span;

// A request as it lies in a batch.
typedef struct dwell_request {
  // The head, the empty line included.
  struct dwell_span head;
  // The method.
  struct dwell_span method;
  // The request target as it came.
  struct dwell_span target;
  // The client's address as text; empty over a unix socket.
  struct dwell_span peer_address;
  // The number of field lines.
  size_t field_count;
  // The announced length of the body; 0 where it is chunked.
  uint64_t content_length;
  // Bits of dwell_request_flag, and the number of the cipher suite in the upper 16.
  uint32_t flags;
} dwell_request;

// A certificate and its private key in PEM, in files or in memory. Its layout never changes. The
// first certificate is that of the server, and those that vouch for it follow.
typedef struct dwell_certificate {
  // The path of the file with the certificates; null if they are in memory.
  const char *certificate_file;
  // The path of the file with the key, which may be the same; null if it is in memory.
  const char *key_file;
  // The certificates, where both paths are null.
  struct dwell_span certificate;
  // The key, where both paths are null.
  struct dwell_span key;
} dwell_certificate;

// Certificates and limits of TLS: set `size`, let dwell_tls_options_default fill in the rest, then
// set the certificates.
typedef struct dwell_tls_options {
  // The size of this struct where the host was compiled, `sizeof(dwell_tls_options)`.
  size_t size;
  // The certificates. A client gets the one for the name that it asks for: one with exactly this
  // name, then one with a wildcard for it. The first is for all other clients.
  const struct dwell_certificate *certificates;
  // The number of certificates, at least one.
  size_t certificate_count;
  // Handshakes that may be under way at once in each engine; beyond it the oldest gives way.
  uint64_t handshakes_max;
  // One of dwell_client_certificates. Sessions are not resumed where clients are asked.
  uint64_t client_certificates;
  // The path of the PEM file with the authorities that issue certificates of clients; null if
  // they are in memory. A certificate of another one, or one that has expired, is refused.
  const char *client_ca_file;
  // The authorities in PEM, where the path is null.
  struct dwell_span client_ca;
  // The names that clients ask for (SNI) are kept, for dwell_tls_facts. It takes some hundred
  // bytes of each connection that asks.
  bool keeps_server_names;
  // The engine has clients prove that they have the key of their certificate, and verifies
  // nothing else: the host does, when DWELL_SECURED is told, and aborts the connection of a
  // client that it does not trust. There must be no authorities then.
  bool host_verifies;
} dwell_tls_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Keeps a pointer of the host's with a request, a connection, a WebSocket or a raw stream; null
// removes it. The engine never reads through it and never frees what it points to.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed.
enum dwell_status dwell_set_data(struct dwell_engine *engine, uint64_t handle, void *data);

// Returns the pointer that dwell_set_data has kept with a handle; null if there is none. It is
// there until another one is kept in the same place of the engine's tables: read it when the end
// of the handle is told, or before the answer to a request is finished.
//
// # Safety
// As `dwell_set_data`.
void *dwell_data(struct dwell_engine *engine, uint64_t handle);

// Fills in the defaults of as many options as `size` has room for, and makes it the size of those
// that this library has. `options` must not be null; without its `size` it is refused.
//
// # Safety
// `options` must be null, or readable and writable for as many bytes as its `size` says.
enum dwell_status dwell_options_default(struct dwell_options *options);

// Makes an engine that listens nowhere. Free it with dwell_engine_free. `options` may be null for
// the defaults; some that cannot be return DWELL_INVALID, and so does a `size` that is not one of
// dwell_options_default.
//
// # Safety
// `options` must be null, or readable for as many bytes as its `size` says, and `engine` null or
// writable.
enum dwell_status dwell_engine_new(const struct dwell_options *options,
                                   struct dwell_engine **engine);

// Frees an engine and closes everything it has. Nothing for null. No thread may be inside it.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed yet.
void dwell_engine_free(struct dwell_engine *engine);

// Returns the descriptor to wait on; -1 for null. It is readable when the next turn has an event
// that is not a deadline. It stays the engine's. Any thread may call this.
//
// # Safety
// As `dwell_engine_free`.
int dwell_engine_fileno(const struct dwell_engine *engine);

// Listens on a TCP address such as `127.0.0.1:8080` or `[::]:0`; `port`, which may be null, is
// given the port.
//
// # Safety
// `engine` as for `dwell_engine_free`; `address` must be null or end with a zero.
enum dwell_status dwell_engine_listen(struct dwell_engine *engine,
                                      const char *address,
                                      uint16_t *port);

// Listens on a unix socket at this path, in the place of one on which nothing listens. The engine
// removes its file when it listens no more.
//
// # Safety
// `engine` as for `dwell_engine_free`; `path` must be null or end with a zero.
enum dwell_status dwell_engine_listen_unix(struct dwell_engine *engine, const char *path);

// Accepts the clients of a TCP socket that listens already. The descriptor is the engine's from
// now on, whatever is returned.
//
// # Safety
// `engine` as for `dwell_engine_free`; no other code may close the descriptor.
enum dwell_status dwell_engine_adopt_listener(struct dwell_engine *engine, int descriptor);

// Serves a client that was accepted elsewhere. The descriptor is the engine's from now on,
// whatever is returned; `connection`, which may be null, is given its name.
//
// # Safety
// As `dwell_engine_adopt_listener`; `connection` must be null or writable.
enum dwell_status dwell_engine_adopt(struct dwell_engine *engine,
                                     int descriptor,
                                     uint64_t *connection);

// Takes over a connected stream that speaks no HTTP, with the bytes that were read from it
// already, which are copied. The descriptor is the engine's from now on, whatever is returned;
// `stream`, which may be null, is given its name.
//
// # Safety
// As `dwell_engine_adopt`; `length` bytes must be readable at `input`, unless it is null.
enum dwell_status dwell_engine_adopt_stream(struct dwell_engine *engine,
                                            int descriptor,
                                            const uint8_t *input,
                                            size_t length,
                                            uint64_t *stream);

// Carries out orders, then waits once, for at most `timeout_ms` milliseconds (-1: until an event),
// and returns the events since the last turn. `commands` may be null for no orders; their forms
// are described above. If it returns anything but DWELL_OK the batch is empty, and no turn was
// taken.
//
// # Safety
// `engine` as for `dwell_engine_free`; `length` bytes must be readable at `commands`, unless it is
// null; `batch` must be null or writable.
enum dwell_status dwell_engine_turn(struct dwell_engine *engine,
                                    const uint8_t *commands,
                                    size_t length,
                                    int64_t timeout_ms,
                                    struct dwell_batch *batch);

// Returns for how many milliseconds the next turn may wait at most, after all orders since the
// last one; 0 when work is left, -1 for ever, as for an engine that is null, busy or broken.
//
// # Safety
// As `dwell_engine_free`.
int64_t dwell_engine_wait_ms(struct dwell_engine *engine);

// Carries out orders without a turn. `stale`, which may be null, is given how many of them named
// nothing any more; `wait_ms`, which may be null, for how long the next turn may wait.
//
// # Safety
// As `dwell_engine_turn`; `stale` and `wait_ms` must be null or writable.
enum dwell_status dwell_engine_submit(struct dwell_engine *engine,
                                      const uint8_t *commands,
                                      size_t length,
                                      uint64_t *stale,
                                      int64_t *wait_ms);

// Writes a part of a file into an answer or its bytes, which the system copies by itself. The
// descriptor of the file is the engine's from now on, whatever is returned.
//
// # Safety
// As `dwell_engine_adopt_listener`.
enum dwell_status dwell_engine_write_file(struct dwell_engine *engine,
                                          uint64_t handle,
                                          uint32_t flags,
                                          int descriptor,
                                          uint64_t offset,
                                          uint64_t length);

// Takes the connection of a DWELL_DETACHED event: a blocking socket, the caller's to close; -1
// without one, or if the client speaks TLS, whose keys are the engine's.
//
// # Safety
// As `dwell_engine_free`.
int dwell_engine_take_descriptor(struct dwell_engine *engine, uint64_t handle);

// The address that the client of a request or a connection has connected to, as text: copies as
// much of it to `text` as fits into `size` bytes with a zero behind it.
//
// # Safety
// `engine` as for `dwell_engine_free`; `text` must be null or have room for `size` bytes.
enum dwell_status dwell_engine_local_address(struct dwell_engine *engine,
                                             uint64_t handle,
                                             char *text,
                                             size_t size);

// Stops listening and lets everything come to its end: connections with their next answer,
// WebSockets with a close frame. Turn until dwell_engine_statistics has none left.
//
// # Safety
// As `dwell_engine_free`.
enum dwell_status dwell_engine_drain(struct dwell_engine *engine);

// Closes everything that is left at once; the next turn has the events of that.
//
// # Safety
// As `dwell_engine_free`.
enum dwell_status dwell_engine_close_all(struct dwell_engine *engine);

// Writes the counters since the start, and the current sizes, to `statistics`.
//
// # Safety
// `engine` as for `dwell_engine_free`; `statistics` must be null or writable.
enum dwell_status dwell_engine_statistics(struct dwell_engine *engine,
                                          struct dwell_statistics *statistics);

// Writes the facts of the TLS of a request or a connection. Returns DWELL_ABSENT without TLS, and
// before the handshake is over.
//
// # Safety
// `engine` as for `dwell_engine_free`; `facts` must be null, or readable and writable for as many
// bytes as its `size` says.
enum dwell_status dwell_engine_tls_facts(struct dwell_engine *engine,
                                         uint64_t handle,
                                         struct dwell_tls_facts *facts);

// Points `certificate` to a certificate in DER that the client of a request or a connection has
// shown: that of the client has the place 0. The bytes are the engine's, and live until its next
// turn or its end. Returns DWELL_ABSENT where there is none at this place.
//
// The client chooses those at the other places, and they need not vouch for the first.
//
// # Safety
// `engine` as for `dwell_engine_free`; `certificate` must be null or writable.
enum dwell_status dwell_engine_peer_certificate(struct dwell_engine *engine,
                                                uint64_t handle,
                                                size_t place,
                                                struct dwell_span *certificate);

// The subject of the certificate that the client of a request or a connection has shown, as RFC
// 4514 writes it: `CN=alice,O=Example`. Copies as much of it to `text` as fits into `size` bytes
// with a zero behind it. Returns DWELL_ABSENT where there is none. With `host_verifies` nobody has
// verified the certificate before your host has.
//
// # Safety
// `engine` as for `dwell_engine_free`; `text` must be null or have room for `size` bytes.
enum dwell_status dwell_engine_peer_subject(struct dwell_engine *engine,
                                            uint64_t handle,
                                            char *text,
                                            size_t size);

// Sends a whole answer, which the engine frames: `fields` are those but for framing, `name:value`
// and a line feed each. Of the flags DWELL_CLOSE alone counts.
//
// A line feed ends a field wherever it is, so a value that came from elsewhere and has one goes on
// as another field: check such values first. A carriage return or a zero within a value is sent as
// a space. A line without a colon, or whose name is not a token, is left out.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed;
// what a length stands behind must be null, or have so many readable bytes.
enum dwell_status dwell_answer(struct dwell_engine *engine,
                               uint64_t handle,
                               uint16_t status,
                               uint32_t flags,
                               const uint8_t *fields,
                               size_t fields_length,
                               const uint8_t *body,
                               size_t body_length);

// Begins an answer, which the engine frames, and whose body dwell_write brings: of `length` bytes,
// or in chunks for UINT64_MAX. Of the flags DWELL_CLOSE alone counts.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed;
// what a length stands behind must be null, or have so many readable bytes.
enum dwell_status dwell_begin(struct dwell_engine *engine,
                              uint64_t handle,
                              uint16_t status,
                              uint32_t flags,
                              const uint8_t *fields,
                              size_t fields_length,
                              uint64_t length);

// Writes bytes, which are copied: of an answer that was begun, as the body; of one that was not,
// as the answer just as it is, status line and all; of a raw stream, as they are.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed;
// what a length stands behind must be null, or have so many readable bytes.
enum dwell_status dwell_write(struct dwell_engine *engine,
                              uint64_t handle,
                              uint32_t flags,
                              const uint8_t *data,
                              size_t data_length);

// Ends an answer that was begun. `trailers` are fields as of dwell_answer, which come behind a
// body that was begun without a length, or on a stream of HTTP/2, and nowhere else.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed;
// what a length stands behind must be null, or have so many readable bytes.
enum dwell_status dwell_finish(struct dwell_engine *engine,
                               uint64_t handle,
                               const uint8_t *trailers,
                               size_t trailers_length);

// Sends an informational answer before the final one.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed;
// what a length stands behind must be null, or have so many readable bytes.
enum dwell_status dwell_informational(struct dwell_engine *engine,
                                      uint64_t handle,
                                      uint16_t status,
                                      const uint8_t *fields,
                                      size_t fields_length);

// Lets so many more bytes of a body come; the first call sends a 100 (Continue) that the client
// waits for. The end of a chunked body comes only while some are granted.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed.
enum dwell_status dwell_grant(struct dwell_engine *engine, uint64_t handle, uint64_t count);

// Ends the connection of anything at once, whatever is queued for it.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed.
enum dwell_status dwell_abort(struct dwell_engine *engine, uint64_t handle);

// Closes in order, behind what is queued: a WebSocket with a close frame of this code (0 for none)
// and reason, which must be UTF-8; of a request, the connection, whose answer is cut off.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed;
// what a length stands behind must be null, or have so many readable bytes.
enum dwell_status dwell_close(struct dwell_engine *engine,
                              uint64_t handle,
                              uint16_t code,
                              const uint8_t *reason,
                              size_t reason_length);

// Takes the connection of a request out of the engine, once what was written is out;
// DWELL_DETACHED follows.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed.
enum dwell_status dwell_detach(struct dwell_engine *engine, uint64_t handle);

// Makes a WebSocket of the connection of a request, if the handshake in its head is in order;
// DWELL_WEBSOCKET_OPENED or DWELL_UPGRADE_REFUSED follows. `fields` are further ones of the
// answer. `head` is that of the request; no answer may have been begun.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed;
// what a length stands behind must be null, or have so many readable bytes.
enum dwell_status dwell_upgrade(struct dwell_engine *engine,
                                uint64_t handle,
                                uint32_t flags,
                                const uint8_t *fields,
                                size_t fields_length,
                                const uint8_t *head,
                                size_t head_length);

// Sends a WebSocket message, which is copied; text must be UTF-8. With a `mark` other than 0,
// DWELL_WRITABLE reports it when the message, and all before it, is out, even if that is at once.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed;
// what a length stands behind must be null, or have so many readable bytes.
enum dwell_status dwell_send(struct dwell_engine *engine,
                             uint64_t handle,
                             bool is_text,
                             uint32_t mark,
                             const uint8_t *payload,
                             size_t payload_length);

// Sends a ping of at most 125 bytes on a WebSocket.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed;
// what a length stands behind must be null, or have so many readable bytes.
enum dwell_status dwell_ping(struct dwell_engine *engine,
                             uint64_t handle,
                             const uint8_t *payload,
                             size_t payload_length);

// Stops reading from a WebSocket or a raw stream.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed.
enum dwell_status dwell_pause(struct dwell_engine *engine, uint64_t handle);

// Reads again from a WebSocket or a raw stream.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed.
enum dwell_status dwell_resume(struct dwell_engine *engine, uint64_t handle);

// Tells that the host has done with a request of HTTP/2 to which it gave no last order, because it
// was gone before: with `counts_work`. It does nothing for a request that was answered.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed.
enum dwell_status dwell_done(struct dwell_engine *engine, uint64_t handle);

// Makes the way in from other threads. Free it with dwell_remote_free. Null where the engine is
// null or busy.
//
// # Safety
// `engine` must be null, or come from `dwell_engine_new` and not be freed.
struct dwell_remote *dwell_engine_remote(struct dwell_engine *engine);

// Gives the engine orders, which are copied, and which it carries out in its next turn; ends its
// wait.
//
// # Safety
// `remote` must be null, or come from `dwell_engine_remote` and not be freed; `length` bytes must
// be readable at `commands`, unless it is null.
enum dwell_status dwell_remote_submit(const struct dwell_remote *remote,
                                      const uint8_t *commands,
                                      size_t length);

// Ends the wait of a turn. Nothing for null.
//
// # Safety
// As `dwell_remote_submit`.
void dwell_remote_wake(const struct dwell_remote *remote);

// Frees it. Nothing for null.
//
// # Safety
// `remote` must be null, or come from `dwell_engine_remote` and not be freed yet.
void dwell_remote_free(struct dwell_remote *remote);

// Reads the request of the event at `index` of the last turn. The spans live until the next turn.
//
// # Safety
// `engine` as for `dwell_engine_free`; `request` must be null or writable.
enum dwell_status dwell_engine_request(struct dwell_engine *engine,
                                       size_t index,
                                       struct dwell_request *request);

// Reads field number `field` of the request of the event at `index` of the last turn. The spans
// live until the next turn.
//
// # Safety
// `engine` as for `dwell_engine_free`; `name` and `value` must be null or writable.
enum dwell_status dwell_engine_request_field(struct dwell_engine *engine,
                                             size_t index,
                                             size_t field,
                                             struct dwell_span *name,
                                             struct dwell_span *value);

// Reads the first field of this name, in any case of letters, of the request of the event at
// `index` of the last turn; DWELL_ABSENT if there is none. The span lives until the next turn.
//
// # Safety
// `engine` as for `dwell_engine_free`; `name` must be null or end with a zero, and `value` be null
// or writable.
enum dwell_status dwell_engine_request_header(struct dwell_engine *engine,
                                              size_t index,
                                              const char *name,
                                              struct dwell_span *value);

// A status in words. The text lives for ever.
const char *dwell_status_text(int status);

// The error when a call on this thread last returned DWELL_SYSTEM or DWELL_CERTIFICATE: copies as
// much of its text to `text` as fits into `size` bytes with a zero behind it, and returns the
// number that errno had, or 0. `text` may be null.
//
// # Safety
// `text` must be null or have room for `size` bytes.
int dwell_last_error(char *text, size_t size);

// The version of the library. The text lives for ever.
const char *dwell_version(void);

// Fills in the defaults of as many options as `size` has room for, and makes it the size of those
// that this library has. `options` must not be null; without its `size` it is refused.
//
// # Safety
// `options` must be null, or readable and writable for as many bytes as its `size` says.
enum dwell_status dwell_tls_options_default(struct dwell_tls_options *options);

// Reads certificates. Free the result with dwell_tls_free. Returns DWELL_SYSTEM for a file that
// cannot be read and DWELL_CERTIFICATE for a certificate or a key that cannot be used;
// dwell_last_error says which and why. No certificate, one with only one path and a `size` that is
// not one of dwell_tls_options_default return DWELL_INVALID.
//
// # Safety
// `options` must be null, or readable for as many bytes as its `size` says; its certificates must
// be readable, their paths end with a zero, and `tls` be null or writable.
enum dwell_status dwell_tls_new(const struct dwell_tls_options *options, struct dwell_tls **tls);

// Reads the files again. Clients that connect from now on get the certificates that are in them;
// connections go on. Returns what dwell_tls_new does; after anything but DWELL_OK the certificates
// are those of before.
//
// # Safety
// `tls` must be null, or come from `dwell_tls_new` and not be freed.
enum dwell_status dwell_tls_reload(const struct dwell_tls *tls);

// Frees certificates. Nothing for null. What listens with them goes on.
//
// # Safety
// `tls` must be null, or come from `dwell_tls_new` and not be freed yet, and no other thread may
// be using it.
void dwell_tls_free(struct dwell_tls *tls);

// Listens as dwell_engine_listen does, for clients under TLS. A client that speaks HTTP without it
// gets 400. The certificates may be freed at any time after that.
//
// # Safety
// As `dwell_engine_listen`; `tls` must be null, or come from `dwell_tls_new` and not be freed.
enum dwell_status dwell_engine_listen_tls(struct dwell_engine *engine,
                                          const char *address,
                                          const struct dwell_tls *tls,
                                          uint16_t *port);

// Accepts the clients of a TCP socket as dwell_engine_adopt_listener does, under TLS as
// dwell_engine_listen_tls does.
//
// # Safety
// As `dwell_engine_adopt_listener`; `tls` as for `dwell_engine_listen_tls`.
enum dwell_status dwell_engine_adopt_listener_tls(struct dwell_engine *engine,
                                                  int descriptor,
                                                  const struct dwell_tls *tls);

// Serves a client as dwell_engine_adopt does, under TLS as dwell_engine_listen_tls does. Nothing
// may have been read from it.
//
// # Safety
// As `dwell_engine_adopt`; `tls` as for `dwell_engine_listen_tls`.
enum dwell_status dwell_engine_adopt_tls(struct dwell_engine *engine,
                                         int descriptor,
                                         const struct dwell_tls *tls,
                                         uint64_t *connection);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DWELL_H */
