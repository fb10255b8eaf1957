//! Closed sets of label values, so that a scrape cannot grow without bound.

use dwell_engine::ProxyHeaderFailure;
use dwell_evloop::{Agreed, HandshakeCounts, HandshakeFailure};
use dwell_metrics::{CounterSet, labels};

labels! {
    /// First digit of a response's status.
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
    /// The class of a status, by its first digit.
    pub(crate) const BY_DIGIT: [Self; 10] = [
        Self::Informational,
        Self::Informational,
        Self::Success,
        Self::Redirection,
        Self::ClientError,
        Self::ServerError,
        Self::ServerError,
        Self::ServerError,
        Self::ServerError,
        Self::ServerError,
    ];
}

labels! {
    /// Outcome of a poll; each poll has exactly one.
    pub(crate) PollOutcome, "outcome":
    /// Answered at once with a value.
    Hit = "hit",
    /// Answered at once with an empty value.
    Empty = "empty",
    /// The client's cursor is current, and it did not wait.
    NotModified = "not_modified",
    /// Held, and answered by a change.
    Woken = "woken",
    /// Held until its wait ended without a change.
    WaitEnded = "wait_ended",
    /// The key has no value: the application's response.
    Miss = "miss",
    /// The last known value: there is no newer one, or it is being fetched.
    Stale = "stale",
    /// No value and no application: 404.
    NotFound = "not_found",
    /// No value, and the application did not respond: 502 or 504.
    Failed = "failed",
    /// Above a limit, or draining: 503.
    Refused = "refused",
    /// The request has no valid key: 400 or 414.
    BadKey = "bad_key",
    /// A method that the route does not accept: 405. A wait that is not valid: 400.
    BadRequest = "bad_request",
    /// The client left before the response.
    Abandoned = "abandoned",
    /// The request became an event stream or a WebSocket.
    Streamed = "streamed",
    /// Above the route's rate: 429.
    Limited = "limited",
    /// No valid token: 401. A WebSocket of an origin that is not allowed: 403.
    Denied = "denied",
    /// The path could be read as that of another route, and one of the two is guarded: 400.
    Ambiguous = "ambiguous",
}

labels! {
    /// Outcome of asking the application for access.
    pub(crate) AuthOutcome, "outcome":
    /// A subrequest was sent.
    Asked = "asked",
    /// The decision was cached.
    Known = "known",
    /// Access was granted.
    Granted = "granted",
    /// Access was refused: 401 or 403.
    Refused = "refused",
    /// No decision: another status, or no response.
    Failed = "failed",
}

labels! {
    /// Outcome of an event for the webhook.
    pub(crate) WebhookOutcome, "outcome":
    /// It was delivered.
    Delivered = "delivered",
    /// The queue was full, or the webhook did not accept it.
    Dropped = "dropped",
}

labels! {
    /// Reason why a client's connection was closed at once.
    pub(crate) ConnectionRefusal, "reason":
    /// There are `limits.connections_max` connections.
    ConnectionsMax = "connections_max",
    /// Its address has `limits.connections_per_address` connections.
    ConnectionsPerAddress = "connections_per_address",
    /// The remaining descriptors are reserved.
    Descriptors = "descriptors",
}

labels! {
    /// Reason why a request of HTTP/2 was refused before anything was done for it.
    pub(crate) StreamRefusal, "reason":
    /// Its connection had 128 requests in progress.
    StreamsMax = "streams_max",
    /// Work of 128 requests of its connection was in progress, for some that were reset.
    Work = "work",
    /// Too many bytes waited for the client on its connection.
    Output = "output",
    /// Its address has `limits.connections_per_address` connections and requests.
    ConnectionsPerAddress = "connections_per_address",
}

labels! {
    /// Error code of HTTP/2, in the order of the numbers (RFC 9113 section 7).
    pub(crate) Http2Code, "code":
    /// No error.
    NoError = "NO_ERROR",
    /// A rule was broken.
    ProtocolError = "PROTOCOL_ERROR",
    /// The sender failed.
    InternalError = "INTERNAL_ERROR",
    /// More was sent than a window allowed.
    FlowControlError = "FLOW_CONTROL_ERROR",
    /// Settings were not acknowledged in time.
    SettingsTimeout = "SETTINGS_TIMEOUT",
    /// A frame for a stream that had ended.
    StreamClosed = "STREAM_CLOSED",
    /// A frame of a wrong size.
    FrameSizeError = "FRAME_SIZE_ERROR",
    /// Nothing was done for the request.
    RefusedStream = "REFUSED_STREAM",
    /// The stream was not needed any more.
    Cancel = "CANCEL",
    /// The compression was out of step.
    CompressionError = "COMPRESSION_ERROR",
    /// The connection of a CONNECT failed.
    ConnectError = "CONNECT_ERROR",
    /// Too much work was caused.
    EnhanceYourCalm = "ENHANCE_YOUR_CALM",
    /// TLS is not good enough.
    InadequateSecurity = "INADEQUATE_SECURITY",
    /// HTTP/1.1 is needed.
    Http11Required = "HTTP_1_1_REQUIRED",
    /// A code without a name.
    Other = "other",
}

labels! {
    /// Reason why the admin listener rejected a request.
    pub(crate) AdminRefusal, "reason":
    /// Its `Host` is not a name of the listener: 421.
    Host = "host",
    /// A page of another origin has sent it: 403.
    Site = "site",
}

labels! {
    /// Outcome of a publisher's request.
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
    /// The store has no room: 413, 503 or 507.
    Refused = "refused",
    /// No token, or a wrong one: 401.
    Denied = "denied",
    /// The request is invalid: 400, 414 or 415.
    Invalid = "invalid",
    /// memcached has not replied: 502.
    Failed = "failed",
}

labels! {
    /// Reason why an event stream or a WebSocket ended.
    pub(crate) StreamEnd, "reason":
    /// The client left, or did not read for too long.
    Client = "client",
    /// `limits.stream_lifetime` has passed.
    Lifetime = "lifetime",
    /// The value is gone, and the client has to reconnect for the application's.
    Gone = "gone",
    /// A WebSocket client sent more than `limits.websocket_messages_rate` messages.
    Rate = "rate",
    /// The server drains.
    Drain = "drain",
}

labels! {
    /// Outcome of a change of a watched key.
    pub(crate) WakeOutcome, "outcome":
    /// At least one held poll was answered.
    Answered = "answered",
    /// The value is the one that the waiting clients have.
    Unchanged = "unchanged",
    /// The key is not watched any more.
    Unwatched = "unwatched",
}

labels! {
    /// Outcome of a memcached lookup.
    pub(crate) LookupOutcome, "outcome":
    /// A value.
    Hit = "hit",
    /// The server does not have the key.
    Miss = "miss",
    /// No reply in time.
    Timeout = "timeout",
    /// The connection failed, or the reply was malformed.
    Error = "error",
    /// Not sent: the server is ejected after failures.
    Skipped = "skipped",
}

labels! {
    /// Outcome of a request to the application.
    pub(crate) UpstreamOutcome, "outcome":
    /// A response below 500.
    Answered = "answered",
    /// A response of 500 or above.
    ServerError = "server_error",
    /// No connection.
    ConnectFailed = "connect_failed",
    /// No TLS handshake: the log has the reason.
    TlsFailed = "tls_failed",
    /// No response in time.
    Timeout = "timeout",
    /// The connection failed, or the response was malformed.
    BadAnswer = "bad_answer",
    /// No connection became free.
    Refused = "refused",
    /// Not sent: every server is ejected after failures.
    Unavailable = "unavailable",
    /// Not sent: the last failure for this key is recent.
    Remembered = "remembered",
    /// Not waited for: a stale value was sent; the request for a newer one counts separately.
    Revalidated = "revalidated",
    /// Retried on another server; counted besides the final outcome.
    Moved = "moved",
    /// Not sent: the response of a concurrent request for the key was shared.
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
    /// Timeout of a client.
    pub(crate) ClientTimeout, "kind":
    /// Sending a whole request.
    Request = "request",
    /// Reading the response.
    Write = "write",
}

labels! {
    /// Outcome of a handshake of TLS.
    pub(crate) HandshakeOutcome, "outcome":
    /// The connection goes on.
    Done = "done",
    /// The peer does not speak TLS.
    NotTls = "not_tls",
    /// The client and the server have no version, suite, group or protocol in common.
    Incompatible = "incompatible",
    /// The peer has refused, by an alert.
    Alert = "alert",
    /// The peer's certificate is missing or was refused.
    Certificate = "certificate",
    /// The peer does not follow the protocol.
    Protocol = "protocol",
    /// The peer has closed the connection.
    Closed = "closed",
    /// The peer has reset the connection.
    Reset = "reset",
    /// The peer took too long.
    Timeout = "timeout",
    /// It was the oldest of too many.
    Displaced = "displaced",
    /// The fault is the server's.
    Internal = "internal",
}

impl HandshakeOutcome {
    /// The outcome of a handshake that has failed for this reason.
    pub(crate) fn of(failure: HandshakeFailure) -> Self {
        match failure {
            HandshakeFailure::NotTls => Self::NotTls,
            HandshakeFailure::Incompatible => Self::Incompatible,
            HandshakeFailure::Alert => Self::Alert,
            HandshakeFailure::Certificate => Self::Certificate,
            HandshakeFailure::Protocol => Self::Protocol,
            HandshakeFailure::Closed => Self::Closed,
            HandshakeFailure::Reset => Self::Reset,
            HandshakeFailure::Late => Self::Timeout,
            HandshakeFailure::Displaced => Self::Displaced,
            _ => Self::Internal,
        }
    }
}

/// Adds the handshakes with servers that have ended.
pub(crate) fn add_handshakes(cells: &CounterSet<HandshakeOutcome>, counts: &HandshakeCounts) {
    cells.of(HandshakeOutcome::Done).add(counts.done());
    for (failure, count) in counts.failed() {
        cells.of(HandshakeOutcome::of(failure)).add(count);
    }
}

labels! {
    /// Reason why a connection of a balancer was closed before its header had come.
    pub(crate) ProxyHeaderFault, "reason":
    /// It begins with something else.
    Invalid = "invalid",
    /// It took too long.
    Timeout = "timeout",
    /// The balancer has closed it.
    Closed = "closed",
}

impl ProxyHeaderFault {
    pub(crate) fn of(failure: ProxyHeaderFailure) -> Self {
        match failure {
            ProxyHeaderFailure::Invalid => Self::Invalid,
            ProxyHeaderFailure::Late => Self::Timeout,
            ProxyHeaderFailure::Closed => Self::Closed,
        }
    }
}

labels! {
    /// Version of a handshake that is done, and whether it has resumed a session.
    pub(crate) HandshakeKind, "kind":
    /// TLS 1.3 with a certificate.
    Full13 = "tls13_full",
    /// TLS 1.3 by a ticket.
    Resumed13 = "tls13_resumed",
    /// TLS 1.2 with a certificate.
    Full12 = "tls12_full",
    /// TLS 1.2 by a ticket.
    Resumed12 = "tls12_resumed",
}

impl HandshakeKind {
    /// The kind of a handshake that is done.
    pub(crate) fn of(agreed: Agreed) -> Self {
        match (agreed.is_tls13, agreed.is_resumed) {
            (true, false) => Self::Full13,
            (true, true) => Self::Resumed13,
            (false, false) => Self::Full12,
            (false, true) => Self::Resumed12,
        }
    }
}

labels! {
    /// Status of a request that was rejected for its form, its size, or a limit.
    pub(crate) RefusedStatus, "status":
    /// Malformed.
    BadRequest = "400",
    /// A method that the route does not support.
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
    use dwell_engine::CodeCounts;
    use dwell_proto::http2::ErrorCode;

    #[test]
    fn codes_of_http2_are_named_as_in_the_registry() {
        for (number, code) in Http2Code::ALL.iter().enumerate() {
            let registered = ErrorCode(number as u32).name();
            assert_eq!(registered.unwrap_or("other"), code.as_str());
        }
        let counts = CodeCounts::default();
        assert_eq!(counts.by_number().len(), Http2Code::ALL.len());
    }

    #[test]
    fn a_status_is_found_under_its_own_digits() {
        for status in [400, 405, 408, 413, 414, 417, 429, 431, 501, 503, 505_u16] {
            assert_eq!(RefusedStatus::of(status).as_str(), status.to_string());
        }
        assert_eq!(RefusedStatus::of(418), RefusedStatus::Other);
        for digit in 1..=5 {
            let class = StatusClass::BY_DIGIT[digit].as_str();
            assert_eq!(class, format!("{digit}xx"));
        }
    }
}
