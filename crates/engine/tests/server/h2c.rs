//! HTTP/2 without TLS, spoken by a scripted client.

mod attacks;
mod client;
mod exchanges;
mod windows;

use crate::support::serve;
use client::Peer;
use dwell_engine::handler::{
    Answer, BodyMode, BodyWriter, Exchange, Handler, RequestBody, Responder,
};
use dwell_engine::{Body, Request, Response, Running, ServerBuilder};
use dwell_proto::http1::{RequestHead, Version};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

/// Bytes of the answer to `/big`.
const BIG_BYTES: usize = 100_000;

/// Answers at once, later, in pieces, or with what was sent.
#[derive(Clone, Default)]
struct Site {
    waiting: Arc<Mutex<Vec<Responder>>>,
    /// Held by a test for as long as the jobs of `/slow` are to take.
    slowness: Arc<Mutex<()>>,
    /// Requests of it so far.
    slow: Arc<AtomicUsize>,
    /// Writers that have found no more room.
    writers: Arc<Mutex<Vec<BodyWriter>>>,
    /// Bodies whose readers have waited for the first bytes, and have not come back.
    bodies: Arc<Mutex<Vec<(RequestBody, Responder)>>>,
}

impl Handler for Site {
    fn body(&self, head: &RequestHead<'_, '_>) -> BodyMode {
        match head.method {
            "PUT" => BodyMode::Stream,
            _ => BodyMode::Collect,
        }
    }

    fn handle(&self, request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
        assert_eq!(request.head.version, Version::Http2);
        match (request.head.method, request.head.path) {
            (_, "/later") => self.waiting.lock().unwrap().push(exchange.responder()),
            (_, "/slow") => {
                self.slow.fetch_add(1, Ordering::Relaxed);
                let (responder, slowness) = (exchange.responder(), Arc::clone(&self.slowness));
                let work = move || {
                    drop(slowness.lock());
                    let _ = responder.send(Answer::text(200, "slow"));
                };
                // A pool that is full has answered.
                let _ = exchange.offload(work);
            }
            (_, "/fill") => {
                let writer = exchange.responder().stream(Answer::new(200), None);
                let mut writer = writer.unwrap();
                while writer.try_write(vec![b'f'; 10_000]).is_ok() {}
                self.writers.lock().unwrap().push(writer);
            }
            (_, "/thread") => {
                let taken = exchange.responder();
                let _ = taken.take_over_blocking(Answer::new(101), |_, _| unreachable!());
            }
            ("PUT", "/left") => {
                let mut body = exchange.body(request);
                let first = body.poll_next(&mut Context::from_waker(Waker::noop()));
                assert!(first.is_pending());
                let mut bodies = self.bodies.lock().unwrap();
                bodies.push((body, exchange.responder()));
            }
            ("PUT", _) => {
                let mut body = exchange.body(request);
                let responder = exchange.responder();
                let read = move || {
                    let read = body.read_all(1 << 20).map(|bytes| bytes.len());
                    let text = format!("{read:?} {}", body.trailers().len());
                    let _ = responder.send(Answer::text(200, text));
                };
                exchange.offload(read).unwrap();
            }
            ("POST", _) => exchange.send(&Response {
                status: 200,
                fields: &[],
                body: Body::Slice(request.body),
            }),
            (_, "/stream") => {
                let writer = exchange.responder().stream(Answer::new(200), None);
                let mut writer = writer.unwrap();
                writer.try_write("one ").unwrap();
                writer.try_write("two").unwrap();
                let _ = writer.finish(vec![("x-end".into(), b"1".to_vec().into())]);
            }
            (_, "/big") => exchange.send(&Response {
                status: 200,
                fields: &[],
                body: Body::Slice(&vec![b'b'; BIG_BYTES]),
            }),
            (_, path) => exchange.text(200, path),
        }
    }
}

fn site(options: impl FnOnce(ServerBuilder) -> ServerBuilder) -> (Running, Site) {
    let site = Site::default();
    let running = serve(|builder| options(builder.h2c(true)), site.clone());
    (running, site)
}

fn peer(options: impl FnOnce(ServerBuilder) -> ServerBuilder) -> (Running, Site, Peer) {
    let (running, site) = site(options);
    let peer = Peer::connect(&running);
    (running, site, peer)
}

impl Site {
    /// The exchanges that wait, when there are so many.
    fn waiting(&self, count: usize) -> Vec<Responder> {
        let begun = std::time::Instant::now();
        while self.waiting.lock().unwrap().len() < count {
            assert!(begun.elapsed() < crate::support::PATIENCE);
            std::thread::yield_now();
        }
        std::mem::take(&mut self.waiting.lock().unwrap())
    }
}
