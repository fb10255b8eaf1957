//! Servers whose clients mostly wait: HTTP, WebSocket and event streams, with timers, a memcached
//! client and an embedded cache beside them.
//!
//! A client that waits is an entry of a table here: no thread, task or buffer exists for it. The
//! parts are features, and a program has the dependencies of those that it names.
//!
//! | to | take | feature |
//! |---|---|---|
//! | answer requests by handlers, on a loop a core | [`Server`] | `server` (default) |
//! | hold all of that in a loop that you poll | [`manager::Manager`] | `manager` (default) |
//! | write handlers over the types of the `http` crate | [`handler::http`] | `http` |
//! | serve an axum `Router`, or another `tower::Service` | [`handler::tower`] | `tower` |
//! | open WebSockets in axum's handlers | [`handler::axum::WebSocketUpgrade`] | `axum` |
//! | have clients under TLS | [`tls::Tls`] | `tls` |
//! | bound what a future may take | [`timers::timeout`] | `timers` |
//! | talk to memcached | [`memcache::Client`] | `memcache`; codecs: `json`, `zlib`, `zstd` |
//! | keep values in a bounded cache | [`store::Store`] | `store` |
//! | write a driver of your own | [`engine`], [`event_loop`] | `event-loop` |
//!
//! `full` is all of them but `zstd`; this one and `tls` build C libraries. The program `dwell`,
//! which stands in front of applications that are polled, is the package `dwell-cli`.
//!
//! # A server
//!
//! Handlers run on the loops and answer at once, or take a
//! [`responder`](handler::Exchange::responder) and answer when it suits them, from any thread.
//!
//! ```
//! # #[cfg(feature = "server")] {
//! use dwell::Server;
//! use dwell::handler::{Answer, handler_fn};
//! use std::time::Duration;
//!
//! let running = Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(handler_fn(
//!     |request, exchange| match request.head.path {
//!         "/" => exchange.text(200, "hello"),
//!         "/later" => {
//!             let responder = exchange.responder();
//!             std::thread::spawn(move || responder.send(Answer::text(200, "at last\n")));
//!         }
//!         _ => exchange.text(404, "not here"),
//!     },
//! ))?;
//! println!("http://{}", running.addresses()[0]);
//! # let address = running.addresses()[0];
//! # assert!(dwell_testkit::ask(address, "GET / HTTP/1.0\r\n\r\n").ends_with("\r\n\r\nhello\n"));
//! # let answer = dwell_testkit::ask(address, "GET /later HTTP/1.0\r\n\r\n");
//! # assert!(answer.ends_with("\r\n\r\nat last\n"), "{answer}");
//! running.shutdown(Duration::from_secs(10));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # WebSocket
//!
//! ```
//! # #[cfg(feature = "server")] {
//! use dwell::Server;
//! use dwell::handler::{handler_fn, web_socket_fn};
//! use dwell::websocket::UpgradeOptions;
//!
//! # let running =
//! Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(handler_fn(|request, exchange| {
//!     let echo = web_socket_fn(|socket, message| {
//!         // There is room for it: nothing is handed over before there is.
//!         let _ = socket.send(message.kind, &message.payload);
//!     });
//!     exchange.web_socket(request, &UpgradeOptions::default(), echo);
//! }))?;
//! # let (mut client, _) = tungstenite::connect(format!("ws://{}/", running.addresses()[0]))?;
//! # client.send("hello".into())?;
//! # assert_eq!(client.read()?.into_text()?, "hello");
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A loop that you poll
//!
//! A [`Manager`](manager::Manager) does nothing but in `poll`: you say when, for how long, and on
//! which thread.
//!
//! ```
//! # #[cfg(feature = "manager")] {
//! use dwell::manager::{Event, Manager};
//! use std::time::Duration;
//!
//! let mut manager = Manager::new(|conn, event| {
//!     if let Event::HttpMessage(message) = event {
//!         let body = format!("hello from {}\n", message.path());
//!         // Fails only where the request has its answer already.
//!         let _ = conn.reply(200, &[], body.as_bytes());
//!     }
//! })?;
//! let listener = manager.listen("http://127.0.0.1:0")?;
//! # let address = manager.conn(listener).and_then(|mut conn| conn.local_address());
//! # let client = std::thread::spawn(move || {
//! #     dwell_testkit::ask(address, "GET /here HTTP/1.0\r\n\r\n")
//! # });
//! # while !client.is_finished() {
//! manager.poll(Duration::from_millis(10))?;
//! # }
//! # assert!(client.join().unwrap().ends_with("\r\n\r\nhello from /here\n"));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # An axum router
//!
//! ```
//! # #[cfg(feature = "tower")] {
//! use axum::{Router, routing::get};
//! use dwell::Server;
//! use dwell::handler::tower::service;
//!
//! let router = Router::new().route("/", get(async || "hello"));
//! # let running =
//! Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(service(router))?;
//! # let answer = dwell_testkit::ask(running.addresses()[0], "GET / HTTP/1.0\r\n\r\n");
//! # assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Timeouts
//!
//! Arming one, moving it and dropping it is a store or two; the rest is paid once in 10 ms for all
//! of them. Any executor will do.
//!
//! ```
//! # #[cfg(feature = "timers")] {
//! use dwell::timers::timeout;
//! use std::time::Duration;
//!
//! async fn answer() -> Result<u32, dwell::timers::Elapsed> {
//!     timeout(Duration::from_secs(5), async { 42 }).await
//! }
//! # let mut answer = std::pin::pin!(answer());
//! # let mut task = std::task::Context::from_waker(std::task::Waker::noop());
//! # assert_eq!(answer.as_mut().poll(&mut task), std::task::Poll::Ready(Ok(42)));
//! # }
//! ```
//!
//! # memcached
//!
//! Every operation returns within its timeout, which costs no system call.
//!
//! ```no_run
//! # #[cfg(feature = "memcache")] {
//! use dwell::memcache::Client;
//! use std::time::Duration;
//!
//! let client = Client::for_servers(&["127.0.0.1:11211"])?;
//! client.set("greeting", "hello", Duration::from_secs(60))?;
//! let value = client.get("greeting")?;
//! assert_eq!(value.map(|value| value.data), Some(b"hello".to_vec()));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A cache
//!
//! It is memcached's data model in the process, bounded in bytes, and reports changes to loops. It
//! reads no clock: the caller says what time it is.
//!
//! ```
//! # #[cfg(feature = "store")] {
//! use dwell::store::{Expiry, Store, StoreConfig};
//!
//! let store = Store::new(&StoreConfig::default(), Box::new(()));
//! let (flags, now) = (0, 1_000);
//! store.set(b"greeting", flags, Expiry::at(now + 60), b"hello", now);
//! let item = store.get(b"greeting", now + 59).expect("it has a second left");
//! assert_eq!(&*item.value, b"hello");
//! assert!(store.get(b"greeting", now + 60).is_none());
//! # }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(
        feature = "axum",
        feature = "event-loop",
        feature = "manager",
        feature = "memcache",
        feature = "store",
        feature = "timers",
        feature = "tls"
    )),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "the first page speaks of all features"
    )
)]

#[cfg(feature = "server")]
#[doc(inline)]
pub use dwell_engine::{
    Request, Running, Server, ServerBuilder, ServerError, Shutdown, Statistics, files, handler, sse,
};
#[cfg(feature = "server")]
#[doc(inline)]
pub use dwell_evloop::ListenOptions;

#[cfg(feature = "manager")]
#[doc(inline)]
pub use dwell_engine::manager;

#[cfg(any(feature = "server", feature = "manager"))]
#[doc(inline)]
pub use dwell_engine::{StreamEnd, StreamLimits, StreamRef, websocket};
#[cfg(any(feature = "server", feature = "manager"))]
#[doc(inline)]
pub use dwell_proto::http1;

#[cfg(all(feature = "tls", any(feature = "server", feature = "manager")))]
#[doc(inline)]
pub use dwell_engine::tls;

/// The crate of the server, the manager and their components, whose pages it has.
#[cfg(feature = "event-loop")]
#[doc(no_inline)]
pub use dwell_engine as engine;
#[cfg(feature = "event-loop")]
#[doc(inline)]
pub use dwell_evloop as event_loop;

#[cfg(feature = "memcache")]
#[doc(inline)]
pub use dwell_memcache as memcache;

#[cfg(feature = "store")]
#[doc(inline)]
pub use dwell_store as store;

#[cfg(feature = "timers")]
#[doc(inline)]
pub use dwell_timers as timers;

/// The pages about the parts, whose examples are compiled as they stand.
#[cfg(all(doctest, feature = "manager", feature = "axum", feature = "tls"))]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/manager.md")]
    mod manager {}
    #[doc = include_str!("../../../docs/manager-threads.md")]
    mod manager_threads {}
    #[doc = include_str!("../../../docs/manager-tls.md")]
    mod manager_tls {}
    #[doc = include_str!("../../../docs/server.md")]
    mod server {}
    #[doc = include_str!("../../../docs/server-streams.md")]
    mod server_streams {}
    #[doc = include_str!("../../../docs/server-tls.md")]
    mod server_tls {}
    #[doc = include_str!("../../../docs/axum.md")]
    mod axum {}
}
