//! Options of `[server]`.

use crate::config::codec::{
    Choice, Count, FilePath, Name, OneOrMany, OrOff, SocketAddress, Truth, UserName, Written,
};
use crate::config::{Config, IoUring};

options! {
    OPTIONS for Config:
    "server".server.listen ["--listen"] = OneOrMany(SocketAddress, 1);
    "Addresses that clients connect to."
    "server".server.admin ["--admin"] = OrOff(SocketAddress);
    "Address of the admin listener: dashboard, `/-/health`, `/-/metrics`."
    "server".server.admin_hosts = OneOrMany(Name, 0);
    "Names under which browsers and scrapers may request the admin listener, beside `localhost` \
     and addresses. A request for another name gets 421: always on a loopback address, and on \
     other addresses if this list has a name."
    "server".server.pollers ["--pollers"] = Count(0, 1024);
    "Number of event loops, each a thread with its own listener. 0 is one per core."
    "server".server.io_uring = Choice(IO_URING);
    "System calls that send responses to many waiting clients: with `auto` one `io_uring` call \
     sends many, if the kernel allows it; with `off` each has a call of its own."
    "server".server.user = OrOff(UserName);
    "User that the process changes to when it is started as root, as soon as every listener is \
     open. Snapshot and logs are written as that user."
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
    "server".server.pid_file ["--pid-file"] = OrOff(FilePath);
    "File with the id of the process while it serves. `dwell reload`, `dwell stop` and \
     `dwell upgrade` find the process by it. Dwell locks the file, so that one that was left \
     behind names no process. The results of signals are in a second file, whose name is that of \
     this one with `.results`."
}

const IO_URING: &[(&str, IoUring)] = &[("auto", IoUring::Auto), ("off", IoUring::Off)];
