//! Snapshots: what is written, what is read, and what is wrong with a file.

use super::*;
use dwell_store::StoreConfig;
use std::os::unix::fs::PermissionsExt;

const NOW: Seconds = 1_700_000_000;

/// A process whose wall clock was never set.
const fn at(seconds: Seconds) -> Moment {
    Moment {
        steady: seconds,
        unix: seconds,
    }
}

fn empty() -> Store {
    Store::new(&StoreConfig::default(), Box::new(()))
}

fn of(bytes_max: usize, evicts: bool) -> Store {
    let config = StoreConfig {
        bytes_max,
        evicts,
        ..StoreConfig::default()
    };
    Store::new(&config, Box::new(()))
}

fn filled() -> Store {
    let store = empty();
    for number in 0..500_u32 {
        let key = format!("key-{number}");
        let value = vec![number as u8; number as usize * 20];
        store.set(key.as_bytes(), number, Expiry::at(NOW + 100), &value, NOW);
    }
    store
}

#[test]
fn what_is_saved_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items");
    let store = filled();
    assert_eq!(save(&store, None, &path, at(NOW)).unwrap().items, 500);
    let again = empty();
    let summary = load(&again, &path, at(NOW + 1)).unwrap();
    assert_eq!((summary.items, summary.restored), (500, 500));
    for number in [0, 1, 77, 499] {
        let key = format!("key-{number}");
        let item = again.get(key.as_bytes(), NOW + 1);
        assert_eq!(item, store.get(key.as_bytes(), NOW + 1));
    }
    let late = load(&empty(), &path, at(NOW + 100)).unwrap();
    assert_eq!((late.items, late.restored), (500, 0), "their time is over");
    check_writable(&path).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "values are nobody else's business");
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 1, "nothing is left beside the snapshot");
}

/// A store whose items take all of its bytes, and which of them it has.
fn full() -> (Store, Vec<(Vec<u8>, u64)>) {
    let store = of(16 << 20, true);
    let mut sizes = (0..u32::MAX).map(|number| {
        // Between 1 B and 1 MiB, all orders of magnitude alike.
        let random = number
            .wrapping_mul(0x9e37_79b1)
            .rotate_left(13)
            .wrapping_mul(0x85eb_ca6b);
        (1_usize << (random >> 28).min(19)) + random as usize % (1 << (random >> 28).min(19))
    });
    let mut keys = Vec::new();
    while store.statistics().evictions < 400 {
        let key = format!("key-{}", keys.len()).into_bytes();
        let value = vec![b'v'; sizes.next().unwrap() % ((1 << 20) - 100)];
        store.set(&key, 0, Expiry::NEVER, &value, NOW);
        if keys.len().is_multiple_of(3) {
            store.get(&key, NOW);
        }
        keys.push(key);
    }
    let there = keys.into_iter().filter_map(|key| {
        let cas = store.meta_debug(&key, NOW)?.cas;
        Some((key, cas))
    });
    let there = there.collect();
    (store, there)
}

fn has(store: &Store, items: &[(Vec<u8>, u64)]) -> usize {
    let is_there = |(key, cas): &&(Vec<u8>, u64)| {
        store
            .meta_debug(key, NOW)
            .is_some_and(|item| item.cas == *cas)
    };
    items.iter().filter(is_there).count()
}

#[test]
fn a_full_store_comes_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items");
    let (store, items) = full();
    assert!(items.len() > 100, "{}", items.len());
    save(&store, None, &path, at(NOW)).unwrap();
    let again = of(16 << 20, true);
    let summary = load(&again, &path, at(NOW)).unwrap();
    assert_eq!(has(&again, &items), items.len(), "{summary:?}");
    assert_eq!((summary.restored, summary.left_out), (summary.items, 0));
    assert_eq!(again.statistics().evictions, 0);
    let bound = again.statistics();
    assert!(bound.bytes <= bound.limit_maxbytes);
    // By the channel of an upgrade as well.
    let mut bytes = Vec::new();
    write(&again, None, at(NOW), &mut bytes).unwrap();
    let third = of(16 << 20, true);
    let summary = read(&third, &bytes[..], u64::MAX, at(NOW))
        .unwrap()
        .unwrap();
    assert_eq!(has(&third, &items), items.len(), "{summary:?}");
}

#[test]
fn what_does_not_fit_is_counted_and_is_not_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items");
    let (store, items) = full();
    save(&store, None, &path, at(NOW)).unwrap();
    for evicts in [true, false] {
        let smaller = of(8 << 20, evicts);
        let summary = load(&smaller, &path, at(NOW)).unwrap();
        let there = has(&smaller, &items) as u64;
        assert_eq!(summary.items, items.len() as u64);
        assert_eq!(summary.restored, there, "{summary:?}");
        assert_eq!(summary.left_out, summary.items - there, "{summary:?}");
        assert!(there > 20 && summary.left_out > 20, "{summary:?}");
        let newest = &items[items.len() - 8..];
        assert_eq!(has(&smaller, newest), newest.len());
    }
}

#[test]
fn a_delayed_flush_comes_although_nobody_ran() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items");
    save(&filled(), Some(NOW + 50), &path, at(NOW)).unwrap();
    let early = load(&empty(), &path, at(NOW + 49)).unwrap();
    assert_eq!((early.restored, early.flush_at), (500, Some(NOW + 50)));
    let late = load(&empty(), &path, at(NOW + 50)).unwrap();
    assert_eq!((late.items, late.restored, late.flush_at), (500, 0, None));
}

#[test]
fn the_cas_unique_of_an_item_that_is_gone_is_not_given_out_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items");
    let store = filled();
    store.set(b"gone", 0, Expiry::NEVER, b"value", NOW);
    let cas = store.get(b"gone", NOW).unwrap().cas;
    assert!(store.delete(b"gone", NOW));
    save(&store, None, &path, at(NOW)).unwrap();
    let again = empty();
    load(&again, &path, at(NOW)).unwrap();
    again.set(b"gone", 0, Expiry::NEVER, b"another", NOW);
    assert!(again.get(b"gone", NOW).unwrap().cas > cas);
}

#[test]
fn no_file_is_no_item() {
    let folder = tempfile::tempdir().unwrap();
    let summary = load(&empty(), &folder.path().join("none"), at(NOW)).unwrap();
    assert_eq!(summary, SnapshotSummary::default());
}

#[test]
fn a_file_that_is_wrong_anywhere_is_kept_aside_and_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items");
    let store = empty();
    store.set(b"key", 1, Expiry::NEVER, b"value", NOW);
    save(&store, None, &path, at(NOW)).unwrap();
    let whole = fs::read(&path).unwrap();
    let cuts = (0..whole.len()).map(|end| whole[..end].to_vec());
    let flips = (0..whole.len()).map(|place| {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x10;
        bytes
    });
    let longer = [whole.clone(), vec![0]].concat();
    for bytes in cuts.chain(flips).chain([longer]) {
        fs::write(&path, &bytes).unwrap();
        let store = empty();
        let error = load(&store, &path, at(NOW)).unwrap_err();
        let SnapshotError::Damaged { aside, .. } = &error else {
            panic!("{error}");
        };
        let aside = aside.as_ref().expect("it is moved");
        assert_eq!(fs::read(aside).unwrap(), bytes);
        assert!(!path.exists());
        assert_eq!(store.statistics().curr_items, 0, "{error}");
    }
}

#[test]
fn the_message_says_what_is_wrong_and_where_the_file_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items");
    for version in [0, 3, 5] {
        let head = [b"DWELLMEM", &[version, 0, 0, 0][..]].concat();
        fs::write(&path, &head).unwrap();
        let message = load(&empty(), &path, at(NOW)).unwrap_err().to_string();
        let reason = format!("it has version {version}, this program reads 4");
        assert!(message.contains(&reason), "{message}");
        assert!(message.contains("damaged-1700000000"), "{message}");
        // From another process, as in an upgrade.
        let error = read(&empty(), &head[..], u64::MAX, at(NOW)).unwrap_err();
        assert!(error.to_string().contains(&reason), "{error}");
    }
    fs::write(&path, b"hello").unwrap();
    let message = load(&empty(), &path, at(NOW)).unwrap_err().to_string();
    assert!(message.contains("not a snapshot"), "{message}");
}

#[test]
fn a_folder_that_is_not_there_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no/items");
    check_writable(&path).unwrap_err();
    let error = save(&filled(), None, &path, at(NOW)).unwrap_err();
    assert!(matches!(error, SnapshotError::File { .. }), "{error}");
}

#[test]
fn lifetimes_go_on_where_the_wall_clock_was_set() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items");
    for offset in [7200, -7200, 0] {
        // The clock was set while the process ran; the next one starts with the right time, or with
        // the same wrong one, a minute after the end of this one.
        let end = Moment {
            steady: NOW + 10,
            unix: (NOW + 10).saturating_add_signed(offset),
        };
        save(&filled(), Some(NOW + 95), &path, end).unwrap();
        let start = at(end.unix + 60);
        let store = empty();
        let summary = load(&store, &path, start).unwrap();
        assert_eq!((summary.items, summary.restored), (500, 500), "{offset}");
        let left = summary.flush_at.map(|at| at - start.steady);
        assert_eq!(
            left,
            Some(25),
            "95 s, 10 s of them before and 60 s after the end"
        );
        let left = store.meta_debug(b"key-7", start.steady).unwrap().expiry;
        assert_eq!(left.remaining(start.steady), Some(30));
        // To a process that counts the seconds otherwise, at the same moment.
        let mut bytes = Vec::new();
        write(&store, None, start, &mut bytes).unwrap();
        let other = Moment {
            steady: start.steady - 5000,
            ..start
        };
        let successor = empty();
        read(&successor, &bytes[..], u64::MAX, other).unwrap();
        let left = successor.meta_debug(b"key-7", other.steady).unwrap().expiry;
        assert_eq!(left.remaining(other.steady), Some(30));
    }
}

#[test]
fn what_is_no_file_is_refused_by_name_and_nobody_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (path, what) in [
        (fifo.as_path(), "a FIFO"),
        (folder.path(), "a directory"),
        (Path::new("/dev/null"), "a device"),
    ] {
        let checked = check_kind(path).unwrap_err().to_string();
        assert!(
            checked.contains(&format!("it is {what}, not a file")),
            "{checked}"
        );
        let loaded = load(&empty(), path, at(NOW)).unwrap_err().to_string();
        assert_eq!(loaded, checked);
    }
    check_kind(&folder.path().join("none")).unwrap();
}

#[test]
fn a_killed_process_leaves_nothing_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items");
    fs::write(folder.path().join("items.4000000.new"), b"DWELLMEM").unwrap();
    check_writable(&path).unwrap();
    save(&filled(), None, &path, at(NOW)).unwrap();
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 1, "only the snapshot is there");
}
