//! Random commands on a few keys, so that they meet.

use dwell_store::{
    ArithmeticOptions, DeleteOptions, Direction, Expiry, MetaGet, StoreMode, StoreOptions,
};
use proptest::prelude::*;

use crate::NOW;

#[derive(Clone, Debug)]
pub(super) enum Command {
    Pass(u32),
    Get(u8),
    GetAndTouch(u8, i64),
    Touch(u8, i64),
    Store(u8, Vec<u8>, StoreOptions, CasChoice),
    Discard(u8),
    Arithmetic(u8, ArithmeticOptions, CasChoice),
    MetaGet(u8, MetaGet),
    Delete(u8, DeleteOptions, CasChoice),
    Flush(i64),
    Sweep,
    Watch(u8, u8),
    Reread(u8, u8),
    Unwatch(u8, u8),
}

/// Which version a command names, chosen so that all outcomes are common.
#[derive(Clone, Copy, Debug)]
pub(super) enum CasChoice {
    None,
    Current,
    Older,
    Newer,
}

fn key() -> impl Strategy<Value = u8> {
    0_u8..4
}

fn exptime() -> impl Strategy<Value = i64> {
    prop_oneof![3 => Just(0), 4 => 1_i64..6, 1 => Just(-1)]
}

fn maybe_expiry() -> impl Strategy<Value = Option<Expiry>> {
    // Times near the start of the run, so that some are in the past and some ahead.
    let at = (0_u32..40).prop_map(|offset| Expiry::at(NOW + offset));
    prop_oneof![3 => Just(None), 1 => Just(Some(Expiry::NEVER)), 2 => at.prop_map(Some)]
}

fn choice() -> impl Strategy<Value = CasChoice> {
    use CasChoice::{Current, Newer, None, Older};
    prop_oneof![4 => Just(None), 2 => Just(Current), 1 => Just(Older), 1 => Just(Newer)]
}

fn named() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![9 => Just(None), 1 => (1_u64..1000).prop_map(Some)]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => (0_u64..2000).prop_map(|number| number.to_string().into_bytes()),
        1 => prop::collection::vec(b'a'..=b'z', 0..40),
    ]
}

fn store_command() -> impl Strategy<Value = Command> {
    use StoreMode::{Add, Append, Prepend, Replace, Set};
    let mode = prop_oneof![3 => Just(Set), 1 => Just(Add), 1 => Just(Replace), 1 => Just(Append),
        1 => Just(Prepend)];
    let options = (
        mode,
        0_u32..3,
        maybe_expiry(),
        any::<bool>(),
        maybe_expiry(),
        named(),
    );
    let options = options.prop_map(|(mode, flags, expiry, invalidate, vivify, cas_new)| {
        let expiry = expiry.unwrap_or_default();
        StoreOptions {
            mode,
            flags,
            expiry,
            cas: None,
            invalidate,
            vivify,
            cas_new,
            filled: false,
        }
    });
    (key(), bytes(), options, choice())
        .prop_map(|(key, value, options, cas)| Command::Store(key, value, options, cas))
}

fn arithmetic_command() -> impl Strategy<Value = Command> {
    let options = (
        any::<bool>(),
        0_u64..300,
        maybe_expiry(),
        0_u64..50,
        maybe_expiry(),
        named(),
    );
    let options = options.prop_map(|(up, delta, vivify, initial, expiry, cas_new)| {
        let direction = if up {
            Direction::Increment
        } else {
            Direction::Decrement
        };
        ArithmeticOptions {
            direction,
            delta,
            cas: None,
            vivify,
            initial,
            expiry,
            cas_new,
        }
    });
    (key(), options, choice())
        .prop_map(|(key, options, cas)| Command::Arithmetic(key, options, cas))
}

fn meta_get_command() -> impl Strategy<Value = Command> {
    let recache = prop_oneof![1 => Just(None), 1 => (0_u32..6).prop_map(Some)];
    (
        key(),
        maybe_expiry(),
        maybe_expiry(),
        recache,
        any::<(bool, bool)>(),
        named(),
    )
        .prop_map(
            |(key, expiry, vivify, recache, (recache_last, no_bump), cas_new)| {
                Command::MetaGet(
                    key,
                    MetaGet {
                        expiry,
                        vivify,
                        recache,
                        recache_last,
                        no_bump,
                        cas_new,
                    },
                )
            },
        )
}

fn delete_command() -> impl Strategy<Value = Command> {
    let options = (
        any::<bool>(),
        maybe_expiry(),
        prop::bool::weighted(0.2),
        named(),
    );
    let options = options.prop_map(
        |(invalidate, expiry, remove_value, cas_new)| DeleteOptions {
            cas: None,
            invalidate,
            expiry,
            remove_value,
            cas_new,
        },
    );
    (key(), options, choice()).prop_map(|(key, options, cas)| Command::Delete(key, options, cas))
}

pub(super) fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        4 => (0_u32..3).prop_map(Command::Pass),
        4 => key().prop_map(Command::Get),
        2 => (key(), exptime()).prop_map(|(key, at)| Command::GetAndTouch(key, at)),
        2 => (key(), exptime()).prop_map(|(key, at)| Command::Touch(key, at)),
        9 => store_command(),
        1 => key().prop_map(Command::Discard),
        4 => arithmetic_command(),
        4 => meta_get_command(),
        3 => delete_command(),
        1 => prop_oneof![Just(0_i64), Just(-1), 1_i64..4].prop_map(Command::Flush),
        1 => Just(Command::Sweep),
        5 => (key(), 0_u8..3).prop_map(|(key, index)| Command::Watch(key, index)),
        4 => (key(), 0_u8..3).prop_map(|(key, index)| Command::Reread(key, index)),
        2 => (key(), 0_u8..3).prop_map(|(key, index)| Command::Unwatch(key, index)),
    ]
}
