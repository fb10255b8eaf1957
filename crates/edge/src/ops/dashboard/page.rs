//! The page, assembled from its three files, and the policy that allows no other script or style.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dwell_engine::{Body, Reply, Response};
use sha2::{Digest, Sha256};

const FRAME: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

/// The encoded page.
#[derive(Clone, Debug)]
pub(super) struct DashboardPage {
    html: Bytes,
    policy: String,
}

impl DashboardPage {
    pub(super) fn new() -> Self {
        let html = FRAME
            .replace("/* style.css */", STYLE)
            .replace("/* script.js */", SCRIPT);
        let policy = format!(
            "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; \
             img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            source_hash(STYLE),
            source_hash(SCRIPT),
        );
        Self {
            html: Bytes::from(html),
            policy,
        }
    }

    pub(super) fn send(&self, reply: &mut Reply<'_>) {
        reply.send(&Response {
            status: 200,
            fields: &[
                ("Content-Type", b"text/html; charset=utf-8"),
                ("Content-Security-Policy", self.policy.as_bytes()),
                ("X-Content-Type-Options", b"nosniff"),
                ("Referrer-Policy", b"no-referrer"),
                ("Cache-Control", b"no-cache"),
            ],
            body: Body::Shared(self.html.clone()),
        });
    }
}

/// Source: Content Security Policy Level 3, section 2.3.1, `hash-source`.
fn source_hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text between two words.
    fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
        let (_, rest) = text.split_once(begin).unwrap();
        rest.split_once(end).unwrap().0
    }

    #[test]
    fn the_policy_lets_run_what_stands_in_the_page() {
        let page = DashboardPage::new();
        let html = std::str::from_utf8(&page.html).unwrap();
        for (begin, end) in [("<style>", "</style>"), ("<script>", "</script>")] {
            let hash = source_hash(between(html, begin, end));
            assert!(page.policy.contains(&hash), "{begin} {}", page.policy);
        }
        assert!(!page.policy.contains("unsafe"));
        assert!(!html.contains(" style=\""), "the policy forbids it");
        assert!(!html.contains(" onclick="), "the policy forbids it");
    }

    #[test]
    fn the_page_is_small_and_fetches_nothing_from_elsewhere() {
        let page = DashboardPage::new();
        let html = std::str::from_utf8(&page.html).unwrap();
        assert!(html.len() < 48 * 1024, "{}", html.len());
        // The name of a namespace is no address.
        let html = html.replace("http://www.w3.org/2000/svg", "");
        for part in [
            "http://",
            "https://",
            "//cdn",
            "@import",
            "<script src",
            "stylesheet",
        ] {
            assert!(!html.contains(part), "the page has `{part}`");
        }
    }
}
