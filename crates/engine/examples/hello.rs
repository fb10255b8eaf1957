//! The smallest server on the engine: every request gets the same 13 bytes.
//!
//! `cargo run --release -p dwell-engine --example hello -- 127.0.0.1:8000`

use dwell_engine::{
    App, Body, BodyPlan, ExchangeId, Http, Kinds, Limits, Outcome, Reply, Request, Response,
};
use dwell_evloop::{
    Context, Driver, EventLoop, ListenOptions, Readiness, Stream, Token, bind_group,
};
use dwell_proto::http1::RequestHead;
use std::error::Error;

const KINDS: Kinds = Kinds {
    listener: 0,
    connection: 1,
};

struct Hello;

impl App for Hello {
    fn body(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        _: &RequestHead<'_, '_>,
        _: &Stream,
    ) -> BodyPlan {
        BodyPlan::Collect { bytes_max: 1024 }
    }

    fn request(&mut self, _: &mut Context, _: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        reply.send(&Response {
            status: 200,
            fields: &[("Content-Type", b"text/plain")],
            body: Body::Slice(b"hello, world\n"),
        });
        Outcome::Answered
    }

    fn expired(&mut self, _: &mut Context, _: ExchangeId, _: u64, _: &mut Reply<'_>) -> Outcome {
        Outcome::Close
    }

    fn abandoned(&mut self, _: &mut Context, _: ExchangeId, _: u64) {}
}

struct Server {
    http: Http,
    app: Hello,
}

impl Driver for Server {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.http.ready(context, token, readiness, &mut self.app);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.http.expired(context, token, &mut self.app);
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:8000".into());
    let mut event_loop = EventLoop::new()?;
    let mut server = Server {
        http: Http::new(KINDS, Limits::default()),
        app: Hello,
    };
    for listener in bind_group(address.parse()?, 1, ListenOptions::default())? {
        server.http.listen(event_loop.context(), listener)?;
    }
    event_loop.run(&mut server)?;
    Ok(())
}
