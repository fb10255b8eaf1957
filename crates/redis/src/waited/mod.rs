//! Keys that are waited for, and the state in which each is registered with the server.
//!
//! Nothing here does I/O: the client says what it has sent and heard, and takes the keys to be
//! read. The argument that no change is lost rests on the order of one connection. A read that the
//! server executes registers the key; the next write of the key ends the registration and puts an
//! invalidation into the same stream. So an invalidation that arrives while a read is under way is
//! older than the read's reply, which carries the newer value and a new registration; one that
//! arrives when no read is under way means that the key is registered no longer.

mod hold;

pub(crate) use hold::{Hold, HoldEvent};

use dwell_evloop::{Slab, Token};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Entries of the queue whose keys have gone, beside as many as there are keys.
const QUEUE_SPARE: usize = 64;

/// The keys that are read on the tracking connection.
#[derive(Debug)]
pub(crate) struct WaitedKeys {
    by_name: HashMap<Arc<[u8]>, Token>,
    keys: Slab<WaitedKey, Token>,
    /// Keys whose state has changed since the last flush.
    touched: Vec<Token>,
    /// Keys to be read, oldest first.
    queue: VecDeque<Token>,
    /// Keys whose read the server refused, until the next probe.
    refused: Vec<Token>,
    /// Keys that are waited for.
    waited: usize,
    armed: usize,
}

#[derive(Debug)]
struct WaitedKey {
    name: Arc<[u8]>,
    /// The tag of its waits, while there are any.
    tag: Option<u64>,
    hold: Hold,
    is_queued: bool,
}

impl WaitedKeys {
    /// Makes a table whose tokens are of `kind`.
    pub(crate) fn new(kind: u8) -> Self {
        Self {
            by_name: HashMap::new(),
            keys: Slab::new(kind, usize::MAX),
            touched: Vec::new(),
            queue: VecDeque::new(),
            refused: Vec::new(),
            waited: 0,
            armed: 0,
        }
    }

    /// Keys that are waited for.
    pub(crate) fn waited(&self) -> usize {
        self.waited
    }

    /// Keys whose next change is announced.
    pub(crate) fn armed(&self) -> usize {
        self.armed
    }

    /// Returns true if no key is waited for or under way.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<Token> {
        self.by_name.get(name).copied()
    }

    /// The record of `name`, made if there is none.
    pub(crate) fn enter(&mut self, name: &[u8]) -> Option<Token> {
        if let Some(token) = self.find(name) {
            return Some(token);
        }
        let name: Arc<[u8]> = name.into();
        let key = WaitedKey {
            name: Arc::clone(&name),
            tag: None,
            hold: Hold::Unheld,
            is_queued: false,
        };
        let token = self.keys.insert(key).ok()?;
        self.by_name.insert(name, token);
        Some(token)
    }

    /// Begins to wait for a key, or goes on under another tag.
    pub(crate) fn wait(&mut self, name: &[u8], tag: u64) {
        let Some(token) = self.enter(name) else {
            return;
        };
        if let Some(key) = self.keys.get_mut(token) {
            self.waited += usize::from(key.tag.is_none());
            key.tag = Some(tag);
            self.touched.push(token);
        }
    }

    /// Ends the wait for a key.
    pub(crate) fn unwait(&mut self, name: &[u8]) {
        if let Some(token) = self.find(name)
            && let Some(key) = self.keys.get_mut(token)
        {
            self.waited -= usize::from(key.tag.take().is_some());
            self.touched.push(token);
        }
    }

    /// The tag of the waits for a key.
    pub(crate) fn tag(&self, token: Token) -> Option<u64> {
        self.keys.get(token)?.tag
    }

    /// Moves a key to its next state.
    pub(crate) fn happens(&mut self, token: Token, event: HoldEvent) {
        if let Some(key) = self.keys.get_mut(token) {
            self.armed -= usize::from(key.hold == Hold::Armed);
            key.hold = key.hold.after(event);
            self.armed += usize::from(key.hold == Hold::Armed);
            match event {
                HoldEvent::Sent => {}
                HoldEvent::Refused => self.refused.push(token),
                _ => self.touched.push(token),
            }
        }
    }

    /// The server has told of a change of `name`; true if somebody waits for it.
    pub(crate) fn invalidated(&mut self, name: &[u8]) -> bool {
        let Some(token) = self.find(name) else {
            return false;
        };
        self.happens(token, HoldEvent::Invalidated);
        self.tag(token).is_some()
    }

    /// Every key is to be read again.
    pub(crate) fn all(&mut self, event: HoldEvent) {
        // Each of many flushes in a row is announced, and the first one has said all.
        if event == HoldEvent::Invalidated && self.armed == 0 {
            return;
        }
        for token in self.keys.tokens().collect::<Vec<_>>() {
            self.happens(token, event);
        }
    }

    /// Queues a key again whose read could not be sent.
    pub(crate) fn put_back(&mut self, name: &[u8]) {
        self.touched.extend(self.find(name));
    }

    /// Tries those again whose reads were refused.
    pub(crate) fn retry(&mut self) {
        self.touched.append(&mut self.refused);
    }

    /// Drops the keys that are of no more use, and queues those that are to be read; `forgotten`
    /// is given each that is dropped.
    pub(crate) fn settle(&mut self, mut forgotten: impl FnMut(Token)) {
        for token in std::mem::take(&mut self.touched) {
            let Some(key) = self.keys.get_mut(token) else {
                continue;
            };
            if key.hold.is_idle() && key.tag.is_none() {
                self.armed -= usize::from(key.hold == Hold::Armed);
                let name = Arc::clone(&key.name);
                self.by_name.remove(&*name);
                self.keys.remove(token);
                forgotten(token);
            } else if key.hold == Hold::Unheld && !key.is_queued {
                key.is_queued = true;
                self.queue.push_back(token);
            }
        }
        // Nothing is taken from the queue while the server is away or announces nothing.
        if self.queue.len() > 2 * self.keys.len() + QUEUE_SPARE {
            let keys = &self.keys;
            self.queue.retain(|token| keys.get(*token).is_some());
        }
    }

    /// Takes the next key to be read, with its name.
    pub(crate) fn next(&mut self) -> Option<Arc<[u8]>> {
        while let Some(token) = self.queue.pop_front() {
            if let Some(key) = self.keys.get_mut(token) {
                key.is_queued = false;
                if key.hold == Hold::Unheld && key.tag.is_some() {
                    return Some(Arc::clone(&key.name));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
