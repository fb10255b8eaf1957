//! The two halves of an exchange that is answered elsewhere: the body of its request on the way
//! in, and that of its answer on the way out.
//!
//! Both are plain states: a loop and the program that answers share them behind a lock of their
//! own choice, and each side carries out what they result in.

mod inflow;
mod outflow;

pub use inflow::Inflow;
pub use outflow::Outflow;
