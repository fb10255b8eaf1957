//! Options of `[memcached]`.

use super::bounds::{GIB, KIB, MILLISECOND, MINUTE, TICK};
use crate::config::Config;
use crate::config::codec::{
    Count, FilePath, MemcachedPeer, Name, OneOrMany, OrOff, Size, TimeSpan, Truth,
};

options! {
    OPTIONS for Config:
    "memcached".memcached.servers ["--memcached"] = OneOrMany(MemcachedPeer, 0);
    "The servers. Keys are spread over them by weighted ketama, as libmemcached does."
    "memcached".memcached.tls = Truth;
    "Dwell connects to the servers under TLS (memcached's `-Z`)."
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
    "Time between two reads of the keys that polls wait for."
    "memcached".memcached.watch = Truth;
    "The servers report changes (`watch`), so that polls wake before the next sweep. It takes two \
     connections to each server while polls wait."
    "memcached".memcached.failures_max = Count(1, 1000);
    "Failures in a row after which Dwell stops asking a server for a while."
    "memcached".memcached.value_bytes_max = Size(KIB, GIB);
    "Bytes of the largest value that a server may send: at least the server's own `-I`. A larger \
     one closes the connection."
}
