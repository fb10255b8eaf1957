//! Who may publish, and who may see what.

use std::path::PathBuf;

/// `[publish]`: values stored and removed over HTTP.
#[derive(Clone, PartialEq)]
pub struct PublishConfig {
    /// What publishers show; with none, and no file, nothing is published over HTTP.
    pub token: Vec<String>,
    /// More of them, one a line.
    pub token_file: Option<PathBuf>,
    /// One value. Units: bytes. Beyond it: 413.
    pub value_bytes_max: u64,
}

impl PublishConfig {
    /// Whether anybody may publish at all.
    pub fn is_on(&self) -> bool {
        !self.token.is_empty() || self.token_file.is_some()
    }
}

impl std::fmt::Debug for PublishConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublishConfig")
            .field("token", &format_args!("{} tokens", self.token.len()))
            .field("token_file", &self.token_file)
            .field("value_bytes_max", &self.value_bytes_max)
            .finish()
    }
}

impl Default for PublishConfig {
    fn default() -> Self {
        Self {
            token: Vec::new(),
            token_file: None,
            value_bytes_max: 1 << 20,
        }
    }
}

/// What a route asks of its clients, and grants them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteAccess {
    /// Whether values of the route's keys are stored and removed over HTTP.
    pub publish: bool,
}
