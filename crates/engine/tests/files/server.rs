//! A server of one directory, and a client that reads as it likes.

use dwell_engine::files::{DirectoryOptions, serve_dir};
use dwell_engine::{App, Limits, Outcome, Reply, Request};
use dwell_evloop::{Context, EventLoop, ListenOptions, Listener, Sender, bind_unix};
use dwell_testkit::{Serving, loopback_listener};
use socket2::{Domain, Socket, Type};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// Longer than any test waits for something that comes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server and the directory it serves.
pub(crate) struct Site {
    pub(crate) directory: TempDir,
    pub(crate) address: SocketAddr,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

struct Files {
    root: PathBuf,
    options: DirectoryOptions,
}

impl App for Files {
    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let answer = serve_dir(request.head, &self.root, &self.options, context.wall());
        answer.send(reply, &[("X-Own", b"yes")]);
        Outcome::Answered
    }
}

impl Site {
    /// Starts a server whose directory `fill` has filled; it listens on `socket` there as well.
    pub(crate) fn start(fill: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        fill(&root);
        let (listener, address) = loopback_listener();
        let unix = bind_unix(directory.path().join("socket"), ListenOptions::default());
        let listeners = [listener, unix.unwrap()];
        let mut options = DirectoryOptions::default();
        options.file.precompressed = true;
        let app = Files { root, options };
        let mut event_loop = EventLoop::new().unwrap();
        let stop = event_loop.sender();
        let thread = std::thread::spawn(move || serve(&mut event_loop, listeners, app));
        Self {
            directory,
            address,
            stop,
            thread: Some(thread),
        }
    }

    /// A path beneath the served directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    /// The path of the unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub(crate) fn connect(&self) -> Client<TcpStream> {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(socket))
    }

    /// A client whose kernel takes little of what it has not read.
    pub(crate) fn connect_narrow(&self) -> Client<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        socket.connect(&self.address.into()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(socket.into()))
    }
}

fn serve(event_loop: &mut EventLoop<()>, listeners: [Listener; 2], app: Files) {
    let mut server = Serving::new(Limits::default(), app);
    for listener in listeners {
        server.listen(event_loop, listener);
    }
    event_loop.run(&mut server).unwrap();
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.send(()).unwrap();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(
            ended.is_none_or(|ended| ended.is_ok()),
            "the server panicked"
        );
    }
}

/// A client that blocks.
pub(crate) struct Client<S>(pub(crate) BufReader<S>);

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Head {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.text.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn length(&self) -> usize {
        self.field("Content-Length").unwrap().parse().unwrap()
    }
}

impl<S: Read> Client<S> {
    pub(crate) fn head(&mut self) -> Head {
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            assert_ne!(self.0.read_line(&mut text).unwrap(), 0, "{text}");
        }
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        Head { status, text }
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub(crate) fn text(&mut self, length: usize) -> String {
        String::from_utf8(self.bytes(length)).unwrap()
    }
}

impl<S: Write> Client<S> {
    pub(crate) fn ask(&mut self, method: &str, target: &str, lines: &str) {
        write!(
            self.0.get_mut(),
            "{method} {target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"
        )
        .unwrap();
    }
}

/// Bytes that differ from place to place; their period is no power of two.
pub(crate) fn contents(length: usize) -> Vec<u8> {
    let period: Vec<u8> = (0_u16..65_521)
        .map(|place| (place ^ (place >> 8)) as u8)
        .collect();
    let mut bytes = period.repeat(length / period.len() + 1);
    bytes.truncate(length);
    bytes
}
