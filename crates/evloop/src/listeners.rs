//! The listeners of a component.

use crate::{Accepted, Context, Listener, Slab, Stream, Token};
use std::io;
use std::net::SocketAddr;

/// Listeners on one loop, each under a token of their kind, with a note of the component.
///
/// Shape: to be asked to [`accept`](Self::accept) when a token of its kind is ready, and when its
/// deadline has passed: that is how the pause ends for which no descriptor was left.
///
/// ```
/// use dwell_evloop::{Accepted, EventLoop, ListenOptions, Listeners, bind_group};
///
/// let mut event_loop = EventLoop::<()>::new()?;
/// let mut listeners = Listeners::new(0, 16);
/// let any = ([127, 0, 0, 1], 0).into();
/// let listener = bind_group(any, 1, ListenOptions::default())?.remove(0);
/// let address = listener.address().expect("it is no unix socket");
/// let token = listeners.listen(event_loop.context(), listener, "clients")?;
/// let client = std::net::TcpStream::connect(address)?;
/// let mut streams = Vec::new();
/// let accepted = listeners.accept(event_loop.context(), token, |_, stream, _| {
///     streams.push(stream);
/// });
/// assert!(matches!(accepted, Accepted::Drained) && streams.len() == 1);
/// assert_eq!(listeners.note(token), Some(&"clients"));
/// assert!(listeners.unlisten(event_loop.context(), token));
/// assert!(std::net::TcpStream::connect(address).is_err());
/// # drop(client);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Listeners<N = ()> {
    entries: Slab<(Listener, N)>,
    listeners_max: usize,
}

impl<N> Listeners<N> {
    /// None yet, of at most `listeners_max`; no other component of the loop may use `kind`.
    pub fn new(kind: u8, listeners_max: usize) -> Self {
        Self {
            entries: Slab::new(kind, listeners_max),
            listeners_max,
        }
    }

    /// Listens there from now on; returns the listener's name.
    ///
    /// # Errors
    /// When the loop cannot register it, or there are as many already as may be.
    pub fn listen(
        &mut self,
        context: &mut Context,
        listener: Listener,
        note: N,
    ) -> io::Result<Token> {
        let limit = self.listeners_max;
        let token = self
            .entries
            .insert((listener, note))
            .map_err(|_| io::Error::other(format!("listeners exceed {limit}")))?;
        if let Some((listener, _)) = self.entries.get_mut(token)
            && let Err(error) = listener.register(context, token)
        {
            self.entries.remove(token);
            return Err(error);
        }
        Ok(token)
    }

    /// Stops listening there, as [`Listener::close`] does. Returns false where there is no such
    /// listener.
    pub fn unlisten(&mut self, context: &mut Context, token: Token) -> bool {
        let Some((listener, _)) = self.entries.remove(token) else {
            return false;
        };
        context.disarm(token);
        listener.close(context);
        true
    }

    /// Stops listening at all.
    pub fn unlisten_all(&mut self, context: &mut Context) {
        for token in self.tokens() {
            self.unlisten(context, token);
        }
    }

    /// Accepts a batch, as [`Listener::accept_batch`] does. Returns [`Accepted::Drained`] where
    /// there is no such listener.
    pub fn accept(
        &mut self,
        context: &mut Context,
        token: Token,
        accept: impl FnMut(&mut Context, Stream, Option<SocketAddr>),
    ) -> Accepted {
        match self.entries.get_mut(token) {
            Some((listener, _)) => listener.accept_batch(context, token, accept),
            None => Accepted::Drained,
        }
    }

    /// The listener of this name.
    pub fn get_mut(&mut self, token: Token) -> Option<&mut Listener> {
        self.entries.get_mut(token).map(|(listener, _)| listener)
    }

    /// The note of a listener.
    pub fn note(&self, token: Token) -> Option<&N> {
        self.entries.get(token).map(|(_, note)| note)
    }

    /// The names of all.
    pub fn tokens(&self) -> Vec<Token> {
        self.entries.tokens().collect()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.entries.values().map(|(listener, _)| listener)
    }

    /// All of them, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Listener> {
        self.entries.values_mut().map(|(listener, _)| listener)
    }
}

#[cfg(test)]
#[cfg(feature = "sim")]
mod tests {
    use super::*;
    use crate::sim::{Link, SimNet, SimStream};
    use crate::{Driver, EventLoop, ListenOptions, Readiness, bind_group};
    use std::time::Duration;

    /// Accepts clients, and counts its failures.
    struct Host {
        listeners: Listeners<u8>,
        clients: Vec<(Stream, u8)>,
        failures: Vec<io::Error>,
    }

    impl Host {
        fn accept(&mut self, context: &mut Context, token: Token) {
            let note = *self.listeners.note(token).expect("it is told of listeners");
            let clients = &mut self.clients;
            let accepted = self.listeners.accept(context, token, |_, stream, from| {
                assert!(from.is_some());
                clients.push((stream, note));
            });
            if let Accepted::Exhausted(error) = accepted {
                self.failures.push(error);
            }
        }
    }

    impl Driver for Host {
        type Message = ();

        fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
            assert!(readiness.is_readable());
            self.accept(context, token);
        }

        fn expired(&mut self, context: &mut Context, token: Token) {
            self.accept(context, token);
        }

        fn message(&mut self, _: &mut Context, (): ()) {}
    }

    struct Rig {
        network: SimNet,
        event_loop: EventLoop<()>,
        host: Host,
    }

    impl Rig {
        fn new() -> Self {
            let network = SimNet::new(1);
            Self {
                network,
                event_loop: EventLoop::new().unwrap(),
                host: Host {
                    listeners: Listeners::new(3, 2),
                    clients: Vec::new(),
                    failures: Vec::new(),
                },
            }
        }

        fn listen(&mut self, note: u8) -> io::Result<(Token, SocketAddr)> {
            let any = ([127, 0, 0, 1], 0).into();
            let listener = bind_group(any, 1, ListenOptions::default())?.remove(0);
            let address = listener.address().unwrap();
            let context = self.event_loop.context();
            let token = self.host.listeners.listen(context, listener, note)?;
            Ok((token, address))
        }

        fn turn(&mut self) {
            let second = Some(Duration::from_secs(1));
            self.event_loop.turn(&mut self.host, second).unwrap();
        }

        fn turn_until(&mut self, is_so: impl Fn(&Host) -> bool) {
            for _ in 0..100 {
                if is_so(&self.host) {
                    return;
                }
                self.turn();
            }
            panic!("it does not come to that: {:?}", self.host.failures);
        }

        fn notes(&self) -> Vec<u8> {
            self.host.clients.iter().map(|(_, note)| *note).collect()
        }

        /// From now on no descriptor is left, or there is again.
        fn exhaust(&self, has_no_descriptors: bool) {
            self.network.set_link(Link {
                has_no_descriptors,
                ..Link::default()
            });
        }

        fn connect(&self, to: SocketAddr, count: usize) -> Vec<SimStream> {
            (0..count).map(|_| self.network.connect(to)).collect()
        }
    }

    #[test]
    fn clients_come_with_the_note_of_their_listener_until_it_is_closed() {
        let mut rig = Rig::new();
        let (first, one) = rig.listen(1).unwrap();
        let (second, two) = rig.listen(2).unwrap();
        assert_ne!((first, one), (second, two));
        let error = rig.listen(3).unwrap_err();
        assert_eq!(error.to_string(), "listeners exceed 2");
        let mut clients = rig.connect(two, 2);
        rig.turn();
        clients.extend(rig.connect(one, 1));
        rig.turn();
        assert_eq!(rig.notes(), [2, 2, 1]);
        let Rig {
            event_loop, host, ..
        } = &mut rig;
        assert!(host.listeners.unlisten(event_loop.context(), second));
        assert!(!host.listeners.unlisten(event_loop.context(), second));
        let late = host
            .listeners
            .accept(event_loop.context(), second, |_, _, _| {});
        assert!(matches!(late, Accepted::Drained));
        clients.extend(rig.connect(two, 1));
        clients.extend(rig.connect(one, 1));
        rig.turn();
        assert_eq!(rig.notes(), [2, 2, 1, 1]);
        let addresses: Vec<_> = rig.host.listeners.iter().map(Listener::address).collect();
        assert_eq!(addresses, [Some(one)]);
        rig.host.listeners.unlisten_all(rig.event_loop.context());
        assert!(rig.host.listeners.tokens().is_empty());
        assert!(rig.listen(4).is_ok(), "there is room again");
    }

    #[test]
    fn a_crowd_is_accepted_over_several_turns() {
        let mut rig = Rig::new();
        let (_, address) = rig.listen(1).unwrap();
        let _clients = rig.connect(address, 600);
        let mut counts = Vec::new();
        for _ in 0..10 {
            rig.turn();
            counts.push(rig.host.clients.len());
        }
        counts.dedup();
        counts.retain(|count| *count > 0);
        assert_eq!(counts, [256, 512, 600]);
    }

    #[test]
    fn a_listener_without_descriptors_tries_again_by_itself() {
        let mut rig = Rig::new();
        let (token, address) = rig.listen(1).unwrap();
        rig.exhaust(true);
        let _clients = rig.connect(address, 3);
        let begin = rig.network.elapsed();
        rig.turn_until(|host| host.failures.len() == 3);
        let paused = rig.network.elapsed().saturating_sub(begin);
        assert!(paused >= Duration::from_millis(200), "{paused:?}");
        assert!(paused < Duration::from_millis(400), "{paused:?}");
        assert!(rig.notes().is_empty());
        rig.exhaust(false);
        assert!(rig.event_loop.context().is_armed(token));
        rig.turn_until(|host| !host.clients.is_empty());
        assert_eq!(rig.notes(), [1, 1, 1]);
        assert_eq!(rig.host.failures.len(), 3);
        rig.exhaust(true);
        let _more = rig.connect(address, 1);
        rig.turn_until(|host| host.failures.len() == 4);
        let Rig {
            event_loop, host, ..
        } = &mut rig;
        assert!(host.listeners.unlisten(event_loop.context(), token));
        assert!(
            !event_loop.context().is_armed(token),
            "nothing is tried again"
        );
    }
}
