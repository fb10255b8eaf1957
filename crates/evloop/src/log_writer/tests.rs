use super::*;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// The time that a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Writes down what it is told.
#[derive(Debug, Default)]
struct Told {
    lost: AtomicU64,
    others: Mutex<Vec<String>>,
}

impl Told {
    fn count(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }
}

impl LogObserver for Arc<Told> {
    fn lost(&self, lines: u64) {
        self.lost.fetch_add(lines, Ordering::SeqCst);
    }

    fn failed(&self, error: &io::Error) {
        lock(&self.others).push(format!("failed: {error}"));
    }

    fn recovered(&self, lines: u64) {
        lock(&self.others).push(format!("recovered from {lines}"));
    }
}

fn options(buffers: usize) -> (LogOptions<Arc<Told>>, Arc<Told>) {
    let told = Arc::<Told>::default();
    let options = LogOptions {
        name: "test log",
        buffers,
        gather: Duration::ZERO,
        observer: Arc::clone(&told),
    };
    (options, told)
}

fn put(appender: &LogAppender, line: &[u8]) {
    appender.append(|lines| lines.extend_from_slice(line));
}

/// The end of a log that no thread writes, and all there is of it.
fn unwritten(options: LogOptions<Arc<Told>>) -> (LogAppender, Arc<Shared>) {
    let shared = Arc::new(Shared::new(options));
    let appender = LogAppender {
        shared: Arc::clone(&shared),
        index: 0,
    };
    (appender, shared)
}

#[test]
fn dropping_the_log_writes_what_every_buffer_had() {
    let (output, (options, told)) = (Output::default(), options(3));
    let log = LogWriter::start(output.clone(), options).unwrap();
    let appenders: Vec<_> = (0..3).map(|index| log.appender(index)).collect();
    let threads: Vec<_> = appenders
        .into_iter()
        .map(|appender| thread::spawn(move || (0..1_000).for_each(|_| put(&appender, b"a\n"))))
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    drop(log);
    assert_eq!(line_ends(&lock(&output.written)), 3_000);
    assert_eq!(told.count(), 0);
}

#[test]
fn a_full_buffer_drops_and_counts() {
    // Without a writing thread the buffer stays full.
    let (options, told) = options(1);
    let (appender, shared) = unwritten(options);
    let mut line = vec![b'l'; 8_000];
    line.push(b'\n');
    (0..200).for_each(|_| put(&appender, &line));
    let kept = line_ends(&lock(&shared.buffers[0]).lines);
    assert!(kept > 100, "{kept}");
    assert_eq!(told.count(), 200 - kept);
    assert!(lock(&shared.buffers[0]).lines.len() < BUFFER_BYTES_MAX + 9_000);
    appender.append_always(|lines| lines.extend_from_slice(b"must be\n"));
    assert_eq!(line_ends(&lock(&shared.buffers[0]).lines), kept + 1);
}

#[test]
fn lines_that_cannot_be_written_are_counted() {
    let output = Output {
        full: true,
        ..Output::default()
    };
    let (options, told) = options(1);
    let log = LogWriter::start(output, options).unwrap();
    let appender = log.appender(0);
    (0..10).for_each(|_| put(&appender, b"a\n"));
    drop(log);
    assert_eq!(told.count(), 10);
}

#[test]
fn a_pipe_that_nobody_reads_holds_nobody_up() {
    let (mut reader, writer) = io::pipe().unwrap();
    let (options, told) = options(1);
    let log = LogWriter::start(writer, options).unwrap();
    let appender = log.appender(0);
    let line = [[b'l'; 999].as_slice(), b"\n"].concat();
    // More than the pipe and two buffers take.
    (0..3_000).for_each(|_| put(&appender, &line));
    assert!(told.count() > 0);
    assert!(!log.flush(Duration::from_millis(20)), "nobody reads");
    assert!(!log.end(Duration::from_millis(20)), "nor at the end");
    // What was kept is whole when it is read at last.
    let mut text = Vec::new();
    reader.read_to_end(&mut text).unwrap();
    assert_eq!(line_ends(&text) + told.count(), 3_000);
    assert!(text.chunks(1_000).all(|found| found == line));
}

#[test]
fn what_was_flushed_is_written() {
    let (mut reader, writer) = io::pipe().unwrap();
    let log = LogWriter::start(writer, options(1).0).unwrap();
    let appender = log.appender(0);
    for number in 0..3 {
        put(&appender, format!("{number}\n").as_bytes());
        assert!(log.flush(PATIENCE));
        let mut line = [0; 2];
        reader.read_exact(&mut line).unwrap();
        assert_eq!(line, [b'0' + number, b'\n']);
    }
    assert!(log.end(PATIENCE));
    assert!(log.flush(PATIENCE), "it has nothing left to write");
}

#[test]
fn an_output_that_does_not_block_is_waited_for() {
    struct Busy(Output, usize);
    impl Write for Busy {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1.is_multiple_of(2) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.0.write(&bytes[..bytes.len().min(3)])
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let output = Output::default();
    let log = LogWriter::start(Busy(output.clone(), 0), options(1).0).unwrap();
    put(&log.appender(0), b"a whole line\n");
    assert!(log.flush(PATIENCE));
    assert_eq!(*lock(&output.written), b"a whole line\n");
}

#[test]
fn what_was_lost_is_told_when_lines_are_written_again() {
    let (options, told) = options(1);
    let (appender, shared) = unwritten(options);
    let (mut losses, mut taken) = (Losses::default(), Vec::new());
    let mut write = |mut output: Output| shared.write_out(&mut output, &mut taken, &mut losses);
    put(&appender, &vec![b'\n'; BUFFER_BYTES_MAX]);
    (0..3).for_each(|_| put(&appender, b"too much\n"));
    write(Output::default());
    put(&appender, b"lost\nas well\n");
    let full = Output {
        full: true,
        ..Output::default()
    };
    write(full.clone());
    put(&appender, b"this too\n");
    write(full);
    put(&appender, b"again\n");
    write(Output::default());
    let expected = ["recovered from 3", "failed: no space", "recovered from 3"];
    assert_eq!(*lock(&told.others), expected);
    assert_eq!(told.count(), 6);
    assert!(taken.capacity() <= KEPT_BYTES_MAX, "{}", taken.capacity());
}
