//! Random commands against a naive model of memcached.
//!
//! The model also remembers what each watcher last read. After every command, a watcher whose last
//! read differs from the item must have been told; only what time alone has done may wait for the
//! next sweep.

mod commands;
mod naive;
mod pair;

use std::collections::BTreeSet;

use dwell_store::StoreConfig;
use proptest::prelude::*;

use crate::{NOW, watched_store};
use commands::{Command, command};
use naive::Model;
use pair::Pair;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_store_agrees_with_the_model(
        shards in 0_u32..3,
        commands in prop::collection::vec(command(), 1..120),
    ) {
        let config = StoreConfig { shards: 1 << shards, ..StoreConfig::default() };
        let (store, calls) = watched_store(&config);
        let model = Model::default();
        let mut pair = Pair { store, calls, model, now: NOW, told: BTreeSet::new() };
        for command in commands {
            pair.run(command);
        }
        pair.run(Command::Sweep);
    }
}
