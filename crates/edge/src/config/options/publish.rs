//! Options of `[publish]`.

use super::bounds::GIB;
use crate::config::Config;
use crate::config::codec::{BearerToken, FilePath, OneOrMany, OrOff, Size, Written};

options! {
    OPTIONS for Config:
    "publish".publish.token = OneOrMany(BearerToken, 0);
    "Tokens of publishers, sent as `Authorization: Bearer TOKEN`. Each of several is accepted, so \
     that one can replace another."
    "publish".publish.token_file = OrOff(FilePath);
    "File with more tokens, one a line, to keep them out of the configuration."
    "publish".publish.clients = OneOrMany(Written("`cn:NAME` or `san:NAME`"), 0);
    "Names in the certificates of clients that publish on routes without a token: `cn:` is the \
     common name, `san:` one of the alternative names. `tls.client_ca` verifies them. A client \
     with another certificate, and without a token, gets 403."
    "publish".publish.value_bytes_max = Size(1, GIB);
    "Bytes of one published value. Beyond it: 413."
}
