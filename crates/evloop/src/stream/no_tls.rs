//! The build without TLS: no value of these types is ever made.

use super::outcome::{Agreed, HandshakeFailure, ReadOutcome, TlsFacts};
use super::socket::Socket;
use std::fmt;
use std::io;

/// Begins handshakes, which this build cannot.
#[derive(Clone, Debug)]
pub enum Acceptor {}

/// Begins handshakes with a server, which this build cannot.
#[derive(Clone, Debug)]
pub enum Connector {}

impl Connector {
    /// The name of the server, which no value has.
    pub fn host(&self) -> &str {
        match *self {}
    }
}

/// The certificates that a client has shown, which this build never asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerCertificates {}

impl PeerCertificates {
    /// Returns true if an authority vouches for the first one.
    pub fn are_verified(&self) -> bool {
        match *self {}
    }

    /// The certificates in DER: that of the client, then those that vouch for it.
    pub fn chain(&self) -> std::iter::Empty<&[u8]> {
        match *self {}
    }

    /// The subject of the client's certificate, as text.
    pub fn subject(&self) -> Option<String> {
        match *self {}
    }
}

/// The names of a client, which this build never asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientNames {}

#[derive(Debug)]
pub(super) enum Tls {}

/// A fault behind a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl Tls {
    pub(super) fn new(acceptor: &Acceptor) -> Self {
        match *acceptor {}
    }

    pub(super) fn begin_client(connector: &Connector) -> io::Result<Self> {
        match *connector {}
    }

    pub(super) fn is_ended(&self) -> bool {
        match *self {}
    }

    pub(super) fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub(super) fn has_failed(&self) -> bool {
        match *self {}
    }

    pub(super) fn can_freeze(&self) -> bool {
        match *self {}
    }

    pub(super) fn suite_number(&self) -> Option<u16> {
        match *self {}
    }

    pub(super) fn facts(&self) -> Option<TlsFacts<'_>> {
        match *self {}
    }

    pub(super) fn peer_certificates(&self) -> Option<&PeerCertificates> {
        match *self {}
    }

    pub(super) fn client_names(&self) -> Option<&ClientNames> {
        match *self {}
    }

    pub(super) fn holds_input(&self) -> bool {
        match *self {}
    }

    pub(super) fn has_begun_record(&self) -> bool {
        match *self {}
    }

    pub(super) fn kept_input_bytes(&self) -> usize {
        match *self {}
    }

    pub(super) fn handshakes_max(&self) -> Option<usize> {
        match *self {}
    }

    pub(super) fn shake(
        &mut self,
        _: &Socket,
        _: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Option<Agreed>> {
        match *self {}
    }

    pub(super) fn read(&mut self, _: &Socket, _: bool, _: &mut [u8]) -> io::Result<ReadOutcome> {
        match *self {}
    }

    pub(super) fn owes(&self) -> bool {
        match *self {}
    }

    pub(super) fn end_alone(&mut self) {
        match *self {}
    }

    pub(super) fn seal(
        &mut self,
        _: &[&[u8]],
        _: bool,
        _: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn seal_to(&mut self, _: &[u8], _: &mut Vec<u8>) -> bool {
        match *self {}
    }

    pub(super) fn close(&mut self, _: &Socket) {
        match *self {}
    }
}

pub(super) fn fault_of(_: &io::Error) -> Option<Fault> {
    None
}

pub(super) fn failure(_: &io::Error) -> Option<HandshakeFailure> {
    None
}
