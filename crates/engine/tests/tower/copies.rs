//! The copies of a service that a loop works on.

use crate::support::{Client, get, serve, until};
use axum::body::Body;
use dwell_engine::handler::RequestBody;
use dwell_engine::handler::tower::service;
use http::{Request, Response};
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use tower_service::Service;

#[derive(Default)]
enum Readiness {
    #[default]
    Ready,
    Never,
    Waits(Option<Waker>),
}

/// Answers with the number of requests that this copy has served.
struct Counting {
    served: usize,
    clones: Arc<Mutex<usize>>,
    readiness: Arc<Mutex<Readiness>>,
}

impl Clone for Counting {
    fn clone(&self) -> Self {
        *self.clones.lock().unwrap() += 1;
        Self {
            served: self.served,
            clones: Arc::clone(&self.clones),
            readiness: Arc::clone(&self.readiness),
        }
    }
}

impl Service<Request<RequestBody>> for Counting {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = Ready<Result<Response<Body>, &'static str>>;

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        match &mut *self.readiness.lock().unwrap() {
            Readiness::Ready => Poll::Ready(Ok(())),
            Readiness::Never => Poll::Ready(Err("it is of no more use")),
            Readiness::Waits(waker) => {
                *waker = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }

    fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
        self.served += 1;
        ready(Ok(Response::new(Body::from(self.served.to_string()))))
    }
}

#[test]
fn a_copy_serves_one_request_after_the_other_and_is_left_to_one_that_waits() {
    let (clones, readiness) = (Arc::default(), Arc::default());
    let counting = Counting {
        served: 0,
        clones: Arc::clone(&clones),
        readiness: Arc::clone(&readiness),
    };
    let running = serve(|options| options.pollers(1), service(counting));
    let mut client = Client::connect(&running);
    let mut ask = || client.get("/").text().to_owned();
    assert_eq!([ask(), ask(), ask()], ["1", "2", "3"]);
    // One that stays as it was made, and one that serves.
    assert_eq!(*clones.lock().unwrap(), 2);
    *readiness.lock().unwrap() = Readiness::Waits(None);
    let mut waiting = Client::connect(&running);
    waiting.send(get("/"));
    let is_waiting = || matches!(&*readiness.lock().unwrap(), Readiness::Waits(Some(_)));
    until(&running, |_| is_waiting());
    let before = std::mem::take(&mut *readiness.lock().unwrap());
    assert_eq!(
        [ask(), ask()],
        ["1", "2"],
        "the others have a copy of their own"
    );
    let Readiness::Waits(Some(waker)) = before else {
        panic!("it waits");
    };
    waker.wake();
    assert_eq!(waiting.answer().text(), "4");
    assert_eq!(*clones.lock().unwrap(), 3);
    // What has failed is not used again.
    *readiness.lock().unwrap() = Readiness::Never;
    assert_eq!(waiting.get("/").status, 500);
    *readiness.lock().unwrap() = Readiness::Ready;
    assert_eq!(ask(), "1");
    assert_eq!(*clones.lock().unwrap(), 4);
}
