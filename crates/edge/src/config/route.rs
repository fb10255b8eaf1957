//! `[[route]]`: what is polled, and how.

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
    /// How the key is made from the request.
    pub key: KeyTemplate,
    /// `Content-Type` of values.
    pub content_type: String,
    /// Methods that poll; others get 405.
    pub methods: Methods,
    /// Wait of a request that asks for none.
    pub wait_default: Duration,
    /// Longest wait a request may ask for; longer ones are cut to it.
    pub wait_max: Duration,
    /// What a stored empty value is answered with.
    pub empty: EmptyAnswer,
    /// Whether POST polls that miss on one key share one upstream request.
    pub coalesce_post: bool,
    /// Polls with cookies share answers although the key is not made of an identity.
    pub share_cookies: bool,
    /// Names of further request headers that identify a client, in any case.
    pub identity_headers: Vec<String>,
    /// What a held poll gets when its key goes away.
    pub on_delete: OnDelete,
    /// Origins of pages that may open a WebSocket, beside the host's own and those of CORS.
    pub allowed_origins: Vec<String>,
    /// Whether WebSockets may publish.
    pub websocket_publish: bool,
    /// Who may do what.
    pub access: RouteAccess,
    /// Whether answers of the application that may be kept are put into the cache.
    pub fill: bool,
    /// How long the last known value is given when there is no newer one to be had.
    pub stale_if_error: Duration,
    /// How long it is given while a newer one is fetched, where `fill` is on.
    pub stale_while_revalidate: Duration,
    /// How long the application is not asked again for a key that it failed to answer.
    pub negative: Duration,
    /// How long it is not asked again for one that it does not have.
    pub negative_not_found: Duration,
}

impl RouteConfig {
    /// A route with every default under `prefix`.
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            ..Self::default()
        }
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

/// The methods a route answers.
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
    /// Every method that polls.
    pub const ALL: Self = Self {
        get: true,
        head: true,
        post: true,
        query: true,
    };

    /// Whether `method`, as it stands in the request line, polls.
    pub fn allows(self, method: &str) -> bool {
        match method {
            "GET" => self.get,
            "HEAD" => self.head,
            "POST" => self.post,
            "QUERY" => self.query,
            _ => false,
        }
    }

    /// Value of the `Allow` field of a 405 answer.
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

/// What a stored empty value ("nothing new") is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyAnswer {
    /// 200 with an empty body.
    Ok,
    /// 204.
    NoContent,
}

/// What a held poll gets when its key is deleted or expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDelete {
    /// The upstream's answer, as for any miss.
    Origin,
    /// 404.
    NotFound,
    /// Nothing yet: it stays held until a value is set or its wait ends.
    KeepWaiting,
}
