//! A simulated server that does exactly what a test tells it to.

use crate::Script;
use crate::scripted::{Step, mismatch};
use dwell_evloop::sim::{Peer, SimNet, SimServer, SimStream};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::thread;

/// A server on a simulated network whose connections follow scripts, as those of a
/// [`ScriptedServer`](crate::ScriptedServer) do: the first connection follows the first script, and
/// so on; connections beyond the last are closed at once.
///
/// # Panics
/// When dropped after a client did something else than its script expects.
///
/// ```
/// use dwell_testkit::Script;
/// use dwell_testkit::sim::{SimNet, SimScripted};
/// use std::io::Write;
/// use std::rc::Rc;
/// use std::time::Duration;
///
/// let network = Rc::new(SimNet::new(1));
/// let script = Script::new().expect("ping").send("pong").expect_end();
/// let server = SimScripted::start(&network, [script]);
/// let mut client = network.connect(server.address());
/// client.write_all(b"ping")?;
/// network.pass(Duration::from_secs(1));
/// let mut answer = Vec::new();
/// client.read_all(&mut answer);
/// assert_eq!(answer, b"pong");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct SimScripted {
    server: SimServer,
    /// It lives as long as what is on it.
    _network: Rc<SimNet>,
    failures: Rc<RefCell<Vec<String>>>,
}

impl SimScripted {
    /// Starts a server on a port of its own.
    ///
    /// # Panics
    /// If the network has ended.
    pub fn start(network: &Rc<SimNet>, scripts: impl IntoIterator<Item = Script>) -> Self {
        let failures = Rc::default();
        let peer = Scripted {
            scripts: scripts.into_iter().collect(),
            runs: BTreeMap::new(),
            failures: Rc::clone(&failures),
        };
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        match network.serve(any, peer) {
            Ok(server) => Self {
                server,
                _network: Rc::clone(network),
                failures,
            },
            Err(error) => panic!("a scripted server cannot listen: {error}"),
        }
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }
}

impl Drop for SimScripted {
    fn drop(&mut self) {
        let failures = self.failures.take();
        let is_well = failures.is_empty() || thread::panicking();
        assert!(is_well, "scripted server: {}", failures.join("; "));
    }
}

#[derive(Debug)]
struct Scripted {
    scripts: VecDeque<Script>,
    runs: BTreeMap<u32, Run>,
    failures: Rc<RefCell<Vec<String>>>,
}

/// One connection and what is left of its script.
#[derive(Debug)]
struct Run {
    steps: VecDeque<Step>,
    input: Vec<u8>,
    has_ended: bool,
}

impl Peer for Scripted {
    fn serve(&mut self, connection: &mut SimStream) {
        let run = self.runs.entry(connection.id()).or_insert_with(|| Run {
            steps: self.scripts.pop_front().unwrap_or_default().0.into(),
            input: Vec::new(),
            has_ended: false,
        });
        run.has_ended = !connection.read_all(&mut run.input);
        if let Err(failure) = run.go_on(connection) {
            self.failures.borrow_mut().push(failure);
            run.steps.clear();
        }
        if run.steps.is_empty() {
            connection.close();
        }
    }
}

impl Run {
    /// Takes all steps that can be taken now.
    fn go_on(&mut self, connection: &mut SimStream) -> Result<(), String> {
        while let Some(step) = self.steps.pop_front() {
            if let Some(rest) = self.take(step, connection)? {
                self.steps.push_front(rest);
                break;
            }
        }
        Ok(())
    }

    /// Takes a step; returns what is left of it, for which there is something to wait.
    fn take(&mut self, step: Step, connection: &mut SimStream) -> Result<Option<Step>, String> {
        let describe = |error: std::io::Error| error.to_string();
        match step {
            Step::Expect(bytes) => {
                let length = bytes.len().min(self.input.len());
                if self.input[..length] != bytes[..length] {
                    return Err(mismatch(&bytes, &self.input, "different"));
                }
                self.has_input(length == bytes.len(), &bytes, length)
                    .map(|has| (!has).then_some(Step::Expect(bytes)))
            }
            Step::ReadUntil(end) => {
                let mut windows = self.input.windows(end.len());
                let found = windows.position(|window| window == end);
                let length = found.map_or(0, |at| at + end.len());
                self.has_input(found.is_some(), &end, length)
                    .map(|has| (!has).then_some(Step::ReadUntil(end)))
            }
            Step::ReadBytes(count) => self
                .has_input(self.input.len() >= count, b"bytes", count)
                .map(|has| (!has).then_some(Step::ReadBytes(count))),
            Step::Send(bytes) => {
                connection.write_all(&bytes).map_err(describe)?;
                Ok(None)
            }
            Step::Drip(bytes, pause) => {
                let Some((first, rest)) = bytes.split_first() else {
                    return Ok(None);
                };
                connection.write_all(&[*first]).map_err(describe)?;
                connection.serve_after(pause);
                Ok(Some(Step::Drip(rest.to_vec(), pause)))
            }
            Step::ExpectEnd if !self.input.is_empty() => {
                Err(mismatch(b"", &self.input, "expected the end"))
            }
            Step::ExpectEnd => Ok((!self.has_ended).then_some(Step::ExpectEnd)),
            Step::CloseWriting => {
                connection.shutdown_write().map_err(describe)?;
                Ok(None)
            }
            Step::Hang => {
                self.input.clear();
                Ok((!self.has_ended).then_some(Step::Hang))
            }
        }
    }

    /// Takes so many bytes if they have come; none may be missing at the end.
    fn has_input(&mut self, is_here: bool, wanted: &[u8], length: usize) -> Result<bool, String> {
        if is_here {
            self.input.drain(..length);
        } else if self.has_ended {
            return Err(mismatch(wanted, &self.input, "the end"));
        }
        Ok(is_here)
    }
}
