//! Requests that are refused because of what they ask for.

use super::ask::{AskError, KEYS_MAX};
use super::events::DELETE;
use crate::config::KeyError;
use crate::metrics::PollOutcome;
use crate::responder::Responder;
use dwell_evloop::Context;

/// The reason why a request is refused whose path may be read as that of another route.
pub(super) const AMBIGUOUS: &str = "the path may be read as that of another route";

/// The reason why a poll is refused.
pub(super) enum PollError {
    Ask(AskError),
    Key(KeyError),
    /// More keys than one request may name.
    Keys,
    /// A stream has a key that cannot be told from a deletion.
    Label,
    /// A key that must not be named beside the path of the request, and why.
    ForeignKey(&'static str),
}

impl PollError {
    pub(super) fn refuse(&self, context: &mut Context, to: &mut Responder<'_, '_>) {
        match self {
            Self::Ask(AskError::Method(methods)) => {
                to.ends(PollOutcome::BadRequest);
                let allow = methods.allow_field();
                let allow = [("Allow", allow.as_bytes())];
                to.text_with(context, 405, "method not allowed", &allow);
            }
            Self::Ask(error) => {
                to.ends(PollOutcome::BadRequest);
                to.text(context, 400, &error.to_string());
            }
            Self::Keys => {
                to.ends(PollOutcome::BadKey);
                to.text(context, 400, &format!("more than {KEYS_MAX} keys"));
            }
            Self::Label => {
                to.ends(PollOutcome::BadKey);
                to.text(
                    context,
                    400,
                    &format!("a stream of keys has none named {DELETE}"),
                );
            }
            Self::ForeignKey(why) => {
                to.ends(PollOutcome::BadKey);
                to.text(context, 400, why);
            }
            Self::Key(error) => {
                to.ends(PollOutcome::BadKey);
                to.text(context, error.status(), &error.to_string());
            }
        }
    }
}
