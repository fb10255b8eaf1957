use super::*;
use crate::TlsError;
use rustls::pki_types::UnixTime;
use std::time::Duration;

/// A clock that stands where it is set; 0 is a clock that cannot be read.
#[derive(Debug)]
struct Clock(AtomicU64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let now = self.0.load(Ordering::Relaxed);
        (now > 0).then(|| UnixTime::since_unix_epoch(Duration::from_secs(now)))
    }
}

const START: u64 = 1_900_000_000;
const HOUR: u64 = 3600;
const STATE: &[u8] = b"state of a session";

fn tickets() -> (Tickets, Arc<Clock>) {
    let clock = Arc::new(Clock(AtomicU64::new(START)));
    let tickets = Tickets::new(Arc::clone(&clock) as Arc<dyn TimeProvider>);
    (tickets, clock)
}

fn key(byte: u8) -> TicketKey {
    TicketKey::from_bytes(&[byte; TicketKey::BYTES]).unwrap()
}

fn is_read(tickets: &Tickets, ticket: &[u8]) -> bool {
    let state = tickets.decrypt(ticket);
    assert!(state.as_deref().is_none_or(|state| state == STATE));
    state.is_some()
}

/// The keys that were made, with those for later.
fn made(tickets: &Tickets) -> (usize, usize) {
    match &*tickets.lock() {
        KeyRing::Made(made) => (made.keys.len(), made.ahead.len()),
        KeyRing::Given(_) => panic!("keys were given"),
    }
}

#[test]
fn the_first_ticket_makes_the_first_key() {
    let (tickets, _) = tickets();
    assert!(tickets.enabled());
    assert!(!is_read(&tickets, &[7; 200]));
    assert_eq!(made(&tickets), (0, 0), "to read one needs no key");
    let ticket = tickets.encrypt(STATE).unwrap();
    assert_eq!(made(&tickets), (1, 0));
    assert!(is_read(&tickets, &ticket));
    let again = tickets.encrypt(STATE).unwrap();
    assert_ne!(ticket, again, "each has a nonce of its own");
    assert_eq!(ticket[..NAME_BYTES], again[..NAME_BYTES]);
    let text = format!("{tickets:?}");
    assert!(
        text.contains("TicketKey") && !text.contains("secret"),
        "{text}"
    );
}

#[test]
fn a_ticket_with_any_bit_flipped_or_cut_is_refused() {
    let (tickets, _) = tickets();
    let ticket = tickets.encrypt(STATE).unwrap();
    for bit in 0..ticket.len() * 8 {
        let mut flipped = ticket.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_read(&tickets, &flipped), "bit {bit}");
    }
    for end in 0..ticket.len() {
        assert!(!is_read(&tickets, &ticket[..end]), "{end} bytes");
    }
    let longer = [&ticket[..], &[0]].concat();
    assert!(!is_read(&tickets, &longer));
    assert!(is_read(&tickets, &ticket));
}

#[test]
fn the_name_of_another_key_is_refused_though_it_is_known() {
    let (tickets, _) = tickets();
    let same_secret = |name: u8| {
        let mut bytes = [9; TicketKey::BYTES];
        bytes[..NAME_BYTES].fill(name);
        TicketKey::from_bytes(&bytes).unwrap()
    };
    tickets.give(vec![same_secret(1), same_secret(2)]);
    let mut ticket = tickets.encrypt(STATE).unwrap();
    assert_eq!(ticket[..NAME_BYTES], [1; NAME_BYTES]);
    ticket[..NAME_BYTES].fill(2);
    assert!(!is_read(&tickets, &ticket));
    ticket[..NAME_BYTES].fill(3);
    assert!(!is_read(&tickets, &ticket));
}

#[test]
fn empty_and_giant_input_is_bounded() {
    let (tickets, _) = tickets();
    let empty = tickets.encrypt(b"").unwrap();
    assert_eq!(tickets.decrypt(&empty), Some(Vec::new()));
    assert_eq!(tickets.decrypt(b""), None);
    let most = TICKET_BYTES_MAX - HEAD_BYTES - TIME_BYTES - TAG_BYTES;
    let longest = tickets.encrypt(&vec![5; most]).unwrap();
    assert_eq!(longest.len(), TICKET_BYTES_MAX);
    assert_eq!(tickets.decrypt(&longest), Some(vec![5; most]));
    assert_eq!(tickets.encrypt(&vec![5; most + 1]), None);
    let mut giant = longest;
    giant.resize(1 << 24, 0);
    assert_eq!(tickets.decrypt(&giant), None);
}

#[test]
fn keys_go_round_by_age_and_a_ticket_lives_as_long_as_clients_are_told() {
    let (tickets, clock) = tickets();
    let set = |seconds: u64| clock.0.store(START + seconds, Ordering::Relaxed);
    let first = tickets.encrypt(STATE).unwrap();
    set(4 * HOUR - 1);
    let same_key = tickets.encrypt(STATE).unwrap();
    assert_eq!(same_key[..NAME_BYTES], first[..NAME_BYTES]);
    set(4 * HOUR);
    let second = tickets.encrypt(STATE).unwrap();
    assert_ne!(second[..NAME_BYTES], first[..NAME_BYTES]);
    set(8 * HOUR);
    let third = tickets.encrypt(STATE).unwrap();
    assert_eq!(made(&tickets), (3, 0));
    for ticket in [&first, &second, &third] {
        assert!(is_read(&tickets, ticket));
    }
    set(u64::from(tickets.lifetime()) - 1);
    assert!(is_read(&tickets, &first));
    set(u64::from(tickets.lifetime()));
    assert!(!is_read(&tickets, &first));
    assert!(!is_read(&tickets, &same_key), "its key has gone");
    assert!(is_read(&tickets, &second));
    tickets.encrypt(STATE).unwrap();
    assert_eq!(made(&tickets), (3, 0));
    set(1000 * HOUR);
    assert!(!is_read(&tickets, &third));
    assert_eq!(made(&tickets), (0, 0));
}

#[test]
fn a_ticket_of_given_keys_lives_no_longer_than_others() {
    let (tickets, clock) = tickets();
    tickets.give(vec![key(1)]);
    let ticket = tickets.encrypt(STATE).unwrap();
    let set = |now: u64| clock.0.store(now, Ordering::Relaxed);
    set(START + u64::from(LIFETIME) - 1);
    assert!(is_read(&tickets, &ticket));
    set(START + u64::from(LIFETIME));
    assert!(!is_read(&tickets, &ticket));
    // The clock of another machine.
    set(START - CLOCKS_APART_MAX);
    assert!(is_read(&tickets, &ticket));
    set(START - CLOCKS_APART_MAX - 1);
    assert!(!is_read(&tickets, &ticket));
    set(0);
    assert!(!is_read(&tickets, &ticket), "no clock, no ticket");
    assert_eq!(tickets.encrypt(STATE), None);
}

#[test]
fn a_clock_that_is_set_back_has_other_keys() {
    let (tickets, clock) = tickets();
    let before = tickets.encrypt(STATE).unwrap();
    clock.0.store(START - 1, Ordering::Relaxed);
    assert!(!is_read(&tickets, &before));
    let after = tickets.encrypt(STATE).unwrap();
    assert!(is_read(&tickets, &after));
    assert_eq!(made(&tickets), (1, 0));
}

#[test]
fn a_key_makes_a_bounded_number_of_tickets() {
    let (tickets, _) = tickets();
    let first = tickets.encrypt(STATE).unwrap();
    let key_now = || tickets.lock().newest(START).unwrap();
    key_now()
        .sealed
        .store(TICKETS_PER_KEY_MAX - 1, Ordering::Relaxed);
    let last = tickets.encrypt(STATE).unwrap();
    assert_eq!(last[..NAME_BYTES], first[..NAME_BYTES]);
    let other = tickets.encrypt(STATE).unwrap();
    assert_ne!(other[..NAME_BYTES], first[..NAME_BYTES]);
    assert!(is_read(&tickets, &last) && is_read(&tickets, &other));

    tickets.give(vec![key(1)]);
    key_now()
        .sealed
        .store(TICKETS_PER_KEY_MAX - 1, Ordering::Relaxed);
    let last = tickets.encrypt(STATE).unwrap();
    assert_eq!(tickets.encrypt(STATE), None);
    assert_eq!(tickets.encrypt(STATE), None, "the count does not go round");
    assert!(is_read(&tickets, &last));
    tickets.give(vec![key(1), key(2)]);
    assert_eq!(tickets.encrypt(STATE), None, "the same key read again");
    tickets.give(vec![key(2), key(1)]);
    assert!(tickets.encrypt(STATE).is_some());
}

#[test]
fn all_given_keys_read_and_the_first_one_makes() {
    let (here, _) = tickets();
    let (there, _) = tickets();
    let of_made = here.encrypt(STATE).unwrap();
    here.give(vec![key(1), key(2)]);
    there.give(vec![key(2), key(3)]);
    assert!(!is_read(&here, &of_made), "made keys give way");
    let theirs = there.encrypt(STATE).unwrap();
    assert_eq!(&theirs[..NAME_BYTES], key(2).name());
    assert!(is_read(&here, &theirs));
    let of_here = here.encrypt(STATE).unwrap();
    assert!(!is_read(&there, &of_here));
    here.give(Vec::new());
    assert!(!is_read(&here, &of_here));
    let of_made = here.encrypt(STATE).unwrap();
    here.give(Vec::new());
    assert!(
        is_read(&here, &of_made),
        "made keys stay when none are given"
    );
}

#[test]
fn keys_made_ahead_follow_one_another_without_a_gap() {
    let (tickets, clock) = tickets();
    tickets.make_ahead();
    assert_eq!(made(&tickets), (1, KEYS_AHEAD));
    let names = |tickets: &Tickets| match &*tickets.lock() {
        KeyRing::Made(made) => {
            let ahead = made.ahead.iter().rev().map(|key| key.name);
            let first = made.keys.iter().map(|(key, _)| key.name);
            first.chain(ahead).collect::<Vec<_>>()
        }
        KeyRing::Given(_) => Vec::new(),
    };
    let expected = names(&tickets);
    tickets.make_ahead();
    assert_eq!(names(&tickets), expected);
    for place in [0, 1, 4, 5] {
        let now = START + ROTATION * place as u64 + 60;
        clock.0.store(now, Ordering::Relaxed);
        let ticket = tickets.encrypt(STATE).unwrap();
        assert_eq!(ticket[..NAME_BYTES], expected[place], "at {place}");
        assert!(is_read(&tickets, &ticket));
    }
    assert_eq!(made(&tickets), (3, 0));
    clock.0.store(START + ROTATION * 6, Ordering::Relaxed);
    let ticket = tickets.encrypt(STATE).unwrap();
    assert!(!expected.iter().any(|name| ticket[..NAME_BYTES] == name[..]));
}

#[test]
fn processes_with_the_same_keys_ahead_read_the_tickets_of_one_another() {
    let (quick, clock) = tickets();
    let (idle, clock_there) = tickets();
    for tickets in [&quick, &idle] {
        *tickets.lock() = KeyRing::Made(MadeKeys {
            keys: vec![(Arc::new(key(1)), START)],
            ahead: vec![key(3), key(2)],
        });
    }
    for hours in [5, 11] {
        for clock in [&clock, &clock_there] {
            clock.0.store(START + hours * HOUR, Ordering::Relaxed);
        }
        assert!(is_read(&idle, &quick.encrypt(STATE).unwrap()), "{hours}");
    }
}

/// The next process, whose clock is the same.
fn successor(of: &Tickets, clock: &Arc<Clock>) -> Tickets {
    let next = Tickets::new(Arc::clone(clock) as Arc<dyn TimeProvider>);
    next.thaw(&of.freeze().unwrap()).unwrap();
    next
}

#[test]
fn keys_go_to_the_next_process_with_their_ages() {
    let (first, clock) = tickets();
    assert!(first.freeze().is_none(), "there is none yet");
    let oldest = first.encrypt(STATE).unwrap();
    clock.0.store(START + ROTATION, Ordering::Relaxed);
    let newest = first.encrypt(STATE).unwrap();
    let second = successor(&first, &clock);
    assert_eq!(made(&second), (2, 0));
    assert!(is_read(&second, &oldest) && is_read(&second, &newest));
    let of_second = second.encrypt(STATE).unwrap();
    assert_eq!(
        of_second[..NAME_BYTES],
        newest[..NAME_BYTES],
        "the same key"
    );
    assert!(is_read(&first, &of_second));
    // Twice in a row, and the key is replaced when its own time is over.
    let third = successor(&second, &clock);
    clock.0.store(START + 2 * ROTATION, Ordering::Relaxed);
    let of_third = third.encrypt(STATE).unwrap();
    assert_ne!(of_third[..NAME_BYTES], newest[..NAME_BYTES]);
    assert!(is_read(&third, &oldest) && is_read(&third, &newest));
    clock
        .0
        .store(START + u64::from(LIFETIME), Ordering::Relaxed);
    assert!(!is_read(&third, &oldest));
}

#[test]
fn a_key_keeps_its_count_on_its_way() {
    let (first, clock) = tickets();
    let before = first.encrypt(STATE).unwrap();
    first
        .lock()
        .newest(START)
        .unwrap()
        .sealed
        .store(TICKETS_PER_KEY_MAX, Ordering::Relaxed);
    let second = successor(&first, &clock);
    let after = second.encrypt(STATE).unwrap();
    assert_ne!(before[..NAME_BYTES], after[..NAME_BYTES], "it is used up");
    assert!(is_read(&second, &before));
}

#[test]
fn given_keys_stay_where_they_are() {
    let (given, _) = tickets();
    given.give(vec![key(1)]);
    assert!(given.freeze().is_none());
    let (first, _) = tickets();
    let ticket = first.encrypt(STATE).unwrap();
    given.thaw(&first.freeze().unwrap()).unwrap();
    assert!(!is_read(&given, &ticket));
    let (second, _) = tickets();
    let own = second.encrypt(STATE).unwrap();
    second.thaw(&first.freeze().unwrap()).unwrap();
    assert!(is_read(&second, &ticket) && is_read(&second, &own));
    let next = second.encrypt(STATE).unwrap();
    assert_eq!(next[..NAME_BYTES], own[..NAME_BYTES]);
}

#[test]
fn frozen_keys_that_cannot_be_right_are_refused() {
    let (first, clock) = tickets();
    first.encrypt(STATE).unwrap();
    clock.0.store(START + ROTATION, Ordering::Relaxed);
    first.encrypt(STATE).unwrap();
    let good = first.freeze().unwrap().to_vec();
    assert_eq!(good.len(), 1 + 2 * 64);
    let (next, _) = tickets();
    for end in (0..good.len()).filter(|end| *end != 65) {
        assert!(next.thaw(&good[..end]).is_err(), "{end} bytes");
    }
    let (head, [one, two]) = (&good[..1], [&good[1..65], &good[65..]]);
    let older_first = [head, two, one].concat();
    let too_many = [head, one, one, one, one].concat();
    let other_version = [&[2], one].concat();
    for bytes in [older_first, too_many, other_version] {
        assert_eq!(next.thaw(&bytes), Err(TlsError::Frozen));
    }
    assert_eq!(made(&next), (0, 0));
}
