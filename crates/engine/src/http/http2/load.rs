//! The memory of connections, for tests that bound it.

use super::Http2;

/// The bytes that one connection of HTTP/2 keeps.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Http2Load {
    /// Answers that wait for windows or for the socket.
    pub queued: usize,
    /// Frames, field blocks and bodies.
    pub kept: usize,
}

impl Http2 {
    /// The most that any connection keeps, of either.
    pub(super) fn load(&self) -> Http2Load {
        let mut most = Http2Load::default();
        let streams = &self.tables.streams;
        for session in self.sessions.iter().flatten() {
            let section = session.section.as_deref();
            let section = section.map_or(0, |it| it.section.capacity_bytes());
            let put_off = session.put_off.as_deref();
            let text = put_off.map_or(0, |put_off| put_off.text.capacity());
            let mut load = Http2Load {
                queued: 0,
                kept: session.sending.control.capacity() + section + text,
            };
            for stream in session.streams().filter_map(|token| streams.get(token)) {
                load.queued += stream.out.bytes();
                let upload = stream.upload.as_deref();
                load.kept += upload.map_or(0, |upload| {
                    upload.ahead.capacity() + upload.trailers.capacity()
                });
            }
            most.queued = most.queued.max(load.queued);
            most.kept = most.kept.max(load.kept);
        }
        most
    }
}
