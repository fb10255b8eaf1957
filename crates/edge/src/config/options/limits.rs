//! Options of `[limits]`.

use super::bounds::{DAY, GIB, HOUR, MIB, MILLION, TICK};
use crate::config::Config;
use crate::config::codec::{Count, OrOff, Size, TimeSpan, Written};
use std::time::Duration;

options! {
    OPTIONS for Config:
    "limits".limits.head_bytes_max = Size(256, MIB);
    "Bytes of the request line and the header section. Beyond it: 431."
    "limits".limits.target_bytes_max = Size(64, MIB);
    "Bytes of the request target. Beyond it: 414."
    "limits".limits.header_count_max = Count(1, 128);
    "Header fields of one request. Beyond it: 431."
    "limits".limits.body_bytes_max = Size(0, 1024 * GIB);
    "Bytes of the body of a forwarded request. Beyond it: 413, or the connection is cut."
    "limits".limits.poll_body_bytes_max = Size(0, GIB);
    "Bytes of the body of a poll, kept so that a miss can be forwarded. Beyond it: 413."
    "limits".limits.gathered_bytes_max = Size(MIB, 1024 * GIB);
    "Bytes of requests whose body has not come yet, as far as it is gathered, and of bodies, \
     WebSockets and tunnels on streams of HTTP/2 that were not read, for the whole process. \
     Beyond it: 503 with `Retry-After`, or a reset, and for the oldest of them when less than an \
     eighth is left."
    "limits".limits.connections_max = Count(1, 100 * MILLION);
    "Open client connections, WebSockets and tunnels to the application among them. Beyond it new \
     ones are closed, and WebSockets on connections of HTTP/2 get 503."
    "limits".limits.connections_per_address = OrOff(Count(1, MILLION));
    "Open connections of one client address, WebSockets and tunnels among them. Of HTTP/2 each \
     request under way counts as one connection. An IPv6 network of 64 bits is one address. Beyond \
     it new connections are closed at once, and requests of HTTP/2 get 429. What counts is who has \
     connected: leave it off behind a proxy, or name that in `server.trusted_proxies`, whose \
     connections are not counted. Nor are those of the memcached port."
    "limits".limits.requests_per_connection_max = Count(1, 1000 * MILLION);
    "Requests on one connection before it is closed."
    "limits".limits.waiters_max = Count(0, 100 * MILLION);
    "Held polls, and keys of open event streams. Beyond it: 503 with `Retry-After`; polls that do \
     not wait are still answered."
    "limits".limits.rate_buckets = Count(64, 16 * MILLION);
    "Client addresses and keys whose requests are counted at the same time, eight bytes each. \
     Where more are active, those that have asked least are forgotten."
    "limits".limits.stale_bytes_max = Size(0, 1024 * GIB);
    "Bytes that last known values take with their overhead, for `stale_if_error` and \
     `stale_while_revalidate`. Beyond it those go that were not asked for; 0 keeps none."
    "limits".limits.stream_heartbeat = TimeSpan(TICK, HOUR);
    "About how often a quiet event stream is sent a comment, so that nothing on the way takes it \
     for dead: at random from three fourths of this to five fourths."
    "limits".limits.stream_lifetime = TimeSpan(TICK, DAY);
    "Longest life of an event stream: at random from three fourths of this on it is ended in \
     order, and its client comes back."
    "limits".limits.websocket_message_bytes_max = Size(128, GIB);
    "Bytes of one message that a WebSocket's client sends. Beyond it the connection is closed with \
     1009."
    "limits".limits.websocket_messages_rate = OrOff(Written("rate such as `\"20/s\"`"));
    "Messages that the client of one WebSocket may send; one that names several keys counts for \
     each of them. Beyond it the connection is closed with 1008."
    "limits".limits.header_timeout = TimeSpan(TICK, HOUR);
    "From the first byte of a request to the end of its header section. Beyond it: 408."
    "limits".limits.body_timeout = TimeSpan(TICK, HOUR);
    "How long a client may take to send a body, beside the time that its bytes take at \
     `body_rate_min`, and how long it may pause. Time in which the application does not read does \
     not count. Beyond it: 408."
    "limits".limits.body_rate_min = Count(0, 1000 * MILLION);
    "Bytes a second that a client sends of a body, on the whole. A body of N bytes may take \
     `body_timeout` and N / `body_rate_min` seconds. 0 asks for a single byte in each \
     `body_timeout`."
    "limits".limits.idle_timeout = TimeSpan(TICK, DAY);
    "How long a kept-alive connection may be without a request. Beyond it: closed."
    "limits".limits.write_timeout = TimeSpan(TICK, HOUR);
    "How long a client may take nothing of an answer, or less than `write_rate_min` asks for. \
     Beyond it: closed."
    "limits".limits.write_rate_min = Count(0, 1000 * MILLION);
    "Bytes a second that a client takes at least of an answer that waits for it, on the average of \
     a `write_timeout`; for clients of the store, of a minute. 0 asks for a single byte in that \
     time."
    "limits".limits.output_bytes_max = Size(MIB, 1024 * GIB);
    "Bytes of answers and events that clients have not taken yet, for the whole process; what many \
     of them share counts once. Beyond it the slowest clients are cut off."
    "limits".limits.drain_timeout = TimeSpan(Duration::ZERO, HOUR);
    "From SIGTERM to the exit, for requests and waits under way."
    "limits".limits.upgrade_timeout = TimeSpan(TICK, HOUR);
    "From SIGUSR2 until the new process serves. Beyond it that is ended, and the old one goes on."
}
