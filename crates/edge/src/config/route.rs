//! `[[route]]`: the polls under a path prefix.

use super::{KeyTemplate, RouteAccess};
use std::time::Duration;

/// `[[route]]`: one path prefix whose requests are polls.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own, and any combination is legal"
)]
pub struct RouteConfig {
    /// Start of the request path; begins with `/`.
    pub prefix: String,
    /// Template of the key.
    pub key: KeyTemplate,
    /// `Content-Type` of values.
    pub content_type: String,
    /// Methods that poll; others get 405.
    pub methods: Methods,
    /// Wait of a request that asks for none.
    pub wait_default: Duration,
    /// Longest wait; longer ones are reduced to it.
    pub wait_max: Duration,
    /// Response to a poll for an empty value.
    pub empty: EmptyAnswer,
    /// POST polls that miss on one key share one request to the application.
    pub coalesce_post: bool,
    /// Polls with cookies share responses, although the key does not contain an identity.
    pub share_cookies: bool,
    /// Further header fields that identify a client, in any case.
    pub identity_headers: Vec<String>,
    /// Response to a held poll whose key is removed.
    pub on_delete: OnDelete,
    /// Origins that may open a WebSocket, besides the host's own and those of CORS.
    pub allowed_origins: Vec<String>,
    /// WebSockets may publish.
    pub websocket_publish: bool,
    /// Access options.
    pub access: RouteAccess,
    /// Cacheable responses of the application are stored in the cache.
    pub fill: bool,
    /// Time for which the last known value is sent if there is no newer one.
    pub stale_if_error: Duration,
    /// Time for which it is sent while a newer one is fetched, if `fill` is on.
    pub stale_while_revalidate: Duration,
    /// Time for which a failed fetch of a key is not repeated.
    pub negative: Duration,
    /// Time for which a fetch that got 404 is not repeated.
    pub negative_not_found: Duration,
}

impl RouteConfig {
    /// Makes a route under `prefix` with defaults.
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            ..Self::default()
        }
    }
}

impl RouteConfig {
    /// Warnings about values that clients can choose, and that other clients then get.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        self.chosen_parts().chain(self.open_publishing())
    }

    /// A warning if pages of every origin can publish over a WebSocket without being authenticated.
    fn open_publishing(&self) -> Option<String> {
        let is_guarded = self.access.jwt || self.access.auth.is_some();
        let is_open = self.allowed_origins.iter().any(|origin| origin == "*");
        (self.websocket_publish && is_open && !is_guarded).then(|| {
            format!(
                "pages of every origin can publish under `{}`: the route has websocket_publish \
                 and allowed_origins = \"*\", and neither jwt nor auth",
                self.prefix
            )
        })
    }

    /// Warnings about keys of which clients choose a part that looks like one of the proxy's.
    fn chosen_parts(&self) -> impl Iterator<Item = String> {
        let chosen = [
            ("x-forwarded-proto", "{scheme}"),
            ("client-cert", "{tls.client.cn} or {tls.client.san}"),
        ];
        let taken = chosen
            .into_iter()
            .filter(|(field, _)| self.key.takes_header(field));
        taken.map(|(field, part)| {
            format!(
                "the key of the route `{}` has {{header.{field}}}, which a client can set to \
                 anything, and so get the values of others; use {part}",
                self.prefix
            )
        })
    }
}

impl Default for RouteConfig {
    fn default() -> Self {
        Self {
            prefix: "/poll/".to_owned(),
            key: KeyTemplate::path(),
            content_type: "text/plain; charset=utf-8".to_owned(),
            methods: Methods::ALL,
            wait_default: Duration::ZERO,
            wait_max: Duration::from_secs(55),
            empty: EmptyAnswer::Ok,
            coalesce_post: false,
            share_cookies: false,
            identity_headers: Vec::new(),
            on_delete: OnDelete::Origin,
            allowed_origins: Vec::new(),
            websocket_publish: false,
            access: RouteAccess::default(),
            fill: false,
            stale_if_error: Duration::from_secs(60),
            stale_while_revalidate: Duration::ZERO,
            negative: Duration::from_secs(1),
            negative_not_found: Duration::ZERO,
        }
    }
}

/// Methods of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a set of methods, one flag for each"
)]
pub struct Methods {
    /// GET polls.
    pub get: bool,
    /// HEAD polls.
    pub head: bool,
    /// POST polls.
    pub post: bool,
    /// QUERY polls.
    pub query: bool,
}

impl Methods {
    /// All methods that can poll.
    pub const ALL: Self = Self {
        get: true,
        head: true,
        post: true,
        query: true,
    };

    /// Returns true if `method`, as in the request line, polls.
    pub fn allows(self, method: &str) -> bool {
        match method {
            "GET" => self.get,
            "HEAD" => self.head,
            "POST" => self.post,
            "QUERY" => self.query,
            _ => false,
        }
    }

    /// Value of the `Allow` field of a 405.
    pub fn allow_field(self) -> String {
        let all = [
            (self.get, "GET"),
            (self.head, "HEAD"),
            (self.post, "POST"),
            (self.query, "QUERY"),
        ];
        let names: Vec<&str> = all
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, name)| *name)
            .collect();
        names.join(", ")
    }
}

/// Response to a poll for an empty value ("nothing new").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyAnswer {
    /// 200 with an empty body.
    Ok,
    /// 204.
    NoContent,
}

/// Response to a held poll whose key is deleted or expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDelete {
    /// The response of the application, as for any miss.
    Origin,
    /// 404.
    NotFound,
    /// None yet: it stays held until a value is set or its wait ends.
    KeepWaiting,
}
