//! Options of `[redis]`.

use super::bounds::{GIB, KIB, MILLISECOND, MINUTE, TICK};
use crate::config::codec::{
    Choice, ClusterServer, Count, FilePath, KeyPrefix, Name, OneOrMany, OrOff, RedisServer,
    Sentinel, Size, TimeSpan,
};
use crate::config::{Config, RedisTracking};

options! {
    OPTIONS for Config:
    "redis".redis.url ["--redis"] = OrOff(RedisServer);
    "The server, Redis 6 or later or Valkey. With `rediss://` Dwell connects under TLS."
    "redis".redis.sentinels = OneOrMany(Sentinel, 0);
    "Sentinels, in place of `url`. Before each connection Dwell requests the address of the \
     primary from one of them."
    "redis".redis.sentinel_name = OrOff(Name);
    "Name of the primary in the configuration of the Sentinels."
    "redis".redis.cluster = OneOrMany(ClusterServer, 0);
    "Servers of a cluster, in place of `url`. Dwell requests the list of the others from one of \
     them."
    "redis".redis.cluster_interval = TimeSpan(TICK, MINUTE);
    "How often Dwell requests from the cluster which server has which keys."
    "redis".redis.tls_ca = OrOff(FilePath);
    "As `upstream.tls_ca`, for the server."
    "redis".redis.tls_server_name = OrOff(Name);
    "As `upstream.tls_server_name`, for the server."
    "redis".redis.tls_certificate = OrOff(FilePath);
    "As `upstream.tls_certificate`, for the server."
    "redis".redis.tls_key = OrOff(FilePath);
    "As `upstream.tls_key`, for the server."
    "redis".redis.username = OrOff(Name);
    "The user of the server's ACL. `\"off\"` is the default user."
    "redis".redis.password_file = OrOff(FilePath);
    "File with the password. Line ends at its end do not count."
    "redis".redis.database = Count(0, 65_535);
    "The number of the database."
    "redis".redis.tracking = Choice(TRACKING);
    "How changes are found. With `\"keys\"` the server announces those of the keys that polls wait \
     for (`CLIENT TRACKING`), with `\"prefix\"` those of all keys that begin with one of \
     `tracking_prefixes` (`BCAST`). A server that refuses is swept every 250 ms, as with \
     `\"off\"`."
    "redis".redis.tracking_prefixes = OneOrMany(KeyPrefix, 0);
    "Beginnings of keys, for `tracking = \"prefix\"`. None may begin with another one. Without \
     any, the server announces every change of every key."
    "redis".redis.timeout = TimeSpan(MILLISECOND, MINUTE);
    "How long one command may take. Beyond it the poll is a miss."
    "redis".redis.connect_timeout = TimeSpan(MILLISECOND, MINUTE);
    "How long one connection attempt may take, with the greeting."
    "redis".redis.probe = TimeSpan(TICK, MINUTE);
    "Time of silence of a connection after which Dwell pings the server."
    "redis".redis.sweep_interval = TimeSpan(TICK, MINUTE);
    "How often the keys that polls wait for are read again while the server announces changes. It \
     finds what no server announces, such as `SWAPDB`."
    "redis".redis.failures_max = Count(1, 1000);
    "Failures in a row after which commands fail at once until a new connection is greeted."
    "redis".redis.value_bytes_max = Size(KIB, GIB);
    "Bytes of the largest value that is read. A larger one is dropped as it comes, and counted."
    "redis".redis.kept_bytes_max = Size(0, 1024 * GIB);
    "Bytes of values in memory. While the server announces changes, Dwell keeps the values of keys \
     that polls wait for, and responds from memory. With 0 it reads each time."
}

const TRACKING: &[(&str, RedisTracking)] = &[
    ("keys", RedisTracking::Keys),
    ("prefix", RedisTracking::Prefix),
    ("off", RedisTracking::Off),
];
