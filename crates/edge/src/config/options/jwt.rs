//! Options of `[jwt]`.

use super::bounds::HOUR;
use crate::config::Config;
use crate::config::codec::{FilePath, Name, OneOrMany, OrOff, Text, TimeSpan, Truth};
use std::time::Duration;

options! {
    OPTIONS for Config:
    "jwt".jwt.secret_file = OrOff(FilePath);
    "File with the secret that signs the tokens, at least 32 bytes. One line end at its end does \
     not count."
    "jwt".jwt.public_key_file = OrOff(FilePath);
    "File with public keys as PEM: RSA of 2048 bits or more, EC or Ed25519."
    "jwt".jwt.jwks_file = OrOff(FilePath);
    "File with a JWK set. A token's `kid` picks among its keys."
    "jwt".jwt.issuer = OneOrMany(Text, 0);
    "Accepted values of `iss`. With an empty list every value is accepted."
    "jwt".jwt.audience = OneOrMany(Text, 0);
    "Accepted values of `aud`. With an empty list every value is accepted."
    "jwt".jwt.leeway = TimeSpan(Duration::ZERO, HOUR);
    "How long after `exp`, and before `nbf`, a token is accepted."
    "jwt".jwt.expiry_required = Truth;
    "Tokens without `exp` are refused. A token that never expires is valid as long as its key is."
    "jwt".jwt.query_parameter = OrOff(Name);
    "Query parameter in which a token may be, for clients that cannot set headers. The token is \
     then in every log on the way."
    "jwt".jwt.cookie = OrOff(Name);
    "Cookie in which a token may be."
}
