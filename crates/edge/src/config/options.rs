//! The table of options: names, codecs and descriptions, a file for each section.
//!
//! The loader, the `--set` flag, the example file and the reference page are made from it.

use super::codec::{Codec, Fault, Shape, Value};
use super::{Config, RouteConfig};
use serde_json::Value as Json;

/// One option of a `T`: a [`Config`] or one of its routes.
pub(super) struct OptionSpec<T> {
    /// Its table in the file.
    pub(super) section: &'static str,
    /// Its name in that table.
    pub(super) name: &'static str,
    /// Its purpose, in Markdown.
    pub(super) about: &'static str,
    /// The equivalent flag, if there is one besides `--set`.
    pub(super) flag: Option<&'static str>,
    /// Conversion of a flag's text.
    pub(super) shape: Shape,
    /// True if no message shows its value.
    pub(super) is_secret: bool,
    /// Reads a value into the target.
    pub(super) set: fn(&mut T, &Value<'_>) -> Result<(), Fault>,
    /// Writes the value as TOML.
    pub(super) show: fn(&T) -> String,
    /// Describes the accepted values.
    pub(super) describe: fn() -> String,
    /// A JSON schema of the accepted values.
    pub(super) schema: fn() -> Json,
    /// Returns true if both targets have the same value.
    pub(super) is_same: fn(&T, &T) -> bool,
    /// Copies the value from the second target to the first.
    pub(super) keep: fn(&mut T, &T),
}

impl<T> OptionSpec<T> {
    /// The name with its table, as in errors and `--set`.
    pub(super) fn full_name(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }
}

/// A table of the file, and its purpose.
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
}

macro_rules! options {
    (
        $table:ident for $target:ty:
        $($section:literal . $($field:ident).+ $([$flag:literal])? = $codec:expr; $about:literal)+
    ) => {
        pub(super) const $table: &[$crate::config::options::OptionSpec<$target>] = &[$(
            $crate::config::options::OptionSpec {
                section: $section,
                name: options!(@last $($field)+),
                about: $about,
                flag: options!(@flag $($flag)?),
                shape: $crate::config::options::shape_of(
                    &$codec,
                    |target: &$target| &target.$($field).+,
                ),
                is_secret: $crate::config::options::is_secret(
                    &$codec,
                    |target: &$target| &target.$($field).+,
                ),
                set: |target, value| {
                    target.$($field).+ = $crate::config::codec::Codec::read(&$codec, value)?;
                    Ok(())
                },
                show: |target| $crate::config::codec::Codec::show(&$codec, &target.$($field).+),
                describe: || $crate::config::options::describe(
                    &$codec,
                    |target: &$target| &target.$($field).+,
                ),
                schema: || $crate::config::options::schema(
                    &$codec,
                    |target: &$target| &target.$($field).+,
                ),
                is_same: |one, other| one.$($field).+ == other.$($field).+,
                keep: |target, from| target.$($field).+.clone_from(&from.$($field).+),
            },
        )+];
    };
    (@last $field:ident) => { stringify!($field) };
    (@last $first:ident $($rest:ident)+) => { options!(@last $($rest)+) };
    (@flag) => { None };
    (@flag $flag:literal) => { Some($flag) };
}

mod bounds;
mod jwt;
mod limits;
mod log;
mod memcached;
mod presence;
mod publish;
mod redis;
mod route;
mod server;
mod store;
mod tls;
mod upstream;

/// Options of each route.
pub(super) const ROUTE_OPTIONS: &[OptionSpec<RouteConfig>] = route::OPTIONS;

/// Options that exist once, in the order of the reference.
pub(super) fn single_options() -> impl Iterator<Item = &'static OptionSpec<Config>> {
    ONCE.iter().copied().flatten()
}

const ONCE: &[&[OptionSpec<Config>]] = &[
    server::OPTIONS,
    tls::OPTIONS,
    store::OPTIONS,
    memcached::OPTIONS,
    redis::OPTIONS,
    upstream::OPTIONS,
    publish::OPTIONS,
    jwt::OPTIONS,
    presence::OPTIONS,
    limits::OPTIONS,
    log::OPTIONS,
];

// The field only tells the compiler the type of the codec's values.
const fn shape_of<S, T, C: Codec<T>>(_: &C, _: fn(&S) -> &T) -> Shape {
    C::SHAPE
}

const fn is_secret<S, T, C: Codec<T>>(_: &C, _: fn(&S) -> &T) -> bool {
    C::IS_SECRET
}

fn describe<S, T, C: Codec<T>>(codec: &C, _: fn(&S) -> &T) -> String {
    codec.describe()
}

fn schema<S, T, C: Codec<T>>(codec: &C, _: fn(&S) -> &T) -> Json {
    codec.schema()
}

/// The sections in the order of the reference.
pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "server",
        about: "Listeners and event loops.",
    },
    Section {
        name: "tls",
        about: "Listeners under TLS 1.3 and 1.2, for HTTP/2 and HTTP/1.1. Off until there is an \
                address.",
    },
    Section {
        name: "route",
        about: "One path prefix whose requests are polls. Written `[[route]]` and repeated for \
                each prefix; the longest prefix of a request's path wins. Without any, there is \
                one route with the defaults.",
    },
    Section {
        name: "store",
        about: "The embedded store and its memcached listener. Used when neither \
                `memcached.servers` nor `redis.url` is set.",
    },
    Section {
        name: "memcached",
        about: "External memcached servers. Named here, they hold the values instead of the \
                embedded store.",
    },
    Section {
        name: "redis",
        about: "A Redis or Valkey server that holds the values instead of the embedded store, for \
                any number of edges. Off until there is a `url`.",
    },
    Section {
        name: "upstream",
        about: "The application, which gets misses and everything that is not a poll. Maxima are \
                for the whole process and divided among the event loops.",
    },
    Section {
        name: "publish",
        about: "Values stored and removed over HTTP: under `/-/keys/` on the admin listener, and \
                on routes with `publish = true`. Off until there is a token, or a name in \
                `clients`.",
    },
    Section {
        name: "jwt",
        about: "JSON Web Tokens, for routes with `jwt = true`. Each key verifies the algorithms of \
                its kind only: a secret HS256, HS384 and HS512; an RSA key RS and PS; an EC key \
                ES256 or ES384 by its curve; an Ed25519 key `EdDSA`. Dwell reads the files again \
                within seconds when they change.",
    },
    Section {
        name: "presence",
        about: "A webhook that gets an event when a key gains its first watcher and when it has \
                lost its last one. A watcher is a held poll, an event stream or a WebSocket. Off \
                until there is a `webhook_url`.",
    },
    Section {
        name: "limits",
        about: "Bounds on what a client may send, hold and wait for. Maxima of connections and \
                waiters are for the whole process and divided among the event loops.",
    },
    Section {
        name: "log",
        about: "Diagnostics and the access log.",
    },
];
