//! TLS towards the application and memcached: what their models show, and when that is wrong.

mod options;

pub use options::{Behind, OutwardOptions};

use crate::chance::random;
use crate::failure::Oracle;
use crate::keys::Broken;
use crate::memcached::addresses;
use crate::options::Options;
use crate::report::Counts;
use dwell_evloop::sim::SimNet;
use dwell_testkit::sim::SimTls;
use std::net::SocketAddr;
use std::time::Duration;

/// A certificate that servers show for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongCertificate {
    /// The servers that show it.
    pub by: Behind,
    /// Its place among those of `CERTIFICATES`.
    pub place: usize,
    /// The time for which they do.
    pub time: Duration,
}

/// The certificates of servers: the right one, one that is not trusted, one of another name, and
/// one that has expired.
const CERTIFICATES: [&[u8]; 4] = [
    include_bytes!("../data/servers/certificate.pem"),
    include_bytes!("../data/servers/unknown.pem"),
    include_bytes!("../data/servers/other_name.pem"),
    include_bytes!("../data/servers/expired.pem"),
];
/// The key of all of them.
const KEY: &[u8] = include_bytes!("../data/key.pem");

/// The lines of a configuration that speaks TLS to these servers.
pub(crate) fn lines(options: &Options, to: Behind) -> String {
    if !speaks(options, to) {
        return String::new();
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/data/servers");
    let (section, also) = match to {
        Behind::App => ("upstream", ""),
        Behind::Memcached => ("memcached", "memcached.tls = true\n"),
    };
    format!(
        "{also}{section}.tls_ca = \"{folder}/trusted.pem\"\n\
             {section}.tls_server_name = \"server\"\n"
    )
}

/// Returns true if these servers are spoken to under TLS.
pub(crate) fn speaks(options: &Options, to: Behind) -> bool {
    let outward = options.outward.as_ref();
    outward.is_some_and(|outward| match to {
        Behind::App => options.has_app && outward.app,
        Behind::Memcached => options.memcached.is_some() && outward.memcached,
    })
}

/// The certificates that servers show, and until when they are wrong.
pub(crate) struct Outward {
    app: Option<SimTls>,
    memcached: Option<SimTls>,
    wrong_until: [Duration; 2],
}

impl Outward {
    pub(crate) fn new(options: &Options) -> Self {
        let is_tls12 = options.outward.is_some_and(|outward| outward.is_tls12);
        let tls = |to| speaks(options, to).then(|| SimTls::new(&CERTIFICATES, KEY, is_tls12));
        Self {
            app: tls(Behind::App),
            memcached: tls(Behind::Memcached),
            wrong_until: [Duration::ZERO; 2],
        }
    }

    /// The certificates of these servers, if they are spoken to under TLS.
    pub(crate) fn of(&self, servers: Behind) -> Option<&SimTls> {
        match servers {
            Behind::App => self.app.as_ref(),
            Behind::Memcached => self.memcached.as_ref(),
        }
    }

    /// Has servers show a wrong certificate for a while; returns true if they show any.
    pub(crate) fn begin(&mut self, wrong: WrongCertificate, now: Duration) -> bool {
        let Some(tls) = self.of(wrong.by) else {
            return false;
        };
        tls.show(wrong.place);
        self.wrong_until[wrong.by as usize] = now + wrong.time;
        true
    }

    /// Has all of them show the right one from now on.
    pub(crate) fn end(&mut self) {
        self.wrong_until = [Duration::ZERO; 2];
        self.follow(Duration::ZERO);
    }

    /// The moments at which they show the right one again.
    pub(crate) fn ends(&self) -> [Duration; 2] {
        self.wrong_until
    }

    /// Ends what has come to its time.
    pub(crate) fn follow(&self, now: Duration) {
        for servers in [Behind::App, Behind::Memcached] {
            if now >= self.wrong_until[servers as usize]
                && let Some(tls) = self.of(servers)
            {
                tls.show(0);
            }
        }
    }

    /// Checks that nothing was sent to a server with a wrong certificate.
    pub(crate) fn check(&self, counts: &mut Counts) -> Result<(), Broken> {
        for (servers, tls) in [
            ("the application", &self.app),
            ("memcached", &self.memcached),
        ] {
            let Some(tls) = tls else { continue };
            for _ in 0..tls.take_refused() {
                counts.reach("refused certificate");
            }
            if tls.is_trusted_wrongly() {
                let reason = format!("{servers} gets data in spite of its certificate");
                return Err((Oracle::Record, reason));
            }
        }
        Ok(())
    }
}

/// Has the trace take in lengths alone of what goes to servers under TLS.
pub(crate) fn seal(network: &SimNet, options: &Options, apps: [SocketAddr; 2]) {
    if speaks(options, Behind::App) {
        for at in apps {
            network.seal_at(at);
        }
    }
    if speaks(options, Behind::Memcached) {
        let memcached = options.memcached.iter();
        let servers = memcached.flat_map(addresses);
        servers.for_each(|at| network.seal_at(at));
    }
}

/// The wrong certificates of a seed, each behind so many of the steps before it, and after a pause.
pub(crate) fn outward_steps(options: &Options) -> Vec<(usize, Duration, WrongCertificate)> {
    let mut random = random(options.seed, 51);
    let wrong_max = options.outward.map_or(0, |outward| outward.wrong_max);
    let count = random.below(wrong_max + 1);
    let step = |_| {
        let place = random.below(options.steps as u64 + 1) as usize;
        let pause = Duration::from_micros(random.below(50_000));
        let wrong = WrongCertificate {
            by: [Behind::App, Behind::Memcached][random.below(2) as usize],
            place: 1 + random.below(CERTIFICATES.len() as u64 - 1) as usize,
            time: Duration::from_millis(random.below(3_000)),
        };
        (place, pause, wrong)
    };
    (0..count).map(step).collect()
}
