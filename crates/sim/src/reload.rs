//! Configurations of the process, and what a reload changes in them.

use crate::bounds::Bounds;
use crate::memcached::{self, MemcachedOptions};
use crate::options::{Fault, Options};
use crate::outward::{Behind, lines, speaks};
use dwell_edge::config::{self, Config};
use dwell_evloop::Random;
use std::net::SocketAddr;
use std::time::Duration;

/// A change of a configuration that no client notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The application has moved to its second address.
    Moved,
    /// There is another route, before that of the polls.
    Route,
    /// The process listens at another address, too.
    Address,
    /// Bounds and times of connections are lower, but not used up here.
    Limits,
}

impl Change {
    const ALL: [Self; 4] = [Self::Moved, Self::Route, Self::Address, Self::Limits];
}

/// Changes that a configuration has beside that of the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reload([Option<Change>; Change::ALL.len()]);

impl Reload {
    pub(crate) fn draw(random: &mut Random) -> Self {
        Self(Change::ALL.map(|change| (random.below(2) == 0).then_some(change)))
    }

    fn has(self, change: Change) -> bool {
        self.0.contains(&Some(change))
    }
}

/// The addresses of the application.
pub(crate) const APPS: [([u8; 4], u16); 2] = [([127, 0, 0, 1], 9000), ([127, 0, 0, 1], 9001)];
/// The time for which a process that drains has clients.
pub(crate) const DRAIN: Duration = Duration::from_secs(4);

/// The servers of the application that a loop may have requests to, as one that a reload has taken
/// away ends what it has.
pub(crate) fn app_servers(options: &Options) -> usize {
    if options.has(Fault::Reload) {
        APPS.len()
    } else {
        1
    }
}

/// The configuration of a run, with these changes and bounds.
///
/// # Panics
/// If it has a mistake.
pub(crate) fn config(
    options: &Options,
    [clients, store]: [SocketAddr; 2],
    changes: Reload,
    bounds: Option<Bounds>,
) -> Config {
    let on_delete = if options.keeps_waiting {
        "keep-waiting"
    } else {
        "origin"
    };
    let upstream = if options.has_app {
        let at = SocketAddr::from(APPS[usize::from(changes.has(Change::Moved))]);
        let scheme = if speaks(options, Behind::App) {
            "https"
        } else {
            "http"
        };
        let tls = lines(options, Behind::App);
        format!(
            "{tls}upstream.url = \"{scheme}://{at}\"\nupstream.connect_timeout = \"1s\"\n\
             upstream.header_timeout = \"2s\"\nupstream.total_timeout = \"4s\"\n"
        )
    } else {
        String::new()
    };
    let also = if changes.has(Change::Address) {
        ", \"127.0.0.1:8081\""
    } else {
        ""
    };
    let limits = if changes.has(Change::Limits) {
        "limits.waiters_max = 500\nlimits.idle_timeout = \"20s\"\n\
         limits.body_bytes_max = \"16KiB\"\n"
    } else {
        ""
    };
    let route = if changes.has(Change::Route) {
        "[[route]]\nprefix = \"/other/\"\non_delete = \"not-found\"\n"
    } else {
        ""
    };
    let tls = tls(options, changes);
    let values = match (&options.memcached, &options.redis) {
        (_, Some(redis)) => redis.lines(),
        (Some(memcached), None) => {
            let tls = lines(options, Behind::Memcached);
            servers(memcached) + &tls
        }
        (None, None) => format!("store.listen = \"{store}\"\n"),
    };
    let h2c = options.h2.is_some();
    let put = put(options);
    let fills = options.fills();
    let text = format!(
        "server.listen = [\"{clients}\"{also}]\nserver.admin = \"off\"\nserver.pollers = {}\n\
         server.h2c = {h2c}\n\
         server.io_uring = \"off\"\n{values}\
         limits.drain_timeout = \"{}s\"\nlog.access = \"off\"\nlimits.stream_lifetime = \"2m\"\n\
         {limits}{upstream}{tls}{put}{route}\
         [[route]]\nprefix = \"/poll/\"\non_delete = \"{on_delete}\"\nwebsocket_publish = {}\n\
         fill = {fills}\n{}",
        options.loops,
        DRAIN.as_secs(),
        options.sockets.publishes,
        bounds.map_or("", Bounds::lines),
    );
    let config = config::parse("sim.toml", &text, &[]);
    let mut config = config.unwrap_or_else(|error| panic!("{}", error.render(false)));
    if let Some(bounds) = bounds {
        bounds.apply(&mut config);
    }
    config
}

/// The route over which values are published, in runs with HTTP/2.
fn put(options: &Options) -> String {
    if options.h2.is_none() {
        return String::new();
    }
    format!(
        "publish.token = \"{TOKEN}\"\n\n\
         [[route]]\nprefix = \"/put/\"\nkey = \"/poll/{{query.k}}\"\npublish = true\n"
    )
}

/// The token of publishers.
pub(crate) const TOKEN: &str = "publish-publish-publish";
/// The address under TLS.
pub(crate) const SECURE: ([u8; 4], u16) = ([127, 0, 0, 1], 8443);

/// The lines for TLS. A reload may bring other keys of tickets.
fn tls(options: &Options, changes: Reload) -> String {
    let Some(tls) = &options.tls else {
        return String::new();
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
    let at = SocketAddr::from(SECURE);
    let tickets = 1 + usize::from(changes.has(Change::Limits));
    let handshakes = tls.handshakes_max * options.loops;
    format!(
        "tls.listen = \"{at}\"\ntls.certificate = \"{folder}/certificate.pem\"\n\
         tls.key = \"{folder}/key.pem\"\ntls.ticket_keys = \"{folder}/tickets_{tickets}.txt\"\n\
         tls.handshakes_max = {handshakes}\n"
    )
}

/// The memcached servers that have the values.
fn servers(options: &MemcachedOptions) -> String {
    let servers: Vec<_> = memcached::addresses(options)
        .map(|at| format!("\"{at}\""))
        .collect();
    format!(
        "memcached.servers = [{}]\nmemcached.watch = {}\nmemcached.sweep_interval = \"{}ms\"\n",
        servers.join(", "),
        options.watches,
        options.sweep_interval.as_millis(),
    )
}
