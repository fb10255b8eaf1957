//! The options of a run, all chosen by its seed.

use crate::bounds::Bounds;
use crate::chance::random;
use crate::h2::H2Options;
use crate::memcached::MemcachedOptions;
use crate::outward::OutwardOptions;
use crate::pick::SEVERAL_MAX;
use crate::redis::RedisOptions;
use crate::socket::SocketOptions;
use crate::tls::TlsOptions;

/// A kind of fault, which a seed has or has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Bytes come in pieces from one byte on.
    Split,
    /// Writes are refused although there is room.
    Refuse,
    /// Bytes take up to 200 ms.
    Delay,
    /// Clients leave with a reset.
    Reset,
    /// Clients leave in order, in the middle of a wait.
    Leave,
    /// Clients end their sending side.
    HalfClose,
    /// Clients read little and late.
    SlowRead,
    /// Clients send their requests in small pieces.
    SlowWrite,
    /// Clients send requests before the answers to those before.
    Pipeline,
    /// The machine of a client is gone and tells nothing.
    Silence,
    /// No descriptor is left for new connections.
    NoDescriptors,
    /// A loop stands still for a while.
    Stall,
    /// The wall clock is set.
    Wall,
    /// Connections of writers are reset, with commands in progress.
    WriterReset,
    /// The application takes up to three seconds.
    AppSlow,
    /// The application ends in the middle of an answer.
    AppCuts,
    /// The framing of an answer of the application is no framing.
    AppNonsense,
    /// The application answers 500 or 503.
    AppFails,
    /// The application is not there for a while.
    AppDown,
    /// The client of a WebSocket breaks the protocol.
    Breach,
    /// The configuration is read again, and has changed.
    Reload,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 21] = [
        Self::Split,
        Self::Refuse,
        Self::Delay,
        Self::Reset,
        Self::Leave,
        Self::HalfClose,
        Self::SlowRead,
        Self::SlowWrite,
        Self::Pipeline,
        Self::Silence,
        Self::NoDescriptors,
        Self::Stall,
        Self::Wall,
        Self::WriterReset,
        Self::AppSlow,
        Self::AppCuts,
        Self::AppNonsense,
        Self::AppFails,
        Self::AppDown,
        Self::Breach,
        Self::Reload,
    ];

    /// The name under which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Refuse => "refused write",
            Self::Delay => "delay",
            Self::Reset => "reset",
            Self::Leave => "leave",
            Self::HalfClose => "half-close",
            Self::SlowRead => "slow reader",
            Self::SlowWrite => "slow writer",
            Self::Pipeline => "pipelining",
            Self::Silence => "silence",
            Self::NoDescriptors => "no descriptors",
            Self::Stall => "stalled loop",
            Self::Wall => "wall clock",
            Self::WriterReset => "reset of a writer",
            Self::AppSlow => "slow application",
            Self::AppCuts => "answer cut short",
            Self::AppNonsense => "wrong framing",
            Self::AppFails => "failing application",
            Self::AppDown => "application down",
            Self::Breach => "broken protocol",
            Self::Reload => "reload",
        }
    }
}

/// A protocol of a client of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// The commands of text: `set`, `get`.
    Text,
    /// The meta commands: `ms`, `mg`.
    Meta,
    /// The binary protocol.
    Binary,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of the run.
    pub seed: u64,
    /// The kinds of faults that it has.
    pub faults: Vec<Fault>,
    /// Loops of the process.
    pub loops: usize,
    /// HTTP clients.
    pub clients: usize,
    /// Clients that follow event streams, each with the number of keys that it names; one key is
    /// that of its path.
    pub streams: Vec<usize>,
    /// Keys that are polled and written.
    pub keys: usize,
    /// Clients of the store; the keys are shared out among them.
    pub writers: Vec<Protocol>,
    /// Polls wait on when their key is deleted (`on_delete = "keep-waiting"`).
    pub keeps_waiting: bool,
    /// An application is behind the edge.
    pub has_app: bool,
    /// The run ends with the end of the process.
    pub drains: bool,
    /// Steps of the plan, beside those of the WebSockets.
    pub steps: usize,
    /// WebSockets.
    pub sockets: SocketOptions,
    /// Bounds that clients reach, until nothing goes wrong any more.
    pub bounds: Option<Bounds>,
    /// TLS, in some runs.
    pub tls: Option<TlsOptions>,
    /// HTTP/2, in some runs.
    pub h2: Option<H2Options>,
    /// TLS towards servers, in some runs.
    pub outward: Option<OutwardOptions>,
    /// The memcached servers that have the values, if the store in the process has not.
    pub memcached: Option<MemcachedOptions>,
    /// The Redis that has them, if neither has.
    pub redis: Option<RedisOptions>,
    /// Times that another process is to take over.
    pub upgrades: u64,
}

impl Options {
    /// The options of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = random(seed, 1);
        let faults = Fault::ALL.into_iter();
        let faults = faults.filter(|_| random.below(2) == 0).collect();
        let loops = 1 + random.below(3) as usize;
        let keys = 1 + random.below(SEVERAL_MAX as u64) as usize;
        let protocol = |number| match number {
            0 => Protocol::Text,
            1 => Protocol::Meta,
            _ => Protocol::Binary,
        };
        let writers = 1 + random.below(3);
        let writers = (0..writers).map(|_| protocol(random.below(3))).collect();
        let memcached = MemcachedOptions::of(seed);
        let bounds = Bounds::of(seed, loops);
        let mut sockets = SocketOptions::of(seed, keys);
        let redis = RedisOptions::of(seed).filter(|_| memcached.is_none());
        // A chance of its own leaves the other seeds with memcached as they are.
        let is_published = memcached.is_none() || crate::chance::random(seed, 18).below(2) > 0;
        if redis.is_some() || !is_published {
            sockets.publish_nothing();
        }
        let has_store = memcached.is_none();
        let publishers = sockets.publishers.clone().into_iter();
        let may_publish = publishers.map(|one| has_store && one.is_none());
        let upgrades = upgrades_of(seed);
        Self {
            seed,
            faults,
            loops,
            clients: 2 + random.below(5) as usize,
            keys,
            writers,
            keeps_waiting: random.below(3) == 0,
            has_app: random.below(2) == 0,
            drains: random.below(3) == 0,
            steps: 20 + random.below(60) as usize,
            streams: (0..random.below(4))
                .map(|_| 1 + random.below(2) as usize * random.below(keys as u64) as usize)
                .collect(),
            sockets,
            bounds,
            tls: TlsOptions::of(seed),
            h2: H2Options::of(seed, may_publish),
            outward: OutwardOptions::of(seed),
            memcached,
            redis,
            // Two processes have twice the room of one.
            upgrades: if bounds.is_none() { upgrades } else { 0 },
        }
    }

    /// The publisher that writes a key over HTTP.
    pub(crate) fn publisher(&self, key: usize) -> Option<usize> {
        self.h2.as_ref()?.publishers[key]
    }

    /// Returns true if answers of the application are stored.
    pub(crate) fn fills(&self) -> bool {
        let memcached = self.memcached.iter().map(|memcached| memcached.fills);
        let mut servers = memcached.chain(self.redis.iter().map(|redis| redis.fills));
        servers.next().unwrap_or_default()
    }

    /// Returns true if the run has faults of this kind.
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}

/// The number of upgrades of a seed; most have none.
fn upgrades_of(seed: u64) -> u64 {
    let mut random = random(seed, 14);
    if random.below(4) == 0 {
        1 + random.below(UPGRADES_MAX)
    } else {
        0
    }
}

/// Upgrades of a run, at most; one that comes too early is refused.
const UPGRADES_MAX: u64 = 3;
