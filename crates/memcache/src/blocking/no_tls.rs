//! The build without TLS: no value of these types is ever made.

use super::Error;
use super::budget::Budget;
use super::fault::Fault;
use super::socket::Socket;

/// TLS of a client, which this build does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {}

#[derive(Debug)]
pub(crate) enum Connector {}

#[derive(Debug)]
pub(crate) enum Layer {}

impl Tls {
    pub(crate) fn connector(&self, _: &str) -> Result<Connector, Error> {
        match *self {}
    }
}

impl Layer {
    pub(crate) fn shake(
        connector: &Connector,
        _: &Socket,
        _: &Budget,
    ) -> Result<(Self, Vec<u8>), Fault> {
        match *connector {}
    }

    pub(crate) fn begin(&mut self) {
        match *self {}
    }

    pub(crate) fn seal(&mut self, _: &[u8]) -> Result<(), Fault> {
        match *self {}
    }

    pub(crate) fn unsent(&self) -> &[u8] {
        match *self {}
    }

    pub(crate) fn has_sent(&mut self, _: usize) {
        match *self {}
    }

    pub(crate) fn is_sent(&self) -> bool {
        match *self {}
    }

    pub(crate) fn open(&mut self, _: &mut [u8], _: &Socket) -> Result<(usize, usize), Fault> {
        match *self {}
    }

    pub(crate) fn is_ended(&self) -> bool {
        match *self {}
    }

    pub(crate) fn close(&mut self, _: &Socket) {
        match *self {}
    }
}

/// No record needs any room.
pub(crate) const RECORD_BYTES_MAX: usize = 1;
