//! Options of `[store]`.

use super::bounds::{DAY, GIB, KIB, MIB, MILLION};
use crate::config::Config;
use crate::config::codec::{
    Choice, Count, FilePath, OneOrMany, OrOff, Permissions, Size, SocketAddress, TimeSpan, Truth,
};
use dwell_proto::memcache::Protocols;
use std::time::Duration;

options! {
    OPTIONS for Config:
    "store".store.listen ["--store"] = OrOff(SocketAddress);
    "Address of the memcached protocol. An address that other machines can reach is refused unless \
     there is an `auth_file` or `allow_remote` is true."
    "store".store.listen_also = OneOrMany(SocketAddress, 0);
    "More addresses of the memcached protocol, under the same condition."
    "store".store.allow_remote = Truth;
    "`listen` may be an address that other machines can reach, without a login."
    "store".store.unix_socket = OrOff(FilePath);
    "A unix socket for the memcached protocol."
    "store".store.unix_permissions = Permissions;
    "Permissions of the unix socket."
    "store".store.auth_file = OrOff(FilePath);
    "File with up to 8 lines of `name:password`. With it a connection has to log in by the text \
     protocol, and the binary protocol is off."
    "store".store.protocols = Choice(PROTOCOLS);
    "Protocols that clients may use. `auto` is both, chosen by the first byte of a connection."
    "store".store.bytes_max = Size(MIB, 1024 * GIB);
    "Bytes of the items with their overhead. Beyond it the least useful items are evicted. The \
     process takes at most 1.15 of it, and about 10 MiB for itself."
    "store".store.item_bytes_max = Size(KIB, GIB);
    "Bytes of one value. A larger one gets `SERVER_ERROR object too large for cache`."
    "store".store.evictions = Truth;
    "The store evicts items to make room. Without it a new item gets `SERVER_ERROR out of memory \
     storing object`."
    "store".store.cas = Truth;
    "Items have a cas unique. Without it every cas unique is 0, and `cas` never stores."
    "store".store.dump = Truth;
    "Clients may list all keys by `lru_crawler metadump` and `stats cachedump`."
    "store".store.flush_all = Truth;
    "Clients may remove everything by `flush_all`."
    "store".store.shutdown = Truth;
    "Clients may end the process by `shutdown`."
    "store".store.connections_max = Count(1, MILLION);
    "Open connections of memcached clients. Beyond it new ones are closed."
    "store".store.idle_timeout = TimeSpan(Duration::ZERO, DAY);
    "How long a connection may be without a command. `\"0s\"` is without a limit."
    "store".store.commands_per_turn = Count(1, 10_000);
    "Commands of one connection before another connection has its turn. 16 keys of a long `get` \
     count as one."
    "store".store.backlog = Count(1, 65_535);
    "Connections that the kernel keeps until they are accepted."
    "store".store.snapshot = OrOff(FilePath);
    "File to which the items are written when the process ends, and from which they are read when \
     it starts. A damaged file is renamed and kept."
}

const PROTOCOLS: &[(&str, Protocols)] = &[
    ("auto", Protocols::Both),
    ("ascii", Protocols::Text),
    ("binary", Protocols::Binary),
];
