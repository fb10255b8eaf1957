//! The event loop: readiness, one clock read a turn, deadlines, wake-ups, shared buffers.
