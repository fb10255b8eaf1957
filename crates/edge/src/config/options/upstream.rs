//! Options of `[upstream]`.

use super::bounds::{DAY, GIB, HOUR, KIB, MIB, MILLION, SECOND, TICK};
use crate::config::Config;
use crate::config::codec::{Count, FilePath, ManyOrOff, Name, OrOff, Prefix, Size, TimeSpan, Url};

options! {
    OPTIONS for Config:
    "upstream".upstream.url ["--upstream"] = ManyOrOff(Url);
    "Address of the application, `http` or `https`. With several servers each request goes to the \
     one with the fewest requests in progress, among those in use. With `\"off\"` Dwell responds \
     with 404 instead of forwarding."
    "upstream".upstream.tls_ca = OrOff(FilePath);
    "For `https`: PEM file with the certificates that are trusted, of authorities or of servers. \
     `\"off\"` trusts those that the system trusts. A reload reads the files again."
    "upstream".upstream.tls_server_name = OrOff(Name);
    "The name that the certificates of the servers must have. `\"off\"` is the host of each."
    "upstream".upstream.tls_certificate = OrOff(FilePath);
    "PEM file with the certificate chain that is sent to servers which ask for one."
    "upstream".upstream.tls_key = OrOff(FilePath);
    "PEM file with its private key."
    "upstream".upstream.default_host = Name;
    "The `Host` of requests whose client names none, as HTTP/1.0 allows, and of those whose \
     responses fill the cache."
    "upstream".upstream.connect_timeout = TimeSpan(TICK, HOUR);
    "How long one connection attempt may take. Beyond it: 502."
    "upstream".upstream.header_timeout = TimeSpan(TICK, HOUR);
    "From the request sent to the header section of the response. Beyond it: 504."
    "upstream".upstream.total_timeout = TimeSpan(TICK, DAY);
    "From the request sent to the end of the response to a poll, and to the header section of any \
     other response. Beyond it: 504."
    "upstream".upstream.stall_timeout = TimeSpan(TICK, DAY);
    "How long a response that is passed on may bring no data, and a request body may not be taken. \
     Beyond it: 504, or the client's connection is closed."
    "upstream".upstream.tunnel_timeout = TimeSpan(TICK, DAY);
    "How long an upgraded connection may pass no data. Beyond it the connection is closed."
    "upstream".upstream.window_bytes = Size(4 * KIB, 512 * KIB);
    "Body bytes of one message, in each direction, that are read before the other side has taken \
     them."
    "upstream".upstream.request_buffer_bytes = Size(0, 16 * MIB);
    "Body bytes of a request that Dwell reads before the request takes a connection: all of a body \
     that is no longer, the beginning of any other. So slow clients occupy no connections. With 0 \
     every body is passed on as it arrives, and `Expect: 100-continue` too."
    "upstream".upstream.connections_max = Count(1, MILLION);
    "Open connections to one server, without those of transfers. Beyond it requests wait for one \
     to become free. Clients take turns: however many requests one of them has waiting, another's \
     first is the next but one. A client has at most four of them for each that is free, so that a \
     fifth is left to others."
    "upstream".upstream.transfers_max = Count(0, MILLION);
    "Transfers with one server, beside `connections_max`: connections on which a request body is \
     being passed on, or a response (a download, an event stream). Beyond it, or beyond four of \
     one client for each that is free, they count among `connections_max`."
    "upstream".upstream.queue_max = Count(0, MILLION);
    "Requests that wait for a connection to one server. Beyond it the client with the most waiting \
     requests gets 503 with `Retry-After` for its newest."
    "upstream".upstream.queue_timeout = TimeSpan(TICK, HOUR);
    "How long a request may wait for a connection. Beyond it: 503 with `Retry-After`."
    "upstream".upstream.idle_max = Count(0, MILLION);
    "Unused connections to one server that are kept open."
    "upstream".upstream.idle_timeout = TimeSpan(TICK, HOUR);
    "How long an unused connection is kept open."
    "upstream".upstream.failures_max = Count(1, 1000);
    "Failures after which one of several servers is left out for a while: at first up to a second, \
     up to ten in the end. Then one request, or the next health check, tries it. These count: \
     connection attempts in a row; health checks in a row; requests without a response within \
     `failures_window`, if the last request of more than half of the paths, and of the clients, \
     had no response. For requests without a response at most half of the servers are left out. \
     While no server is in use, Dwell tries all whose health checks do not fail."
    "upstream".upstream.failures_window = TimeSpan(SECOND, HOUR);
    "How long a request counts for `failures_max`."
    "upstream".upstream.health_path = OrOff(Prefix);
    "The path that each event loop requests from every server by GET, every `health_interval`. A \
     response of 400 or above, or no response, is a failed health check, and only a better one \
     brings a server back. While the health checks of all servers fail: 503 with `Retry-After`."
    "upstream".upstream.health_interval = TimeSpan(TICK, HOUR);
    "Time between two health checks, and the longest time that one may take."
    "upstream".upstream.answer_bytes_max = Size(KIB, 1024 * GIB);
    "Bytes of a response that polls share. A larger one is passed on to one of them."
    "upstream".upstream.answer_head_bytes_max = Size(256, MIB);
    "Bytes of the status line and the header section of a response. Beyond it: 502."
    "upstream".upstream.answer_header_count_max = Count(1, 128);
    "Header fields of one response. Beyond it: 502."
}
