//! The memcached text and meta protocols (memcached `doc/protocol.txt`).
