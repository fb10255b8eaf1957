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
    "Bytes of the body of a forwarded request. Beyond it: 413, or the connection is closed."
    "limits".limits.poll_body_bytes_max = Size(0, GIB);
    "Bytes of the body of a poll, kept so that a miss can be forwarded. Beyond it: 413."
    "limits".limits.gathered_bytes_max = Size(MIB, 1024 * GIB);
    "Bytes, for the whole process, of requests whose body has not arrived completely, and of \
     bodies, WebSockets and tunnels on HTTP/2 streams that were not read. Beyond it: 503 with \
     `Retry-After`, or a reset. When less than an eighth is left, the oldest of them are refused."
    "limits".limits.connections_max = Count(1, 100 * MILLION);
    "Open client connections, including WebSockets and tunnels to the application. Beyond it new \
     ones are closed, and WebSockets on HTTP/2 connections get 503."
    "limits".limits.connections_per_address = OrOff(Count(1, MILLION));
    "Open connections of one client address, including WebSockets and tunnels. On HTTP/2 each \
     request in progress counts as one connection. An IPv6 network of 64 bits is one address. \
     Beyond it new connections are closed at once, and HTTP/2 requests get 429. The address is \
     that of the connection: behind a proxy, leave this off or name the proxy in \
     `server.trusted_proxies`. Connections of those proxies and of the memcached port are not \
     counted."
    "limits".limits.requests_per_connection_max = Count(1, 1000 * MILLION);
    "Requests on one connection before it is closed."
    "limits".limits.waiters_max = Count(0, 100 * MILLION);
    "Held polls, and keys of open event streams and WebSockets. Beyond it: 503 with `Retry-After`, \
     or an error frame. Polls that do not wait still get a response."
    "limits".limits.rate_buckets = Count(64, 16 * MILLION);
    "Client addresses and keys whose requests are counted at the same time, eight bytes each. If \
     more are active, Dwell forgets those with the fewest requests."
    "limits".limits.stale_bytes_max = Size(0, 1024 * GIB);
    "Bytes of the last known values, with their overhead, for `stale_if_error` and \
     `stale_while_revalidate`. Beyond it Dwell drops those that were not asked for. 0 keeps no \
     values."
    "limits".limits.stream_heartbeat = TimeSpan(TICK, HOUR);
    "Time after which a quiet event stream gets a comment, so that no proxy takes it for dead: at \
     random from three fourths to five fourths of this."
    "limits".limits.stream_lifetime = TimeSpan(TICK, DAY);
    "Longest life of an event stream. Dwell ends it at random from three fourths of this on, and \
     the client reconnects."
    "limits".limits.websocket_message_bytes_max = Size(128, GIB);
    "Bytes of one message from a WebSocket client. Beyond it the connection is closed with 1009."
    "limits".limits.websocket_messages_rate = OrOff(Written("rate such as `\"20/s\"`"));
    "Messages that one WebSocket client may send. A message that names several keys counts once \
     for each of them. Beyond it the connection is closed with 1008."
    "limits".limits.header_timeout = TimeSpan(TICK, HOUR);
    "From the first byte of a request to the end of its header section. Beyond it: 408."
    "limits".limits.body_timeout = TimeSpan(TICK, HOUR);
    "How long a client may take to send a body, beside the time that its bytes take at \
     `body_rate_min`, and how long it may pause. Time in which the application does not read does \
     not count. Beyond it: 408."
    "limits".limits.body_rate_min = Count(0, 1000 * MILLION);
    "Average rate, in bytes a second, at which a client must send a body. A body of N bytes may \
     take `body_timeout` and N / `body_rate_min` seconds. With 0 one byte in each `body_timeout` \
     is enough."
    "limits".limits.idle_timeout = TimeSpan(TICK, DAY);
    "How long a kept-alive connection may be without a request. Beyond it the connection is closed."
    "limits".limits.write_timeout = TimeSpan(TICK, HOUR);
    "How long a client may read nothing of a response, or less than `write_rate_min` requires. \
     Beyond it the connection is closed."
    "limits".limits.write_rate_min = Count(0, 1000 * MILLION);
    "Average rate, in bytes a second over a `write_timeout`, at which a client must read a \
     response that waits for it; for clients of the store, over a minute. With 0 one byte in that \
     time is enough."
    "limits".limits.output_bytes_max = Size(MIB, 1024 * GIB);
    "Bytes of responses and events that clients have not read yet, for the whole process. Data \
     that many of them share counts once. Beyond it the slowest clients are disconnected."
    "limits".limits.drain_timeout = TimeSpan(Duration::ZERO, HOUR);
    "Longest time from SIGTERM to the exit, for requests and waits in progress."
    "limits".limits.upgrade_timeout = TimeSpan(TICK, HOUR);
    "Longest time from SIGUSR2 until the new process serves. Beyond it the new process is ended, \
     and the old one continues."
}
