//! HTTP/1.1 on the event loop for very many mostly idle connections.
#![forbid(unsafe_code)]
