//! Reads of keys over the tracking connection, which registers them with the server.

use crate::connection::{Flight, Operation, Reader};
use crate::link::Link;
use crate::server::Server;
use crate::shared::Shared;
use crate::waited::HoldEvent;
use crate::waits::Waits;
use crate::{ClientOptions, Error};
use dwell_evloop::Context;
use dwell_proto::resp::command;
use std::sync::Arc;

/// Adds the two commands that read a key and its lifetime, for an operation that was admitted. The
/// lifetime comes first: one that is too short costs a read, one that is too long a wait.
fn send_read(
    tracked: &mut Link,
    (waits, shared): (&Waits, &mut Shared),
    context: &mut Context,
    options: &ClientOptions,
    (name, operation): (&[u8], Operation),
) {
    let Some(key) = shared.waited.enter(name, waits.server) else {
        return;
    };
    let lifetime = |wire: &mut Vec<u8>| command(wire, &[b"PTTL", name]);
    tracked.push_behind(context, Flight::Lifetime, options, lifetime);
    let read = |wire: &mut Vec<u8>| command(wire, &[b"GET", name]);
    let flight = Flight::Read {
        key,
        name: name.into(),
        by: Reader::Operation(operation),
    };
    tracked.push_behind(context, flight, options, read);
    shared.waited.happens(key, HoldEvent::Sent);
}

/// Adds the reads of keys that are to be read again, as many as may be in progress. They have room
/// of their own, so that a flood of lookups leaves them theirs.
pub(crate) fn send_rereads(
    (plain, tracked): (&mut Link, &mut Link),
    (waits, shared): (&mut Waits, &mut Shared),
    context: &mut Context,
    options: &ClientOptions,
) {
    let is_told = !waits.is_refused(context) && tracked.is_up();
    if !is_told && !plain.is_up() {
        return;
    }
    let (now, waited) = (context.now(), shared.waited.waited(waits.server));
    let (room, mut count) = (waits.pace.room(now, waited), 0);
    while count < room
        && let Some((key, name)) = shared.waited.next(waits.server, is_told)
    {
        count += 1;
        let read = |wire: &mut Vec<u8>| command(wire, &[b"GET", &*name]);
        if is_told {
            let lifetime = |wire: &mut Vec<u8>| command(wire, &[b"PTTL", &*name]);
            tracked.push_behind(context, Flight::Lifetime, options, lifetime);
            let flight = Flight::Read {
                key,
                name: Arc::clone(&name),
                by: Reader::Waits,
            };
            tracked.push_behind(context, flight, options, read);
            shared.waited.happens(key, HoldEvent::Sent);
        } else {
            let is_asking = false;
            plain.push_behind(context, Flight::Sweep { key, is_asking }, options, read);
        }
    }
    waits.pace.sent(count, now);
    shared.metrics.rereads.add(count as u64);
}

impl Server {
    /// Asks for a value on the tracking connection, or on the other one where it is not tracked.
    pub(crate) fn read(
        &mut self,
        context: &mut Context,
        options: &ClientOptions,
        shared: &mut Shared,
        read: (&[u8], Operation),
    ) -> Result<(), Error> {
        self.tracked.follow(self.plain.primary_if_up());
        if self.waits.is_refused(context) || !self.tracked.ensure(context, options) {
            return self.read_untracked(context, options, read);
        }
        self.tracked.has_room(options)?;
        let waits = (&self.waits, shared);
        send_read(&mut self.tracked, waits, context, options, read);
        Ok(())
    }

    /// Has the tracking connection, which is up, make the reads that wait for replies on the other
    /// one: such a reply may come later than a newer value that this one brings.
    ///
    /// Shape: they were admitted on the other connection, so they are bounded, and none is refused.
    pub(crate) fn read_in_order(
        &mut self,
        context: &mut Context,
        options: &ClientOptions,
        shared: &mut Shared,
    ) {
        for _ in 0..self.plain.end_sweeps() {
            self.waits.pace.ended();
        }
        let mut reads = Vec::new();
        self.plain.take_reads(&mut reads);
        for (key, operation) in reads {
            let (waits, read) = ((&self.waits, &mut *shared), (&*key, operation));
            send_read(&mut self.tracked, waits, context, options, read);
        }
    }
}
