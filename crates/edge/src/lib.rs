//! The polling edge: answers polls from memcached, holds waits, falls back to the app.
#![forbid(unsafe_code)]

pub mod config;
pub mod metrics;
pub mod store_server;
pub mod upstream;
pub mod cli;
pub mod log;
pub mod demo;
