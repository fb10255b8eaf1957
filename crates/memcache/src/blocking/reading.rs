//! What a reply says, for each kind of operation; `None` where it says nothing to it.

use dwell_proto::memcache::{MetaStatus, Reply};

use super::meta::{MetaCounted, MetaDeleted, MetaItem, MetaStored};
use super::value::Value;
use crate::StoreOutcome;

pub(super) fn value(reply: &Reply<'_>) -> Option<Option<Value>> {
    match *reply {
        Reply::Value {
            flags,
            cas_unique,
            value,
            ..
        } => Some(Some(Value {
            data: value.to_vec(),
            flags,
            cas_unique,
        })),
        Reply::MetaValue { flags, value } => Some(Some(Value {
            data: value.to_vec(),
            flags: flags.number(b'f')?.try_into().ok()?,
            cas_unique: flags.cas_unique(),
        })),
        Reply::End => Some(None),
        _ => is_miss(reply).then_some(None),
    }
}

pub(super) fn stored(reply: &Reply<'_>) -> Option<StoreOutcome> {
    Some(match reply {
        Reply::Stored => StoreOutcome::Stored,
        Reply::NotStored => StoreOutcome::NotStored,
        Reply::Exists => StoreOutcome::Exists,
        Reply::NotFound => StoreOutcome::NotFound,
        Reply::Meta { status, .. } => match status {
            MetaStatus::Header => StoreOutcome::Stored,
            MetaStatus::NotStored => StoreOutcome::NotStored,
            MetaStatus::Exists => StoreOutcome::Exists,
            MetaStatus::NotFound => StoreOutcome::NotFound,
            MetaStatus::End | MetaStatus::Noop => return None,
        },
        _ => return None,
    })
}

pub(super) fn deleted(reply: &Reply<'_>) -> Option<bool> {
    match reply {
        Reply::Deleted => Some(true),
        Reply::NotFound => Some(false),
        _ => match meta_deleted(reply)? {
            MetaDeleted::Deleted => Some(true),
            MetaDeleted::NotFound => Some(false),
            MetaDeleted::Exists => None,
        },
    }
}

pub(super) fn number(reply: &Reply<'_>) -> Option<Option<u64>> {
    match reply {
        Reply::Number(number) => Some(Some(*number)),
        Reply::NotFound => Some(None),
        _ => match meta_counted(reply)? {
            MetaCounted::Number { number, .. } => Some(Some(number)),
            MetaCounted::NotFound => Some(None),
            MetaCounted::Exists => None,
        },
    }
}

pub(super) fn touched(reply: &Reply<'_>) -> Option<bool> {
    match reply {
        Reply::Touched => Some(true),
        Reply::NotFound => Some(false),
        Reply::Meta {
            status: MetaStatus::Header,
            ..
        } => Some(true),
        _ => is_miss(reply).then_some(false),
    }
}

pub(super) fn meta_item(reply: &Reply<'_>) -> Option<Option<MetaItem>> {
    match *reply {
        Reply::MetaValue { flags, value } => Some(Some(MetaItem::new(flags, Some(value)))),
        Reply::Meta {
            status: MetaStatus::Header,
            flags,
        } => Some(Some(MetaItem::new(flags, None))),
        _ => is_miss(reply).then_some(None),
    }
}

pub(super) fn meta_stored(reply: &Reply<'_>) -> Option<MetaStored> {
    let Reply::Meta { flags, .. } = reply else {
        return None;
    };
    let outcome = stored(reply)?;
    let is_stored = outcome == StoreOutcome::Stored;
    Some(MetaStored {
        outcome,
        cas_unique: flags.cas_unique().filter(|_| is_stored),
    })
}

pub(super) fn meta_deleted(reply: &Reply<'_>) -> Option<MetaDeleted> {
    let Reply::Meta { status, .. } = reply else {
        return None;
    };
    match status {
        MetaStatus::Header => Some(MetaDeleted::Deleted),
        MetaStatus::NotFound => Some(MetaDeleted::NotFound),
        MetaStatus::Exists => Some(MetaDeleted::Exists),
        MetaStatus::End | MetaStatus::NotStored | MetaStatus::Noop => None,
    }
}

pub(super) fn meta_counted(reply: &Reply<'_>) -> Option<MetaCounted> {
    match reply {
        Reply::MetaValue { flags, value } => {
            // A number that has become shorter keeps its length, filled with spaces.
            let number = std::str::from_utf8(value).ok()?.trim_end().parse().ok()?;
            let cas_unique = flags.cas_unique();
            Some(MetaCounted::Number { number, cas_unique })
        }
        Reply::Meta { status, .. } => match status {
            MetaStatus::NotFound | MetaStatus::NotStored => Some(MetaCounted::NotFound),
            MetaStatus::Exists => Some(MetaCounted::Exists),
            MetaStatus::Header | MetaStatus::End | MetaStatus::Noop => None,
        },
        _ => None,
    }
}

pub(super) fn meta_debug(reply: &Reply<'_>) -> Option<Option<Vec<(String, String)>>> {
    match reply {
        Reply::MetaDebug { attributes, .. } => {
            let pairs = attributes.iter().map(|token| {
                let token = String::from_utf8_lossy(token);
                let (name, value) = token.split_once('=').unwrap_or((&token, ""));
                (name.to_owned(), value.to_owned())
            });
            Some(Some(pairs.collect()))
        }
        _ => is_miss(reply).then_some(None),
    }
}

/// Whether a meta reply says that there is no such item.
fn is_miss(reply: &Reply<'_>) -> bool {
    matches!(
        reply,
        Reply::Meta {
            status: MetaStatus::End | MetaStatus::NotFound,
            ..
        }
    )
}
