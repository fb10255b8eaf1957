//! Subrequests that ask the application for access (`auth_request` of nginx).
//!
//! A decision is cached for a while, and concurrent requests with the same credential share one
//! subrequest.

use super::{AuthDecision, Digest, Digester, ExpiringCache, credential};
use crate::ids::{PollId, SubrequestId};
use dwell_evloop::Slab;
use dwell_proto::http1::RequestHead;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The open subrequests of one loop, and its cached decisions.
#[derive(Debug)]
pub(crate) struct AuthSubrequests {
    digester: Digester,
    known: ExpiringCache<AuthDecision>,
    /// Open subrequests, by their credentials.
    open: HashMap<Digest, SubrequestId>,
    records: Slab<AuthSubrequest, SubrequestId>,
    started: Option<Instant>,
}

/// One subrequest to the application.
#[derive(Debug)]
pub(crate) struct AuthSubrequest {
    credential: Digest,
    /// Requests that wait for its response.
    pub(crate) waiting: Vec<PollId>,
}

/// Decisions that a loop caches.
const KNOWN_MAX: usize = 4096;
/// Longest time that a refusal is cached: a client that logs in meanwhile is admitted soon.
const REFUSED_MAX: Duration = Duration::from_secs(1);

impl AuthSubrequests {
    /// Makes room for `subrequests_max` concurrent subrequests.
    pub(crate) fn new(subrequests_max: usize) -> Self {
        Self {
            digester: Digester::new(),
            known: ExpiringCache::new(KNOWN_MAX),
            open: HashMap::new(),
            records: SubrequestId::slab(subrequests_max),
            started: None,
        }
    }

    /// Makes room for `subrequests_max` from now on, and forgets the cached decisions: each has
    /// only the fields that the keys of the routes named before.
    pub(crate) fn reconfigure(&mut self, subrequests_max: usize) {
        self.records.set_capacity_max(subrequests_max);
        self.known.clear();
    }

    /// Digests everything that the application at `path` decides a request by.
    pub(crate) fn credential(
        &self,
        path: &str,
        head: &RequestHead<'_, '_>,
        peer: Option<IpAddr>,
    ) -> Digest {
        credential(&self.digester, path, head, peer)
    }

    /// The decision on a credential, if it is cached.
    pub(crate) fn decision(&mut self, credential: &Digest, now: Instant) -> Option<AuthDecision> {
        let now = self.milliseconds(now);
        self.known.get(credential, now).cloned()
    }

    /// The open subrequest on a credential.
    pub(crate) fn find(&self, credential: &Digest) -> Option<SubrequestId> {
        self.open.get(credential).copied()
    }

    /// Begins a subrequest; `None` if there are too many.
    pub(crate) fn begin(&mut self, credential: Digest) -> Option<SubrequestId> {
        let waiting = Vec::new();
        let subrequest = AuthSubrequest {
            credential,
            waiting,
        };
        let token = self.records.insert(subrequest).ok()?;
        self.open.insert(credential, token);
        Some(token)
    }

    /// Adds a request that waits for the response to a subrequest.
    pub(crate) fn join(&mut self, subrequest: SubrequestId, request: PollId) {
        if let Some(subrequest) = self.records.get_mut(subrequest) {
            subrequest.waiting.push(request);
        }
    }

    /// True until the subrequest has its response.
    pub(crate) fn is_open(&self, subrequest: SubrequestId) -> bool {
        self.records.get(subrequest).is_some()
    }

    /// The requests that wait for the response to a subrequest, also those that have ended since.
    pub(crate) fn waiting_for(&self, subrequest: SubrequestId) -> &[PollId] {
        self.records.get(subrequest).map_or(&[], |it| &it.waiting)
    }

    /// Ends a subrequest that has its response.
    pub(crate) fn end(&mut self, subrequest: SubrequestId) -> Option<AuthSubrequest> {
        let ended = self.records.remove(subrequest)?;
        self.open.remove(&ended.credential);
        Some(ended)
    }

    /// Caches the decision of a subrequest, for `time` at most.
    pub(crate) fn remember(
        &mut self,
        ended: &AuthSubrequest,
        decision: &AuthDecision,
        time: Duration,
        now: Instant,
    ) {
        let time = match decision {
            AuthDecision::Granted(_) => time,
            AuthDecision::Refused(_) => time.min(REFUSED_MAX),
        };
        let now = self.milliseconds(now);
        let until = now.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self.known
            .put(ended.credential, until, decision.clone(), now);
    }

    /// Milliseconds since the first call.
    fn milliseconds(&mut self, now: Instant) -> u64 {
        let started = *self.started.get_or_insert(now);
        u64::try_from(now.saturating_duration_since(started).as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Granted, Refused};
    use super::*;
    use bytes::Bytes;
    use std::sync::Arc;

    fn granted() -> AuthDecision {
        AuthDecision::Granted(Arc::new(Granted::default()))
    }

    fn refused() -> AuthDecision {
        AuthDecision::Refused(Arc::new(Refused {
            status: 403,
            fields: Vec::new(),
            body: Bytes::new(),
        }))
    }

    /// Milliseconds for which a decision is remembered that may be for so many.
    fn remembered_ms(decision: &AuthDecision, time_ms: u64) -> u64 {
        let start = Instant::now();
        let mut subrequests = AuthSubrequests::new(1);
        let subrequest = subrequests.begin([1; 32]).unwrap();
        let ended = subrequests.end(subrequest).unwrap();
        subrequests.remember(&ended, decision, Duration::from_millis(time_ms), start);
        let is_known = |subrequests: &mut AuthSubrequests, after: u64| {
            let now = start + Duration::from_millis(after);
            subrequests.decision(&[1; 32], now).is_some()
        };
        (0..10_000)
            .find(|after| !is_known(&mut subrequests, *after))
            .unwrap()
    }

    #[test]
    fn a_refusal_is_remembered_for_a_second_at_most() {
        assert_eq!(remembered_ms(&granted(), 2500), 2500);
        assert_eq!(remembered_ms(&refused(), 2500), 1000);
        assert_eq!(remembered_ms(&refused(), 400), 400);
        assert_eq!(remembered_ms(&granted(), 0), 0);
    }

    #[test]
    fn a_credential_has_one_subrequest_at_a_time() {
        let mut subrequests = AuthSubrequests::new(1);
        let (alice, bob) = ([1; 32], [2; 32]);
        let subrequest = subrequests.begin(alice).unwrap();
        assert_eq!(subrequests.find(&alice), Some(subrequest));
        assert_eq!(subrequests.find(&bob), None);
        assert_eq!(subrequests.begin(bob), None, "there is room for one");
        let requests = [5, 6].map(PollId::nth);
        for request in requests {
            subrequests.join(subrequest, request);
        }
        assert!(subrequests.is_open(subrequest));
        assert_eq!(subrequests.end(subrequest).unwrap().waiting, requests);
        assert!(!subrequests.is_open(subrequest));
        assert!(subrequests.end(subrequest).is_none(), "it has ended");
        assert_eq!(subrequests.find(&alice), None);
        assert!(subrequests.begin(bob).is_some(), "there is room again");
    }

    #[test]
    fn other_options_forget_decisions_and_change_the_room() {
        let (mut subrequests, now) = (AuthSubrequests::new(1), Instant::now());
        let subrequest = subrequests.begin([1; 32]).unwrap();
        let ended = subrequests.end(subrequest).unwrap();
        subrequests.remember(&ended, &granted(), Duration::from_secs(1), now);
        assert!(subrequests.decision(&[1; 32], now).is_some());
        let open = subrequests.begin([2; 32]).unwrap();
        subrequests.reconfigure(2);
        assert!(subrequests.decision(&[1; 32], now).is_none());
        assert!(subrequests.is_open(open));
        assert!(subrequests.begin([1; 32]).is_some(), "there is more room");
        assert!(subrequests.begin([3; 32]).is_none());
    }

    #[test]
    fn an_answer_that_is_not_remembered_is_asked_for_again() {
        let mut subrequests = AuthSubrequests::new(4);
        let subrequest = subrequests.begin([1; 32]).unwrap();
        let (ended, now) = (subrequests.end(subrequest).unwrap(), Instant::now());
        subrequests.remember(&ended, &granted(), Duration::ZERO, now);
        assert!(subrequests.decision(&[1; 32], now).is_none());
        assert_ne!(subrequests.begin([1; 32]), Some(subrequest), "another one");
    }
}
