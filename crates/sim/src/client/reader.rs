//! One who reads keys, and what it has read.

use crate::app::Record;
use crate::failure::Oracle;
use crate::keys::Broken;
use std::cell::RefCell;

/// A client by its number, and the states of keys that it has been told of.
pub(super) struct Reader {
    pub(super) number: usize,
    /// The state of each key that it has read last, and the cursor of that.
    pub(super) has: Vec<Option<(usize, String)>>,
    /// The one that it has read before that.
    pub(super) older: Vec<Option<(usize, String)>>,
    /// The newest state of each key that it has seen, values and deletions.
    pub(super) seen: Vec<usize>,
}

impl Reader {
    pub(super) fn new(number: usize, keys: usize) -> Self {
        Self {
            number,
            has: vec![None; keys],
            older: vec![None; keys],
            seen: vec![0; keys],
        }
    }

    /// It has read a state of a key, with its cursor, or that there is none.
    pub(super) fn note(&mut self, key: usize, has: Option<(usize, String)>) {
        if self.has[key] != has {
            self.older[key] = std::mem::replace(&mut self.has[key], has);
        }
    }

    /// The fields by which the application knows it, where a request is not shared.
    pub(super) fn identity(&self) -> String {
        let number = self.number;
        let cookie = if number % 2 == 1 {
            "Cookie: c=1\r\n"
        } else {
            ""
        };
        format!("X-Client: {number}\r\n{cookie}")
    }

    /// Checks that a text of the application is about this key, and for this client or for all.
    pub(super) fn check_own(
        &self,
        text: &str,
        key: &str,
        app: &RefCell<Record>,
    ) -> Result<(), Broken> {
        let mut parts = text.split('@');
        let name = parts.next().unwrap_or_default();
        let client = parts.next();
        let own = self.number.to_string();
        let is_own = name == key && [Some("-"), Some(&*own)].contains(&client);
        let serial = parts.next().and_then(|serial| serial.parse().ok());
        let is_private = parts.next() == Some("private");
        let is_first = serial.is_some_and(|serial| app.borrow_mut().deliver(serial));
        let is_right = is_own && (is_first || !is_private);
        let wrong = || (Oracle::OwnKey, format!("{text} is for another client"));
        is_right.then_some(()).ok_or_else(wrong)
    }
}
