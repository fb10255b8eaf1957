//! A service that is shaped as one of gRPC, and a client's part of its calls.

use crate::h2::{Got, Peer, data, head};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use http_body::Frame;
use std::io::{Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Gives back what comes, while it comes, and ends with the status of the call.
struct Echo {
    body: Body,
    has_ended: bool,
}

impl http_body::Body for Echo {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(task));
        let mut status = HeaderMap::new();
        status.insert("grpc-status", "0".parse().unwrap());
        Poll::Ready(match frame {
            Some(Ok(frame)) if frame.is_data() => Some(Ok(frame)),
            Some(Err(error)) => Some(Err(error)),
            ended => {
                if let Some(Ok(Ok(fields))) = ended.map(|frame| frame.map(Frame::into_trailers)) {
                    status.extend(fields);
                }
                self.has_ended = true;
                Some(Ok(Frame::trailers(status)))
            }
        })
    }
}

async fn echo(request: Request) -> Response {
    assert_eq!(request.headers()["te"], "trailers");
    let body = Echo {
        body: request.into_body(),
        has_ended: false,
    };
    let answer = Response::builder().header("content-type", "application/grpc");
    answer.body(Body::new(body)).unwrap()
}

/// Has no body: the status of the call is in the head.
async fn unimplemented() -> Response {
    let answer = Response::builder()
        .header("content-type", "application/grpc")
        .header("grpc-status", "12");
    answer.body(Body::empty()).unwrap()
}

pub(crate) fn router() -> Router {
    Router::new()
        .route("/test.Echo/Talk", post(echo))
        .route("/test.Echo/Never", post(std::future::pending::<()>))
        .fallback(unimplemented)
}

/// A message with its prefix: that it is not compressed, and its length.
pub(crate) fn message(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), text.as_bytes()].concat()
}

/// The head of a call.
pub(crate) fn call(stream: u32, path: &str) -> Vec<u8> {
    let lines = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "dwell.test"),
        (":path", path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    head(stream, &lines, false)
}

/// The field of a head, or of trailers.
fn field(lines: &[(String, String)], wanted: &str) -> Option<String> {
    let mut found = lines.iter().filter(|(name, _)| name == wanted);
    found.next().map(|(_, value)| value.clone())
}

/// Reads so many bytes of messages on one stream; the head of the answer comes before them.
fn read<S: Read + Write>(peer: &mut Peer<S>, wanted: u32, bytes: usize) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < bytes {
        match peer.next().expect("the connection is open") {
            Got::Head { lines, ends, .. } => {
                assert_eq!(field(&lines, ":status").as_deref(), Some("200"));
                assert!(!ends, "{lines:?}");
            }
            Got::Data { stream, data, ends } if stream == wanted => {
                read.extend_from_slice(&data);
                assert!(!ends, "the trailers end the stream");
            }
            // Another call may have been answered before its client had said all.
            Got::Reset(stream, _) if stream == wanted => panic!("the call is cut off"),
            Got::GoAway(..) => panic!("the connection ends"),
            _ => {}
        }
    }
    read
}

/// Reads the trailers of a stream, or its head where that is the end; returns two of their fields.
pub(crate) fn end<S: Read + Write>(
    peer: &mut Peer<S>,
    wanted: u32,
) -> (Option<String>, Option<String>) {
    let got = peer
        .until(|got| matches!(got, Got::Head { stream, ends, .. } if *ends && *stream == wanted));
    let Got::Head { lines, .. } = got else {
        unreachable!("nothing else is wanted")
    };
    (field(&lines, "grpc-status"), field(&lines, "note"))
}

/// A call in which both sides speak in turn, and each hears the other before it goes on.
pub(crate) fn talk<S: Read + Write>(peer: &mut Peer<S>, stream: u32) {
    peer.send(call(stream, "/test.Echo/Talk"));
    for text in ["one", "two", &"three".repeat(2_000)] {
        let message = message(text);
        peer.send(data(stream, &message, false));
        assert!(read(peer, stream, message.len()) == message, "{text}");
    }
    peer.send(head(stream, &[("note", "from the client")], true));
    let (status, note) = end(peer, stream);
    assert_eq!(status.as_deref(), Some("0"));
    assert_eq!(note.as_deref(), Some("from the client"));
}

/// A call that nothing implements.
pub(crate) fn talk_in_vain<S: Read + Write>(peer: &mut Peer<S>, stream: u32) {
    peer.send(call(stream, "/test.Echo/Other"));
    peer.send(data(stream, &message("hello"), true));
    assert_eq!(end(peer, stream).0.as_deref(), Some("12"));
}
