//! The table of options: names, codecs and descriptions.
//!
//! The loader, the `--set` flag, the example file and the reference page are made from it.

use super::codec::{
    AccessLogTarget, BearerToken, Choice, Codec, Count, Fault, FilePath, ManyOrOff, MediaType,
    MemcachedPeer, MethodList, Name, OneOrMany, OrOff, Origin, Permissions, Prefix, Shape, Size,
    SocketAddress, Template, Text, TimeSpan, Truth, Url, UserName, Value, WebOrigin, Written,
};
use super::{Config, EmptyAnswer, IoUring, LogFormat, LogLevel, OnDelete, RouteConfig};
use dwell_proto::memcache::Protocols;
use std::time::Duration;

/// One option of a `T`: a [`Config`] or one of its routes.
pub(super) struct OptionSpec<T> {
    /// Its table in the file.
    pub(super) section: &'static str,
    /// Its name in that table.
    pub(super) name: &'static str,
    /// Its purpose, in Markdown.
    pub(super) about: &'static str,
    /// The equivalent flag, if there is one besides `--set`.
    pub(super) flag: Option<&'static str>,
    /// Conversion of a flag's text.
    pub(super) shape: Shape,
    /// Reads a value into the target.
    pub(super) set: fn(&mut T, &Value<'_>) -> Result<(), Fault>,
    /// Writes the value as TOML.
    pub(super) show: fn(&T) -> String,
    /// Describes the accepted values.
    pub(super) describe: fn() -> String,
    /// Returns true if both targets have the same value.
    pub(super) is_same: fn(&T, &T) -> bool,
    /// Copies the value from the second target to the first.
    pub(super) keep: fn(&mut T, &T),
}

impl<T> OptionSpec<T> {
    /// The name with its table, as in errors and `--set`.
    pub(super) fn full_name(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }
}

/// A table of the file, and its purpose.
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
}

macro_rules! options {
    (
        $(#[$documentation:meta])*
        $table:ident for $target:ty:
        $($section:literal . $($field:ident).+ $([$flag:literal])? = $codec:expr; $about:literal)+
    ) => {
        $(#[$documentation])*
        pub(super) const $table: &[OptionSpec<$target>] = &[$(
            OptionSpec {
                section: $section,
                name: options!(@last $($field)+),
                about: $about,
                flag: options!(@flag $($flag)?),
                shape: shape_of(&$codec, |target: &$target| &target.$($field).+),
                set: |target, value| {
                    target.$($field).+ = $codec.read(value)?;
                    Ok(())
                },
                show: |target| $codec.show(&target.$($field).+),
                describe: || describe(&$codec, |target: &$target| &target.$($field).+),
                is_same: |one, other| one.$($field).+ == other.$($field).+,
                keep: |target, from| target.$($field).+.clone_from(&from.$($field).+),
            },
        )+];
    };
    (@last $field:ident) => { stringify!($field) };
    (@last $first:ident $($rest:ident)+) => { options!(@last $($rest)+) };
    (@flag) => { None };
    (@flag $flag:literal) => { Some($flag) };
}

// The field only tells the compiler the type of the codec's values.
const fn shape_of<S, T, C: Codec<T>>(_: &C, _: fn(&S) -> &T) -> Shape {
    C::SHAPE
}

fn describe<S, T, C: Codec<T>>(codec: &C, _: fn(&S) -> &T) -> String {
    codec.describe()
}

/// The sections in the order of the reference.
pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "server",
        about: "Listeners and loops.",
    },
    Section {
        name: "tls",
        about: "Listeners under TLS 1.3 and 1.2, for HTTP/1.1. Off until there is an address.",
    },
    Section {
        name: "route",
        about: "One path prefix whose requests are polls. Written `[[route]]` and repeated for \
                each prefix; the longest prefix of a request's path wins. Without any, there is \
                one route with the defaults.",
    },
    Section {
        name: "store",
        about: "The embedded store and its memcached listener. Used when `memcached.servers` is \
                empty.",
    },
    Section {
        name: "memcached",
        about: "External memcached servers. Named here, they hold the values instead of the \
                embedded store.",
    },
    Section {
        name: "upstream",
        about: "The application that answers misses and everything that is not a poll. Maxima \
                are for the whole process and divided among the loops.",
    },
    Section {
        name: "publish",
        about: "Values stored and removed over HTTP: under `/-/keys/` on the admin listener, and \
                on routes with `publish = true`. Off until there is a token.",
    },
    Section {
        name: "jwt",
        about: "JSON Web Tokens, for routes with `jwt = true`. Each key is good for the algorithms \
                of its kind only: a secret for HS256, HS384 and HS512; an RSA key for RS and PS; \
                an EC key for ES256 or ES384 by its curve; an Ed25519 key for `EdDSA`. \
                Files are read anew within seconds when they change.",
    },
    Section {
        name: "presence",
        about: "A webhook that is told when a key gains its first watcher and when it has lost its \
                last one: a poll that is held, a stream of events or a WebSocket. Off until there \
                is a `webhook_url`.",
    },
    Section {
        name: "limits",
        about: "Bounds on what a client may send, hold and wait for. Maxima of connections and \
                waiters are for the whole process and divided among the loops.",
    },
    Section {
        name: "log",
        about: "Diagnostics and the access log.",
    },
];

options! {
    /// Options that exist once.
    OPTIONS for Config:
    "server".server.listen ["--listen"] = OneOrMany(SocketAddress, 1);
    "Where clients connect."
    "server".server.admin ["--admin"] = OrOff(SocketAddress);
    "Where `/-/health` and `/-/metrics` answer."
    "server".server.admin_hosts = OneOrMany(Name, 0);
    "Names by which browsers and scrapers may ask for the admin listener, beside `localhost` and \
     addresses. A request for another name gets 421, on a loopback address always and elsewhere \
     where any name is listed."
    "server".server.pollers ["--pollers"] = Count(0, 1024);
    "Number of loops, each a thread with its own listener. 0 is one per core."
    "server".server.io_uring = Choice(IO_URING);
    "How answers to many waiting clients are sent: by `io_uring`, many with one system call, where \
     the kernel allows it (`auto`), or each by a call of its own (`off`)."
    "server".server.user = OrOff(UserName);
    "User to become when started as root, as soon as every listener is there. Snapshot and logs \
     are written as that user."
    "server".server.trusted_proxies = OneOrMany(Written("address or `ADDRESS/BITS`"), 0);
    "Proxies in front of Dwell. In the `X-Forwarded-For` of a connection from one of them, the \
     rightmost address not in this list is the client's. Only their `X-Forwarded-Proto`, \
     `X-Forwarded-Host`, `Forwarded` and `X-Real-IP` reach the application."

    "tls".tls.listen = OneOrMany(SocketAddress, 0);
    "Where clients connect under TLS. Plain HTTP there gets 400."
    "tls".tls.certificate = OneOrMany(FilePath, 0);
    "PEM files, each a certificate chain with the server's certificate first. The host name that a \
     client asks for (SNI) selects one, an exact name before a wildcard; the first is for all \
     other clients. A reload reads the files again."
    "tls".tls.key = OneOrMany(FilePath, 0);
    "PEM files with the private keys of the certificates, in the same order, without passphrases."
    "tls".tls.ocsp = OneOrMany(FilePath, 0);
    "Files with OCSP responses in DER for the certificates, in the same order, which are sent with \
     them (stapling). Written by another program, such as `openssl ocsp`."
    "tls".tls.ticket_keys = OrOff(FilePath);
    "File with the keys of session tickets, which several machines may share. Each line is a key, \
     made by `openssl rand -base64 48`: the first one makes tickets, and all of them read tickets."
    "tls".tls.check_interval = TimeSpan(Duration::from_secs(1), DAY);
    "How often the files of certificates and `ticket_keys` are checked. They are read again when \
     the modification time, size or inode of a file has changed. If they cannot be used, those \
     before stay and the log has the reason."
    "tls".tls.client_ca = OrOff(FilePath);
    "PEM file with the certificates of authorities. Clients of `tls.listen` have to show a \
     certificate that one of them has issued; others are refused in the handshake."
    "tls".tls.self_signed = Truth;
    "Whether the certificate is made at the start: for localhost, a week, and development."
    "tls".tls.acme_challenge = OrOff(FilePath);
    "Folder with the answers to HTTP-01 challenges, each in a file with the name of its token. \
     `/.well-known/acme-challenge/` shows them, before any route."
    "tls".tls.handshakes_max = Count(1, 1_000_000);
    "Handshakes under way at once, of which each event loop has an equal share. Beyond it, the \
     oldest one is closed. A client counts from its first message on. A handshake has 10 seconds."

    "store".store.listen ["--store"] = OrOff(SocketAddress);
    "Where the memcached protocol is spoken. An address that other machines can reach is refused \
     unless there is an `auth_file` or `allow_remote` is true."
    "store".store.listen_also = OneOrMany(SocketAddress, 0);
    "More addresses where it is spoken, under the same condition."
    "store".store.allow_remote = Truth;
    "Whether `listen` may be an address that other machines can reach although nobody has to log \
     in."
    "store".store.unix_socket = OrOff(FilePath);
    "A unix socket where the memcached protocol is spoken as well."
    "store".store.unix_permissions = Permissions;
    "Who may connect to the unix socket."
    "store".store.auth_file = OrOff(FilePath);
    "File with up to 8 lines of `name:password`. With it a connection has to log in by the text \
     protocol, and the binary protocol is not spoken."
    "store".store.protocols = Choice(PROTOCOLS);
    "Which protocols are spoken; `auto` is both, by the first byte of a connection."
    "store".store.bytes_max = Size(MIB, 1024 * GIB);
    "Bytes that items take with their overhead. Beyond it the least useful items go. The process \
     takes at most 1.15 of it, and about 10 MiB for itself."
    "store".store.item_bytes_max = Size(KIB, GIB);
    "Bytes of one value. A larger one gets `SERVER_ERROR object too large for cache`."
    "store".store.evictions = Truth;
    "Whether items are evicted to make room. Without it a new one gets `SERVER_ERROR out of memory \
     storing object`."
    "store".store.cas = Truth;
    "Whether items have a cas unique. Without it every one is 0, and `cas` never stores."
    "store".store.dump = Truth;
    "Whether clients may list all keys by `lru_crawler metadump` and `stats cachedump`."
    "store".store.flush_all = Truth;
    "Whether clients may remove everything by `flush_all`."
    "store".store.shutdown = Truth;
    "Whether clients may end the process by `shutdown`."
    "store".store.connections_max = Count(1, MILLION);
    "Open connections of memcached clients. Beyond it new ones are closed."
    "store".store.idle_timeout = TimeSpan(Duration::ZERO, DAY);
    "How long a connection may be without a command. `\"0s\"` is for ever."
    "store".store.commands_per_turn = Count(1, 10_000);
    "Commands of one connection before another has its turn; 16 keys of a long `get` count as one."
    "store".store.backlog = Count(1, 65_535);
    "Connections that the kernel keeps until they are accepted."
    "store".store.snapshot = OrOff(FilePath);
    "File to which the items are written when the process ends, and from which they are read when \
     it starts. A damaged one is kept aside."

    "memcached".memcached.servers ["--memcached"] = OneOrMany(MemcachedPeer, 0);
    "The servers. Keys are spread over them by weighted ketama, as libmemcached does."
    "memcached".memcached.tls = Truth;
    "Whether the servers are spoken to under TLS, which memcached does with `-Z`."
    "memcached".memcached.tls_ca = OrOff(FilePath);
    "As `upstream.tls_ca`, for the servers."
    "memcached".memcached.tls_server_name = OrOff(Name);
    "As `upstream.tls_server_name`, for the servers."
    "memcached".memcached.tls_certificate = OrOff(FilePath);
    "As `upstream.tls_certificate`, for the servers."
    "memcached".memcached.tls_key = OrOff(FilePath);
    "As `upstream.tls_key`, for the servers."
    "memcached".memcached.timeout = TimeSpan(MILLISECOND, MINUTE);
    "How long one lookup may take. Beyond it the poll is a miss."
    "memcached".memcached.connect_timeout = TimeSpan(MILLISECOND, MINUTE);
    "How long one connection attempt may take."
    "memcached".memcached.sweep_interval = TimeSpan(TICK, MINUTE);
    "How often the keys that polls wait for are looked at."
    "memcached".memcached.watch = Truth;
    "Whether the servers are asked, with `watch`, to tell of changes, so that polls wake before \
     the next look. It takes two connections to each server, while polls wait."
    "memcached".memcached.failures_max = Count(1, 1000);
    "Failures in a row after which a server is left alone for a while."
    "memcached".memcached.value_bytes_max = Size(KIB, GIB);
    "Bytes of the largest value a server may send, at least those of its own `-I`. A larger one \
     breaks the connection."

    "upstream".upstream.url ["--upstream"] = ManyOrOff(Url);
    "Where the application is, by `http` or `https`. Of several servers each request goes to the \
     one with the fewest under way, among those in use. `\"off\"` answers 404 to what would be \
     forwarded."
    "upstream".upstream.tls_ca = OrOff(FilePath);
    "For `https`: PEM file with the certificates that are trusted, of authorities or of servers. \
     `\"off\"` trusts those that the system trusts. A reload reads the files again."
    "upstream".upstream.tls_server_name = OrOff(Name);
    "The name that the certificates of the servers have to be for. `\"off\"` is the host of each."
    "upstream".upstream.tls_certificate = OrOff(FilePath);
    "PEM file with the certificate chain that is sent to servers which ask for one."
    "upstream".upstream.tls_key = OrOff(FilePath);
    "PEM file with its private key."
    "upstream".upstream.default_host = Name;
    "The `Host` of requests whose client names none, as HTTP/1.0 allows, and of those whose \
     answers fill the cache."
    "upstream".upstream.connect_timeout = TimeSpan(TICK, HOUR);
    "How long one connection attempt may take. Beyond it: 502."
    "upstream".upstream.header_timeout = TimeSpan(TICK, HOUR);
    "From the request sent to the header section of the answer. Beyond it: 504."
    "upstream".upstream.total_timeout = TimeSpan(TICK, DAY);
    "From the request sent to the end of a poll's answer, and to the header section of any other. \
     Beyond it: 504."
    "upstream".upstream.stall_timeout = TimeSpan(TICK, DAY);
    "How long an answer that is passed on may bring nothing, and a request body not be taken. \
     Beyond it: 504, or the client's connection is cut."
    "upstream".upstream.tunnel_timeout = TimeSpan(TICK, DAY);
    "How long nothing may pass a connection that was upgraded. Beyond it: closed."
    "upstream".upstream.window_bytes = Size(4 * KIB, 512 * KIB);
    "Body bytes of one message, in each direction, that are read before the other side has taken \
     them."
    "upstream".upstream.request_buffer_bytes = Size(0, 16 * MIB);
    "Body bytes of a request that have come before it takes a connection: all of a body that is no \
     longer, the beginning of any other. So slow clients occupy no connections. With 0 every body \
     is passed on as it comes, and `Expect: 100-continue` too."
    "upstream".upstream.connections_max = Count(1, MILLION);
    "Open connections to one server, those of transfers not among them. Beyond it requests wait \
     for one to become free. Clients take turns: however many requests one of them has waiting, \
     another's first is the next but one. A client has at most four of them for each that is free, \
     so that a fifth is left to others."
    "upstream".upstream.transfers_max = Count(0, MILLION);
    "Transfers with one server, beside `connections_max`: connections on which a request body is \
     being passed on, or an answer (a download, an event stream). Beyond it, or beyond four of one \
     client for each that is free, they count among `connections_max`."
    "upstream".upstream.queue_max = Count(0, MILLION);
    "Requests that wait for a connection to one server. Beyond it the client with the most waiting \
     has its newest answered with 503 and `Retry-After`."
    "upstream".upstream.queue_timeout = TimeSpan(TICK, HOUR);
    "How long a request may wait for a connection. Beyond it: 503 with `Retry-After`."
    "upstream".upstream.idle_max = Count(0, MILLION);
    "Unused connections to one server that are kept open."
    "upstream".upstream.idle_timeout = TimeSpan(TICK, HOUR);
    "How long an unused connection is kept open."
    "upstream".upstream.failures_max = Count(1, 1000);
    "Failures after which one of several servers is left out for a while: at first up to a second, \
     up to ten in the end. Then one request, or the next health check, tries it. These count: \
     connection attempts in a row; health checks in a row; requests without an answer within \
     `failures_window`, if more than half of the paths that were asked for, and of the clients \
     that asked, got none last. For requests without an answer at most half of the servers are \
     left out. While no server is in use, all are tried whose health checks do not fail."
    "upstream".upstream.failures_window = TimeSpan(SECOND, HOUR);
    "How long a request counts for `failures_max`."
    "upstream".upstream.health_path = OrOff(Prefix);
    "The path that each loop requests from every server by GET, every `health_interval`. An answer \
     of 400 or above, or none, is a failed health check, and only a better one brings a server \
     back. While the health checks of all servers fail: 503 with `Retry-After`."
    "upstream".upstream.health_interval = TimeSpan(TICK, HOUR);
    "How often `health_path` is asked, and how long its answer may take."
    "upstream".upstream.answer_bytes_max = Size(KIB, 1024 * GIB);
    "Bytes of an answer that polls share. A larger one is passed on to one of them."
    "upstream".upstream.answer_head_bytes_max = Size(256, MIB);
    "Bytes of the status line and the header section of an answer. Beyond it: 502."
    "upstream".upstream.answer_header_count_max = Count(1, 128);
    "Header fields of one answer. Beyond it: 502."

    "publish".publish.token = OneOrMany(BearerToken, 0);
    "What publishers show as `Authorization: Bearer TOKEN`. Several are all good, so that one can \
     follow another."
    "publish".publish.token_file = OrOff(FilePath);
    "File with more of them, one a line, so that they need not stand here."
    "publish".publish.value_bytes_max = Size(1, GIB);
    "Bytes of one published value. Beyond it: 413."

    "jwt".jwt.secret_file = OrOff(FilePath);
    "File with the secret of whoever signs, at least 32 bytes; a last line end does not count."
    "jwt".jwt.public_key_file = OrOff(FilePath);
    "File with public keys as PEM: RSA of 2048 bits or more, EC or Ed25519."
    "jwt".jwt.jwks_file = OrOff(FilePath);
    "File with a JWK set. A token's `kid` picks among its keys."
    "jwt".jwt.issuer = OneOrMany(Text, 0);
    "Good values of `iss`. None means any."
    "jwt".jwt.audience = OneOrMany(Text, 0);
    "Good values of `aud`. None means any."
    "jwt".jwt.leeway = TimeSpan(Duration::ZERO, HOUR);
    "How long after `exp`, and before `nbf`, a token is good."
    "jwt".jwt.expiry_required = Truth;
    "Whether a token without `exp` is refused. One that never ends is good for whoever has it, for \
     as long as its key is."
    "jwt".jwt.query_parameter = OrOff(Name);
    "Part of the query in which a token may be, for clients that cannot set fields. It is then in \
     every log on the way."
    "jwt".jwt.cookie = OrOff(Name);
    "Cookie in which a token may be."

    "presence".presence.webhook_url = OrOff(Url);
    "The server that is told, by POST with an array of JSON objects, over `http` or `https`."
    "presence".presence.webhook_tls_ca = OrOff(FilePath);
    "As `upstream.tls_ca`, for the webhook."
    "presence".presence.webhook_tls_server_name = OrOff(Name);
    "As `upstream.tls_server_name`, for the webhook."
    "presence".presence.webhook_tls_certificate = OrOff(FilePath);
    "As `upstream.tls_certificate`, for the webhook."
    "presence".presence.webhook_tls_key = OrOff(FilePath);
    "As `upstream.tls_key`, for the webhook."
    "presence".presence.webhook_path = Prefix;
    "The path of the requests."
    "presence".presence.webhook_token = OrOff(BearerToken);
    "What they show as `Authorization: Bearer TOKEN`."
    "presence".presence.linger = TimeSpan(Duration::ZERO, HOUR);
    "How long a key that nobody watches any more still counts as watched, so that a client between \
     two polls has not left it."
    "presence".presence.webhook_timeout = TimeSpan(TICK, HOUR);
    "How long one request may take."
    "presence".presence.webhook_attempts_max = Count(1, 1000);
    "Requests for the same events that get no answer, 5xx, 408, 425 or 429, before the events are \
     dropped. The pauses between them grow to half a minute."
    "presence".presence.webhook_batch_max = Count(1, 10_000);
    "Events of one request."
    "presence".presence.webhook_queue_max = Count(1, 10 * MILLION);
    "Events that wait to be told. Beyond it new ones are dropped."

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
    "Bytes of requests whose body has not come yet, as far as it is gathered, for the whole \
     process. Beyond it: 503 with `Retry-After`, and for the oldest of them when less than an \
     eighth is left."
    "limits".limits.connections_max = Count(1, 100 * MILLION);
    "Open client connections, WebSockets and tunnels to the application among them. Beyond it new \
     ones are closed."
    "limits".limits.connections_per_address = OrOff(Count(1, MILLION));
    "Open connections of one client address, WebSockets and tunnels among them. An IPv6 network of \
     64 bits is one address. Beyond it new ones are closed at once. What counts is who has \
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

    "log".log.level ["--log-level"] = Choice(LEVELS);
    "The least severe events written to standard error."
    "log".log.format ["--log-format"] = Choice(FORMATS);
    "How an event is written: for people, or one JSON object a line."
    "log".log.access ["--access-log"] = AccessLogTarget;
    "Where one JSON line per request goes. A file is appended to."
}

options! {
    /// Options of each route.
    ROUTE_OPTIONS for RouteConfig:
    "route".prefix ["--poll-prefix"] = Prefix;
    "Start of the request path. Every `[[route]]` names its own."
    "route".key = Template;
    "How the key is made. `{path}` is the request path with the query stripped. `{uri}` is the \
     same decoded, with slashes merged and dot segments resolved, as nginx's `$uri` is. `{scheme}` \
     is `https` for clients under TLS, here or at a trusted proxy, and `http` for others."
    "route".content_type = MediaType;
    "`Content-Type` of values."
    "route".methods = MethodList;
    "Methods that poll. Others get 405."
    "route".wait_default = TimeSpan(Duration::ZERO, HOUR);
    "Wait of a request that asks for none. `\"0s\"` answers at once."
    "route".wait_max = TimeSpan(Duration::ZERO, HOUR);
    "Longest wait. A request that asks for more gets this."
    "route".empty = Choice(EMPTY);
    "Status of the answer to a stored empty value, which means \"nothing new\"."
    "route".coalesce_post = Truth;
    "Whether POST polls that miss on one key share one upstream request, as GET polls do."
    "route".share_cookies = Truth;
    "Whether polls with a `Cookie` share answers with others, get stale values and fill the cache. \
     They do if the key has a `{cookie.NAME}`, `{claim.NAME}` or `{auth.NAME}`."
    "route".identity_headers = OneOrMany(Name, 0);
    "Names of further request headers that identify a client, such as `\"X-Api-Key\"`. A poll with \
     one shares nothing, unless that header or another identity is in the key."
    "route".on_delete = Choice(ON_DELETE);
    "What a held poll gets when its key is deleted or expires: the upstream's answer, 404, or \
     nothing until the next value."
    "route".allowed_origins = OneOrMany(Origin, 0);
    "Origins of the pages that may open a WebSocket, or `\"*\"` for all, beside those of the host \
     that the request is for and those that `cors_origins` names. Clients that are no browsers \
     name none, and may."
    "route".websocket_publish = Truth;
    "Whether a WebSocket may store values of the route's keys, which takes no token."
    "route".access.publish = Truth;
    "Whether PUT, POST and DELETE store and remove the values of the route's keys, by whoever \
     has a `publish.token`. POST does not poll then."
    "route".access.cors_origins = OneOrMany(WebOrigin, 0);
    "Origins whose pages may read the answers. With any, OPTIONS is answered to browsers that ask \
     for permission."
    "route".access.cors_credentials = Truth;
    "Whether those pages may send cookies; not with `\"*\"`."
    "route".access.cors_max_age = TimeSpan(Duration::ZERO, DAY);
    "How long a browser may remember what it was permitted."
    "route".access.rate_per_address = OrOff(Written("rate such as `\"20/s\"` or `\"100/10s\"`"));
    "Requests of one client address, each key of a request counting as one. An IPv6 network of 64 \
     bits is one address. Beyond it: 429 with `Retry-After`."
    "route".access.rate_per_key = OrOff(Written("rate such as `\"20/s\"` or `\"100/10s\"`"));
    "Requests for one key. Beyond it: 429 with `Retry-After`."
    "route".access.rate_per_publisher = OrOff(Written("rate such as `\"20/s\"`"));
    "Values that one client address may store and remove by PUT, POST and DELETE, and one \
     WebSocket by frames. Beyond it: 429, or an error frame."
    "route".access.jwt = Truth;
    "Whether a request needs a token (see [jwt](#jwt)), whose claims keys can be made of: \
     `{claim.NAME}`. Without a good one: 401."
    "route".access.auth = OrOff(Prefix);
    "Path at which the application is asked whether a request may be looked at, with its method \
     and target as `X-Original-Method` and `X-Original-URI`, its `Authorization` and its cookies. \
     2xx lets it in, 401 and 403 are passed on. Keys can be made of the answer's fields: \
     `{auth.NAME}`."
    "route".access.auth_time = TimeSpan(Duration::ZERO, HOUR);
    "How long the application's word is good for those who show the same and ask for the same."
    "route".fill = Truth;
    "Whether the upstream's answers to GET polls are put into the cache where they may be: 200 \
     with `s-maxage` or `max-age`, which is how long they stay there. Nothing that is there is \
     replaced. The upstream gets `upstream.default_host` as `Host` then."
    "route".stale_if_error = TimeSpan(Duration::ZERO, DAY);
    "How long the last known value is given when neither the cache nor the upstream answers. An \
     answer's own `stale-if-error` wins. `\"0s\"` never gives it."
    "route".stale_while_revalidate = TimeSpan(Duration::ZERO, DAY);
    "Where `fill` is on: how long the value that has expired is given while the upstream is asked \
     for a newer one. An answer's own `stale-while-revalidate` wins."
    "route".negative = TimeSpan(Duration::ZERO, HOUR);
    "How long the upstream is not asked again for a key that it answered with 5xx, or not at all."
    "route".negative_not_found = TimeSpan(Duration::ZERO, HOUR);
    "How long it is not asked again for a key that it answered with 404 or 410."
}

const PROTOCOLS: &[(&str, Protocols)] = &[
    ("auto", Protocols::Both),
    ("ascii", Protocols::Text),
    ("binary", Protocols::Binary),
];
const LEVELS: &[(&str, LogLevel)] = &[
    ("off", LogLevel::Off),
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];
const FORMATS: &[(&str, LogFormat)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];
const IO_URING: &[(&str, IoUring)] = &[("auto", IoUring::Auto), ("off", IoUring::Off)];
const EMPTY: &[(&str, EmptyAnswer)] = &[("200", EmptyAnswer::Ok), ("204", EmptyAnswer::NoContent)];
const ON_DELETE: &[(&str, OnDelete)] = &[
    ("origin", OnDelete::Origin),
    ("not-found", OnDelete::NotFound),
    ("keep-waiting", OnDelete::KeepWaiting),
];

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const MILLION: u64 = 1_000_000;
const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(10);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
