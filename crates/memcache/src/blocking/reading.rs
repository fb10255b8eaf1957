//! Results of the replies, for each kind of operation.

use dwell_proto::memcache::{MetaStatus, Reply};

use super::meta::{MetaCounted, MetaDeleted, MetaItem, MetaStored};
use super::value::Value;
use crate::StoreOutcome;

/// The reply does not fit this kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foreign;

pub(super) fn value(reply: &Reply<'_>) -> Result<Option<Value>, Foreign> {
    match *reply {
        Reply::Value {
            flags,
            cas_unique,
            value,
            ..
        } => Ok(Some(Value {
            data: value.to_vec(),
            flags,
            cas_unique,
        })),
        Reply::MetaValue { flags, value } => {
            let client_flags = flags.number(b'f').and_then(|flags| flags.try_into().ok());
            Ok(Some(Value {
                data: value.to_vec(),
                flags: client_flags.ok_or(Foreign)?,
                cas_unique: flags.cas_unique(),
            }))
        }
        Reply::End => Ok(None),
        _ => missing(reply),
    }
}

pub(super) fn stored(reply: &Reply<'_>) -> Result<StoreOutcome, Foreign> {
    Ok(match reply {
        Reply::Stored => StoreOutcome::Stored,
        Reply::NotStored => StoreOutcome::NotStored,
        Reply::Exists => StoreOutcome::Exists,
        Reply::NotFound => StoreOutcome::NotFound,
        Reply::Meta { status, .. } => match status {
            MetaStatus::Header => StoreOutcome::Stored,
            MetaStatus::NotStored => StoreOutcome::NotStored,
            MetaStatus::Exists => StoreOutcome::Exists,
            MetaStatus::NotFound => StoreOutcome::NotFound,
            MetaStatus::End | MetaStatus::Noop => return Err(Foreign),
        },
        _ => return Err(Foreign),
    })
}

pub(super) fn deleted(reply: &Reply<'_>) -> Result<bool, Foreign> {
    match reply {
        Reply::Deleted => Ok(true),
        Reply::NotFound => Ok(false),
        _ => match meta_deleted(reply)? {
            MetaDeleted::Deleted => Ok(true),
            MetaDeleted::NotFound => Ok(false),
            MetaDeleted::Exists => Err(Foreign),
        },
    }
}

pub(super) fn number(reply: &Reply<'_>) -> Result<Option<u64>, Foreign> {
    match reply {
        Reply::Number(number) => Ok(Some(*number)),
        Reply::NotFound => Ok(None),
        _ => match meta_counted(reply)? {
            MetaCounted::Number { number, .. } => Ok(Some(number)),
            MetaCounted::NotFound => Ok(None),
            MetaCounted::Exists => Err(Foreign),
        },
    }
}

pub(super) fn touched(reply: &Reply<'_>) -> Result<bool, Foreign> {
    match reply {
        Reply::Touched
        | Reply::Meta {
            status: MetaStatus::Header,
            ..
        } => Ok(true),
        Reply::NotFound => Ok(false),
        _ => missing(reply).map(|_: Option<()>| false),
    }
}

pub(super) fn meta_item(reply: &Reply<'_>) -> Result<Option<MetaItem>, Foreign> {
    match *reply {
        Reply::MetaValue { flags, value } => Ok(Some(MetaItem::new(flags, Some(value)))),
        Reply::Meta {
            status: MetaStatus::Header,
            flags,
        } => Ok(Some(MetaItem::new(flags, None))),
        _ => missing(reply),
    }
}

pub(super) fn meta_stored(reply: &Reply<'_>) -> Result<MetaStored, Foreign> {
    let Reply::Meta { flags, .. } = reply else {
        return Err(Foreign);
    };
    let outcome = stored(reply)?;
    let is_stored = outcome == StoreOutcome::Stored;
    Ok(MetaStored {
        outcome,
        cas_unique: flags.cas_unique().filter(|_| is_stored),
    })
}

pub(super) fn meta_deleted(reply: &Reply<'_>) -> Result<MetaDeleted, Foreign> {
    let Reply::Meta { status, .. } = reply else {
        return Err(Foreign);
    };
    match status {
        MetaStatus::Header => Ok(MetaDeleted::Deleted),
        MetaStatus::NotFound => Ok(MetaDeleted::NotFound),
        MetaStatus::Exists => Ok(MetaDeleted::Exists),
        MetaStatus::End | MetaStatus::NotStored | MetaStatus::Noop => Err(Foreign),
    }
}

pub(super) fn meta_counted(reply: &Reply<'_>) -> Result<MetaCounted, Foreign> {
    match reply {
        Reply::MetaValue { flags, value } => {
            // A number that has become shorter keeps its length, filled with spaces.
            let text = std::str::from_utf8(value).map_err(|_| Foreign)?;
            let number = text.trim_end().parse().map_err(|_| Foreign)?;
            let cas_unique = flags.cas_unique();
            Ok(MetaCounted::Number { number, cas_unique })
        }
        Reply::Meta { status, .. } => match status {
            MetaStatus::NotFound | MetaStatus::NotStored => Ok(MetaCounted::NotFound),
            MetaStatus::Exists => Ok(MetaCounted::Exists),
            MetaStatus::Header | MetaStatus::End | MetaStatus::Noop => Err(Foreign),
        },
        _ => Err(Foreign),
    }
}

pub(super) fn meta_debug(reply: &Reply<'_>) -> Result<Option<Vec<(String, String)>>, Foreign> {
    match reply {
        Reply::MetaDebug { attributes, .. } => {
            let pairs = attributes.iter().map(|token| {
                let token = String::from_utf8_lossy(token);
                let (name, value) = token.split_once('=').unwrap_or((&token, ""));
                (name.to_owned(), value.to_owned())
            });
            Ok(Some(pairs.collect()))
        }
        _ => missing(reply),
    }
}

/// Returns `None` for a meta reply to a missing item.
fn missing<T>(reply: &Reply<'_>) -> Result<Option<T>, Foreign> {
    match reply {
        Reply::Meta {
            status: MetaStatus::End | MetaStatus::NotFound,
            ..
        } => Ok(None),
        _ => Err(Foreign),
    }
}
