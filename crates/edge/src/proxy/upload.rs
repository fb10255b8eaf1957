//! The body of a proxied request: how far it is read, and how it is framed for the application.

use crate::config::RouteConfig;
use dwell_proto::http1::{Trailers, encode, list_tokens};
use std::sync::Arc;

/// A request body on its way to the application.
#[derive(Debug)]
pub(super) struct Upload {
    state: State,
    /// Body bytes that the application has not read.
    untaken: u64,
    /// The framed part of them that came while the request changed its connection, and true if it
    /// includes the end of the body.
    kept: Option<(Vec<u8>, bool)>,
    /// The rest of the body is chunked.
    is_chunked: bool,
    /// The `Connection` field of the request, until the body has ended.
    nominated: Option<Box<[u8]>>,
}

/// State of a request body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// There is no body, or all of it has come.
    Complete,
    /// It waits for a connection to the application, and with `expects` for 100 Continue too.
    Waiting { expects: bool },
    /// It is being received.
    Granted,
}

/// Consequence of the connection to the application that a request has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// The client may send the body.
    Granted,
    /// The client may send it when the application asks for it, or after a time.
    AwaitsContinue,
    /// The body is being received, or the request has none.
    Unchanged,
}

/// Use of an interim response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Interim {
    /// The application asks for the body, which the client may send now.
    Granted,
    /// It is passed on.
    PassedOn,
    /// It means nothing to the client, which has been told to go on.
    Dropped,
}

impl Upload {
    /// No body, or one that has come.
    pub(super) fn complete() -> Self {
        Self {
            state: State::Complete,
            untaken: 0,
            kept: None,
            is_chunked: false,
            nominated: None,
        }
    }

    /// A body whose rest follows; with `expects` the client waits for 100 Continue.
    pub(super) fn waiting(expects: bool, is_chunked: bool, nominated: Option<Box<[u8]>>) -> Self {
        Self {
            state: State::Waiting { expects },
            is_chunked,
            nominated,
            ..Self::complete()
        }
    }

    /// The request has a connection to the application.
    pub(super) fn start(&mut self) -> Start {
        match self.state {
            State::Waiting { expects: false } => {
                self.state = State::Granted;
                Start::Granted
            }
            State::Waiting { expects: true } => Start::AwaitsContinue,
            State::Granted | State::Complete => Start::Unchanged,
        }
    }

    /// Ends the wait for 100 Continue; false if nothing waits for it.
    pub(super) fn release(&mut self) -> bool {
        let waits = self.state == State::Waiting { expects: true };
        if waits {
            self.state = State::Granted;
        }
        waits
    }

    /// The application has sent an interim response.
    pub(super) fn interim(&mut self, status: u16) -> Interim {
        if status == 100 && self.release() {
            Interim::Granted
        } else if status != 100 || self.state == State::Complete {
            Interim::PassedOn
        } else {
            Interim::Dropped
        }
    }

    /// The application has read all bytes so far; returns the number that may follow.
    pub(super) fn taken(&mut self) -> Option<u64> {
        let taken = std::mem::take(&mut self.untaken);
        (self.state == State::Granted && taken > 0).then_some(taken)
    }

    /// Adds received bytes to a piece for the application.
    pub(super) fn receive(&mut self, data: &[u8], piece: &mut Vec<u8>) {
        self.untaken += data.len() as u64;
        if self.is_chunked {
            encode::chunk(piece, data);
        } else {
            piece.extend_from_slice(data);
        }
    }

    /// Ends the body, and adds its end to the last piece.
    pub(super) fn finish(
        &mut self,
        trailers: Trailers<'_>,
        routes: &[Arc<RouteConfig>],
        piece: &mut Vec<u8>,
    ) {
        self.state = State::Complete;
        let nominated = self.nominated.take();
        if self.is_chunked {
            let fields = passing(trailers, nominated.as_deref(), routes);
            encode::last_chunk_with(piece, &fields);
        }
    }

    /// Keeps a piece until the request has another connection. Kept pieces never exceed a window of
    /// bytes, as nothing is granted meanwhile.
    pub(super) fn keep(&mut self, piece: &[u8], is_last: bool) {
        let (bytes, has_last) = self.kept.get_or_insert_default();
        bytes.extend_from_slice(piece);
        *has_last |= is_last;
    }

    /// Takes what was kept, and true if it includes the end of the body.
    pub(super) fn take_kept(&mut self) -> Option<(Vec<u8>, bool)> {
        self.kept.take()
    }
}

/// The trailer fields of a request that are passed on.
pub(super) fn passing<'t>(
    trailers: Trailers<'t>,
    nominated: Option<&[u8]>,
    routes: &[Arc<RouteConfig>],
) -> Vec<(&'t str, &'t [u8])> {
    let passes = |name: &str| trailer_passes(name, nominated, routes);
    let fields = trailers.iter().filter(|(name, _)| passes(name));
    fields.collect()
}

/// Returns true for a trailer field that is passed on. Fields of the connection, fields by which a
/// route identifies clients, and names that CGI and WSGI cannot tell from others are removed.
///
/// Source: RFC 9110 sections 6.5.1 and 7.6.1.
fn trailer_passes(name: &str, nominated: Option<&[u8]>, routes: &[Arc<RouteConfig>]) -> bool {
    let is = |other: &[u8]| name.as_bytes().eq_ignore_ascii_case(other);
    let of_clients = || routes.iter().flat_map(|route| &route.identity_headers);
    !name.contains('_')
        && !list_tokens(nominated.unwrap_or_default()).any(is)
        && !of_clients().any(|header| is(header.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_granted_by_the_connection_or_by_the_application() {
        let mut upload = Upload::waiting(false, false, None);
        assert!(!upload.release(), "its client does not wait");
        assert_eq!(upload.start(), Start::Granted);
        assert_eq!(upload.start(), Start::Unchanged, "another connection");

        for by_timeout in [true, false] {
            let mut upload = Upload::waiting(true, false, None);
            assert_eq!(upload.start(), Start::AwaitsContinue);
            assert_eq!(upload.start(), Start::AwaitsContinue, "another connection");
            if by_timeout {
                assert!(upload.release());
            } else {
                assert_eq!(upload.interim(100), Interim::Granted);
            }
            assert!(!upload.release(), "the client is told once");
            assert_eq!(upload.start(), Start::Unchanged);
        }
        assert_eq!(Upload::complete().start(), Start::Unchanged);
    }

    #[test]
    fn interim_responses_are_passed_on_unless_the_client_was_told_to_go_on() {
        for expects in [true, false] {
            let mut upload = Upload::waiting(expects, false, None);
            assert_eq!(upload.interim(103), Interim::PassedOn);
            upload.start();
            upload.release();
            assert_eq!(upload.interim(100), Interim::Dropped);
            assert_eq!(upload.interim(103), Interim::PassedOn);
        }
        assert_eq!(Upload::complete().interim(100), Interim::PassedOn);
    }

    #[test]
    fn as_many_bytes_are_granted_as_the_application_takes() {
        let mut upload = Upload::waiting(false, false, None);
        let mut piece = Vec::new();
        upload.start();
        assert_eq!(upload.taken(), None, "nothing has come");
        upload.receive(b"four", &mut piece);
        upload.receive(b"more!", &mut piece);
        assert_eq!(piece, b"fourmore!");
        assert_eq!(upload.taken(), Some(9));
        assert_eq!(upload.taken(), None);
        upload.receive(b"end", &mut piece);
        upload.finish(Trailers::default(), &[], &mut piece);
        assert_eq!(piece, b"fourmore!end");
        assert_eq!(upload.taken(), None, "nothing follows");
    }

    #[test]
    fn chunks_count_without_their_framing() {
        let mut upload = Upload::waiting(false, true, None);
        let mut piece = Vec::new();
        upload.start();
        upload.receive(b"ok", &mut piece);
        assert_eq!(upload.taken(), Some(2));
        upload.finish(Trailers::default(), &[], &mut piece);
        assert_eq!(piece, b"2\r\nok\r\n0\r\n\r\n");
    }

    #[test]
    fn kept_pieces_are_taken_once_with_their_end() {
        let mut upload = Upload::waiting(false, false, None);
        upload.keep(b"a", false);
        upload.keep(b"b", true);
        upload.keep(b"", false);
        assert_eq!(upload.take_kept(), Some((b"ab".to_vec(), true)));
        assert_eq!(upload.take_kept(), None);
    }
}
