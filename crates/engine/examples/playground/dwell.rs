//! The routes on the event loops.

use crate::{FILE, HTML, echo, page, runtime};
use dwell_engine::files::{FileOptions, serve_file};
use dwell_engine::handler::{Answer, BodyWriter, Exchange, TryWriteError, WebSocketHandler};
use dwell_engine::websocket::{
    Delivery, FramePart, Message, Opcode, UpgradeOptions, WebSocketRef, upgrade,
};
use dwell_engine::{Request, Running, Server, ServerError, sse};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The clients of `/sse`: an event stream is a writer in a list, and one thread serves them all.
type Listeners = Arc<Mutex<Vec<BodyWriter>>>;

pub(crate) fn serve(listen: SocketAddr) -> Result<Running, ServerError> {
    let listeners = Listeners::default();
    let ticking = Arc::clone(&listeners);
    let ticker = thread::Builder::new().name("ticker".into());
    ticker
        .spawn(move || tick(&ticking))
        .map_err(ServerError::Loop)?;
    Server::builder()
        .listen(listen)
        .shutdown_on_signals(Duration::from_secs(2))
        .serve(
            move |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
                respond(request, exchange, &listeners);
            },
        )
}

fn respond(request: &Request<'_>, exchange: &mut Exchange<'_, '_>, listeners: &Listeners) {
    match request.head.path {
        "/" => {
            let body = page("dwell: one event loop a core");
            exchange.answer(Answer::new(200).field("Content-Type", HTML).body(body));
        }
        "/ws" => web_socket(request, exchange, Delivery::Messages),
        "/ws-frames" => web_socket(request, exchange, Delivery::Frames),
        "/ws-thread" => web_socket_on_a_thread(request, exchange),
        "/sse" => listen_to_events(exchange, listeners),
        "/file" => {
            let file = serve_file(request.head, FILE, &FileOptions::default(), exchange.wall());
            file.send(exchange, &[]);
        }
        "/-/runtime" => {
            let text = runtime::of_loops(&exchange.statistics());
            exchange.answer(Answer::text(200, text).field("Cache-Control", "no-store"));
        }
        _ => exchange.text(404, "not found; / lists what there is"),
    }
}

/// Echoes messages, or frames as they come.
struct Echo;

impl WebSocketHandler for Echo {
    fn message(&mut self, socket: &mut WebSocketRef<'_>, message: Message<'_>) {
        // There is room for it: nothing is handed over before there is.
        let _ = socket.send(message.kind, &message.payload);
    }

    fn frame(&mut self, socket: &mut WebSocketRef<'_>, part: FramePart<'_>) {
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
}

fn web_socket(request: &Request<'_>, exchange: &mut Exchange<'_, '_>, delivery: Delivery) {
    let options = UpgradeOptions {
        delivery,
        ..UpgradeOptions::default()
    };
    exchange.web_socket(request, &options, Echo);
}

/// The classic shape, to compare: the socket leaves the loop for a thread of its own.
fn web_socket_on_a_thread(request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
    let options = UpgradeOptions {
        deflate: None,
        ..UpgradeOptions::default()
    };
    match upgrade(request.head, &options) {
        Ok(upgrade) => {
            let mut answer = Answer::new(upgrade.status());
            upgrade.for_each_field(|name, value| {
                let bare = std::mem::replace(&mut answer, Answer::new(101));
                answer = bare.field(name, value.to_vec());
            });
            // A client that has left meanwhile needs no thread.
            let _ = exchange
                .responder()
                .take_over_blocking(answer, |mut socket, early| {
                    // It ends with its client, in whatever way.
                    let _ = echo::run(&mut socket, early);
                });
        }
        Err(rejection) => rejection.send(exchange),
    }
}

fn listen_to_events(exchange: &mut Exchange<'_, '_>, listeners: &Listeners) {
    let head = Answer::new(200)
        .field("Content-Type", sse::CONTENT_TYPE)
        .field("Cache-Control", "no-cache");
    if let Ok(writer) = exchange.responder().stream(head, None) {
        let mut listeners = listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push(writer);
    }
}

/// Sends an event a second to everybody.
fn tick(listeners: &Listeners) {
    for number in 1_u64.. {
        thread::sleep(Duration::from_secs(1));
        let Ok(event) = event(number) else {
            return;
        };
        let mut listeners = listeners.lock().unwrap_or_else(PoisonError::into_inner);
        // Who does not keep up misses some; who has left is forgotten.
        listeners.retain_mut(|writer| {
            let written = writer.try_write(event.clone());
            matches!(written, Ok(()) | Err(TryWriteError::Full(_)))
        });
    }
}

/// The event of a second, encoded once for all.
pub(crate) fn event(number: u64) -> io::Result<bytes::Bytes> {
    let id = number.to_string();
    let data = format!("second {number}");
    let event = sse::Event {
        id: Some(&id),
        ..sse::Event::new(&data)
    };
    let mut encoded = Vec::new();
    event.encode(&mut encoded).map_err(io::Error::other)?;
    Ok(encoded.into())
}
