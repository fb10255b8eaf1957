//! Deadlines on a 10 ms tick: a loop-local lazy timing wheel.
