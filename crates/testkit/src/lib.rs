//! Test helpers: real servers on free loopback ports and scripted peers. A dev-dependency only.
#![forbid(unsafe_code)]
