//! Handlers that need tokio's runtime: entered around every poll.

use crate::support::{Client, get, serve, until};
use axum::Router;
use axum::response::Sse;
use axum::response::sse::Event;
use axum::routing::get as on_get;
use dwell_engine::Running;
use dwell_engine::handler::tower::service;
use futures_core::Stream;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

/// What comes on a channel, as events.
struct Events(mpsc::Receiver<u32>);

impl Stream for Events {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.0.poll_recv(task);
        next.map(|number| number.map(|number| Ok(Event::default().data(number.to_string()))))
    }
}

async fn slow() -> &'static str {
    tokio::time::sleep(Duration::from_millis(30)).await;
    "slept"
}

async fn spawned() -> String {
    let task = tokio::spawn(async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        6 * 7
    });
    task.await.unwrap().to_string()
}

async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        for number in 0..3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if sender.send(number).await.is_err() {
                return;
            }
        }
    });
    Sse::new(Events(receiver))
}

fn start(router: Router) -> (Runtime, Running) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let handle = runtime.handle().clone();
    let handler = service(router).around(move |poll| {
        let _guard = handle.enter();
        poll();
    });
    let running = serve(|options| options.pollers(2), handler);
    (runtime, running)
}

#[test]
fn sleeping_spawning_and_streaming_events() {
    let router = Router::new()
        .route("/slow", on_get(slow))
        .route("/spawned", on_get(spawned))
        .route("/events", on_get(events));
    let (_runtime, running) = start(router);
    let mut clients: Vec<_> = (0..30).map(|_| Client::connect(&running)).collect();
    for client in &mut clients {
        client.send(get("/slow"));
    }
    for client in &mut clients {
        assert_eq!(client.answer().text(), "slept");
    }
    let mut client = clients.pop().unwrap();
    assert_eq!(client.get("/spawned").text(), "42");
    let answer = client.get("/events");
    assert_eq!(answer.field("content-type"), Some("text/event-stream"));
    assert_eq!(answer.text(), "data: 0\n\ndata: 1\n\ndata: 2\n\n");
    assert_eq!(
        client.get("/slow").text(),
        "slept",
        "the connection lives on"
    );
    until(&running, |figures| figures.in_flight == 0);
    assert_eq!(running.statistics().panics, 0);
}

#[test]
fn without_the_runtime_such_a_handler_panics_and_costs_its_connection() {
    let router = Router::new().route("/slow", on_get(slow));
    let running = serve(|options| options, service(router));
    assert_eq!(Client::connect(&running).get("/slow").status, 500);
    assert_eq!(running.statistics().panics, 1);
}
