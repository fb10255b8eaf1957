//! Outcomes of failed requests to the application.

use super::UpstreamOutcome;
use dwell_upstream::UpstreamError;

impl From<&UpstreamError> for UpstreamOutcome {
    fn from(error: &UpstreamError) -> Self {
        match error {
            UpstreamError::Connect(_) | UpstreamError::ConnectTimeout(_) => Self::ConnectFailed,
            UpstreamError::Handshake(_) => Self::TlsFailed,
            UpstreamError::Unavailable => Self::Unavailable,
            UpstreamError::QueueFull { .. } | UpstreamError::QueueTimeout(_) => Self::Refused,
            UpstreamError::HeaderTimeout(_)
            | UpstreamError::TotalTimeout(_)
            | UpstreamError::Stalled(_) => Self::Timeout,
            _ => Self::BadAnswer,
        }
    }
}
