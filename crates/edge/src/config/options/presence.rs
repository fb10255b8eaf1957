//! Options of `[presence]`.

use super::bounds::{HOUR, MILLION, TICK};
use crate::config::Config;
use crate::config::codec::{BearerToken, Count, FilePath, Name, OrOff, Prefix, TimeSpan, Url};
use std::time::Duration;

options! {
    OPTIONS for Config:
    "presence".presence.webhook_url = OrOff(Url);
    "The server that receives the events, by POST with a JSON array, over `http` or `https`."
    "presence".presence.webhook_tls_ca = OrOff(FilePath);
    "As `upstream.tls_ca`, for the webhook."
    "presence".presence.webhook_tls_server_name = OrOff(Name);
    "As `upstream.tls_server_name`, for the webhook."
    "presence".presence.webhook_tls_certificate = OrOff(FilePath);
    "As `upstream.tls_certificate`, for the webhook."
    "presence".presence.webhook_tls_key = OrOff(FilePath);
    "As `upstream.tls_key`, for the webhook."
    "presence".presence.webhook_path = Prefix;
    "The path of the requests."
    "presence".presence.webhook_token = OrOff(BearerToken);
    "Token of the requests, sent as `Authorization: Bearer TOKEN`."
    "presence".presence.linger = TimeSpan(Duration::ZERO, HOUR);
    "How long a key counts as watched after its last watcher has left, so that a client between \
     two polls has not left it."
    "presence".presence.webhook_timeout = TimeSpan(TICK, HOUR);
    "How long one request may take."
    "presence".presence.webhook_attempts_max = Count(1, 1000);
    "Attempts to deliver the same events that get no response, 5xx, 408, 425 or 429, before Dwell \
     drops the events. The pauses between them grow to half a minute."
    "presence".presence.webhook_batch_max = Count(1, 10_000);
    "Events of one request."
    "presence".presence.webhook_queue_max = Count(1, 10 * MILLION);
    "Events that wait for delivery. Beyond it new ones are dropped."
}
