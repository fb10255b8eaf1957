//! A memcached client on the event loop: one request per server and turn, one deadline per connection.
#![forbid(unsafe_code)]
