//! The end of a carried stream that its owner has.

use crate::carried::table::{self, Entry, Handle};
use mio::event::Source;
use mio::{Interest, Registry, Token};
use std::io;
use std::net::SocketAddr;

/// In the place of a socket; it is closed when it is dropped.
#[derive(Debug)]
pub(crate) struct CarriedSocket(Handle);

impl CarriedSocket {
    pub(crate) fn new(handle: Handle) -> Self {
        Self(handle)
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.with(|entry| entry.read(buffer))
    }

    pub(crate) fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.with(|entry| entry.peek(buffer))
    }

    pub(crate) fn write(&self, parts: &[&[u8]]) -> io::Result<usize> {
        self.with(|entry| entry.write(parts))
    }

    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        self.with(Entry::shutdown_write)
    }

    pub(crate) fn reset_on_drop(&self) {
        self.with(Entry::reset_on_drop);
    }

    /// The addresses of the peer and of this side.
    pub(crate) fn addresses(&self) -> [Option<SocketAddr>; 2] {
        self.with(|entry| entry.addresses())
    }

    fn with<T>(&self, act: impl FnOnce(&mut Entry) -> T) -> T {
        table::with(self.0, act)
    }
}

impl Source for CarriedSocket {
    fn register(&mut self, _: &Registry, token: Token, _: Interest) -> io::Result<()> {
        self.with(|entry| entry.register(Some(token.into())));
        Ok(())
    }

    fn reregister(&mut self, registry: &Registry, token: Token, want: Interest) -> io::Result<()> {
        self.register(registry, token, want)
    }

    fn deregister(&mut self, _: &Registry) -> io::Result<()> {
        self.with(|entry| entry.register(None));
        Ok(())
    }
}

impl Drop for CarriedSocket {
    fn drop(&mut self) {
        self.with(Entry::owner_gone);
    }
}
