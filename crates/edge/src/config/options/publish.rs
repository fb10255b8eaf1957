//! Options of `[publish]`.

use super::bounds::GIB;
use crate::config::Config;
use crate::config::codec::{BearerToken, FilePath, OneOrMany, OrOff, Size};

options! {
    OPTIONS for Config:
    "publish".publish.token = OneOrMany(BearerToken, 0);
    "What publishers show as `Authorization: Bearer TOKEN`. Several are all good, so that one can \
     follow another."
    "publish".publish.token_file = OrOff(FilePath);
    "File with more of them, one a line, so that they need not stand here."
    "publish".publish.value_bytes_max = Size(1, GIB);
    "Bytes of one published value. Beyond it: 413."
}
