//! Requests that wait for a connection.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use super::UpstreamError;
use super::connection::Exchange;
use super::shares::Client;

/// Requests that wait: those of one client in the order they came, the clients in turns.
///
/// Shape: at the limit, the client with the most waiting requests gives its newest up for another
/// client's. So a client alone may fill the queue, and another one still finds a place in it and is
/// the next but one. Requests of unknown clients count as one client's.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    /// By when they must have got a connection: one that comes from another server has less time.
    waiting: BTreeMap<Place, Exchange>,
    /// The places of each client's, as they came; none is empty.
    lines: HashMap<Client, VecDeque<Place>>,
    /// The clients that have a line; the first is the next.
    turns: VecDeque<Client>,
    /// The place of each request, by its tag.
    tags: HashMap<u64, Waiting>,
    /// The number of requests that have come.
    count: u64,
}

/// The deadline of a request, and how many came before it.
type Place = (Instant, u64);

/// The place of a waiting request.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    place: Place,
    /// It was given to another client's line.
    is_given: bool,
}

impl FairQueue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The requests, in no order that means anything.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Exchange> {
        self.waiting.values()
    }

    /// The time at which the first of them is late.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let ((deadline, _), _) = self.waiting.first_key_value()?;
        Some(*deadline)
    }

    /// Takes a request in; returns the one that had to make room for it.
    ///
    /// # Errors
    /// [`UpstreamError::QueueFull`] if `limit` wait and no client has two more than this one.
    pub(super) fn push(
        &mut self,
        exchange: Exchange,
        limit: usize,
    ) -> Result<Option<Exchange>, UpstreamError> {
        let client = exchange.request.client;
        let mut displaced = None;
        if self.waiting.len() >= limit {
            let own = self.lines.get(&client).map_or(0, VecDeque::len);
            let longest = self.lines.iter().max_by_key(|(_, line)| line.len());
            let newest = longest.filter(|(_, line)| line.len() > own + 1);
            let Some(newest) = newest.and_then(|(_, line)| line.back().copied()) else {
                return Err(UpstreamError::QueueFull { limit });
            };
            displaced = self.remove(newest);
        }
        let place = (exchange.queue_deadline, self.count);
        self.line_up(place, client);
        let is_given = false;
        let tag = exchange.request.tag;
        self.tags.insert(tag, Waiting { place, is_given });
        self.waiting.insert(place, exchange);
        self.count += 1;
        Ok(displaced)
    }

    /// Returns true if a waiting request has not moved to another client's line yet.
    pub(super) fn may_be_given(&self, tag: u64) -> bool {
        self.tags.get(&tag).is_some_and(|waiting| !waiting.is_given)
    }

    /// Returns how many requests of this client wait, if they are no more than wait before the one
    /// with this tag in its line, and that one [may be given](Self::may_be_given) to this client's.
    pub(super) fn fewer_ahead(&self, tag: u64, client: Client) -> Option<usize> {
        let waiting = self.tags.get(&tag).filter(|waiting| !waiting.is_given)?;
        let of = self.waiting.get(&waiting.place)?.request.client;
        let ahead = self.lines.get(&client).map_or(0, VecDeque::len);
        let mut before = self.lines.get(&of)?.iter().take(ahead);
        let is_fewer = before.all(|place| *place != waiting.place);
        (of != client && is_fewer).then_some(ahead)
    }

    /// Moves the request with this tag to the line of another client, whose it is from now on.
    pub(super) fn give(&mut self, tag: u64, client: Client) {
        let Some(waiting) = self.tags.get_mut(&tag) else {
            return;
        };
        waiting.is_given = true;
        let place = waiting.place;
        let Some(exchange) = self.waiting.get_mut(&place) else {
            return;
        };
        let of = std::mem::replace(&mut exchange.request.client, client);
        self.leave_line(place, of);
        self.line_up(place, client);
    }

    /// Returns true if requests of this client wait.
    pub(super) fn has(&self, client: Client) -> bool {
        self.lines.contains_key(&client)
    }

    /// Takes the first request of the client whose turn it is, of those for which `may` returns
    /// true.
    pub(super) fn pop(&mut self, may: impl Fn(Client) -> bool) -> Option<Exchange> {
        let turn = self.turns.iter().position(|client| may(*client))?;
        let client = self.turns.remove(turn)?;
        let line = self.lines.get_mut(&client)?;
        let place = line.pop_front()?;
        if line.is_empty() {
            self.lines.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        self.take(place)
    }

    /// Takes a request that has waited too long.
    pub(super) fn pop_late(&mut self, now: Instant) -> Option<Exchange> {
        let (place, _) = self.waiting.first_key_value()?;
        let place = *place;
        if place.0 > now {
            return None;
        }
        self.remove(place)
    }

    /// Forgets the request with this tag; false if no request has it.
    pub(super) fn cancel(&mut self, tag: u64) -> bool {
        let place = self.tags.get(&tag).map(|waiting| waiting.place);
        place.is_some_and(|place| self.remove(place).is_some())
    }

    fn remove(&mut self, place: Place) -> Option<Exchange> {
        let exchange = self.take(place)?;
        self.leave_line(place, exchange.request.client);
        Some(exchange)
    }

    /// As [`remove`](Self::remove), of what has left its line.
    fn take(&mut self, place: Place) -> Option<Exchange> {
        let exchange = self.waiting.remove(&place)?;
        self.tags.remove(&exchange.request.tag);
        Some(exchange)
    }

    fn line_up(&mut self, place: Place, client: Client) {
        let line = self.lines.entry(client).or_default();
        if line.is_empty() {
            self.turns.push_back(client);
        }
        line.push_back(place);
    }

    fn leave_line(&mut self, place: Place, client: Client) {
        if let Some(line) = self.lines.get_mut(&client) {
            line.retain(|other| *other != place);
            if line.is_empty() {
                self.lines.remove(&client);
                self.turns.retain(|other| *other != client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::UpstreamRequest;
    use super::*;
    use bytes::Bytes;
    use std::net::IpAddr;
    use std::time::Duration;

    fn request(client: u8, tag: u64, deadline: Instant) -> Exchange {
        let request = UpstreamRequest {
            client: (client > 0).then(|| [192, 0, 2, client].into()),
            ..UpstreamRequest::new(Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n"), tag)
        };
        Exchange::new(request, deadline, deadline, deadline)
    }

    fn tags(queue: &mut FairQueue) -> Vec<u64> {
        let all = std::iter::from_fn(|| queue.pop(|_| true));
        all.map(|exchange| exchange.request.tag).collect()
    }

    #[test]
    fn clients_take_turns_and_each_keeps_its_order() {
        let now = Instant::now();
        let mut queue = FairQueue::default();
        for (client, tag) in [(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (2, 21)] {
            assert!(queue.push(request(client, tag, now), 6).unwrap().is_none());
        }
        assert_eq!(tags(&mut queue), [10, 20, 30, 11, 21, 12]);
        assert!(queue.is_empty() && queue.lines.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn a_client_that_may_have_none_keeps_its_turn() {
        let now = Instant::now();
        let mut queue = FairQueue::default();
        for (client, tag) in [(1, 10), (1, 11), (2, 20), (2, 21)] {
            queue.push(request(client, tag, now), 9).unwrap();
        }
        let is_other = |client: Option<IpAddr>| client != Some([192, 0, 2, 1].into());
        assert_eq!(queue.pop(is_other).unwrap().request.tag, 20);
        assert!(queue.pop(|_| false).is_none());
        assert_eq!(tags(&mut queue), [10, 21, 11]);
    }

    #[test]
    fn a_full_queue_takes_the_newest_of_whose_are_the_most() {
        let now = Instant::now();
        let mut queue = FairQueue::default();
        for tag in 0..4 {
            queue.push(request(1, tag, now), 4).unwrap();
        }
        let full = Err(UpstreamError::QueueFull { limit: 4 });
        let push = |queue: &mut FairQueue, client, tag| {
            let pushed = queue.push(request(client, tag, now), 4);
            pushed.map(|displaced| displaced.map(|exchange| exchange.request.tag))
        };
        assert_eq!(push(&mut queue, 1, 4), full, "its own do not make room");
        assert_eq!(push(&mut queue, 2, 20), Ok(Some(3)));
        assert_eq!(push(&mut queue, 0, 30), Ok(Some(2)));
        assert_eq!(push(&mut queue, 2, 21), full, "none has two more");
        assert_eq!(queue.len(), 4);
        assert_eq!(tags(&mut queue), [0, 20, 30, 1]);
        assert_eq!(
            queue.push(request(1, 0, now), 0).unwrap_err(),
            UpstreamError::QueueFull { limit: 0 }
        );
    }

    #[test]
    fn whose_time_is_over_is_late_and_what_is_cancelled_is_gone() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let mut queue = FairQueue::default();
        // The first of the third client was with another server before.
        let all = [(1, 10, 2), (2, 20, 3), (1, 11, 4), (3, 30, 1), (3, 31, 5)];
        for (client, tag, deadline) in all {
            queue
                .push(request(client, tag, after(deadline)), 9)
                .unwrap();
        }
        assert!(queue.pop_late(now).is_none());
        assert_eq!(queue.deadline(), Some(after(1)));
        assert_eq!(queue.pop_late(after(1)).unwrap().request.tag, 30);
        assert!(queue.pop_late(after(1)).is_none());
        assert_eq!(queue.pop_late(after(2)).unwrap().request.tag, 10);
        assert!(queue.cancel(20) && !queue.cancel(20));
        assert_eq!(queue.deadline(), Some(after(4)));
        assert_eq!(tags(&mut queue), [11, 31]);
        assert!(queue.lines.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn what_another_client_asks_for_too_waits_in_the_shorter_line() {
        let now = Instant::now();
        let mut queue = FairQueue::default();
        for (client, tag) in [(1, 10), (1, 11), (1, 12), (1, 13), (2, 20), (2, 21)] {
            queue.push(request(client, tag, now), 9).unwrap();
        }
        let client = |number: u8| Some(IpAddr::from([192, 0, 2, number]));
        assert_eq!(queue.fewer_ahead(12, client(1)), None, "it is its own");
        assert_eq!(queue.fewer_ahead(11, client(2)), None, "two wait there");
        assert_eq!(queue.fewer_ahead(12, client(2)), Some(2));
        assert_eq!(queue.fewer_ahead(10, client(3)), Some(0));
        assert_eq!(queue.fewer_ahead(99, client(3)), None, "it does not wait");
        queue.give(13, client(3));
        assert!(!queue.may_be_given(13) && queue.may_be_given(12));
        assert_eq!(queue.fewer_ahead(13, client(4)), None, "it was given");
        queue.give(10, client(2));
        assert!(queue.cancel(12));
        assert_eq!(tags(&mut queue), [11, 20, 13, 21, 10]);
        assert!(queue.lines.is_empty() && queue.turns.is_empty() && queue.tags.is_empty());
    }

    #[test]
    fn every_order_of_coming_and_going_leaves_the_tables_alike() {
        let now = Instant::now();
        let (mut queue, mut seed) = (FairQueue::default(), 7_u64);
        for tag in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match seed >> 60 {
                0..8 => drop(queue.push(request((seed >> 40) as u8 % 5, tag, now), 16)),
                8..11 => drop(queue.pop(|client| client.is_some() || seed % 2 == 0)),
                11 => queue.give(tag.saturating_sub(seed >> 50 & 31), None),
                _ => drop(queue.cancel(tag.saturating_sub(seed >> 50 & 31))),
            }
            let in_lines: usize = queue.lines.values().map(VecDeque::len).sum();
            assert_eq!(
                (in_lines, queue.turns.len(), queue.tags.len()),
                (queue.len(), queue.lines.len(), queue.len())
            );
            assert!(queue.len() <= 16);
        }
    }
}
