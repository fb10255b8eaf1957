//! The floor of the benchmark tables: a bare epoll loop with a fixed answer.
fn main() {}
