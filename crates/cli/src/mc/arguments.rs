//! The command line of `dwell mc`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use dwell_memcache::{
    AddressError, Client, ClientOptions, Distribution, Error, Protocol, ServerOptions, Timeouts,
    UnknownDistribution,
};

use dwell_edge::config::{UnitError, duration};

/// Flags of `dwell mc`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct McArguments {
    /// A memcached server; repeat it for several, which make a ring [default: 127.0.0.1:11211]
    #[arg(long, short, value_name = "HOST:PORT[=WEIGHT]", value_parser = server)]
    server: Vec<ServerOptions>,
    /// Time for a command, everything included
    #[arg(long, short, value_name = "TIME", default_value = "500ms", value_parser = time)]
    timeout: Duration,
    /// Kind of timeout: the kernel, a thread, or a poll before each receive
    #[arg(long, value_name = "NAME", default_value = "kernel")]
    timeouts: Watch,
    /// text, or the meta commands of memcached 1.6
    #[arg(long, value_name = "NAME", default_value = "text")]
    protocol: Dialect,
    /// Rule that gives a key its server; another client's rule, to share its servers
    #[arg(long, value_name = "NAME", default_value = "ketama_weighted", value_parser = ring,
          help = RINGS)]
    distribution: Distribution,
    /// The operation
    #[command(subcommand)]
    pub(super) command: McCommand,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Watch {
    Kernel,
    Reaper,
    Strict,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Dialect {
    Text,
    Meta,
}

/// A subcommand of `dwell mc`.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum McCommand {
    /// Print the value of a key, or of several with their keys before them
    #[command(after_help = HIT_STATUS)]
    Get {
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
        /// Print no line end after the value of a single key
        #[arg(long)]
        raw: bool,
    },
    /// Print the value of a key with its flags and its cas unique
    #[command(after_help = HIT_STATUS)]
    Gets {
        /// The key
        key: String,
    },
    /// Store a value
    #[command(after_help = STATUS)]
    Set(Stored),
    /// Store a value if the key has no value
    #[command(after_help = STORED_STATUS)]
    Add(Stored),
    /// Store a value if the key has a value
    #[command(after_help = STORED_STATUS)]
    Replace(Stored),
    /// Add data after a value
    #[command(after_help = STORED_STATUS)]
    Append {
        /// The key
        key: String,
        /// The data
        value: String,
    },
    /// Add data before a value
    #[command(after_help = STORED_STATUS)]
    Prepend {
        /// The key
        key: String,
        /// The data
        value: String,
    },
    /// Store a value if the cas unique of the item has not changed
    #[command(after_help = STORED_STATUS)]
    Cas {
        /// The cas unique, as `gets` prints it
        unique: u64,
        #[command(flatten)]
        stored: Stored,
    },
    /// Delete an item
    #[command(after_help = HIT_STATUS)]
    Delete {
        /// The key
        key: String,
    },
    /// Count an item up, and print the number
    #[command(after_help = HIT_STATUS)]
    Incr {
        /// The key
        key: String,
        /// The difference
        #[arg(default_value_t = 1)]
        delta: u64,
    },
    /// Count an item down, and print the number
    #[command(after_help = HIT_STATUS)]
    Decr {
        /// The key
        key: String,
        /// The difference
        #[arg(default_value_t = 1)]
        delta: u64,
    },
    /// Set the lifetime of an item; 0s has no end
    #[command(after_help = HIT_STATUS)]
    Touch {
        /// The key
        key: String,
        /// The lifetime, such as 60s
        #[arg(value_parser = time)]
        ttl: Duration,
    },
    /// Print the server's data about an item
    #[command(after_help = HIT_STATUS)]
    Meta {
        /// The key
        key: String,
    },
    /// Print the server of a key, without a request
    #[command(after_help = STATUS)]
    Where {
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Delete all items on every server
    #[command(after_help = STATUS)]
    FlushAll {
        /// Time until then
        #[arg(value_parser = time)]
        delay: Option<Duration>,
    },
    /// Print the statistics of every server
    #[command(after_help = STATUS)]
    Stats {
        /// Topic: items, slabs, settings and so on
        argument: Option<String>,
    },
    /// Print the version of every server
    #[command(after_help = STATUS)]
    Version,
    /// Ping every server, and print the time of the slowest
    #[command(after_help = STATUS)]
    Ping,
    /// Measure sets and gets, and print times per operation
    #[command(after_help = STATUS)]
    Bench(BenchArguments),
}

/// A key and what is stored under it.
#[derive(Clone, Debug, Args)]
pub(super) struct Stored {
    /// The key
    pub(super) key: String,
    /// The value; "-" reads it from standard input
    pub(super) value: String,
    /// How long it lives [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) ttl: Option<Duration>,
    /// The client flags stored with it
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(super) flags: u32,
}

/// Flags of `dwell mc bench`.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct BenchArguments {
    /// Operations in all, half of them sets and half gets
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 30_000)]
    pub(super) operations: u32,
    /// Threads that share them
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: u32,
    /// The length of the values in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub(super) value_bytes: usize,
}

impl McArguments {
    /// Makes the client with the flags.
    pub(super) fn client(&self) -> Result<Client, Error> {
        let default = [ServerOptions::from(
            DEFAULT_SERVER.parse::<dwell_memcache::ServerAddress>()?,
        )];
        let servers = if self.server.is_empty() {
            &default[..]
        } else {
            &self.server
        };
        let options = ClientOptions {
            timeout: Some(self.timeout),
            // There is only one command: it may use all of its time to connect.
            connect_timeout: self.timeout,
            timeouts: match self.timeouts {
                Watch::Kernel => Timeouts::Kernel,
                Watch::Reaper => Timeouts::Reaper,
                Watch::Strict => Timeouts::Strict,
            },
            protocol: match self.protocol {
                Dialect::Text => Protocol::Text,
                Dialect::Meta => Protocol::Meta,
            },
            distribution: self.distribution,
            ..ClientOptions::default()
        };
        Client::new(servers, options)
    }
}

fn server(text: &str) -> Result<ServerOptions, AddressError> {
    text.parse()
}

fn time(text: &str) -> Result<Duration, UnitError> {
    duration(text)
}

fn ring(name: &str) -> Result<Distribution, UnknownDistribution> {
    name.parse()
}

const RINGS: &str = "Rule that gives a key its server: ketama_weighted, ketama, modula, \
                     modula_crc, dalli or rendezvous";

const DEFAULT_SERVER: &str = "127.0.0.1:11211";

/// The end of the help of subcommands that read or change the value of a key.
const HIT_STATUS: &str = "\
Exit status: 0 for a hit, 1 for a miss, 2 for wrong flags, 3 when a server cannot be reached or
refuses; what is wrong is on standard error.";

/// The end of the help of subcommands that store a value under a condition.
const STORED_STATUS: &str = "\
Exit status: 0 when the value is stored, 1 when it is not, 2 for wrong flags, 3 when a server cannot
be reached or refuses; what is wrong is on standard error.";

/// The end of the help of all other subcommands.
const STATUS: &str = "\
Exit status: 0, 2 for wrong flags, 3 when a server cannot be reached or refuses; what is wrong is on
standard error.";

const EXAMPLES: &str = "\
Examples:
  dwell mc set greeting hello --ttl 60s
  dwell mc --server cache-1:11211 --timeout 400ms get greeting
  dwell mc --server cache-1 --server cache-2=2 where greeting
      Several servers make the ring that libmemcached's ketama_weighted makes.
  dwell mc --server /run/memcached.sock stats items
  dwell mc bench

Exit status: 0, 1 when a key has no value or a value is not stored, 2 for wrong flags, 3 when a
server cannot be reached or refuses; what is wrong is on standard error.";
