//! `dwell store`: the embedded store alone, started with memcached's own flags.
//!
//! Scripts, compose files and the test suites of clients start a `memcached` with these flags; they
//! get this program in its place, by `dwell store` or by a link of that name. What has no meaning
//! here is accepted and said once; what would be unsafe to ignore is refused.

use crate::config::{Config, ConfigError, FlagValue, load};
use crate::store_server::VERSION;
use clap::{ArgAction, Args};
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// Flags of `dwell store`, which are memcached's, and a few of its own.
#[derive(Clone, Debug, Default, Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one flag of memcached, on or off"
)]
pub struct StoreArguments {
    #[arg(short = 'h', long)]
    help: bool,
    #[arg(short = 'V', long)]
    version: bool,
    #[arg(short = 'i', long)]
    license: bool,
    #[arg(short = 'p', long, allow_negative_numbers = true)]
    port: Option<i32>,
    #[arg(short = 'U', long, allow_negative_numbers = true)]
    udp_port: Option<i32>,
    #[arg(short = 's', long)]
    unix_socket: Option<String>,
    #[arg(short = 'a', long)]
    unix_mask: Option<String>,
    #[arg(short = 'A', long)]
    enable_shutdown: bool,
    #[arg(short = 'l', long, value_delimiter = ',')]
    listen: Vec<String>,
    #[arg(short = 'd', long)]
    daemon: bool,
    #[arg(short = 'r', long)]
    enable_coredumps: bool,
    #[arg(short = 'u', long)]
    user: Option<String>,
    #[arg(short = 'm', long)]
    memory_limit: Option<u32>,
    #[arg(short = 'M', long)]
    disable_evictions: bool,
    #[arg(short = 'c', long)]
    conn_limit: Option<u32>,
    #[arg(short = 'k', long)]
    lock_memory: bool,
    #[arg(short = 'v', long, action = ArgAction::Count)]
    verbose: u8,
    #[arg(short = 'P', long)]
    pidfile: Option<PathBuf>,
    #[arg(short = 'f', long)]
    slab_growth_factor: Option<String>,
    #[arg(short = 'n', long)]
    slab_min_size: Option<String>,
    #[arg(short = 'L', long)]
    enable_largepages: bool,
    #[arg(short = 'D')]
    delimiter: Option<String>,
    #[arg(short = 't', long)]
    threads: Option<u32>,
    #[arg(short = 'R', long)]
    max_reqs_per_event: Option<u32>,
    #[arg(short = 'C', long)]
    disable_cas: bool,
    #[arg(short = 'b', long)]
    listen_backlog: Option<u32>,
    #[arg(short = 'B', long)]
    protocol: Option<String>,
    #[arg(short = 'I', long)]
    max_item_size: Option<String>,
    #[arg(short = 'S', long)]
    enable_sasl: bool,
    #[arg(short = 'F', long)]
    disable_flush_all: bool,
    #[arg(short = 'X', long)]
    disable_dumping: bool,
    #[arg(short = 'W', long)]
    disable_watch: bool,
    #[arg(short = 'Y', long)]
    auth_file: Option<String>,
    #[arg(short = 'e', long)]
    memory_file: Option<String>,
    #[arg(short = 'Z', long)]
    enable_ssl: bool,
    #[arg(short = 'o', long, value_delimiter = ',')]
    extended: Vec<String>,
    #[arg(short = 'N', long)]
    napi_ids: Option<String>,
    #[arg(long)]
    allow_remote: bool,
    #[arg(long)]
    snapshot: Option<String>,
    #[arg(long)]
    metrics: Option<String>,
    #[arg(long)]
    log_format: Option<String>,
}

/// What the flags ask for.
#[derive(Debug)]
pub enum StoreRequest {
    /// Print this and end.
    Print(String),
    /// Serve.
    Serve(Box<StorePlan>),
}

/// A store to be served.
#[derive(Debug)]
pub struct StorePlan {
    /// What it is told.
    pub config: Config,
    /// Where its process id goes.
    pub pid_file: Option<PathBuf>,
    /// Whether the program goes to the background.
    pub is_daemon: bool,
    /// What was asked for and means nothing here, to be said once.
    pub ignored: Vec<String>,
}

/// Why flags cannot be obeyed.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreFlagsError {
    /// A flag with what is wrong with it.
    Flag {
        /// The flag as memcached knows it.
        flag: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// What the flags come to is no configuration.
    Config(ConfigError),
}

impl fmt::Display for StoreFlagsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag { flag, reason } => write!(formatter, "{flag}: {reason}"),
            Self::Config(error) => write!(formatter, "{}", error.render(false)),
        }
    }
}

impl std::error::Error for StoreFlagsError {}

impl StoreArguments {
    /// Finds out what the flags ask for.
    ///
    /// # Errors
    /// [`StoreFlagsError`] names the flag that cannot be obeyed.
    pub fn request(&self) -> Result<StoreRequest, StoreFlagsError> {
        if self.help {
            return Ok(StoreRequest::Print(format!("memcached {VERSION}\n{HELP}")));
        }
        if self.version {
            return Ok(StoreRequest::Print(format!("memcached {VERSION}\n")));
        }
        if self.license {
            return Ok(StoreRequest::Print(LICENSE.to_owned()));
        }
        self.refuse_unsafe()?;
        let mut ignored = self.ignored();
        let mut flags = Flags::default();
        self.sizes(&mut flags)?;
        self.behaviour(&mut flags, &mut ignored)?;
        let addresses = self.addresses()?;
        let is_guarded = self.allow_remote || self.auth_file.is_some();
        if let Some(address) = addresses
            .iter()
            .find(|at| !at.ip().to_canonical().is_loopback())
            && !is_guarded
        {
            let reason = format!(
                "other machines can reach {address}, and nobody has to log in: \
                 add -Y FILE, or --allow-remote if the network is trusted"
            );
            return Err(StoreFlagsError::Flag { flag: "-l", reason });
        }
        let mut config = load(None, &flags.0).map_err(StoreFlagsError::Config)?;
        config.server.listen.clear();
        let mut addresses = addresses.into_iter();
        config.store.allow_remote |= is_guarded;
        config.store.listen = addresses.next();
        config.store.listen_also = addresses.collect();
        Ok(StoreRequest::Serve(Box::new(StorePlan {
            config,
            pid_file: self.pidfile.clone(),
            is_daemon: self.daemon,
            ignored,
        })))
    }

    /// Whoever asks for these relies on them.
    fn refuse_unsafe(&self) -> Result<(), StoreFlagsError> {
        let refused = [
            (
                self.enable_sasl,
                "-S",
                "there is no SASL here; -Y is authentication by text",
            ),
            (self.enable_ssl, "-Z", "there is no TLS here"),
            (
                self.memory_file.is_some(),
                "-e",
                "there is no memory file; see --snapshot",
            ),
        ];
        let found = refused.into_iter().find(|(asked, ..)| *asked);
        match found {
            Some((_, flag, reason)) => {
                let reason = reason.to_owned();
                Err(StoreFlagsError::Flag { flag, reason })
            }
            None => Ok(()),
        }
    }

    /// The flags that mean nothing here.
    fn ignored(&self) -> Vec<String> {
        let asked = [
            (
                self.udp_port.is_some_and(|port| port != 0),
                "-U: there is no UDP",
            ),
            (
                self.enable_coredumps,
                "-r: core dumps are as the shell set them",
            ),
            (
                self.user.is_some(),
                "-u: the user stays the one who started it",
            ),
            (self.lock_memory, "-k: memory is not locked"),
            (self.slab_growth_factor.is_some(), "-f: there are no slabs"),
            (self.slab_min_size.is_some(), "-n: there are no slabs"),
            (self.enable_largepages, "-L: pages are the system's"),
            (
                self.delimiter.is_some(),
                "-D: there are no figures by prefix",
            ),
            (
                self.max_reqs_per_event.is_some(),
                "-R: a turn has its own bound",
            ),
            (self.disable_cas, "-C: items always have a version"),
            (self.disable_dumping, "-X: there is nothing to dump"),
            (self.disable_watch, "-W: there is nothing to watch"),
            (
                self.napi_ids.is_some(),
                "-N: threads are not bound to queues",
            ),
        ];
        let asked = asked.into_iter().filter(|(asked, _)| *asked);
        asked.map(|(_, what)| what.to_owned()).collect()
    }

    fn sizes(&self, flags: &mut Flags) -> Result<(), StoreFlagsError> {
        let or = |value: Option<u32>, default: u32| value.unwrap_or(default);
        flags.push(
            "-m",
            "store.bytes_max",
            format!("{}MiB", or(self.memory_limit, 64)),
        );
        flags.push(
            "-c",
            "store.connections_max",
            or(self.conn_limit, 1024).to_string(),
        );
        flags.push(
            "-b",
            "store.backlog",
            or(self.listen_backlog, 1024).to_string(),
        );
        if let Some(size) = &self.max_item_size {
            let bytes = item_size(size).ok_or_else(|| StoreFlagsError::Flag {
                flag: "-I",
                reason: format!("not a size from 1k to 1024m: {size}"),
            })?;
            flags.push("-I", "store.item_bytes_max", bytes.to_string());
        }
        if let Some(threads) = self.threads {
            flags.push("-t", "server.pollers", threads.to_string());
        }
        Ok(())
    }

    fn behaviour(
        &self,
        flags: &mut Flags,
        ignored: &mut Vec<String>,
    ) -> Result<(), StoreFlagsError> {
        let level = ["warn", "info", "debug"].get(usize::from(self.verbose));
        flags.push("-v", "log.level", (*level.unwrap_or(&"trace")).to_owned());
        flags.push(
            "-M",
            "store.evictions",
            (!self.disable_evictions).to_string(),
        );
        flags.push(
            "-F",
            "store.flush_all",
            (!self.disable_flush_all).to_string(),
        );
        flags.push("-A", "store.shutdown", self.enable_shutdown.to_string());
        let given = [
            ("-s", "store.unix_socket", &self.unix_socket),
            ("-a", "store.unix_permissions", &self.unix_mask),
            ("-Y", "store.auth_file", &self.auth_file),
            ("--snapshot", "store.snapshot", &self.snapshot),
            ("--log-format", "log.format", &self.log_format),
        ];
        for (flag, option, value) in given {
            if let Some(value) = value {
                flags.push(flag, option, value.clone());
            }
        }
        let metrics = self.metrics.as_deref().unwrap_or("off");
        flags.push("--metrics", "server.admin", metrics.to_owned());
        if let Some(protocol) = &self.protocol {
            let word = if protocol == "auto-negotiate" {
                "auto"
            } else {
                protocol
            };
            flags.push("-B", "store.protocols", word.to_owned());
        }
        for extended in &self.extended {
            match extended.split_once('=') {
                Some(("idle_timeout", seconds)) => {
                    flags.push(
                        "-o idle_timeout",
                        "store.idle_timeout",
                        format!("{seconds}s"),
                    );
                }
                _ if is_extended(extended) => ignored.push(format!("-o {extended}")),
                _ => {
                    let reason = format!("unknown option: {extended}");
                    return Err(StoreFlagsError::Flag { flag: "-o", reason });
                }
            }
        }
        Ok(())
    }

    /// Where to listen: like memcached nowhere on the network when there is a unix socket, and
    /// unlike it on loopback when nothing is said.
    fn addresses(&self) -> Result<Vec<SocketAddr>, StoreFlagsError> {
        // memcached takes -1 for any free port, and 0 for none at all.
        let port = match self.port {
            Some(-1) => 0,
            Some(0) => return Ok(Vec::new()),
            None => PORT,
            Some(port) => u16::try_from(port).map_err(|_| StoreFlagsError::Flag {
                flag: "-p",
                reason: format!("not a port: {port}"),
            })?,
        };
        if self.unix_socket.is_some() {
            return Ok(Vec::new());
        }
        if self.listen.is_empty() {
            return Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]);
        }
        self.listen.iter().map(|text| address(text, port)).collect()
    }
}

/// The flags collected so far, in the form of the configuration.
#[derive(Debug, Default)]
struct Flags(Vec<FlagValue>);

impl Flags {
    fn push(&mut self, flag: &str, option: &str, value: String) {
        self.0.push(FlagValue {
            flag: flag.to_owned(),
            option: option.to_owned(),
            values: vec![value],
        });
    }
}

fn address(text: &str, port: u16) -> Result<SocketAddr, StoreFlagsError> {
    let text = text.trim();
    // memcached takes a name or an address, with or without a port.
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let found = if text
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
    {
        text.to_socket_addrs()
    } else {
        (text, port).to_socket_addrs()
    };
    let wrong = |reason: String| StoreFlagsError::Flag {
        flag: "-l",
        reason: format!("{text}: {reason}"),
    };
    let mut found = found.map_err(|error| wrong(error.to_string()))?;
    found
        .next()
        .ok_or_else(|| wrong("the name has no address".to_owned()))
}

/// Reads a size such as `1m`, `512k` or `1048576`. Units: bytes.
fn item_size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1 << 10),
        b'm' | b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (1 << 10..=1 << 30).contains(&bytes).then_some(bytes)
}

/// Whether memcached 1.6 knows this option of `-o`.
fn is_extended(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or(option);
    let name = name.strip_prefix("no_").unwrap_or(name);
    EXTENDED.split_ascii_whitespace().any(|known| known == name) || name.starts_with("ext_")
}

const EXTENDED: &str = "maxconns_fast hashpower tail_repair_time hash_algorithm lru_crawler \
    lru_crawler_sleep lru_crawler_tocrawl read_buf_mem_limit lru_maintainer hot_lru_pct \
    warm_lru_pct hot_max_factor warm_max_factor temporary_ttl slab_chunk_max slab_reassign \
    slab_automove slab_automove_ratio slab_automove_window slab_automove_freeratio \
    watcher_logbuf_size worker_logbuf_size track_sizes hashexpand modern sock_cookie_id \
    inline_ascii_resp chunked_items resp_obj_mem_limit";

/// Where memcached listens.
const PORT: u16 = 11211;

const LICENSE: &str = "\
Dwell is licensed under MIT OR Apache-2.0. It is not memcached: it speaks its protocols and takes
its flags.
";

const HELP: &str = "\
This is dwell store: Dwell's embedded store in the place of memcached.
-p, --port=<num>          TCP port to listen on (default: 11211; 0: none, -1: a free one)
-U, --udp-port=<num>      accepted: there is no UDP
-s, --unix-socket=<file>  UNIX socket to listen on (disables network support)
-a, --unix-mask=<mask>    access mask for UNIX socket, in octal (default: 700)
-A, --enable-shutdown     enable ascii \"shutdown\" command
-l, --listen=<addr>       interface to listen on (default: 127.0.0.1); repeat it or use commas;
                          others than loopback need -Y or --allow-remote
    --allow-remote        let other machines in without authentication
-d, --daemon              run as a daemon
-r, --enable-coredumps    accepted
-u, --user=<user>         accepted: the user stays the one who started it
-m, --memory-limit=<num>  memory for items and all they need, in megabytes (default: 64)
-M, --disable-evictions   return error on memory exhausted instead of evicting
-c, --conn-limit=<num>    max simultaneous connections (default: 1024)
-k, --lock-memory         accepted
-v, --verbose             log more; -vv and -vvv still more
-h, --help                print this help and exit
-i, --license             print the license and exit
-V, --version             print version and exit
-P, --pidfile=<file>      save PID in <file>
-f, --slab-growth-factor=<num>  accepted: there are no slabs
-n, --slab-min-size=<bytes>     accepted: there are no slabs
-L, --enable-largepages   accepted
-D <char>                 accepted: there are no figures by prefix
-t, --threads=<num>       number of threads to use (default: one per core)
-R, --max-reqs-per-event  accepted: a turn has its own bound
-C, --disable-cas         accepted: items always have a version
-b, --listen-backlog=<num> set the backlog queue limit (default: 1024)
-B, --protocol=<name>     protocol - one of ascii, binary, or auto (default: auto-negotiate)
-I, --max-item-size=<num> adjusts max item size
                          (default: 1m, min: 1k, max: 1024m)
-F, --disable-flush-all   disable flush_all command
-X, --disable-dumping     accepted: there is nothing to dump
-W  --disable-watch       accepted: there is nothing to watch
-Y, --auth-file=<file>    enable ASCII protocol authentication. format:
                          user:pass\\nuser2:pass2\\n
-o, --extended            comma separated list of extended options; idle_timeout=<seconds> is
                          obeyed, memcached's others are accepted
-N, --napi_ids            accepted
    --snapshot=<file>     keep the items in <file> while the process does not run
    --metrics=<addr>      where /-/health and /-/metrics answer (default: off)
    --log-format=<name>   text or json (default: text)
What is accepted and means nothing here is said once at the start. -S (SASL), -Z (TLS) and -e are
refused.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogLevel;
    use crate::store_server::Protocols;
    use clap::Parser;
    use std::time::Duration;

    #[derive(Parser)]
    #[command(disable_help_flag = true, disable_version_flag = true)]
    struct Line {
        #[command(flatten)]
        store: StoreArguments,
    }

    fn request(words: &str) -> Result<StoreRequest, StoreFlagsError> {
        let words = ["memcached"]
            .into_iter()
            .chain(words.split_ascii_whitespace());
        Line::try_parse_from(words).unwrap().store.request()
    }

    fn plan(words: &str) -> StorePlan {
        match request(words) {
            Ok(StoreRequest::Serve(plan)) => *plan,
            other => panic!("{words}: {other:?}"),
        }
    }

    fn printed(words: &str) -> String {
        match request(words) {
            Ok(StoreRequest::Print(text)) => text,
            other => panic!("{words}: {other:?}"),
        }
    }

    #[test]
    fn without_flags_it_is_memcached_on_loopback() {
        let plan = plan("");
        let store = &plan.config.store;
        assert_eq!(store.listen, Some("127.0.0.1:11211".parse().unwrap()));
        assert_eq!((store.bytes_max, store.connections_max), (64 << 20, 1024));
        assert_eq!(plan.config.server.listen, []);
        assert_eq!(plan.config.server.admin, None);
        assert_eq!(plan.config.log.level, LogLevel::Warn);
        assert!(plan.ignored.is_empty() && !plan.is_daemon);
    }

    #[test]
    fn every_flag_that_means_something_is_obeyed() {
        let plan = plan(
            "-p 11300 -l localhost,::1 -m 128 -M -c 99 -I 2m -t 3 -F -B binary -b 7 -A \
             -o idle_timeout=30 -vv -d -P /run/x.pid --snapshot /tmp/s --metrics 127.0.0.1:1",
        );
        let store = &plan.config.store;
        assert_eq!(store.listen.unwrap().port(), 11300);
        assert_eq!(store.listen_also, ["[::1]:11300".parse().unwrap()]);
        assert_eq!(
            (store.bytes_max, store.item_bytes_max),
            (128 << 20, 2 << 20)
        );
        assert!(!store.evictions && !store.flush_all && store.shutdown);
        assert_eq!((store.connections_max, store.backlog), (99, 7));
        assert_eq!(store.protocols, Protocols::Binary);
        assert_eq!(store.idle_timeout, Duration::from_secs(30));
        assert_eq!(store.snapshot, Some("/tmp/s".into()));
        assert_eq!(plan.config.server.pollers, 3);
        assert_eq!(plan.config.log.level, LogLevel::Debug);
        assert!(plan.config.server.admin.is_some() && plan.is_daemon);
        assert_eq!(plan.pid_file, Some("/run/x.pid".into()));
        assert_eq!(plan.ignored, Vec::<String>::new());
    }

    #[test]
    fn a_unix_socket_is_instead_of_the_network() {
        let plan = plan("-s /tmp/s.sock -a 660 -p 11300");
        assert_eq!(plan.config.store.listen, None);
        assert_eq!(plan.config.store.unix_socket, Some("/tmp/s.sock".into()));
        assert_eq!(plan.config.store.unix_permissions, 0o660);
    }

    #[test]
    fn what_means_nothing_is_accepted_and_said() {
        let plan = plan("-U 0 -u nobody -R 20 -C -k -L -f 1.1 -n 64 -o modern,no_lru_crawler");
        assert_eq!(plan.ignored.len(), 9, "{:?}", plan.ignored);
        assert!(
            !plan.ignored.iter().any(|what| what.starts_with("-U")),
            "0 is no UDP"
        );
        assert!(plan.ignored.contains(&"-o modern".to_owned()));
    }

    #[test]
    fn what_would_be_unsafe_to_ignore_is_refused() {
        for (words, part) in [
            ("-S", "no SASL"),
            ("-Z", "no TLS"),
            ("-e /tmp/f", "--snapshot"),
            ("-l 0.0.0.0", "--allow-remote"),
            ("-l 127.0.0.1,::", "--allow-remote"),
            ("-o nonsense", "unknown option: nonsense"),
            ("-I 1g", "1024m"),
            ("-p 70000", "not a port"),
            ("-B udp", "unknown value"),
            ("-m 0", "-m 0MiB"),
        ] {
            let error = request(words).unwrap_err().to_string();
            assert!(error.contains(part), "{words}: {error}");
        }
        assert!(request("-l 0.0.0.0 --allow-remote").is_ok());
        assert!(request("-l 0.0.0.0 -Y /etc/users").is_ok());
    }

    #[test]
    fn ports_have_memcached_s_special_numbers() {
        assert_eq!(plan("-p 0").config.store.listen, None);
        assert_eq!(plan("-p -1").config.store.listen.unwrap().port(), 0);
        let own = plan("-l 127.0.0.1:5,127.0.0.1 -p 6").config.store;
        assert_eq!(own.listen.unwrap().port(), 5);
        assert_eq!(own.listen_also[0].port(), 6);
    }

    #[test]
    fn suites_find_the_version_and_the_flags() {
        assert!(printed("-h").starts_with("memcached 1.6.18"));
        assert_eq!(printed("-V").lines().count(), 1);
        for flag in "p U s a A l d r u m M c k v h i V P f n L t R C b B I F X W Y o".split(' ') {
            assert!(printed("-h").contains(&format!("\n-{flag}")), "-{flag}");
        }
        assert!(printed("-h").lines().all(|line| line.len() <= 100));
    }
}
