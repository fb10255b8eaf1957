//! The table of flags: names, descriptions and effects.
//!
//! The parser, the help page and the configuration are made from it.

use clap::{Arg, ArgAction};

/// One flag of memcached, or of Dwell's own.
#[derive(Debug)]
pub(super) struct FlagSpec {
    pub(super) short: Option<char>,
    pub(super) long: Option<&'static str>,
    /// The name of its value; `None` for a flag without one.
    pub(super) value: Option<&'static str>,
    /// Its description on the help page.
    pub(super) about: &'static str,
    pub(super) effect: Effect,
}

/// Effect of a flag.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// Sets this option of the configuration to `write` of the flag's value.
    Option {
        name: &'static str,
        write: fn(&str) -> String,
        /// The value without the flag.
        default: Option<&'static str>,
    },
    /// Sets several options, or none.
    Own,
    /// Has no meaning here, for this reason.
    Ignored(&'static str),
    /// Is refused for this reason, since its users rely on it.
    Refused(&'static str),
}

impl FlagSpec {
    /// The flag as users write it.
    pub(super) fn name(&self) -> String {
        match (self.short, self.long) {
            (Some(short), _) => format!("-{short}"),
            (None, long) => format!("--{}", long.unwrap_or_default()),
        }
    }

    /// The id of its argument in the parser.
    pub(super) fn id(&self) -> &'static str {
        self.long.unwrap_or("delimiter")
    }

    pub(super) fn argument(&self) -> Arg {
        let about = match self.effect {
            Effect::Refused(reason) => format!("refused: {reason}"),
            _ => self.about.to_owned(),
        };
        let mut argument = Arg::new(self.id()).help(about);
        if let Some(short) = self.short {
            argument = argument.short(short);
        }
        if let Some(long) = self.long {
            argument = argument.long(long);
        }
        match self.value {
            None => argument.action(ArgAction::Count),
            Some(name) => argument
                .value_name(name)
                .action(ArgAction::Append)
                .allow_negative_numbers(true),
        }
    }

    /// The lines of the help page.
    fn help(&self) -> String {
        let value = |before: &str| match self.value {
            Some(name) => format!("{before}<{name}>"),
            None => String::new(),
        };
        let names = match (self.short, self.long) {
            (Some(short), Some(long)) => format!("-{short}, --{long}{}", value("=")),
            (Some(short), None) => format!("-{short}{}", value(" ")),
            (None, long) => format!("    --{}{}", long.unwrap_or_default(), value("=")),
        };
        let about = self.about.replace('\n', &format!("\n{:ABOUT_COLUMN$}", ""));
        format!("{names:<width$} {about}\n", width = ABOUT_COLUMN - 1)
    }
}

/// Column of the descriptions on the help page.
const ABOUT_COLUMN: usize = 28;

/// The help page, without its title.
pub(super) fn help() -> String {
    let shown = FLAGS
        .iter()
        .filter(|flag| !matches!(flag.effect, Effect::Refused(_)));
    let flags: String = shown.map(FlagSpec::help).collect();
    format!("{HELP_HEAD}{flags}{HELP_END}")
}

const HELP_HEAD: &str = "\
This is dwell store: Dwell's embedded store in the place of memcached.
";
const HELP_END: &str = "\
The log names accepted flags without effect once, at the start. -S (SASL), -Z (TLS) and -e are
refused.

Exit status: 0 after SIGTERM, SIGINT or SIGUSR1 and a drain, 1 when something fails, 2 when the
flags are wrong.
";

/// Sets an option.
const fn option(name: &'static str, write: fn(&str) -> String) -> Effect {
    Effect::Option {
        name,
        write,
        default: None,
    }
}

/// Sets an option whose default is memcached's, and not the configuration's.
const fn default_option(
    name: &'static str,
    write: fn(&str) -> String,
    default: &'static str,
) -> Effect {
    Effect::Option {
        name,
        write,
        default: Some(default),
    }
}

macro_rules! flags {
    ($($short:tt $long:tt $(= $value:literal)?, $effect:expr; $about:literal)+) => {
        /// Every flag, in memcached's order; those of Dwell's own follow.
        pub(super) const FLAGS: &[FlagSpec] = &[$(FlagSpec {
            short: flags!(@short $short),
            long: flags!(@long $long),
            value: flags!(@value $($value)?),
            about: $about,
            effect: $effect,
        }),+];
    };
    (@short ' ') => { None };
    (@short $short:literal) => { Some($short) };
    (@long "") => { None };
    (@long $long:literal) => { Some($long) };
    (@value) => { None };
    (@value $value:literal) => { Some($value) };
}

flags! {
    'p' "port" = "num", Effect::Own;
    "TCP port to listen on (default: 11211; 0: none, -1: a free one)"
    'U' "udp-port" = "num", Effect::Ignored("there is no UDP"); "accepted: there is no UDP"
    's' "unix-socket" = "file", option("store.unix_socket", as_it_is);
    "UNIX socket to listen on (disables network support)"
    'a' "unix-mask" = "mask", option("store.unix_permissions", as_it_is);
    "access mask for UNIX socket, in octal (default: 700)"
    'A' "enable-shutdown", option("store.shutdown", yes); "enable ascii \"shutdown\" command"
    'l' "listen" = "addr", Effect::Own;
    "interface to listen on (default: 127.0.0.1); repeat it or\n\
     use commas; others than loopback need -Y or --allow-remote"
    'd' "daemon", Effect::Own; "run as a daemon"
    'r' "enable-coredumps", Effect::Ignored("core dumps are as the shell set them"); "accepted"
    'u' "user" = "user", option("server.user", as_it_is);
    "assume identity of <user> (only when run as root)"
    'm' "memory-limit" = "num", default_option("store.bytes_max", mebibytes, "64");
    "memory for items and all they need, in megabytes\n(default: 64)"
    'M' "disable-evictions", option("store.evictions", no);
    "return error on memory exhausted instead of evicting"
    'c' "conn-limit" = "num", default_option("store.connections_max", as_it_is, "1024");
    "max simultaneous connections (default: 1024)"
    'k' "lock-memory", Effect::Ignored("memory is not locked"); "accepted"
    'v' "verbose", default_option("log.level", level, "0"); "log more; -vv and -vvv still more"
    'h' "help", Effect::Own; "print this help and exit"
    'i' "license", Effect::Own; "print the license and exit"
    'V' "version", Effect::Own; "print version and exit"
    'P' "pidfile" = "file", Effect::Own; "save PID in <file>"
    'f' "slab-growth-factor" = "num", Effect::Ignored("there are no slabs");
    "accepted: there are no slabs"
    'n' "slab-min-size" = "bytes", Effect::Ignored("there are no slabs");
    "accepted: there are no slabs"
    'L' "enable-largepages", Effect::Ignored("pages are the system's"); "accepted"
    'D' "" = "char", Effect::Ignored("there are no figures by prefix");
    "accepted: there are no figures by prefix"
    't' "threads" = "num", option("server.pollers", as_it_is);
    "number of threads to use (default: one per core)"
    'R' "max-reqs-per-event" = "num", option("store.commands_per_turn", as_it_is);
    "commands of one connection before another has its turn\n(default: 64)"
    'C' "disable-cas", option("store.cas", no); "disable use of CAS: every cas unique is 0"
    'b' "listen-backlog" = "num", default_option("store.backlog", as_it_is, "1024");
    "set the backlog queue limit (default: 1024)"
    'B' "protocol" = "name", option("store.protocols", protocols);
    "one of ascii, binary, or auto (default: auto-negotiate)"
    'I' "max-item-size" = "num", Effect::Own;
    "adjusts max item size\n(default: 1m, min: 1k, max: 1024m)"
    'S' "enable-sasl", Effect::Refused("there is no SASL here; -Y is authentication by text"); ""
    'F' "disable-flush-all", option("store.flush_all", no); "disable flush_all command"
    'X' "disable-dumping", option("store.dump", no);
    "disable stats cachedump and lru_crawler metadump"
    'W' "disable-watch", Effect::Ignored("there is nothing to watch");
    "accepted: there is nothing to watch"
    'Y' "auth-file" = "file", option("store.auth_file", as_it_is);
    "enable ASCII protocol authentication. format:\nuser:pass\\nuser2:pass2\\n"
    'e' "memory-file" = "file", Effect::Refused("there is no memory file; see --snapshot"); ""
    'Z' "enable-ssl", Effect::Refused("there is no TLS here"); ""
    'o' "extended" = "options", Effect::Own;
    "comma separated list of extended options;\n\
     idle_timeout=<seconds> is obeyed, memcached's others are\naccepted"
    'N' "napi_ids" = "num", Effect::Ignored("threads are not bound to queues"); "accepted"
    ' ' "allow-remote", Effect::Own; "let other machines in without authentication"
    ' ' "snapshot" = "file", option("store.snapshot", as_it_is);
    "keep the items in <file> while the process does not run"
    ' ' "metrics" = "addr", default_option("server.admin", as_it_is, "off");
    "where /-/health and /-/metrics answer (default: off)"
    ' ' "log-format" = "name", option("log.format", as_it_is); "text or json (default: text)"
}

fn as_it_is(value: &str) -> String {
    value.to_owned()
}

fn yes(_: &str) -> String {
    true.to_string()
}

fn no(_: &str) -> String {
    false.to_string()
}

fn mebibytes(value: &str) -> String {
    format!("{value}MiB")
}

/// The number of `-v` flags.
fn level(count: &str) -> String {
    let level = match count {
        "0" => "warn",
        "1" => "info",
        "2" => "debug",
        _ => "trace",
    };
    level.to_owned()
}

fn protocols(name: &str) -> String {
    if name == "auto-negotiate" {
        "auto"
    } else {
        name
    }
    .to_owned()
}
