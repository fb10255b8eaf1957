//! The command line.

use crate::control::WaitArguments;
use crate::demo::{CLIENTS_DEFAULT, PartName};
use crate::explain::ExplainArguments;
use crate::health::HealthArguments;
use crate::mc::McArguments;
use crate::pages::{CompletionsArguments, ManArguments};
use crate::store_command::StoreArguments;
use crate::top::TopArguments;
use crate::version;
use clap::{ArgAction, Args, Parser, Subcommand};
use dwell_edge::config::FlagValue;
use std::path::PathBuf;

/// The parsed command line.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "dwell",
    version = version::SHORT,
    long_version = version::LONG,
    propagate_version = true,
    about = "Holds polls, event streams and WebSockets, and forwards all else to your application",
    after_help = EXAMPLES
)]
pub(crate) struct CommandLine {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// A subcommand.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve polls in front of an application, and forward all else to it
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArguments),
    /// Show thousands of waiting clients, their cost, and a page that wakes them all
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArguments),
    /// Serve the embedded store alone, with memcached's flags
    Store(Box<StoreArguments>),
    /// Show the hottest keys, waits, memory and commands of a store
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArguments),
    /// Send commands to memcached servers: get, set, stats, ping, bench and more
    Mc(McArguments),
    /// Explain the response to a request: its key, store, value and limits
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArguments),
    /// Check a configuration file, and list every mistake in it
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArguments),
    /// Print the configuration in effect, and where each value comes from
    #[command(after_help = CONFIG_STATUS)]
    Config(ConfigArguments),
    /// Check the health of a running process; the exit status has the result
    #[command(after_help = HEALTH_EXAMPLES)]
    Health(HealthArguments),
    /// Have a running process read its configuration again, and wait for the result
    #[command(after_help = RELOAD_EXAMPLES)]
    Reload(WaitArguments),
    /// End a running process after a drain, and wait for its end
    #[command(after_help = STOP_EXAMPLES)]
    Stop(WaitArguments),
    /// Replace a running process by the program that is installed, and keep its clients
    #[command(after_help = UPGRADE_EXAMPLES)]
    Upgrade(WaitArguments),
    /// Print the manual page, or write those of all subcommands
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArguments),
    /// Print the completions of a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArguments),
    /// Print the version, its commit, and its features
    #[command(after_help = VERSION_EXAMPLES)]
    Version,
}

/// Flags of `dwell serve`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServeArguments {
    /// Read this TOML file first; flags win over it [default: `DWELL_CONFIG`, or none]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The flags that set options.
    #[command(flatten)]
    pub(crate) options: OptionArguments,
}

/// Flags of `dwell serve` and `dwell check` that set options.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct OptionArguments {
    /// The application, which responds to misses and everything that is not a poll; repeat it for
    /// several servers [default: off]
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Vec<String>,
    /// A memcached server to read values from; repeat it for several [default: the embedded store]
    #[arg(long, value_name = "HOST:PORT[=WEIGHT]")]
    pub(crate) memcached: Vec<String>,
    /// The Redis or Valkey server to read values from; repeat it for servers of a cluster [default:
    /// the embedded store]
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Vec<String>,
    /// Requests under this path are polls; repeat it for several [default: /poll/]
    #[arg(long, value_name = "PATH")]
    pub(crate) poll_prefix: Vec<String>,
    /// Listen under TLS too, with a certificate for localhost that is made for a week
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true,
        default_missing_value = SELF_SIGNED_ADDRESS)]
    pub(crate) tls_self_signed: Option<String>,
    /// File with the process id while the process serves [default: off]
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<String>,
    /// The flags of `dwell demo`.
    #[command(flatten)]
    pub(crate) common: CommonArguments,
}

/// Flags of `dwell demo`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DemoArguments {
    /// Listen under TLS too, with a certificate for localhost that is made for a week
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true,
        default_missing_value = SELF_SIGNED_ADDRESS)]
    pub(crate) tls: Option<String>,
    /// Clients of each transport, as far as the machine has room; 0 is a page with a single poll
    #[arg(long, value_name = "NUMBER", default_value_t = CLIENTS_DEFAULT)]
    pub(crate) clients: usize,
    /// Show no page: start the clients, set their key once, print the figures, and end
    #[arg(long, conflicts_with_all = ["tls", "remote", "listen", "store", "admin", "pollers",
        "log_level", "verbose", "quiet", "log_format", "access_log", "set"])]
    pub(crate) once: bool,
    /// Print the figures as JSON
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
    /// Allow listeners for clients that other machines can reach: all of them may use the page
    #[arg(long)]
    pub(crate) remote: bool,
    /// The part of the demonstration that this process is.
    #[arg(long, hide = true)]
    pub(crate) part: Option<PartName>,
    /// The flags that `dwell serve` has too.
    #[command(flatten)]
    pub(crate) common: CommonArguments,
}

/// Flags of `dwell serve` and `dwell demo`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CommonArguments {
    /// Address for clients; repeat it for several [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<String>,
    /// Address of the embedded store (memcached protocol), or "off" [default: 127.0.0.1:11211]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) store: Option<String>,
    /// Address of health, metrics and dashboard, or "off" [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// Number of event loops; 0 is one per core [default: 0]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) pollers: Option<String>,
    /// off, error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Log more: debug, or trace if it is given twice
    #[arg(long, short, action = ArgAction::Count, conflicts_with_all = ["log_level", "quiet"])]
    pub(crate) verbose: u8,
    /// Log less: warnings and errors, or errors alone if it is given twice
    #[arg(long, short, action = ArgAction::Count, conflicts_with = "log_level")]
    pub(crate) quiet: u8,
    /// text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
    /// File for one JSON line per request, or "-" or "off" [default: off]
    #[arg(long, value_name = "PATH")]
    pub(crate) access_log: Option<String>,
    /// Set any other option of the configuration file; repeat it for several
    #[arg(long, value_name = "SECTION.OPTION=VALUE", value_parser = assignment)]
    pub(crate) set: Vec<(String, String)>,
}

/// Flags of `dwell check`.
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct CheckArguments {
    /// The TOML file to read, or - for the standard input [default: `DWELL_CONFIG`, or the
    /// environment alone]
    #[arg(value_name = "FILE", conflicts_with_all = DOCUMENTS)]
    pub(crate) file: Option<PathBuf>,
    /// Read only that file: resolve no names, and check no other files, folders and users
    #[arg(long, conflicts_with_all = DOCUMENTS)]
    pub(crate) offline: bool,
    /// Connect to Redis, Sentinels, memcached and the application, and print what they lack
    #[arg(long, conflicts_with_all = ["offline", "print"], conflicts_with_all = DOCUMENTS)]
    pub(crate) live: bool,
    /// Print the result as one JSON object
    #[arg(long, conflicts_with = "print", conflicts_with_all = DOCUMENTS)]
    pub(crate) json: bool,
    /// Print a file with every option that is not at its default, secrets too
    #[arg(long, conflicts_with_all = DOCUMENTS)]
    pub(crate) print: bool,
    /// The flags of `dwell serve` that set options; they win over the file.
    #[command(flatten)]
    pub(crate) options: OptionArguments,
    /// The documents to print instead.
    #[command(flatten)]
    pub(crate) documents: DocumentArguments,
}

/// Documents that `dwell check` prints.
#[derive(Clone, Copy, Debug, Args)]
#[group(skip)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct DocumentArguments {
    /// Print a file with every option at its default
    #[arg(long, conflicts_with_all = &DOCUMENTS[1..],
        conflicts_with_all = OPTIONS)]
    pub(crate) print_default: bool,
    /// Print the reference of every option in Markdown
    #[arg(long, conflicts_with_all = &DOCUMENTS[2..],
        conflicts_with_all = OPTIONS)]
    pub(crate) print_reference: bool,
    /// Print a JSON schema of the configuration file, for editors
    #[arg(long, conflicts_with_all = &DOCUMENTS[3..], conflicts_with_all = OPTIONS)]
    pub(crate) print_schema: bool,
    /// Print the reference of every metric in Markdown
    #[arg(long, conflicts_with_all = &DOCUMENTS[4..], conflicts_with_all = OPTIONS)]
    pub(crate) print_metrics: bool,
    /// Print the reference of every command in Markdown
    #[arg(long, conflicts_with_all = OPTIONS)]
    pub(crate) print_commands: bool,
}

/// Flags that print a document, and read no configuration.
const DOCUMENTS: [&str; 5] = [
    "print_default",
    "print_reference",
    "print_schema",
    "print_metrics",
    "print_commands",
];

/// Flags that set options: a document has nothing of them.
const OPTIONS: [&str; 16] = [
    "upstream",
    "memcached",
    "redis",
    "poll_prefix",
    "tls_self_signed",
    "pid_file",
    "listen",
    "store",
    "admin",
    "pollers",
    "log_level",
    "verbose",
    "quiet",
    "log_format",
    "access_log",
    "set",
];

/// Flags of `dwell config`.
#[derive(Clone, Debug, Args)]
#[command(disable_help_subcommand = true)]
pub(crate) struct ConfigArguments {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// A subcommand of `dwell config`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every option with its value, and with the flag, variable or line that sets it
    #[command(after_help = CONFIG_EXAMPLES)]
    Print(Box<PrintArguments>),
}

/// Flags of `dwell config print`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PrintArguments {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Leave out the options that nothing sets
    #[arg(long)]
    pub(crate) changed: bool,
    /// The flags of `dwell serve`.
    #[command(flatten)]
    pub(crate) serve: ServeArguments,
}

impl OptionArguments {
    /// The flags that were given, in the order in which they are applied.
    pub(crate) fn flags(&self) -> Vec<FlagValue> {
        let mut flags = Vec::new();
        push(&mut flags, "--upstream", "upstream.url", &self.upstream);
        push(
            &mut flags,
            "--memcached",
            "memcached.servers",
            &self.memcached,
        );
        let redis = match self.redis.len() {
            0 | 1 => "redis.url",
            _ => "redis.cluster",
        };
        push(&mut flags, "--redis", redis, &self.redis);
        push(
            &mut flags,
            "--poll-prefix",
            "route.prefix",
            &self.poll_prefix,
        );
        push_self_signed(
            &mut flags,
            "--tls-self-signed",
            self.tls_self_signed.as_ref(),
        );
        let pid_file = self.pid_file.as_slice();
        push(&mut flags, "--pid-file", "server.pid_file", pid_file);
        flags.extend(self.common.flags());
        flags
    }
}

impl DemoArguments {
    /// The flags that were given, in the order in which they are applied.
    pub(crate) fn flags(&self) -> Vec<FlagValue> {
        let mut flags = Vec::new();
        push_self_signed(&mut flags, "--tls", self.tls.as_ref());
        flags.extend(self.common.flags());
        flags
    }
}

impl CommonArguments {
    /// The flags that were given, in the order in which they are applied.
    pub(crate) fn flags(&self) -> Vec<FlagValue> {
        let mut flags = Vec::new();
        push(&mut flags, "--listen", "server.listen", &self.listen);
        push(&mut flags, "--store", "store.listen", self.store.as_slice());
        push(&mut flags, "--admin", "server.admin", self.admin.as_slice());
        push(
            &mut flags,
            "--pollers",
            "server.pollers",
            self.pollers.as_slice(),
        );
        push(
            &mut flags,
            "--log-level",
            "log.level",
            self.log_level.as_slice(),
        );
        let (flag, level) = match (self.verbose, self.quiet) {
            (0, 0) => ("", None),
            (1, _) => ("--verbose", Some("debug")),
            (2.., _) => ("--verbose", Some("trace")),
            (_, 1) => ("--quiet", Some("warn")),
            (_, 2..) => ("--quiet", Some("error")),
        };
        let level = level.map(str::to_owned);
        push(&mut flags, flag, "log.level", level.as_slice());
        push(
            &mut flags,
            "--log-format",
            "log.format",
            self.log_format.as_slice(),
        );
        push(
            &mut flags,
            "--access-log",
            "log.access",
            self.access_log.as_slice(),
        );
        for (option, value) in &self.set {
            push(&mut flags, "--set", option, std::slice::from_ref(value));
        }
        flags
    }
}

/// Adds the options of a flag that makes a certificate.
fn push_self_signed(flags: &mut Vec<FlagValue>, flag: &str, address: Option<&String>) {
    if let Some(address) = address {
        push(flags, flag, "tls.listen", std::slice::from_ref(address));
        push(flags, flag, "tls.self_signed", &["true".to_owned()]);
    }
}

fn push(flags: &mut Vec<FlagValue>, flag: &str, option: &str, values: &[String]) {
    if !values.is_empty() {
        let (flag, option) = (flag.to_owned(), option.to_owned());
        flags.push(FlagValue {
            flag,
            option,
            values: values.to_vec(),
        });
    }
}

/// Splits `SECTION.OPTION=VALUE`.
fn assignment(text: &str) -> Result<(String, String), &'static str> {
    let (option, value) = text.split_once('=').ok_or("write SECTION.OPTION=VALUE")?;
    Ok((option.trim().to_owned(), value.trim().to_owned()))
}

/// The address under TLS of a flag without one.
const SELF_SIGNED_ADDRESS: &str = "127.0.0.1:8443";

const EXAMPLES: &str = "\
Examples:
  dwell demo
      Open http://127.0.0.1:8080/: thousands of clients wait there for a key. Set it.
  dwell serve --upstream http://127.0.0.1:3000
      Your application on port 3000 sets keys such as /poll/alice on 127.0.0.1:11211, and its
      clients poll http://127.0.0.1:8080/poll/alice. Polls without a value go to the application.
  dwell serve --config dwell.toml
  dwell store -m 256 -p 11211
      The embedded store alone, in the place of a memcached.
  dwell check dwell.toml

`dwell serve --help` has all flags. docs/configuration.md has every option.";

const SERVE_EXAMPLES: &str = "\
Examples:
  dwell serve
      Polls under http://127.0.0.1:8080/poll/, values by any memcached client on port 11211.
  dwell serve --upstream http://127.0.0.1:3000 --poll-prefix /poll/ --poll-prefix /inbox/
      Everything else, and polls without a value, go to the application on port 3000.
  dwell serve --memcached cache-1:11211 --memcached cache-2:11211=2
      Values come from the memcached servers you already run, the second with twice the share.
  dwell serve --redis redis://127.0.0.1:6379
      Values come from a Redis or Valkey server, which any number of machines may share.
  dwell serve --config dwell.toml --set limits.idle_timeout=30s
      The file, with one option changed.
  dwell serve --config dwell.toml --pid-file /run/dwell/dwell.pid
      `dwell reload`, `dwell stop` and `dwell upgrade` find the process by the file.
  DWELL_SERVER_LISTEN=0.0.0.0:8080 dwell serve
      Set any option in the environment, with commas between the values of a list.

Exit status: 0 after SIGTERM or SIGINT and a drain, 1 when something fails, 2 when the flags or
the file are wrong.";

const DEMO_EXAMPLES: &str = "\
Examples:
  dwell demo
      Open http://127.0.0.1:8080/. 10,000 long-polls, 10,000 event streams and 10,000 WebSockets
      wait there, each kind on a server of its own. Set their key on the page, or by:
      dwell mc set /poll/demo hello
  dwell demo --clients 1000
  dwell demo --listen 127.0.0.1:8000 --store 127.0.0.1:11311
  dwell demo --tls
      Also under TLS at https://localhost:8443/, with a new certificate.
  dwell demo --once --json
      The figures without a page.

Exit status: 0, 1 when something fails or a client gets no response, 2 when the flags are wrong.";

const TOP_EXAMPLES: &str = "\
Examples:
  dwell top
      The store on 127.0.0.1:11211, until q is pressed.
  dwell top 127.0.0.1:11311 --interval 2
  dwell top --once
      The figures once, as plain text.

Exit status: 0, or 1 when the store does not respond.";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  dwell explain /poll/alice
      Asks the process whose admin listener is at 127.0.0.1:9090. If there is no such process,
      the result is that of the defaults.
  dwell explain GET '/poll/alice?since=lVXoVVxi3P0&wait=25' --admin 10.0.0.5:9090
  dwell explain /poll/me -H 'Cookie: user=alice' --json
  dwell explain /poll/me --config dwell.toml

Exit status: 0, 1 when the process or the request is wrong, 2 when the file is.";

const HEALTH_EXAMPLES: &str = "\
Examples:
  dwell health
      Asks the process whose admin listener is at 127.0.0.1:9090.
  dwell health --admin 10.0.0.5:9090 --timeout 1
  dwell health --live
      For a supervisor that restarts what fails: a process that drains is alive.
  dwell health --ready
      For a balancer: the process can answer requests.

Exit status: 0 when the process serves, 1 when it drains or does not respond in time. With --live, 0
when it drains.";

const RELOAD_EXAMPLES: &str = "\
Examples:
  dwell reload --config dwell.toml
      Checks the file, sends SIGHUP to the process of its server.pid_file, and prints the result.
  dwell reload --pid-file /run/dwell/dwell.pid --timeout 10

The signal is sent only to a process that holds the lock on its pid file: a file that was left
behind names no process. Only root and the user of the process can read the result.

Exit status: 0 when the configuration is applied, or with --timeout 0 when the signal is sent, 1
when the process cannot apply it, has no result in time, or no process serves with the file, 2 when
the flags or the configuration are wrong.";

const STOP_EXAMPLES: &str = "\
Examples:
  dwell stop --config dwell.toml
      Sends SIGTERM to the process of server.pid_file, and returns when it has ended.
  dwell stop --pid-file /run/dwell/dwell.pid --timeout 300

The signal is sent only to a process that holds the lock on its pid file. A second one ends a
process that drains at once.

Exit status: 0 when the process has ended, or with --timeout 0 when the signal is sent, 1 when it
has not ended in time or no process serves with the file, 2 when the flags or the configuration are
wrong.";

const UPGRADE_EXAMPLES: &str = "\
Examples:
  dwell upgrade --config dwell.toml
      Checks the file, sends SIGUSR2 to the process of its server.pid_file, and returns when
      another process has written that file.
  dwell upgrade --pid-file /run/dwell/dwell.pid

The signal is sent only to a process that holds the lock on its pid file.

Exit status: 0 when another process serves, 1 when the upgrade fails or is not done in time, or no
process serves with the file, 2 when the flags or the configuration are wrong.";

const MAN_EXAMPLES: &str = "\
Examples:
  dwell man | man -l -
  dwell man --dir /usr/local/share/man/man1

Exit status: 0, 1 when the output cannot be written, 2 when the flags are wrong.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  dwell completions bash > /etc/bash_completion.d/dwell
  dwell completions zsh > \"${fpath[1]}/_dwell\"
  dwell completions fish > ~/.config/fish/completions/dwell.fish

Exit status: 0, 1 when the output cannot be written, 2 when the flags are wrong.";

const VERSION_EXAMPLES: &str = "\
Examples:
  dwell version
      The same as `dwell --version`.";

const CHECK_EXAMPLES: &str = "\
Examples:
  dwell check dwell.toml
  dwell check - < dwell.toml
  dwell check --offline dwell.toml
  dwell check --json dwell.toml
      One object: result, mistakes with line and column, errors, warnings.
  dwell check --live dwell.toml
      The responses of the servers in the file, and the rights that the user of Redis lacks.
  dwell check --upstream http://127.0.0.1:8000 --set limits.waiters_max=1000
      The flags of `dwell serve`, with a file or without one.
  dwell check --print dwell.toml
      The options of `dwell serve --config dwell.toml` in this environment.
  dwell check --print-default > dwell.toml
  dwell check --print-schema > dwell.schema.json
      For editors: `#:schema ./dwell.schema.json` in the first line of a file.

The command resolves names, and checks the files, folders and users in the file, as `dwell serve`
does when it starts. It does not check that ports are free. With --live it also connects to the
servers in the file, for at most a minute, and stores nothing there.

It warns of settings that are valid but may be more open than you intend, and of a limit on open
files that is too low for the connections that the file allows.

Without a file the command checks the flags and the environment, and its output says so.

Exit status: 0 when the configuration is good, 1 when `dwell serve` would not start with it here, 2
when it is wrong. With --live it is 1, too, if a server does not respond or lacks something that the
configuration requires.";

const CONFIG_STATUS: &str = "\
Exit status: 0, 1 when the output cannot be written, 2 when the flags or the file are wrong.";

const CONFIG_EXAMPLES: &str = "\
Examples:
  dwell config print --config dwell.toml
      Every option, with its source: default, file, environment or flag.
  dwell config print --config dwell.toml --changed
  DWELL_SERVER_POLLERS=2 dwell config print --listen 127.0.0.1:8000 --json

The flags are those of `dwell serve`. The value of a token is \"(hidden)\". The command reads the
file and the environment alone: it does not ask a running process.

Exit status: 0, 1 when the output cannot be written, 2 when the flags or the file are wrong.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use dwell_edge::config::{Config, parse};

    fn serve(words: &[&str]) -> OptionArguments {
        let all = ["dwell", "serve"].iter().chain(words);
        match CommandLine::try_parse_from(all)
            .expect("the flags are right")
            .command
        {
            Command::Serve(arguments) => arguments.options,
            other => panic!("not serve: {other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_flag_reaches_its_option() {
        let words = "--listen 127.0.0.1:1 --listen 127.0.0.1:2 --store off --admin off \
                     --pollers 3 --log-level warn --pid-file /run/x \
                     --log-format json --access-log - \
                     --upstream http://app:1 --memcached a:1 --memcached b:2=3 \
                     --poll-prefix /a/ --poll-prefix /b/ --set limits.waiters_max=7";
        let arguments = serve(&words.split_whitespace().collect::<Vec<_>>());
        let config = parse("dwell.toml", "", &arguments.flags()).expect("the flags are right");
        let defaults = Config::default();
        assert_eq!(config.server.listen.len(), 2);
        assert_eq!((config.store.listen, config.server.admin), (None, None));
        assert_eq!(config.server.pollers, 3);
        assert_ne!(config.log.level, defaults.log.level);
        assert_ne!(config.log.format, defaults.log.format);
        assert_eq!(config.server.pid_file, Some("/run/x".into()));
        assert_ne!(config.log.access, defaults.log.access);
        assert!(!config.upstream.url.is_empty());
        assert_eq!(config.memcached.servers.len(), 2);
        assert_eq!(config.routes.len(), 2);
        assert_eq!(config.limits.waiters_max, 7);
    }

    #[test]
    fn a_flag_makes_a_certificate_and_listens_with_it() {
        let of = |flags: &[FlagValue]| parse("dwell.toml", "", flags).expect("they are right").tls;
        for (words, address) in [
            (&["--tls-self-signed"][..], "127.0.0.1:8443"),
            (&["--tls-self-signed=127.0.0.1:1"], "127.0.0.1:1"),
        ] {
            let tls = of(&serve(words).flags());
            assert!(tls.self_signed);
            assert_eq!(tls.listen, [address.parse().expect("an address")]);
        }
        let elsewhere = serve(&["--tls-self-signed=0.0.0.0:1"]).flags();
        let error = parse("dwell.toml", "", &elsewhere).expect_err("others could reach it");
        assert!(error.to_string().contains("this machine alone"), "{error}");
        let demo = CommandLine::try_parse_from(["dwell", "demo", "--tls"]).expect("it is right");
        let Command::Demo(demo) = demo.command else {
            panic!("it is the demonstration");
        };
        assert_eq!(
            of(&demo.flags()).listen,
            of(&serve(&["--tls-self-signed"]).flags()).listen
        );
    }

    #[test]
    fn more_and_less_is_logged() {
        let level = |words: &[&str]| {
            let config = parse("dwell.toml", "log.level = \"off\"", &serve(words).flags());
            format!("{:?}", config.expect("the flags are right").log.level)
        };
        for (words, expected) in [
            (&[][..], "Off"),
            (&["-v"], "Debug"),
            (&["-vv"], "Trace"),
            (&["--verbose", "-v", "-v"], "Trace"),
            (&["-q"], "Warn"),
            (&["--quiet", "--quiet"], "Error"),
            (&["-qqq"], "Error"),
        ] {
            assert_eq!(level(words), expected, "{words:?}");
        }
        for words in [
            ["-q", "-v"],
            ["-q", "--log-level=info"],
            ["-v", "--log-level=info"],
        ] {
            let all = ["dwell", "serve"].iter().chain(&words);
            assert!(CommandLine::try_parse_from(all).is_err(), "{words:?}");
        }
    }

    #[test]
    fn no_flag_is_no_change() {
        assert_eq!(serve(&[]).flags(), []);
    }

    #[test]
    fn the_help_is_for_people() {
        let mut command = CommandLine::command();
        let help = command.render_long_help().to_string();
        for word in [
            "serve",
            "demo",
            "check",
            "Examples:",
            "http://127.0.0.1:8080/",
        ] {
            assert!(help.contains(word), "`{word}` is not in\n{help}");
        }
        for part in command.get_subcommands_mut() {
            if matches!(part.get_name(), "store" | "config" | "help") {
                // The help of the first is memcached's, the second has commands of its own, and
                // that of the last is clap's.
                continue;
            }
            let help = part.render_long_help().to_string();
            assert!(help.contains("Examples:"), "{help}");
            assert!(help.lines().all(|line| line.len() <= 100), "{help}");
        }
    }

    #[test]
    fn one_redis_is_a_server_and_several_are_of_a_cluster() {
        let config = |words: &[&str], file: &str| {
            let parsed = parse("dwell.toml", file, &serve(words).flags());
            parsed.map(|config| config.redis.place().unwrap_or_default())
        };
        let (one, other) = ("--redis=redis://a", "--redis=redis://b:7");
        assert_eq!(config(&[one], "").unwrap(), "redis://a:6379");
        let cluster = config(&[one, other], "").unwrap();
        assert_eq!(cluster, "cluster of redis://a:6379, redis://b:7");
        let refused = |words: &[&str], file: &str| config(words, file).unwrap_err().to_string();
        let twice = refused(&[one, other], "redis.url = \"redis://c\"\n");
        assert!(
            twice.contains("named twice: redis.url and redis.cluster"),
            "{twice}"
        );
        let socket = refused(&[one, "--redis=unix:///a"], "");
        assert!(socket.contains("and no unix socket"), "{socket}");
    }

    #[test]
    fn check_wants_one_thing() {
        let parsed = |words: &[&str]| CommandLine::try_parse_from(words.iter()).is_ok();
        assert!(parsed(&["dwell", "check", "a.toml"]));
        assert!(parsed(&["dwell", "check", "--print-default"]));
        assert!(parsed(&["dwell", "check"]));
        assert!(parsed(&["dwell", "check", "a.toml", "--print"]));
        assert!(!parsed(&["dwell", "check", "--print", "--print-default"]));
        assert!(!parsed(&["dwell", "check", "a.toml", "--print-default"]));
        assert!(!parsed(&["dwell", "serve", "--set", "limits.waiters_max"]));
        assert!(!parsed(&["dwell"]));
    }
}
