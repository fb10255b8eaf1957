//! Each side alone: the acts that follow each event, and what is undone after each end.

use super::predecessor::{Act, Event, PredecessorTalk};
use super::successor::{Act as ItsAct, Event as ItsEvent, Greeting, SuccessorTalk};
use super::{OWNS_FILE, VERSION};
use crate::handoff::{
    Frame, FrameKind, InheritedListener, ListenAddress, ReadsClient, Role, TakesTls,
};
use crate::process::upgrade::UpgradeError;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

const ALL_OF_TLS: TakesTls = TakesTls::Frozen {
    authorities: None,
    is_required: false,
};
/// The frames that the predecessor waits for, with the step that a failure names.
const WAITS: [(FrameKind, &str); 3] = [
    (FrameKind::Ready, "waiting until it could serve"),
    (FrameKind::Taken, "giving it the items"),
    (FrameKind::Serving, "telling it to serve"),
];

fn frame(kind: FrameKind) -> Frame {
    Frame::new(kind, 0, b"")
}

/// An act, as the kind of its frame or as its name.
fn name_of(act: &Act) -> String {
    match act {
        Act::Send(frame) => format!("{:?} {}", frame.kind, frame.mark),
        Act::HandOver(_) => "HandOver".to_owned(),
        Act::GiveUp(error) => error.to_string(),
        act => format!("{act:?}"),
    }
}

/// All acts from this event on, until it waits or has ended.
fn acts(talk: &mut PredecessorTalk, event: Event) -> Vec<String> {
    let mut event = Some(event);
    let mut acts = Vec::new();
    loop {
        let act = talk.next(event.take().unwrap_or(Event::Done));
        acts.push(name_of(&act));
        if matches!(act, Act::FreezeKeys) {
            event = Some(Event::Frozen(Some(b"keys".to_vec().into())));
        }
        let waits = matches!(act, Act::Receive | Act::ReceiveLast);
        if waits || matches!(act, Act::End | Act::GiveUp(_)) {
            return acts;
        }
    }
}

fn ready(wants_store: bool, takes: TakesTls) -> Event {
    let mark = u8::from(wants_store);
    Event::Received(Frame::new(FrameKind::Ready, mark, &takes.to_bytes()))
}

/// The talk after so many answers.
fn after(answers: usize) -> PredecessorTalk {
    let mut talk = PredecessorTalk::new(true, Vec::new());
    acts(&mut talk, Event::Done);
    let all = [ready(true, TakesTls::Nothing), taken()];
    for answer in all.into_iter().take(answers) {
        acts(&mut talk, answer);
    }
    talk
}

fn taken() -> Event {
    Event::Received(frame(FrameKind::Taken))
}

fn serving() -> Event {
    Event::Received(frame(FrameKind::Serving))
}

/// The acts that undo what was done before such an answer failed.
fn undone(answers: usize) -> &'static [&'static str] {
    [&[][..], &["Resume"], &["NameMain(This)", "Resume"]][answers]
}

#[test]
fn a_place_goes_over_in_this_order() {
    let mut talk = PredecessorTalk::new(true, Vec::new());
    let greeted = acts(&mut talk, Event::Done);
    assert_eq!(greeted, ["Hello 1", "Listeners 0", "Receive"]);
    let given = acts(&mut talk, ready(true, ALL_OF_TLS));
    let expected = [
        "Pause",
        "FreezeKeys",
        "TicketKeys 0",
        "Store 1",
        "WriteItems",
        "Receive",
    ];
    assert_eq!(given, expected);
    let told = acts(&mut talk, taken());
    assert_eq!(told, ["NameMain(Successor)", "Serve 0", "Receive"]);
    let ended = acts(&mut talk, serving());
    assert_eq!(ended, ["RetireStore", "HandOver", "Resume", "End"]);
}

#[test]
fn what_the_successor_does_not_take_is_not_given() {
    for (has_store, wants_store) in [(true, false), (false, true), (false, false)] {
        let mut talk = PredecessorTalk::new(has_store, Vec::new());
        acts(&mut talk, Event::Done);
        let given = acts(&mut talk, ready(wants_store, TakesTls::Nothing));
        assert_eq!(given, ["Pause", "Store 0", "Receive"]);
    }
    let mut talk = PredecessorTalk::new(true, Vec::new());
    acts(&mut talk, Event::Done);
    assert!(matches!(talk.next(ready(true, ALL_OF_TLS)), Act::Pause));
    assert!(matches!(talk.next(Event::Done), Act::FreezeKeys));
    let next = talk.next(Event::Frozen(None));
    assert_eq!(name_of(&next), "Store 1", "there are no keys");
}

#[test]
fn a_wrong_frame_is_named_and_all_is_undone() {
    for (answers, (expected, step)) in WAITS.into_iter().enumerate() {
        for wrong in [
            FrameKind::Ready,
            FrameKind::Taken,
            FrameKind::Serving,
            FrameKind::Hello,
        ] {
            if wrong == expected {
                continue;
            }
            let done = acts(&mut after(answers), Event::Received(frame(wrong)));
            let message = format!("{step}: {expected:?} expected: {wrong:?}");
            let (last, undoing) = done.split_last().unwrap();
            assert_eq!(*last, message);
            assert_eq!(undoing, undone(answers));
        }
    }
}

#[test]
fn an_end_or_a_deadline_at_any_wait_undoes_all() {
    for (answers, (_, step)) in WAITS.into_iter().enumerate() {
        for kind in [ErrorKind::UnexpectedEof, ErrorKind::TimedOut] {
            let mut talk = after(answers);
            let mut event = Event::Lost(kind.into());
            if answers == 2 && kind == ErrorKind::TimedOut {
                assert!(matches!(talk.next(event), Act::ReceiveLast));
                event = Event::Last(None);
            }
            let mut undoing = undone(answers).iter();
            let (named, error) = loop {
                match talk.next(event) {
                    Act::GiveUp(UpgradeError::Talk(named, error)) => break (named, error),
                    act => assert_eq!(name_of(&act), *undoing.next().unwrap()),
                }
                event = Event::Done;
            };
            assert_eq!((named, error.kind()), (step, kind));
            assert!(undoing.next().is_none());
        }
    }
}

#[test]
fn a_successor_that_serves_when_the_time_is_over_is_left_to_serve() {
    let late = || {
        let message = "nothing has moved for 2s";
        Event::Lost(io::Error::new(ErrorKind::TimedOut, message))
    };
    let mut talk = after(2);
    assert_eq!(acts(&mut talk, late()), ["ReceiveLast"]);
    let ended = acts(&mut talk, Event::Last(Some(frame(FrameKind::Serving))));
    assert_eq!(ended, ["RetireStore", "HandOver", "Resume", "End"]);
    for (last, message) in [
        (None, "telling it to serve: nothing has moved for 2s"),
        (
            Some(frame(FrameKind::Taken)),
            "telling it to serve: Serving expected: Taken",
        ),
    ] {
        let mut talk = after(2);
        acts(&mut talk, late());
        let ended = acts(&mut talk, Event::Last(last));
        assert_eq!(ended, ["NameMain(This)", "Resume", message]);
    }
}

/// The talk at the first act of this name, and the acts after a failure there.
fn cut_at(name: &str, lost: bool) -> Vec<String> {
    let mut talk = PredecessorTalk::new(true, Vec::new());
    let mut answers = [ready(true, ALL_OF_TLS), taken(), serving()].into_iter();
    let mut event = Event::Done;
    loop {
        let act = talk.next(event);
        if name_of(&act) == name {
            let cut = || Event::Lost(ErrorKind::BrokenPipe.into());
            let failed = || Event::Failed(UpgradeError::Ending);
            return acts(&mut talk, if lost { cut() } else { failed() });
        }
        event = match act {
            Act::Receive => answers.next().unwrap(),
            Act::FreezeKeys => Event::Frozen(Some(b"keys".to_vec().into())),
            _ => Event::Done,
        };
    }
}

#[test]
fn a_failure_in_the_middle_of_a_step_names_it() {
    let broken = |step: &str| format!("{step}: broken pipe");
    for (at, expected) in [
        ("Hello 1", vec![broken("greeting it")]),
        ("Listeners 0", vec![broken("greeting it")]),
        (
            "TicketKeys 0",
            vec!["Resume".to_owned(), broken("giving it the keys")],
        ),
        (
            "Store 1",
            vec!["Resume".to_owned(), broken("giving it the items")],
        ),
        (
            "WriteItems",
            vec!["Resume".to_owned(), broken("giving it the items")],
        ),
        (
            "Serve 0",
            vec![
                "NameMain(This)".to_owned(),
                "Resume".to_owned(),
                broken("telling it to serve"),
            ],
        ),
    ] {
        assert_eq!(cut_at(at, true), expected, "{at}");
    }
    assert_eq!(cut_at("Pause", false), ["Resume", "it is to end"]);
}

fn of_successor(act: &ItsAct) -> String {
    match act {
        ItsAct::Send(frame) => format!("{:?} {}", frame.kind, frame.mark),
        ItsAct::GiveUp(error) => error.to_string(),
        act => format!("{act:?}"),
    }
}

/// All acts of the successor from this event on, until it waits or has ended.
fn its_acts(talk: &mut SuccessorTalk, event: ItsEvent) -> Vec<String> {
    let mut event = Some(event);
    let mut acts = Vec::new();
    loop {
        let act = talk.next(event.take().unwrap_or(ItsEvent::Done));
        acts.push(of_successor(&act));
        if matches!(act, ItsAct::Receive | ItsAct::End | ItsAct::GiveUp(_)) {
            return acts;
        }
    }
}

fn comes(kind: FrameKind, mark: u8) -> ItsEvent {
    ItsEvent::Received(Frame::new(kind, mark, b""))
}

fn started(wants_store: bool) -> SuccessorTalk {
    let reads = ReadsClient::from_mark(1);
    let mut talk = SuccessorTalk::begin(wants_store, ALL_OF_TLS, reads);
    let first = format!("Ready {}", u8::from(wants_store));
    assert_eq!(its_acts(&mut talk, ItsEvent::Done), [&first, "Receive"]);
    talk
}

#[test]
fn a_place_is_taken_in_this_order() {
    let mut talk = started(true);
    let acts = its_acts(&mut talk, comes(FrameKind::TicketKeys, 0));
    assert!(acts[0].starts_with("ThawKeys"), "{acts:?}");
    assert_eq!(acts[1..], ["Receive"]);
    let acts = its_acts(&mut talk, comes(FrameKind::Store, 1));
    assert_eq!(acts, ["TakeItems", "Taken 0", "Receive"]);
    let acts = its_acts(&mut talk, comes(FrameKind::Serve, 0));
    assert_eq!(acts, ["Serving 1", "OpenQueue", "End"]);
}

#[test]
fn items_are_taken_where_they_come_and_are_wanted() {
    for (wants_store, mark) in [(false, 0), (true, 0), (false, 1)] {
        let acts = its_acts(&mut started(wants_store), comes(FrameKind::Store, mark));
        assert_eq!(acts, ["Taken 0", "Receive"]);
    }
}

#[test]
fn a_successor_serves_after_its_own_frames_alone() {
    let all = [FrameKind::TicketKeys, FrameKind::Store, FrameKind::Serve];
    for before in 0..3 {
        let expected = [&all[..2], &all[1..2], &all[2..]][before];
        for wrong in all.into_iter().filter(|kind| !expected.contains(kind)) {
            let mut talk = started(true);
            for kind in &all[..before] {
                its_acts(&mut talk, comes(*kind, 1));
            }
            let acts = its_acts(&mut talk, comes(wrong, 0));
            let named = expected.last().unwrap();
            assert_eq!(acts, [format!("{named:?} expected: {wrong:?}")]);
        }
    }
}

#[test]
fn a_successor_that_fails_at_any_act_ends() {
    for kind in [ErrorKind::UnexpectedEof, ErrorKind::TimedOut] {
        let fails = || ItsEvent::Failed(kind.into());
        let is_end = |act: ItsAct| matches!(act, ItsAct::GiveUp(error) if error.kind() == kind);
        let mut talk = started(true);
        assert!(is_end(talk.next(fails())));
        let mut talk = started(true);
        talk.next(comes(FrameKind::TicketKeys, 0));
        assert!(is_end(talk.next(fails())), "the keys cannot be read");
        let mut talk = started(true);
        talk.next(comes(FrameKind::Store, 1));
        assert!(is_end(talk.next(fails())), "the items are not complete");
        let mut talk = started(true);
        its_acts(&mut talk, comes(FrameKind::Store, 1));
        assert!(is_end(talk.next(fails())), "it is not told to serve");
        let mut talk = started(true);
        its_acts(&mut talk, comes(FrameKind::Store, 1));
        talk.next(comes(FrameKind::Serve, 0));
        assert!(is_end(talk.next(fails())), "nobody hears that it serves");
    }
}

fn listener(mark: u8) -> Frame {
    let descriptor = OwnedFd::from(UnixStream::pair().unwrap().0).into();
    Frame::new(FrameKind::Listener, mark, b"/a").with(descriptor)
}

#[test]
fn a_greeting_is_a_version_and_sockets() {
    let mut greeting = Greeting::default();
    let hello = Frame::new(FrameKind::Hello, 1, &[VERSION]);
    assert!(!greeting.take(hello).unwrap());
    assert!(
        !greeting
            .take(listener(Role::Store as u8 | OWNS_FILE))
            .unwrap()
    );
    assert!(greeting.take(frame(FrameKind::Listeners)).unwrap());
    assert!(greeting.has_store() && greeting.owns_file());
    let sockets = greeting.sockets();
    let expected = ListenAddress::Unix("/a".into());
    assert!(matches!(
        &sockets[..],
        [InheritedListener { role: Role::Store, address, owns_file: true, .. }]
            if *address == expected
    ));
}

#[test]
fn a_greeting_in_another_order_is_refused() {
    let message = |result: io::Result<bool>| result.unwrap_err().to_string();
    let mut greeting = Greeting::default();
    assert_eq!(
        message(greeting.take(listener(0))),
        "Hello expected: Listener"
    );
    let hello = |version| Frame::new(FrameKind::Hello, 0, &[version]);
    let refused = message(greeting.take(hello(VERSION + 1)));
    assert!(refused.starts_with("it speaks version"), "{refused}");
    greeting.take(hello(VERSION)).unwrap();
    let expected = "a listening socket was expected";
    assert_eq!(message(greeting.take(hello(VERSION))), expected);
    let without_socket = frame(FrameKind::Listener);
    assert_eq!(message(greeting.take(without_socket)), expected);
    assert_eq!(
        message(greeting.take(listener(9))),
        expected,
        "an unknown role"
    );
}
