//! The smallest WebSocket server: sends back what it is sent, message by message on `/ws`,
//! compressed on `/ws-deflate`, and frame by frame on `/ws-frames`.
//!
//! ```text
//! cargo run --release -p dwell-engine --example websocket_echo -- 127.0.0.1:9001
//! ```

use dwell_engine::websocket::{
    Delivery, FramePart, Message, MessageLimits, Negotiated, Opcode, OriginPolicy, UpgradeOptions,
    WebSocketApp, WebSocketEnd, WebSocketOptions, WebSocketRef, WebSockets, upgrade,
};
use dwell_engine::{App, Detached, ExchangeId, Http, Kinds, Limits, Outcome, Reply, Request};
use dwell_evloop::{Context, Driver, EventLoop, ListenOptions, Readiness, Token, bind_group};
use std::error::Error;

const LISTENER: u8 = 1;
const HTTP: u8 = 2;
const WEB_SOCKET: u8 = 3;

/// Echoes need room for what is echoed.
const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// What is done with requests: the routes upgrade, everything else gets 404.
#[derive(Default)]
struct Routes {
    /// Connections that have left HTTP, for the driver to hand over.
    upgraded: Vec<(Detached, Negotiated)>,
}

impl App for Routes {
    fn request(
        &mut self,
        _: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let options = UpgradeOptions {
            origin: OriginPolicy::Any,
            ..UpgradeOptions::default()
        };
        let options = match request.head.path {
            "/ws" => UpgradeOptions {
                deflate: None,
                ..options
            },
            "/ws-deflate" => options,
            "/ws-frames" => UpgradeOptions {
                delivery: Delivery::Frames,
                ..options
            },
            _ => {
                reply.text(404, "try /ws");
                return Outcome::Answered;
            }
        };
        match upgrade(request.head, &options) {
            Ok(upgrade) => {
                upgrade.send(reply, &[]);
                let tag = upgrade.negotiated().to_bits().into();
                Outcome::Detach { tag }
            }
            Err(rejection) => {
                rejection.send(reply);
                Outcome::Answered
            }
        }
    }

    fn detached(&mut self, _: &mut Context, _: ExchangeId, tag: u64, detached: Detached) {
        self.upgraded
            .push((detached, Negotiated::from_bits(tag as u32)));
    }
}

/// What is done with messages. There is room for each: none is handed over before.
struct Echo;

impl WebSocketApp for Echo {
    fn message(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, message: Message<'_>) {
        let _ = socket.send(message.kind, &message.payload);
    }

    fn frame(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, part: FramePart<'_>) {
        // A piece of a frame becomes a frame of its own, so that nothing has to be kept.
        let opcode = if part.is_first {
            part.opcode
        } else {
            Opcode::Continuation
        };
        let fin = part.fin && part.payload_left == 0;
        let compressed = part.compressed && part.is_first;
        let _ = socket.frame(opcode, fin, compressed, part.data);
    }

    fn closed(&mut self, _: &mut Context, _: Token, _: u64, _: WebSocketEnd<'_>) {}
}

struct Server {
    http: Http,
    routes: Routes,
    web_sockets: WebSockets,
}

impl Driver for Server {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        if token.kind() == WEB_SOCKET {
            self.web_sockets.ready(context, token, readiness, &mut Echo);
            return;
        }
        self.http.ready(context, token, readiness, &mut self.routes);
        for (detached, negotiated) in self.routes.upgraded.drain(..) {
            // One too many, or no memory for it: it is closed.
            let _ = self.web_sockets.adopt(context, detached, negotiated, 0);
        }
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        if token.kind() == WEB_SOCKET {
            self.web_sockets.expired(context, token, &mut Echo);
        } else {
            self.http.expired(context, token, &mut self.routes);
        }
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:9001".into());
    let options = WebSocketOptions {
        messages: MessageLimits {
            frame_bytes_max: MESSAGE_BYTES_MAX as u64,
            message_bytes_max: MESSAGE_BYTES_MAX,
            ..MessageLimits::default()
        },
        ..WebSocketOptions::default()
    };
    let kinds = Kinds {
        listener: LISTENER,
        connection: HTTP,
    };
    let mut event_loop = EventLoop::new()?;
    let mut server = Server {
        http: Http::new(kinds, Limits::default()),
        routes: Routes::default(),
        web_sockets: WebSockets::new(WEB_SOCKET, options),
    };
    for listener in bind_group(address.parse()?, 1, ListenOptions::default())? {
        server.http.listen(event_loop.context(), listener)?;
    }
    event_loop.run(&mut server)?;
    Ok(())
}
