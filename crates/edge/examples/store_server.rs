//! The embedded store's memcached server and nothing else, on one loop.
//!
//! `cargo run --example store_server -- 127.0.0.1:11311`

use std::net::SocketAddr;
use std::sync::Arc;

use dwell_edge::store_server::{Kinds, StoreServer, StoreServerLimits, StoreService};
use dwell_evloop::{Context, Driver, EventLoop, ListenOptions, Readiness, Token, bind_group};
use dwell_store::{Store, StoreConfig};

struct Server(StoreServer);

impl Driver for Server {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.0.ready(context, token, readiness);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.0.expired(context, token);
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:11311".to_owned());
    let address: SocketAddr = address.parse()?;
    let mut event_loop = EventLoop::new()?;
    let context = event_loop.context();
    let store = Arc::new(Store::new(&StoreConfig::default(), Box::new(())));
    let now = u32::try_from(context.unix_seconds())?;
    let service = StoreService::new(store, StoreServerLimits::default(), 1, now);
    let mut server = StoreServer::new(
        Kinds {
            listener: 1,
            connection: 2,
        },
        service,
    );
    for listener in bind_group(address, 1, ListenOptions::default())? {
        server.listen(context, listener)?;
    }
    event_loop.run(&mut Server(server))?;
    Ok(())
}
