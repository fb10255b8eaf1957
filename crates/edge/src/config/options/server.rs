//! Options of `[server]`.

use crate::config::codec::{
    Choice, Count, Name, OneOrMany, OrOff, SocketAddress, Truth, UserName, Written,
};
use crate::config::{Config, IoUring};

options! {
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
     `X-Forwarded-Host`, `Forwarded`, `X-Real-IP`, `Client-Cert` and `Client-Cert-Chain` reach \
     the application."
    "server".server.proxy_protocol = OneOrMany(Written("address or `ADDRESS/BITS`"), 0);
    "Balancers whose connections to `server.listen` and `tls.listen` begin with a header of the \
     PROXY protocol, version 1 or 2. The client is at the address in the header. A connection of a \
     balancer without a header is closed. Connections from other addresses have no header."
    "server".server.h2c = Truth;
    "Clients of `server.listen` may speak HTTP/2 without TLS, if they know that Dwell does (prior \
     knowledge): their connections begin with the preface of HTTP/2. `Upgrade: h2c` is ignored."
}

const IO_URING: &[(&str, IoUring)] = &[("auto", IoUring::Auto), ("off", IoUring::Off)];
