//! The closed sets of label values; a set that is closed cannot grow a scrape without bound.

use dwell_metrics::labels;

labels! {
    /// First digit of an answer's status.
    pub(crate) StatusClass, "status_class":
    /// 100 to 199.
    Informational = "1xx",
    /// 200 to 299.
    Success = "2xx",
    /// 300 to 399.
    Redirection = "3xx",
    /// 400 to 499.
    ClientError = "4xx",
    /// 500 and above.
    ServerError = "5xx",
}

impl StatusClass {
    /// The class of `status`.
    pub(crate) fn of(status: u16) -> Self {
        match status {
            0..=199 => Self::Informational,
            200..=299 => Self::Success,
            300..=399 => Self::Redirection,
            400..=499 => Self::ClientError,
            _ => Self::ServerError,
        }
    }
}

labels! {
    /// How a poll ended; each poll ends once.
    pub(crate) PollOutcome, "outcome":
    /// A value, at once.
    Hit = "hit",
    /// An empty value, at once.
    Empty = "empty",
    /// The client's cursor is the current one, and it did not wait.
    NotModified = "not_modified",
    /// It was held, and a change answered it.
    Woken = "woken",
    /// It was held until its wait ended without a change.
    WaitEnded = "wait_ended",
    /// No value: the upstream's answer.
    Miss = "miss",
    /// The last known value, as there is no newer one or it is fetched meanwhile.
    Stale = "stale",
    /// No value and no upstream: 404.
    NotFound = "not_found",
    /// No value, and the upstream gave no answer: 502 or 504.
    Failed = "failed",
    /// Over a limit or draining: 503.
    Refused = "refused",
    /// The request has no key: 400 or 414.
    BadKey = "bad_key",
    /// The client left before the answer.
    Abandoned = "abandoned",
    /// It became a stream of events or a WebSocket.
    Streamed = "streamed",
    /// Over the route's rate: 429.
    Limited = "limited",
    /// No token, or one that is not good: 401; or a WebSocket of a page that may open none: 403.
    Denied = "denied",
    /// The path may be read as that of another route, and one of the two is guarded: 400.
    Ambiguous = "ambiguous",
}

labels! {
    /// What came of asking the application who may ask.
    pub(crate) AuthOutcome, "outcome":
    /// It was asked.
    Asked = "asked",
    /// It need not be asked again.
    Known = "known",
    /// It said yes.
    Granted = "granted",
    /// It said no: 401 or 403.
    Refused = "refused",
    /// It said neither, or nothing.
    Failed = "failed",
}

labels! {
    /// What became of an event for the webhook.
    pub(crate) WebhookOutcome, "outcome":
    /// It was taken.
    Delivered = "delivered",
    /// There was no room for it, or it was not taken.
    Dropped = "dropped",
}

labels! {
    /// Why a client's connection was closed at once.
    pub(crate) ConnectionRefusal, "reason":
    /// There were `limits.connections_max` already.
    ConnectionsMax = "connections_max",
    /// Its address had `limits.connections_per_address` already.
    ConnectionsPerAddress = "connections_per_address",
    /// What is left of the limit on open files is kept for others.
    Descriptors = "descriptors",
}

labels! {
    /// Why the admin listener has not looked at a request.
    pub(crate) AdminRefusal, "reason":
    /// It is for a name that the listener does not go by: 421.
    Host = "host",
    /// A page of another origin has had it sent: 403.
    Site = "site",
}

labels! {
    /// What came of a request of a publisher.
    pub(crate) PublishOutcome, "outcome":
    /// A value was stored.
    Stored = "stored",
    /// A value was removed.
    Deleted = "deleted",
    /// A value was read.
    Read = "read",
    /// The key had no value: 404.
    Missing = "missing",
    /// A condition was not met: 412.
    Unmet = "unmet",
    /// Over the route's rate: 429.
    Limited = "limited",
    /// The store has no room for it: 413, 503 or 507.
    Refused = "refused",
    /// No token, or a wrong one: 401.
    Denied = "denied",
    /// It makes no sense: 400, 414 or 415.
    Invalid = "invalid",
    /// memcached has not answered: 502.
    Failed = "failed",
}

labels! {
    /// Why a stream of events ended.
    pub(crate) StreamEnd, "reason":
    /// The client left, or took nothing for too long.
    Client = "client",
    /// `limits.stream_lifetime` was over.
    Lifetime = "lifetime",
    /// Its value went away, and the client is to come back for the application's.
    Gone = "gone",
    /// The client of a WebSocket sent more than `limits.websocket_messages_rate` messages.
    Rate = "rate",
    /// The server ends.
    Drain = "drain",
}

labels! {
    /// What a change of a watched key led to.
    pub(crate) WakeOutcome, "outcome":
    /// At least one held poll was answered.
    Answered = "answered",
    /// The value is the one the waiters have.
    Unchanged = "unchanged",
    /// Nobody waits for the key any more.
    Unwatched = "unwatched",
}

labels! {
    /// What one memcached lookup came to.
    pub(crate) LookupOutcome, "outcome":
    /// A value.
    Hit = "hit",
    /// The server does not have the key.
    Miss = "miss",
    /// No answer in time.
    Timeout = "timeout",
    /// The connection broke or the answer was not memcached's.
    Error = "error",
    /// The server is being left alone after failures.
    Skipped = "skipped",
}

labels! {
    /// What one request to the upstream came to.
    pub(crate) UpstreamOutcome, "outcome":
    /// An answer below 500.
    Answered = "answered",
    /// An answer of 500 or above.
    ServerError = "server_error",
    /// No connection.
    ConnectFailed = "connect_failed",
    /// No answer in time.
    Timeout = "timeout",
    /// The connection broke or the answer was not HTTP.
    BadAnswer = "bad_answer",
    /// No connection became free.
    Refused = "refused",
    /// Not sent: every server has failed too often to be asked now.
    Unavailable = "unavailable",
    /// Not sent: the application has not answered for this key a moment ago.
    Remembered = "remembered",
    /// Not waited for: the stale value was given; the request for a newer one counts by itself.
    Revalidated = "revalidated",
    /// Sent once more, to another server than the one that failed; counted beside its end.
    Moved = "moved",
    /// Not sent: another request for the key was under way and its answer was shared.
    Coalesced = "coalesced",
}

labels! {
    /// Results of reading the configuration again.
    pub(crate) ReloadOutcome, "outcome":
    /// It was taken.
    Taken = "taken",
    /// It was refused.
    Refused = "refused",
}

labels! {
    /// A deadline that a client missed.
    pub(crate) ClientTimeout, "kind":
    /// A whole request.
    Request = "request",
    /// Taking the answer.
    Write = "write",
}

labels! {
    /// Status of a request that was refused for its form or size, or for a limit.
    pub(crate) RefusedStatus, "status":
    /// Malformed.
    BadRequest = "400",
    /// A method the route does not answer.
    MethodNotAllowed = "405",
    /// Too slow.
    RequestTimeout = "408",
    /// Body too large.
    ContentTooLarge = "413",
    /// Request target or key too long.
    UriTooLong = "414",
    /// An expectation other than 100-continue.
    ExpectationFailed = "417",
    /// Too many requests.
    TooManyRequests = "429",
    /// Header section too large.
    HeaderFieldsTooLarge = "431",
    /// A transfer coding other than chunked.
    NotImplemented = "501",
    /// A limit of the process.
    ServiceUnavailable = "503",
    /// A version other than 1.x.
    VersionNotSupported = "505",
    /// Any other.
    Other = "other",
}

impl RefusedStatus {
    /// The value for `status`.
    pub(crate) fn of(status: u16) -> Self {
        match status {
            400 => Self::BadRequest,
            405 => Self::MethodNotAllowed,
            408 => Self::RequestTimeout,
            413 => Self::ContentTooLarge,
            414 => Self::UriTooLong,
            417 => Self::ExpectationFailed,
            429 => Self::TooManyRequests,
            431 => Self::HeaderFieldsTooLarge,
            501 => Self::NotImplemented,
            503 => Self::ServiceUnavailable,
            505 => Self::VersionNotSupported,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_found_under_its_own_digits() {
        for status in [400, 405, 408, 413, 414, 417, 429, 431, 501, 503, 505_u16] {
            assert_eq!(RefusedStatus::of(status).as_str(), status.to_string());
        }
        assert_eq!(RefusedStatus::of(418), RefusedStatus::Other);
        for class in 1..=5_u16 {
            assert_eq!(StatusClass::of(class * 100).as_str(), format!("{class}xx"));
            assert_eq!(
                StatusClass::of(class * 100 + 99).as_str(),
                format!("{class}xx")
            );
        }
    }
}
