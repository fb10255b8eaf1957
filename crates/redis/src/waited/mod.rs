//! Keys that are waited for, and the state in which each is registered with the server.
//!
//! Nothing here does I/O: the client says what it has sent and heard, and takes the keys to be
//! read. The argument that no change is lost rests on the order of one connection. A read that the
//! server executes registers the key; the next write of the key ends the registration and puts an
//! invalidation into the same stream. So an invalidation that arrives while a read is in progress
//! is older than the read's reply, which carries the newer value and a new registration; one that
//! arrives when no read is in progress means that the key is registered no longer.
//!
//! A server that announces all keys of a prefix gathers the announcements and sends them at a time
//! of its own. Their place in the stream says nothing then, so one that arrives while a read
//! is in progress has the key read once more. A key that no prefix covers is read again and again.

mod hold;
mod kept;

pub(crate) use hold::{Hold, HoldEvent};
pub(crate) use kept::{Kept, KeptBytes};

use crate::cluster::slot_of;
use crate::digest::MISSING;
use crate::pace::sweep_pause;
use crate::{Announced, Outcome};
use dwell_evloop::{Slab, Token};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Entries of the queue whose keys have gone, beside as many as there are keys.
const QUEUE_SPARE: usize = 64;

/// The keys that are read on the tracking connection.
#[derive(Debug)]
pub(crate) struct WaitedKeys {
    by_name: HashMap<Arc<[u8]>, Token>,
    keys: Slab<WaitedKey, Token>,
    /// Keys whose state has changed since the last flush.
    touched: Vec<Token>,
    /// The share of each server, by its index.
    shares: Vec<Share>,
    kept_bytes: KeptBytes,
    announced: Announced,
}

/// The keys that one server has.
#[derive(Debug, Default)]
struct Share {
    /// Keys to be read, oldest first.
    queue: VecDeque<Token>,
    /// Keys that are waited for.
    waited: usize,
    /// Keys that the sweep in progress has still to read.
    due: usize,
    /// The time of the last paced sweep, and the keys that were waited for then.
    swept: Option<(Instant, usize)>,
    armed: usize,
    /// No read has gone out or come back since all were announced to have changed.
    is_flushed: bool,
    /// Keys that are read later.
    put_off: usize,
    /// Keys that are waited for and whose changes no announcement tells.
    untold: usize,
}

/// A kind of sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sweep {
    /// It begins at once.
    Full,
    /// It begins once the [pause](sweep_pause) behind the one before is over.
    Paced,
}

impl Share {
    /// Returns true if a paced sweep may begin. Keys without a wait make no pause.
    fn is_due(&self, now: Instant) -> bool {
        self.swept
            .is_none_or(|(at, keys)| at + sweep_pause(keys.min(self.waited)) <= now)
    }
}

impl Share {
    /// Counts a key that is in this state from now on.
    fn enter(&mut self, hold: Hold) {
        self.armed += usize::from(hold == Hold::Armed);
        self.put_off += usize::from(hold == Hold::PutOff);
    }

    /// Counts a key that is in this state no more.
    fn leave(&mut self, hold: Hold) {
        self.armed -= usize::from(hold == Hold::Armed);
        self.put_off -= usize::from(hold == Hold::PutOff);
    }
}

#[derive(Debug)]
struct WaitedKey {
    name: Arc<[u8]>,
    /// The index of the server that has it.
    server: usize,
    /// The tag of its waits, while there are any.
    tag: Option<u64>,
    hold: Hold,
    is_queued: bool,
    /// The sweep has still to read it.
    is_due: bool,
    unread: Unread,
    /// Refusals in a row.
    refusals: u8,
    /// Redirections in a row.
    redirects: u8,
    /// Digest of what was read last.
    digest: u64,
    /// The value that was read last, while its next change is announced.
    kept: Kept,
    /// Replies in progress that may be older than a write of this client's own, of which its caller
    /// knows already.
    old_reads: u32,
}

/// A change of a key that was not read yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Unread {
    Nothing,
    /// It may have changed, or could not be read.
    Perhaps,
    /// A change was announced.
    Announced,
}

impl WaitedKeys {
    /// Makes a table whose tokens are of `kind`.
    pub(crate) fn new(kind: u8, announced: Announced, kept_bytes_max: usize) -> Self {
        Self {
            by_name: HashMap::new(),
            keys: Slab::new(kind, usize::MAX),
            touched: Vec::new(),
            shares: vec![Share::default()],
            kept_bytes: KeptBytes::new(kept_bytes_max),
            announced,
        }
    }

    /// The changes that the server is asked to announce.
    pub(crate) fn announced(&self) -> &Announced {
        &self.announced
    }

    /// Makes room for the keys of one more server.
    pub(crate) fn add_server(&mut self) {
        self.shares.push(Share::default());
    }

    /// All keys.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.keys.tokens()
    }

    /// Keys that are waited for on a server.
    pub(crate) fn waited(&self, server: usize) -> usize {
        self.shares[server].waited
    }

    /// Keys whose next change is announced.
    pub(crate) fn armed(&self) -> usize {
        self.shares.iter().map(|share| share.armed).sum()
    }

    /// Returns true if no key is waited for or in progress.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<Token> {
        self.by_name.get(name).copied()
    }

    /// The record of `name`. A missing record is made, for this server.
    pub(crate) fn enter(&mut self, name: &[u8], server: usize) -> Option<Token> {
        if let Some(token) = self.find(name) {
            return Some(token);
        }
        let name: Arc<[u8]> = name.into();
        let key = WaitedKey {
            name: Arc::clone(&name),
            server,
            tag: None,
            hold: Hold::Unheld,
            is_queued: false,
            is_due: false,
            unread: Unread::Perhaps,
            refusals: 0,
            redirects: 0,
            digest: 0,
            kept: Kept::Unknown,
            old_reads: 0,
        };
        let token = self.keys.insert(key).ok()?;
        self.by_name.insert(name, token);
        Some(token)
    }

    /// Begins to wait for a key, or goes on under another tag; one without a record is of `server`.
    pub(crate) fn wait(&mut self, name: &[u8], tag: u64, server: usize) {
        let Some(token) = self.enter(name, server) else {
            return;
        };
        if let Some(key) = self.keys.get_mut(token) {
            let (share, is_new) = (&mut self.shares[key.server], key.tag.is_none());
            share.waited += usize::from(is_new);
            share.untold += usize::from(is_new && !self.announced.covers(name));
            key.tag = Some(tag);
            if is_new && key.hold == Hold::PutOff {
                // No deadline is armed for a read that was refused while nobody waited.
                return self.happens(token, HoldEvent::Invalidated);
            }
            self.touched.push(token);
        }
    }

    /// Ends the wait for a key.
    pub(crate) fn unwait(&mut self, name: &[u8]) {
        if let Some(token) = self.find(name)
            && let Some(key) = self.keys.get_mut(token)
        {
            let (share, was_waited) = (&mut self.shares[key.server], key.tag.take().is_some());
            share.waited -= usize::from(was_waited);
            share.untold -= usize::from(was_waited && !self.announced.covers(name));
            self.touched.push(token);
        }
    }

    /// The name of a key.
    pub(crate) fn name(&self, token: Token) -> Option<&[u8]> {
        Some(&self.keys.get(token)?.name)
    }

    /// The index of the server that has a key.
    pub(crate) fn server(&self, token: Token) -> Option<usize> {
        Some(self.keys.get(token)?.server)
    }

    /// The tag of the waits for a key.
    pub(crate) fn tag(&self, token: Token) -> Option<u64> {
        self.keys.get(token)?.tag
    }

    /// The tag of the waits for a key that lack what is read next, by a request or for them.
    pub(crate) fn owed(&self, token: Token) -> Option<u64> {
        let key = self.keys.get(token)?;
        key.tag.filter(|_| key.unread != Unread::Nothing)
    }

    /// Moves a key to its next state.
    pub(crate) fn happens(&mut self, token: Token, event: HoldEvent) {
        if let Some(key) = self.keys.get_mut(token) {
            let share = &mut self.shares[key.server];
            share.leave(key.hold);
            key.hold = key.hold.after(event);
            share.enter(key.hold);
            share.is_flushed &= !matches!(event, HoldEvent::Sent | HoldEvent::Answered);
            self.kept_bytes.forget(&mut key.kept);
            match event {
                HoldEvent::Answered | HoldEvent::Refused { .. } | HoldEvent::Deferred => {
                    key.old_reads = key.old_reads.saturating_sub(1);
                }
                HoldEvent::Lost => key.old_reads = 0,
                HoldEvent::Sent
                | HoldEvent::Invalidated
                | HoldEvent::Announced
                | HoldEvent::Touched => {}
            }
            key.unread = match event {
                HoldEvent::Answered if key.hold == Hold::Armed => Unread::Nothing,
                // Of several reads in progress the last one alone is newer than what was announced.
                HoldEvent::Answered => key.unread.min(Unread::Perhaps),
                HoldEvent::Sent | HoldEvent::Touched => key.unread,
                HoldEvent::Refused { .. }
                | HoldEvent::Deferred
                | HoldEvent::Invalidated
                | HoldEvent::Announced
                | HoldEvent::Lost => key.unread.max(Unread::Perhaps),
            };
            match event {
                HoldEvent::Sent => return,
                // Behind another refusal only a read for the waits shows that the time was short.
                HoldEvent::Refused { is_of_waits } => {
                    let counts = is_of_waits || key.refusals == 0;
                    key.refusals = key.refusals.saturating_add(u8::from(counts));
                }
                HoldEvent::Answered | HoldEvent::Lost => (key.refusals, key.redirects) = (0, 0),
                HoldEvent::Deferred
                | HoldEvent::Invalidated
                | HoldEvent::Announced
                | HoldEvent::Touched => {}
            }
            self.touched.push(token);
        }
    }

    /// A read of a key was executed, and found something of this digest; a value is kept. Returns
    /// true or false if a change was announced before, which there was or was not.
    pub(crate) fn answered(
        &mut self,
        token: Token,
        digest: u64,
        outcome: &Outcome<'_>,
    ) -> Option<bool> {
        let key = self.keys.get(token)?;
        let (is_old, was_announced) = (key.old_reads > 0, key.unread == Unread::Announced);
        self.happens(token, HoldEvent::Answered);
        let key = self.keys.get_mut(token)?;
        if key.hold == Hold::Armed && !is_old && self.announced.covers(&key.name) {
            self.kept_bytes.keep(&mut key.kept, outcome);
        }
        let before = std::mem::replace(&mut key.digest, digest);
        was_announced.then_some(before != digest)
    }

    /// The next change of a key that is waited for is announced.
    pub(crate) fn is_armed(&self, name: &[u8]) -> Option<bool> {
        let key = self.keys.get(self.find(name)?)?;
        let is_armed = key.hold == Hold::Armed && self.announced.covers(name);
        key.tag.is_some().then_some(is_armed)
    }

    /// Returns true of a key whose next change the server announces, or will with the reply to the
    /// read in progress.
    pub(crate) fn is_held(&self, token: Token) -> bool {
        let key = self.keys.get(token);
        key.is_some_and(|key| matches!(key.hold, Hold::Armed | Hold::Arming { .. }))
    }

    /// The keys of its server whose changes no announcement tells, with this one; `None` if it is
    /// another key. They have to be read again and again.
    pub(crate) fn untold_beside(&self, token: Token) -> Option<usize> {
        let key = self.keys.get(token)?;
        let is_untold = !self.announced.covers(&key.name);
        is_untold.then(|| self.shares[key.server].untold)
    }

    /// The value of a key, if it is kept.
    pub(crate) fn kept(&self, name: &[u8]) -> Option<Outcome<'_>> {
        match &self.keys.get(self.find(name)?)?.kept {
            Kept::Unknown => None,
            Kept::Missing => Some(Outcome::Missing),
            Kept::Value(value) => Some(Outcome::Value(value)),
        }
    }

    /// Bytes of the values that are kept.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes.used()
    }

    /// A key was written over another connection. Its announcement may come later than the reply,
    /// so nothing that was read before is kept.
    pub(crate) fn written(&mut self, name: &[u8]) {
        if let Some(token) = self.find(name)
            && let Some(key) = self.keys.get_mut(token)
        {
            self.kept_bytes.forget(&mut key.kept);
            key.old_reads = key.hold.reads();
        }
    }

    /// The refusals in a row of a key.
    pub(crate) fn refusals(&self, token: Token) -> u8 {
        self.keys.get(token).map_or(0, |key| key.refusals)
    }

    /// Returns true of a key that is waited for and is to be read later.
    pub(crate) fn is_put_off(&self, token: Token) -> bool {
        let key = self.keys.get(token);
        key.is_some_and(|key| key.hold == Hold::PutOff && key.tag.is_some())
    }

    /// The keys of its server that are to be read later, with it.
    pub(crate) fn put_off_beside(&self, token: Token) -> usize {
        let server = self.server(token);
        server.map_or(0, |server| self.shares[server].put_off)
    }

    /// The server has announced a change of `name`; true if a client waits for it.
    pub(crate) fn invalidated(&mut self, name: &[u8]) -> bool {
        let token = self.may_have_changed(name);
        let key = token.and_then(|token| self.keys.get_mut(token));
        key.is_some_and(|key| {
            key.unread = Unread::Announced;
            key.tag.is_some()
        })
    }

    /// Has a key read again as if a change was announced, though none was.
    pub(crate) fn may_have_changed(&mut self, name: &[u8]) -> Option<Token> {
        let token = self.find(name)?;
        let event = match self.announced {
            Announced::Prefixes(_) => HoldEvent::Announced,
            Announced::Keys | Announced::Nothing => HoldEvent::Invalidated,
        };
        self.happens(token, event);
        Some(token)
    }

    /// Every key of a server is to be read again.
    pub(crate) fn all(&mut self, server: usize, event: HoldEvent) {
        // Each of many flushes in a row is announced, and the first one has said all.
        let share = &mut self.shares[server];
        if event == HoldEvent::Invalidated && std::mem::replace(&mut share.is_flushed, true) {
            return;
        }
        for token in self.keys.tokens().collect::<Vec<_>>() {
            if self.server(token) == Some(server) {
                self.happens(token, event);
            }
        }
    }

    /// Another server has the key from now on. It is to be read as after a lost connection,
    /// because the server before may still announce changes of the past.
    pub(crate) fn move_to(&mut self, token: Token, server: usize) {
        let Some(key) = self.keys.get_mut(token) else {
            return;
        };
        let redirects = key.redirects;
        let before = &mut self.shares[key.server];
        let (waited, due) = (usize::from(key.tag.is_some()), usize::from(key.is_due));
        let untold = usize::from(key.tag.is_some() && !self.announced.covers(&key.name));
        (before.waited, before.due) = (before.waited - waited, before.due - due);
        before.untold -= untold;
        before.leave(key.hold);
        // The queue of the server before has it, and passes it over.
        (key.server, key.is_queued) = (server, false);
        let after = &mut self.shares[server];
        (after.waited, after.due) = (after.waited + waited, after.due + due);
        after.untold += untold;
        after.enter(key.hold);
        self.happens(token, HoldEvent::Lost);
        if let Some(key) = self.keys.get_mut(token) {
            key.redirects = redirects;
        }
    }

    /// These slots of a server, in order, are about to move. Keys of them without a value may be
    /// created at another server without an announcement: they are to be read.
    pub(crate) fn may_be_elsewhere(&mut self, server: usize, leaving: &[u16]) {
        if leaving.is_empty() {
            return;
        }
        for token in self.keys.tokens().collect::<Vec<_>>() {
            if let Some(key) = self.keys.get(token)
                && key.server == server
                && key.hold == Hold::Armed
                && key.digest == MISSING
                && leaving.binary_search(&slot_of(&key.name)).is_ok()
            {
                self.happens(token, HoldEvent::Invalidated);
            }
        }
    }

    /// Counts a redirection of a key; returns those in a row.
    pub(crate) fn redirected(&mut self, token: Token) -> u8 {
        self.keys.get_mut(token).map_or(0, |key| {
            key.redirects = key.redirects.saturating_add(1);
            key.redirects
        })
    }

    /// Has a key read later, whatever is known of it: the caller arms its deadline.
    pub(crate) fn hold_back(&mut self, token: Token) {
        self.happens(token, HoldEvent::Lost);
        if let Some(key) = self.keys.get_mut(token) {
            let share = &mut self.shares[key.server];
            share.leave(key.hold);
            key.hold = Hold::PutOff;
            share.enter(key.hold);
        }
    }

    /// Begins sweeps, each of which reads every key of a server that is waited for. A server whose
    /// last sweep has keys left to read is passed over. Returns the number of sweeps.
    pub(crate) fn sweep(
        &mut self,
        now: Instant,
        sweep_of: impl Fn(usize) -> Option<Sweep>,
    ) -> usize {
        let mut may_begin = |(server, share): (usize, &mut Share)| {
            if share.due > 0 || share.waited == 0 {
                return false;
            }
            match sweep_of(server) {
                None => false,
                Some(Sweep::Full) => true,
                Some(Sweep::Paced) => {
                    let is_due = share.is_due(now);
                    if is_due {
                        share.swept = Some((now, share.waited));
                    }
                    is_due
                }
            }
        };
        let shares = self.shares.iter_mut().enumerate();
        let swept: Vec<bool> = shares.map(&mut may_begin).collect();
        let begun = swept.iter().filter(|is_swept| **is_swept).count();
        if begun == 0 {
            return 0;
        }
        for token in self.keys.tokens().collect::<Vec<_>>() {
            if let Some(key) = self.keys.get_mut(token)
                && key.tag.is_some()
                && swept[key.server]
            {
                key.is_due = true;
                self.shares[key.server].due += 1;
                self.touched.push(token);
            }
        }
        begun
    }

    /// Returns true if a key of a server may be there to be read.
    pub(crate) fn has_queued(&self, server: usize) -> bool {
        !self.shares[server].queue.is_empty()
    }

    /// Drops the keys that are of no more use, and queues those that are to be read; `forgotten`
    /// is given each that is dropped.
    pub(crate) fn settle(&mut self, mut forgotten: impl FnMut(Token)) {
        for token in std::mem::take(&mut self.touched) {
            let Some(key) = self.keys.get_mut(token) else {
                continue;
            };
            let share = &mut self.shares[key.server];
            if key.hold.is_idle() && key.tag.is_none() {
                share.leave(key.hold);
                share.due -= usize::from(key.is_due);
                self.kept_bytes.forget(&mut key.kept);
                let name = Arc::clone(&key.name);
                self.by_name.remove(&*name);
                self.keys.remove(token);
                forgotten(token);
            } else if (key.hold == Hold::Unheld || key.is_due) && !key.is_queued {
                key.is_queued = true;
                share.queue.push_back(token);
            }
        }
        // Nothing is taken from the queue while the server is away or announces nothing.
        let keys = &self.keys;
        for (server, share) in self.shares.iter_mut().enumerate() {
            if share.queue.len() > 2 * keys.len() + QUEUE_SPARE {
                let is_of = |token: &Token| keys.get(*token).is_some_and(|it| it.server == server);
                share.queue.retain(is_of);
            }
        }
    }

    /// Takes the next key of a server to be read, with its name: one that is not registered, or is
    /// due in the sweep. While nothing can be registered, only those of the sweep are read.
    pub(crate) fn next(&mut self, server: usize, may_register: bool) -> Option<(Token, Arc<[u8]>)> {
        let share = &mut self.shares[server];
        while let Some(token) = share.queue.pop_front() {
            if let Some(key) = self.keys.get_mut(token)
                && key.server == server
            {
                key.is_queued = false;
                let is_due = std::mem::take(&mut key.is_due);
                share.due -= usize::from(is_due);
                let is_unheld = may_register && key.hold == Hold::Unheld;
                if key.tag.is_some() && key.hold.is_idle() && (is_due || is_unheld) {
                    return Some((token, Arc::clone(&key.name)));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
