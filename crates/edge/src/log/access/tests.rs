use super::*;
use proptest::prelude::*;
use serde_json::Value;
use std::time::UNIX_EPOCH;

/// An output that a test can look into, and that can be made to fail.
#[derive(Clone, Debug, Default)]
struct Output {
    written: Arc<Mutex<Vec<u8>>>,
    full: bool,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.full {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space"));
        }
        lock(&self.written).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn line<'a>(target: &'a str, outcome: &'a str) -> AccessLine<'a> {
    AccessLine {
        time: UNIX_EPOCH + Duration::from_millis(1_500),
        remote: SocketAddr::from(([127, 0, 0, 1], 4321)),
        method: "GET",
        target,
        status: 200,
        bytes: 5,
        duration: Duration::from_micros(42),
        outcome,
    }
}

fn appended(line: &AccessLine<'_>) -> String {
    let mut out = Vec::new();
    line.append_to(&mut out);
    String::from_utf8(out).expect("a line is text")
}

#[test]
fn a_line_is_one_json_object() {
    let expected = "{\"time\":\"1970-01-01T00:00:01.500Z\",\"remote\":\"127.0.0.1:4321\",\
                    \"method\":\"GET\",\"target\":\"/poll/a?x=1\",\"status\":200,\"bytes\":5,\
                    \"duration_us\":42,\"outcome\":\"hit\"}\n";
    assert_eq!(appended(&line("/poll/a?x=1", "hit")), expected);
}

proptest! {
    #[test]
    fn any_target_is_read_back(target in ".*", outcome in "\\PC*") {
        let text = appended(&line(&target, &outcome));
        prop_assert_eq!(text.matches('\n').count(), 1);
        let value: Value = serde_json::from_str(&text).expect("a line is JSON");
        prop_assert_eq!(value["target"].as_str(), Some(target.as_str()));
        prop_assert_eq!(value["outcome"].as_str(), Some(outcome.as_str()));
    }
}

#[test]
fn dropping_the_log_writes_what_every_loop_had() {
    let (output, metrics) = (Output::default(), Arc::<ProcessMetrics>::default());
    let log = AccessLog::start(output.clone(), 3, Arc::clone(&metrics)).expect("a thread");
    let writers: Vec<_> = (0..3).map(|index| log.of_loop(index)).collect();
    let threads: Vec<_> = writers
        .into_iter()
        .map(|writer| {
            thread::spawn(move || (0..1_000).for_each(|_| writer.write(&line("/a", "hit"))))
        })
        .collect();
    for thread in threads {
        thread.join().expect("the loop ends well");
    }
    drop(log);
    assert_eq!(line_ends(&lock(&output.written)), 3_000);
    assert_eq!(metrics.access_log_dropped.value(), 0);
}

#[test]
fn a_full_buffer_drops_and_counts() {
    let metrics = Arc::<ProcessMetrics>::default();
    // Without a writing thread the buffer stays full.
    let shared = Arc::new(Shared {
        buffers: Box::new([Mutex::default()]),
        state: Mutex::default(),
        changed: Condvar::new(),
        metrics: Arc::clone(&metrics),
    });
    let writer = AccessWriter {
        shared: Arc::clone(&shared),
        index: 0,
    };
    let target = "/".repeat(8_000);
    for _ in 0..200 {
        writer.write(&line(&target, "hit"));
    }
    let kept = line_ends(&lock(&shared.buffers[0]));
    assert!(kept > 100, "{kept}");
    assert_eq!(metrics.access_log_dropped.value(), 200 - kept);
    assert!(lock(&shared.buffers[0]).len() < BUFFER_BYTES_MAX + 9_000);
}

#[test]
fn lines_that_cannot_be_written_are_counted() {
    let output = Output {
        full: true,
        ..Output::default()
    };
    let metrics = Arc::<ProcessMetrics>::default();
    let log = AccessLog::start(output, 1, Arc::clone(&metrics)).expect("a thread");
    let writer = log.of_loop(0);
    (0..10).for_each(|_| writer.write(&line("/a", "hit")));
    drop(log);
    assert_eq!(metrics.access_log_dropped.value(), 10);
}

#[test]
fn a_file_is_appended_to() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let target = AccessTarget::File(folder.path().join("access.log"));
    for _ in 0..2 {
        let log = AccessLog::open(&target, 1, Arc::default()).expect("the file opens");
        log.expect("the log is on")
            .of_loop(0)
            .write(&line("/a", "hit"));
    }
    let text = std::fs::read_to_string(folder.path().join("access.log")).expect("the file");
    assert_eq!(text.lines().count(), 2);
    let nowhere = AccessTarget::File(folder.path().join("none/access.log"));
    assert!(AccessLog::open(&nowhere, 1, Arc::default()).is_err());
    assert!(
        AccessLog::open(&AccessTarget::Off, 1, Arc::default())
            .expect("nothing")
            .is_none()
    );
}
