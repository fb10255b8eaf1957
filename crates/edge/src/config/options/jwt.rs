//! Options of `[jwt]`.

use super::bounds::HOUR;
use crate::config::Config;
use crate::config::codec::{FilePath, Name, OneOrMany, OrOff, Text, TimeSpan, Truth};
use std::time::Duration;

options! {
    OPTIONS for Config:
    "jwt".jwt.secret_file = OrOff(FilePath);
    "File with the secret of whoever signs, at least 32 bytes; a last line end does not count."
    "jwt".jwt.public_key_file = OrOff(FilePath);
    "File with public keys as PEM: RSA of 2048 bits or more, EC or Ed25519."
    "jwt".jwt.jwks_file = OrOff(FilePath);
    "File with a JWK set. A token's `kid` picks among its keys."
    "jwt".jwt.issuer = OneOrMany(Text, 0);
    "Good values of `iss`. None means any."
    "jwt".jwt.audience = OneOrMany(Text, 0);
    "Good values of `aud`. None means any."
    "jwt".jwt.leeway = TimeSpan(Duration::ZERO, HOUR);
    "How long after `exp`, and before `nbf`, a token is good."
    "jwt".jwt.expiry_required = Truth;
    "Whether a token without `exp` is refused. One that never ends is good for whoever has it, for \
     as long as its key is."
    "jwt".jwt.query_parameter = OrOff(Name);
    "Part of the query in which a token may be, for clients that cannot set fields. It is then in \
     every log on the way."
    "jwt".jwt.cookie = OrOff(Name);
    "Cookie in which a token may be."
}
