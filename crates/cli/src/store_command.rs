//! `dwell store`: the embedded store alone, with the flags of memcached.
//!
//! Scripts, compose files and the test suites of clients start a `memcached` with these flags. They
//! get this program instead, by `dwell store` or by a link of that name. A flag without a meaning
//! here is accepted and reported once; one that is unsafe to ignore is refused. All flags are in
//! one table: `flags`.

mod flags;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use dwell_edge::STORE_VERSION;
use dwell_edge::config::{Config, ConfigError, FlagValue, load};
use flags::{Effect, FLAGS, FlagSpec};
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// The flags of `dwell store` that were given: memcached's, and some of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreArguments(Vec<(&'static FlagSpec, Vec<String>)>);

impl Args for StoreArguments {
    fn augment_args(command: Command) -> Command {
        command
            .disable_help_flag(true)
            .disable_version_flag(true)
            .args(FLAGS.iter().map(FlagSpec::argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for StoreArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = FLAGS.iter().filter_map(|flag| {
            let values: Vec<String> = if flag.value.is_some() {
                matches.get_many(flag.id())?.cloned().collect()
            } else {
                let count = matches.get_count(flag.id());
                (count > 0).then(|| vec![count.to_string()])?
            };
            Some((flag, values))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Result of the flags.
#[derive(Debug)]
pub(crate) enum StoreRequest {
    /// Print a text, and end.
    Print(String),
    /// Serve.
    Serve(Box<StorePlan>),
}

/// Plan of a store that is to be served.
#[derive(Debug)]
pub(crate) struct StorePlan {
    /// The configuration.
    pub(crate) config: Config,
    /// File for the process id.
    pub(crate) pid_file: Option<PathBuf>,
    /// The program goes to the background.
    pub(crate) is_daemon: bool,
    /// Flags without a meaning here, which are reported once.
    pub(crate) ignored: Vec<String>,
}

/// Error in the flags.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum StoreFlagsError {
    /// A flag cannot be followed.
    Flag {
        /// The flag by memcached's name.
        flag: String,
        /// The reason.
        reason: String,
    },
    /// The flags result in an invalid configuration.
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
    /// Converts the flags.
    ///
    /// # Errors
    /// [`StoreFlagsError`] with the flag that cannot be followed.
    pub(crate) fn request(&self) -> Result<StoreRequest, StoreFlagsError> {
        if let Some((flag, reason)) = self.refused() {
            return Err(wrong(&flag.name(), reason.to_owned()));
        }
        let page = [
            (
                "help",
                format!("memcached {STORE_VERSION}\n{}", flags::help()),
            ),
            ("version", format!("memcached {STORE_VERSION}\n")),
            ("license", LICENSE.to_owned()),
        ];
        if let Some((_, text)) = page.into_iter().find(|(id, _)| self.is_given(id)) {
            return Ok(StoreRequest::Print(text));
        }
        let mut options = self.options()?;
        let mut ignored = self.ignored();
        self.extended(&mut options, &mut ignored)?;
        // The configuration reads 0 as one per core; memcached rejects it.
        if self.last("threads") == Some("0") {
            return Err(wrong("-t", "at least 1 thread is needed: 0".to_owned()));
        }
        let addresses = self.addresses()?;
        let is_guarded = self.is_given("allow-remote") || self.is_given("auth-file");
        if let Some(address) = addresses
            .iter()
            .find(|at| !at.ip().to_canonical().is_loopback())
            && !is_guarded
        {
            let reason = format!(
                "other machines can reach {address} without a password: \
                 add -Y FILE, or --allow-remote if the network is trusted"
            );
            return Err(wrong("-l", reason));
        }
        let mut config = load(None, &options).map_err(StoreFlagsError::Config)?;
        config.server.listen.clear();
        let mut addresses = addresses.into_iter();
        config.store.allow_remote |= is_guarded;
        config.store.listen = addresses.next();
        config.store.listen_also = addresses.collect();
        Ok(StoreRequest::Serve(Box::new(StorePlan {
            config,
            pid_file: self.last("pidfile").map(PathBuf::from),
            is_daemon: self.is_given("daemon"),
            ignored,
        })))
    }

    /// The first flag that is refused, with the reason.
    fn refused(&self) -> Option<(&FlagSpec, &'static str)> {
        self.0.iter().find_map(|(flag, _)| match flag.effect {
            Effect::Refused(reason) => Some((*flag, reason)),
            _ => None,
        })
    }

    fn values(&self, id: &str) -> &[String] {
        let given = self.0.iter().find(|(flag, _)| flag.id() == id);
        given.map_or(&[], |(_, values)| values)
    }

    fn is_given(&self, id: &str) -> bool {
        !self.values(id).is_empty()
    }

    /// The value of a flag; if it is repeated, the last one counts, as with `getopt`.
    fn last(&self, id: &str) -> Option<&str> {
        self.values(id).last().map(String::as_str)
    }

    /// The flags that are options of the configuration, with memcached's defaults.
    fn options(&self) -> Result<Vec<FlagValue>, StoreFlagsError> {
        let mut options = Vec::new();
        for flag in FLAGS {
            let given = self.last(flag.id());
            if let Effect::Option {
                name,
                write,
                default,
            } = flag.effect
                && let Some(value) = given.or(default)
            {
                options.push(option(&flag.name(), name, write(value)));
            }
        }
        if let Some(size) = self.last("max-item-size") {
            let bytes = item_size(size)
                .ok_or_else(|| wrong("-I", format!("not a size from 1k to 1024m: {size}")))?;
            options.push(option("-I", "store.item_bytes_max", bytes.to_string()));
        }
        Ok(options)
    }

    /// The flags that have no meaning here, with the reason.
    fn ignored(&self) -> Vec<String> {
        let ignored = self
            .0
            .iter()
            .filter_map(|(flag, values)| match flag.effect {
                // There is no UDP, as this asks for.
                Effect::Ignored(_)
                    if flag.short == Some('U') && values.iter().all(|v| v == "0") =>
                {
                    None
                }
                Effect::Ignored(reason) => Some(format!("{}: {reason}", flag.name())),
                _ => None,
            });
        ignored.collect()
    }

    /// The values of `-o`, each of which has options of its own.
    fn extended(
        &self,
        options: &mut Vec<FlagValue>,
        ignored: &mut Vec<String>,
    ) -> Result<(), StoreFlagsError> {
        for extended in self
            .values("extended")
            .iter()
            .flat_map(|list| list.split(','))
        {
            match extended.split_once('=') {
                Some(("idle_timeout", seconds)) => {
                    let value = format!("{seconds}s");
                    options.push(option("-o idle_timeout", "store.idle_timeout", value));
                }
                Some(("ext_path", _)) => {
                    let reason = "there is no storage on disk; see --snapshot".to_owned();
                    return Err(wrong("-o ext_path", reason));
                }
                _ if is_extended(extended) => ignored.push(format!("-o {extended}")),
                _ => return Err(wrong("-o", format!("unknown option: {extended}"))),
            }
        }
        Ok(())
    }

    /// The listening addresses. As with memcached, a unix socket leaves no addresses; unlike
    /// memcached the default is loopback.
    fn addresses(&self) -> Result<Vec<SocketAddr>, StoreFlagsError> {
        // memcached reads -1 as any free port, and 0 as none.
        let port = match self.last("port") {
            Some("-1") => 0,
            Some("0") => return Ok(Vec::new()),
            None => PORT,
            Some(port) => port
                .parse()
                .map_err(|_| wrong("-p", format!("not a port: {port}")))?,
        };
        if self.is_given("unix-socket") {
            return Ok(Vec::new());
        }
        let listen = self.values("listen").iter();
        let addresses: Vec<_> = listen
            .flat_map(|list| list.split(','))
            .map(|text| address(text, port))
            .collect::<Result<_, _>>()?;
        if addresses.is_empty() {
            return Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]);
        }
        Ok(addresses)
    }
}

fn wrong(flag: &str, reason: String) -> StoreFlagsError {
    let flag = flag.to_owned();
    StoreFlagsError::Flag { flag, reason }
}

/// A flag as an option of the configuration.
fn option(flag: &str, name: &str, value: String) -> FlagValue {
    FlagValue {
        flag: flag.to_owned(),
        option: name.to_owned(),
        values: vec![value],
    }
}

fn address(text: &str, port: u16) -> Result<SocketAddr, StoreFlagsError> {
    let text = text.trim();
    // memcached accepts a name or an address, with or without a port.
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
    let wrong = |reason: String| wrong("-l", format!("{text}: {reason}"));
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

/// Returns true if memcached 1.6 has this option of `-o`.
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
    inline_ascii_resp chunked_items resp_obj_mem_limit slab_sizes relaxed_privileges \
    drop_privileges";

/// The port of memcached.
const PORT: u16 = 11211;

const LICENSE: &str = "\
Dwell is licensed under MIT OR Apache-2.0. It is not memcached: it speaks its protocols and takes
its flags.
";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use dwell_edge::Protocols;
    use dwell_edge::config::LogLevel;
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
            "-p 11300 -l localhost,::1 -m 128 -M -c 99 -I 2m -t 3 -F -B binary -b 7 -A -C -X -R 20 \
             -u nobody -o idle_timeout=30 -vv -d -P /run/x.pid --snapshot /tmp/s \
             --metrics 127.0.0.1:1",
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
        assert!(!store.cas && !store.dump);
        assert_eq!(store.commands_per_turn, 20);
        assert_eq!(plan.config.server.user, Some("nobody".to_owned()));
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
        let plan = plan("-U 0 -k -L -f 1.1 -n 64 -o modern,no_lru_crawler");
        assert_eq!(plan.ignored.len(), 6, "{:?}", plan.ignored);
        assert!(
            !plan.ignored.iter().any(|what| what.starts_with("-U")),
            "0 is no UDP"
        );
        assert!(plan.ignored.contains(&"-o modern".to_owned()));
    }

    #[test]
    fn options_that_init_scripts_pass_do_not_stop_the_start() {
        let given = "relaxed_privileges,drop_privileges,no_drop_privileges,slab_sizes=64-128";
        assert_eq!(plan(&format!("-o {given}")).ignored.len(), 4);
    }

    #[test]
    fn what_would_be_unsafe_to_ignore_is_refused() {
        for (words, part) in [
            ("-S", "no SASL"),
            ("-Z", "no TLS"),
            ("--enable-ssl --version", "no TLS"),
            ("-e /tmp/f", "--snapshot"),
            ("-l 0.0.0.0", "--allow-remote"),
            ("-l 127.0.0.1,::", "--allow-remote"),
            ("-o nonsense", "unknown option: nonsense"),
            ("-I 1g", "1024m"),
            ("-p 70000", "not a port"),
            ("-B udp", "unknown value"),
            ("-m 0", "-m 0MiB"),
            ("-m much", "-m muchMiB"),
            ("-R 0", "-R 0"),
            ("-t 0", "at least 1 thread"),
            ("-o ext_path=/data/file:64m", "--snapshot"),
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
