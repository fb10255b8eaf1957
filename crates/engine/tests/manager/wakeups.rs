//! Wake-ups: none is lost, and each ends the wait.

use crate::support::{Fixture, PATIENCE};
use dwell_engine::manager::{Event, Manager, WakeupError};
use std::time::Instant;

#[test]
fn a_wakeup_ends_the_wait() {
    let mut manager = Manager::new(|_, _| {}).unwrap();
    let waker = manager.waker();
    let begun = Instant::now();
    std::thread::spawn(move || waker.wakeup().unwrap());
    manager.poll(PATIENCE).unwrap();
    assert!(begun.elapsed() < PATIENCE);
    manager.wakeup().unwrap();
    manager.poll(PATIENCE).unwrap();
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn every_wakeup_of_a_burst_arrives_whole_and_in_order() {
    const THREADS: usize = 8;
    const EACH: usize = 10_000;
    let (tell, told) = std::sync::mpsc::channel();
    let mut manager = Manager::new(move |_, event| {
        if let Event::Wakeup(data) = event {
            tell.send(data.to_vec()).unwrap();
        }
    })
    .unwrap();
    let id = manager.listen("tcp://127.0.0.1:0").unwrap();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let waker = manager.waker();
            std::thread::spawn(move || {
                for index in 0..EACH {
                    let data = [thread.to_le_bytes(), index.to_le_bytes()].concat();
                    waker.wakeup_with(id, data).unwrap();
                }
            })
        })
        .collect();
    let (mut next, mut seen) = ([0; THREADS], 0);
    let begun = Instant::now();
    while seen < THREADS * EACH {
        assert!(begun.elapsed() < PATIENCE, "{seen} came");
        manager.poll(PATIENCE).unwrap();
        for data in told.try_iter() {
            let number = |bytes: &[u8]| usize::from_le_bytes(bytes.try_into().unwrap());
            let (thread, index) = (number(&data[..8]), number(&data[8..]));
            assert_eq!(index, next[thread]);
            next[thread] += 1;
            seen += 1;
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn all_that_wait_are_told_in_one_poll() {
    let mut fixture = Fixture::new("tcp", |_, _| {});
    let listener = fixture.listener;
    for _ in 0..2_000 {
        fixture.manager.wakeup_with(listener, "x").unwrap();
    }
    fixture.poll();
    assert_eq!(fixture.log.count("wakeup 'x'"), 2_000);
}

#[test]
fn a_large_payload_is_not_cut() {
    let (tell, told) = std::sync::mpsc::channel();
    let mut manager = Manager::new(move |_, event| {
        if let Event::Wakeup(data) = event {
            tell.send(data.len()).unwrap();
        }
    })
    .unwrap();
    let id = manager.listen("tcp://127.0.0.1:0").unwrap();
    manager.wakeup_with(id, vec![0; 10 << 20]).unwrap();
    manager.poll(PATIENCE).unwrap();
    assert_eq!(told.try_recv(), Ok(10 << 20));
}

#[test]
fn a_wakeup_finds_its_connection_or_nobody() {
    let mut fixture = Fixture::new("tcp", |_, _| {});
    let (_client, id) = fixture.client();
    fixture.manager.wakeup_with(id, "here").unwrap();
    fixture.manager.wakeup_with(id + 1000, "nobody").unwrap();
    fixture.manager.wakeup_with(0, "nobody").unwrap();
    fixture.poll();
    assert_eq!(fixture.log.of(id).last().unwrap(), "wakeup 'here'");
    assert!(!fixture.log.has("wakeup 'nobody'"));
}

#[test]
fn work_is_run_on_the_polling_thread() {
    let mut fixture = Fixture::new("tcp", |_, _| {});
    let (mut client, id) = fixture.client();
    let waker = fixture.manager.waker();
    std::thread::spawn(move || {
        waker.run(id, |conn| {
            conn.send(b"from a thread").unwrap();
            conn.close();
        })
    });
    assert_eq!(fixture.rest(&mut client), "from a thread");
    let waker = fixture.manager.waker();
    waker
        .run(fixture.listener, |_| panic!("as the test wants it"))
        .unwrap();
    fixture.until_line("close");
    fixture.poll();
    assert_eq!(fixture.manager.panics(), 1);
}

#[test]
fn a_handler_wakes_itself_without_end_and_without_harm() {
    let mut fixture = Fixture::new("tcp", |conn, event| {
        if let Event::Wakeup(_) = event {
            let id = conn.id();
            conn.scope().waker().wakeup_with(id, "again").unwrap();
        }
    });
    let listener = fixture.listener;
    fixture.manager.wakeup_with(listener, "first").unwrap();
    for turns in 0..5 {
        assert_eq!(fixture.log.count("wakeup 'again'"), turns.max(1) - 1);
        fixture.poll();
    }
}

#[test]
fn a_closed_manager_refuses_and_a_dropped_one_too() {
    let mut manager = Manager::new(|_, _| {}).unwrap();
    let waker = manager.waker();
    manager.close();
    assert_eq!(waker.wakeup(), Err(WakeupError::Closed));
    assert_eq!(waker.wakeup_with(1, "x"), Err(WakeupError::Closed));
    assert_eq!(waker.run(1, |_| {}), Err(WakeupError::Closed));
    let manager = Manager::new(|_, _| {}).unwrap();
    let waker = manager.waker();
    drop(manager);
    assert!(waker.is_closed());
    assert_eq!(waker.wakeup(), Err(WakeupError::Closed));
}
