//! All servers of a client: one, or those of a cluster, where each key has its own.

use crate::cluster::{
    Candidates, Cluster, Redirected, Redirections, Repeat, Step, Topology, slot_of,
};
use crate::connection::{Flight, Operation};
use crate::names::Names;
use crate::part::Part;
use crate::server::Server;
use crate::shared::Shared;
use crate::swap::SwapOption;
use crate::waited::{HoldEvent, Sweep, WaitedKeys};
use crate::{
    ClientOptions, ClusterStatus, Completion, Endpoint, Error, Failure, Kinds, Outcome,
    RedisMetrics, ResyncReason, Status, TopologyRead, Tracking,
};
use dwell_evloop::{Context, HandshakeCounts, Readiness, Token};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// One server that is known, and its state.
#[derive(Clone, Debug)]
pub struct Known<'c> {
    /// Its place among the servers of the client, which another one may have later.
    pub index: usize,
    /// The place where it listens.
    pub endpoint: &'c Endpoint,
    /// The state.
    pub status: Status<'c>,
}

/// The servers, and what they share.
#[derive(Debug)]
pub(crate) struct Servers {
    all: Vec<Server>,
    /// The first ones are those of the endpoint.
    seeds: usize,
    /// The names of those, if they are of a cluster.
    names: Names,
    shared: Shared,
    options: ClientOptions,
    kinds: Kinds,
    /// The time of the next question for the topology that is armed.
    topology_armed: Option<Instant>,
}

impl Servers {
    pub(crate) fn new(
        kinds: Kinds,
        endpoint: Endpoint,
        options: ClientOptions,
        metrics: Arc<RedisMetrics>,
    ) -> Self {
        let (announced, kept_bytes_max) = (options.announced.clone(), options.kept_bytes_max);
        let mut shared = Shared {
            waited: WaitedKeys::new(kinds.key, announced, kept_bytes_max),
            metrics,
            error_reply: None,
            cluster: None,
            redirections: Redirections::default(),
            told: None,
            is_confirmed: false,
        };
        let names = Names::of(&endpoint);
        let servers = match endpoint {
            Endpoint::Cluster(seeds) if !seeds.is_empty() => {
                shared.cluster = Some(Cluster::new(options.topology_interval));
                let of_seed = |(index, address)| {
                    let at = (index, kinds.connection);
                    Server::new(at, Endpoint::Tcp(address), Some(address), &options)
                };
                seeds.into_iter().enumerate().map(of_seed).collect()
            }
            endpoint => vec![Server::new((0, kinds.connection), endpoint, None, &options)],
        };
        for _ in 1..servers.len() {
            shared.waited.add_server();
        }
        Self {
            seeds: servers.len(),
            names,
            all: servers,
            shared,
            options,
            kinds,
            topology_armed: None,
        }
    }

    pub(crate) fn connect(&mut self, context: &mut Context) {
        if self.shared.cluster.is_some() {
            self.watch_topology(context);
        } else {
            self.all[0].plain.ensure(context, &self.options);
        }
    }

    /// Goes on with another endpoint of the same kind.
    pub(crate) fn move_to(&mut self, context: &mut Context, endpoint: &Endpoint) {
        match endpoint {
            Endpoint::Cluster(named) => {
                if self.names.lead_to(named) {
                    self.follow_names(context);
                    self.shared.want_topology();
                }
            }
            _ if endpoint == self.all[0].endpoint() => {}
            // The primary stays while they name it.
            Endpoint::Primary { .. } => self.all[0].ask_others(endpoint),
            Endpoint::Tcp(_) | Endpoint::Unix(_) => {
                let (options, shared) = (&self.options, &mut self.shared);
                let place = (endpoint.clone(), None);
                self.all[0].move_to(context, place, options, shared);
            }
        }
    }

    /// Has the first servers of a cluster be where their names lead now: those that are elsewhere,
    /// or that could not be reached. Primaries stay where they are while one of them is up: the
    /// cluster tells where they go. Each name is tried at its own times.
    fn follow_names(&mut self, context: &mut Context) {
        for index in 0..self.seeds {
            let server = &self.all[index];
            let is_named = server.address().is_some_and(|it| self.names.has(it));
            let has_failed = !server.plain.is_connected() && server.plain.last_failure().is_some();
            let primaries = self.shared.cluster.as_ref().map(Cluster::primaries);
            let primaries = primaries.unwrap_or_default();
            let is_primary = primaries.contains(&index);
            let is_told = || primaries.iter().any(|it| self.all[*it].plain.is_up());
            if is_named && !has_failed || is_primary && is_told() {
                continue;
            }
            let Some(address) = self.names.next(&self.used(), context.now()) else {
                continue;
            };
            let place = (Endpoint::Tcp(address), self.names.take(address));
            let (options, shared) = (&self.options, &mut self.shared);
            let before = self.all[index].address();
            let tried = self.all[index].move_to(context, place, options, shared);
            self.names.leave(before, tried);
        }
    }

    /// The addresses at which a server is.
    fn used(&self) -> Vec<SocketAddr> {
        // A server that is one no more is asked for nothing, unless it is one of the first.
        let is_used = |(index, it): &(usize, &Server)| *index < self.seeds || !it.is_retired();
        let used = self.all.iter().enumerate().filter(is_used);
        used.filter_map(|(_, server)| server.address()).collect()
    }

    /// The server that is asked for a key. Any one knows which one has it.
    fn place(&self, key: &[u8]) -> usize {
        let Some(cluster) = &self.shared.cluster else {
            return 0;
        };
        let is_up = |server: &Server| server.plain.is_up() && !server.is_retired();
        cluster
            .owner(slot_of(key))
            .or_else(|| self.all.iter().position(is_up))
            .unwrap_or(cluster.turn() % self.seeds)
    }

    /// The server on which a key is waited for, if it is, or that is asked for it.
    fn place_of_wait(&self, key: &[u8]) -> usize {
        let waited = &self.shared.waited;
        let server = waited.find(key).and_then(|key| waited.server(key));
        let server = server.filter(|server| !self.all[*server].is_retired());
        server.unwrap_or_else(|| self.place(key))
    }

    /// Asks for a value that may be waited for.
    pub(crate) fn read(
        &mut self,
        context: &mut Context,
        key: &[u8],
        tag: u64,
    ) -> Result<(), Error> {
        let deadline = context.now() + self.options.timeout;
        self.read_for(context, key, Operation { tag, deadline })
    }

    /// Asks for a value for an operation that may have been in progress for some time.
    fn read_for(
        &mut self,
        context: &mut Context,
        key: &[u8],
        operation: Operation,
    ) -> Result<(), Error> {
        let place = self.place_of_wait(key);
        let (server, shared) = (&mut self.all[place], &mut self.shared);
        if let Some(token) = shared.waited.find(key)
            && shared.waited.server(token) != Some(place)
        {
            shared.waited.move_to(token, place);
        }
        server.read(context, &self.options, shared, (key, operation))
    }

    /// Adds a command for one key.
    pub(crate) fn operation(
        &mut self,
        context: &mut Context,
        key: &[u8],
        arguments: &[&[u8]],
        flight: impl FnOnce(Option<Box<Repeat>>) -> Flight,
    ) -> Result<(), Error> {
        let place = self.place(key);
        let server = &mut self.all[place];
        let deadline = context.now() + self.options.timeout;
        let repeat = server.repeat(key, arguments, deadline);
        server.operation(context, &self.options, flight(repeat), arguments)
    }

    /// The option by which a write of a key tells what it has replaced.
    pub(crate) fn swap_option(&self, key: &[u8]) -> SwapOption {
        self.all[self.place(key)].waits.swap_option
    }

    pub(crate) fn kept(&self, key: &[u8]) -> Option<Outcome<'_>> {
        let outcome = self.shared.waited.kept(key)?;
        self.shared.metrics.kept_hits.increment();
        Some(outcome)
    }

    pub(crate) fn wait(&mut self, key: &[u8], tag: u64) {
        let place = self.place_of_wait(key);
        self.shared.waited.wait(key, tag, place);
    }

    pub(crate) fn unwait(&mut self, key: &[u8]) {
        self.shared.waited.unwait(key);
    }

    pub(crate) fn is_armed(&self, key: &[u8]) -> Option<bool> {
        self.shared.waited.is_armed(key)
    }

    pub(crate) fn operations(&self) -> usize {
        let redirected = self.shared.redirections.len();
        redirected + self.all.iter().map(Server::operations).sum::<usize>()
    }

    pub(crate) fn known(&self) -> impl Iterator<Item = Known<'_>> {
        let cluster = self.shared.cluster.as_ref();
        let primaries = cluster.map_or(&[][..], |it| it.primaries());
        let seeds = if primaries.is_empty() { self.seeds } else { 0 };
        let indices = (0..seeds).chain(primaries.iter().copied());
        indices.map(|index| self.at(index))
    }

    pub(crate) fn first(&self) -> Known<'_> {
        self.known().next().unwrap_or_else(|| self.at(0))
    }

    pub(crate) fn server_of(&self, key: &[u8]) -> Known<'_> {
        self.at(self.place_of_wait(key))
    }

    fn at(&self, index: usize) -> Known<'_> {
        let server = &self.all[index];
        Known {
            index,
            endpoint: server.endpoint(),
            status: server.status(self.shared.waited.waited(index) > 0),
        }
    }

    pub(crate) fn tracking(&self) -> Tracking {
        let states = self.known().map(|known| known.status.tracking);
        let rank = |state: &Tracking| match state {
            Tracking::Idle => 0,
            Tracking::On => 1,
            Tracking::Connecting => 2,
            Tracking::Refused => 3,
        };
        states.max_by_key(rank).unwrap_or(Tracking::Idle)
    }

    pub(crate) fn cluster(&self) -> Option<ClusterStatus<'_>> {
        let cluster = self.shared.cluster.as_ref()?;
        let topology = cluster.topology();
        Some(ClusterStatus {
            primaries: cluster.primaries().len(),
            missing_slots: topology.map_or(0, Topology::missing),
            unknown: topology.and_then(Topology::unknown),
            reason: cluster.reason(),
        })
    }

    pub(crate) fn take_handshakes(&mut self) -> HandshakeCounts {
        let mut counts = HandshakeCounts::default();
        for server in &mut self.all {
            counts.append(server.take_handshakes());
        }
        counts
    }

    pub(crate) fn take_error_reply(&mut self) -> Option<Box<str>> {
        self.shared.error_reply.take()
    }

    /// Sends the operations of the turn, and reads the keys that have changed.
    pub(crate) fn flush(
        &mut self,
        context: &mut Context,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        if self.shared.cluster.is_some() {
            self.watch_topology(context);
            self.follow(context, sink);
        }
        self.flush_each(context, sink);
        if self.shared.redirections.len() > 0 {
            // A connection has failed meanwhile: its reads go to other servers in this turn, too.
            self.follow(context, sink);
            self.flush_each(context, sink);
        }
        let (waited, metrics) = (&self.shared.waited, &self.shared.metrics);
        metrics.armed_keys.set(gauge(waited.armed()));
        metrics.kept_bytes.set(gauge(waited.kept_bytes()));
    }

    fn flush_each(
        &mut self,
        context: &mut Context,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        self.settle(context);
        for server in &mut self.all {
            server.flush(context, &self.options, &mut self.shared, sink);
        }
    }

    /// Queues the keys that are to be read, and drops those that are of no more use.
    fn settle(&mut self, context: &mut Context) {
        self.shared.waited.settle(|key| context.disarm(key));
    }

    pub(crate) fn read_changed(&mut self, context: &mut Context) {
        self.settle(context);
        for server in &mut self.all {
            server.read_changed(context, &self.options, &mut self.shared);
        }
    }

    /// Begins sweeps: paced ones of servers that announce nothing, with `has_told` of all others.
    pub(crate) fn sweep(&mut self, now: Instant, has_told: bool) {
        let of = |(index, server): (usize, &Server)| match self.at(index).status.tracking {
            _ if !server.has_connection() => None,
            Tracking::On => has_told.then_some(Sweep::Full),
            _ => Some(Sweep::Paced),
        };
        let sweeps: Vec<_> = self.all.iter().enumerate().map(of).collect();
        let begun = self.shared.waited.sweep(now, |server| sweeps[server]);
        self.shared.metrics.sweeps.add(begun as u64);
    }

    pub(crate) fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        if let Some(server) = self.all.get_mut(Part::of(token).0) {
            let (options, shared) = (&self.options, &mut self.shared);
            server.ready(context, (token, readiness), options, shared, sink);
            self.follow(context, sink);
        }
    }

    pub(crate) fn expired(
        &mut self,
        context: &mut Context,
        token: Token,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        if token.kind() == self.kinds.key {
            // Its value is over: the read has the server drop it, and tell everybody.
            return self.shared.waited.happens(token, HoldEvent::Invalidated);
        }
        let (index, part) = Part::of(token);
        if part == Part::Topology {
            // The flush at the end of the turn asks for it.
            self.topology_armed = None;
        } else if let Some(server) = self.all.get_mut(index) {
            server.expired(context, token, &self.options, &mut self.shared, sink);
            self.follow(context, sink);
        }
    }

    /// Asks a server of the cluster for the topology, if it is time.
    fn watch_topology(&mut self, context: &mut Context) {
        let now = context.now();
        let is_due = |it: &Cluster| it.is_due(now);
        if self.shared.cluster.as_ref().is_some_and(is_due) {
            self.follow_names(context);
        }
        let Some(cluster) = &mut self.shared.cluster else {
            return;
        };
        if cluster.is_due(now) {
            let turn = cluster.next_turn(now);
            let primaries = cluster.primaries().iter().copied();
            let (up, down): (Vec<_>, Vec<_>) =
                primaries.partition(|index| self.all[*index].plain.is_up());
            let away = down.into_iter().chain(0..self.seeds).collect();
            let asked = [up, away].into_iter().find_map(|of| {
                let turned = of
                    .iter()
                    .cycle()
                    .skip(turn % of.len().max(1))
                    .take(of.len());
                turned.copied().find(|index| {
                    let server = &mut self.all[*index];
                    server.ask_for_topology(context, &self.options)
                })
            });
            if let Some(server) = asked {
                cluster.asks(server);
            } else {
                cluster.asks_nobody();
                let topologies = &self.shared.metrics.topologies;
                topologies.increment(TopologyRead::Failed);
            }
        }
        let due = cluster.due();
        if due != self.topology_armed {
            self.topology_armed = due;
            let token = Part::Topology.token(self.kinds.connection, 0);
            match due {
                Some(due) => context.arm(token, due.saturating_duration_since(now)),
                None => context.disarm(token),
            }
        }
    }

    /// Follows what servers of a cluster have said of others.
    fn follow(
        &mut self,
        context: &mut Context,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        if let Some(topology) = self.shared.told.take() {
            self.turn_to(context, topology, sink);
        }
        if std::mem::take(&mut self.shared.is_confirmed) {
            self.leave_strangers(context, sink);
        }
        for redirected in self.shared.redirections.take() {
            self.redirect(context, redirected, sink);
        }
    }

    /// Ends the connections to servers that are no primaries and owe nothing: redirections have
    /// named them, or they were asked where no primary could be.
    fn leave_strangers(
        &mut self,
        context: &mut Context,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        let cluster = self.shared.cluster.as_ref();
        let primaries = cluster.map_or(&[][..], |it| it.primaries());
        let is_up = primaries.iter().any(|index| self.all[*index].plain.is_up());
        // Without a primary, one of the first servers is asked for the topology again.
        let kept = if is_up { 0 } else { self.seeds };
        let strangers = (kept..self.all.len())
            .filter(|index| !primaries.contains(index) && self.all[*index].is_idle(&self.shared));
        for index in strangers.collect::<Vec<_>>() {
            self.all[index].retire(context, &self.options, &mut self.shared, sink);
        }
    }

    /// Goes on with another topology: keys whose slots have moved are read where they are now.
    fn turn_to(
        &mut self,
        context: &mut Context,
        topology: Topology,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        for server in &mut self.all {
            let stays = server
                .address()
                .is_some_and(|it| topology.primaries().contains(&it));
            if !stays {
                server.retire(context, &self.options, &mut self.shared, sink);
            }
        }
        let addresses = topology.primaries().to_vec();
        let primaries = addresses.into_iter().map(|it| self.enter(context, it));
        let primaries = primaries.collect::<Vec<_>>();
        for index in primaries.iter().flatten() {
            self.all[*index].plain.ensure(context, &self.options);
        }
        let shared = &mut self.shared;
        shared.metrics.primaries.set(gauge(primaries.len()));
        shared.metrics.missing_slots.set(gauge(topology.missing()));
        let Some(cluster) = &mut shared.cluster else {
            return;
        };
        let before = cluster.turn_to(topology, primaries);
        let mut has_moved = false;
        for token in shared.waited.tokens().collect::<Vec<_>>() {
            let Some(slot) = shared.waited.name(token).map(slot_of) else {
                continue;
            };
            let Some(now) = cluster.owner(slot) else {
                continue;
            };
            let of_slot = before.as_ref().and_then(|before| before.owner(slot));
            #[cfg(feature = "sim")]
            if dwell_evloop::sim::Planted::ForgetMoved.is_in() {
                continue;
            }
            // A slot that nobody had comes back where it was.
            if shared.waited.server(token) != Some(now) || of_slot != Some(now) {
                shared.waited.move_to(token, now);
                has_moved = true;
            }
        }
        if has_moved {
            shared.metrics.resyncs.increment(ResyncReason::Moved);
        }
    }

    /// The server at an address. A missing server is made if there is room for it.
    fn enter(&mut self, context: &mut Context, address: SocketAddr) -> Option<usize> {
        let is_it = |server: &Server| server.address() == Some(address);
        if let Some(index) = self.all.iter().position(is_it) {
            self.all[index].come_back();
            return Some(index);
        }
        let is_free = |server: &Server| server.is_free(&self.shared);
        let free = self.all.iter().skip(self.seeds).position(is_free);
        if let Some(free) = free {
            let index = self.seeds + free;
            self.all[index].turn_to(context, address, &self.options);
            return Some(index);
        }
        let index = self.all.len();
        if index >= self.seeds + SERVERS_MAX {
            return None;
        }
        let at = (index, self.kinds.connection);
        let server = Server::new(at, Endpoint::Tcp(address), Some(address), &self.options);
        self.all.push(server);
        self.shared.waited.add_server();
        Some(index)
    }

    /// Goes on with a command that a server has sent to another one.
    fn redirect(
        &mut self,
        context: &mut Context,
        redirected: Redirected,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        let named = redirected.redirect.address();
        let candidates = Candidates {
            named: named.and_then(|address| self.enter(context, address)),
            from: redirected.from,
            is_from_retired: self.all[redirected.from].is_retired(),
            cluster: self.shared.cluster.as_ref(),
        };
        let ended = match redirected.step(context, &mut self.shared.waited, candidates) {
            Some(Step::Send {
                to,
                flight,
                wire,
                is_asking,
            }) => {
                let (server, options) = (&mut self.all[to], &self.options);
                return server.redirected(context, options, flight, (&wire, is_asking));
            }
            Some(Step::Read { name, operation }) => {
                let read = self.read_for(context, &name, operation);
                read.err().map(|_| (operation.tag, Failure::Unavailable))
            }
            Some(Step::End { tag, failure }) => Some((tag, failure)),
            None => None,
        };
        if let Some((tag, failure)) = ended {
            let outcome = Outcome::Failed(failure);
            sink(context, Completion { tag, outcome });
        }
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Servers that are known beside those of the endpoint: all primaries that a cluster may have, and
/// as many that are primaries no more.
const SERVERS_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_evloop::EventLoop;
    use dwell_proto::resp::{Decoded, Decoder, Limits};
    use std::time::Duration;

    /// An address at which nothing listens.
    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    /// A topology of ranges of slots, each with the port of its primary.
    fn topology(ranges: &[(u16, u16, u16)]) -> Topology {
        let host = "$9\r\n127.0.0.1\r\n";
        let ranges = ranges.iter().filter(|(first, last, _)| first <= last);
        let entries: Vec<_> = ranges
            .map(|(first, last, port)| {
                format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n{host}:{port}\r\n")
            })
            .collect();
        let wire = format!("*{}\r\n{}", entries.len(), entries.concat());
        let mut decoder = Decoder::new(Limits::default());
        match decoder.decode(wire.as_bytes()).unwrap() {
            Decoded::Message(_, message) => Topology::read(&message, address(1)).unwrap(),
            Decoded::Incomplete(_) => panic!("{wire}"),
        }
    }

    #[test]
    fn a_server_whose_keys_are_waited_for_keeps_its_place_until_they_have_another() {
        let kinds = Kinds {
            connection: 1,
            key: 2,
        };
        let endpoint = Endpoint::Cluster(vec![address(1)]);
        let mut servers = Servers::new(kinds, endpoint, ClientOptions::default(), Arc::default());
        let mut event_loop = EventLoop::<()>::new().unwrap();
        let context = event_loop.context();
        let mut follow = |servers: &mut Servers, ranges: &[(u16, u16, u16)]| {
            servers.turn_to(context, topology(ranges), &mut |_, _| ());
            let waited = &servers.shared.waited;
            let key = waited.find(b"k").and_then(|key| waited.server(key));
            let of_key = key.and_then(|server| servers.all[server].address());
            (servers.all.len(), of_key)
        };
        assert_eq!(follow(&mut servers, &[(0, 16_383, 2)]), (2, None));
        servers.wait(b"k", 7);
        let slot = slot_of(b"k");
        // Nobody has its slot, and a server has come that must not be asked for it.
        let others = [(0, slot - 1, 3), (slot + 1, 16_383, 3)];
        assert_eq!(follow(&mut servers, &others), (3, Some(address(2))));
        assert_eq!(
            follow(&mut servers, &[(0, 16_383, 3)]),
            (3, Some(address(3)))
        );
        // The place is free now.
        assert_eq!(
            follow(&mut servers, &[(0, 16_383, 4)]),
            (3, Some(address(4)))
        );
    }

    #[test]
    fn a_server_that_is_no_primary_stays_while_it_is_of_use() {
        let kinds = Kinds {
            connection: 1,
            key: 2,
        };
        let endpoint = Endpoint::Cluster(vec![address(1)]);
        let mut servers = Servers::new(kinds, endpoint, ClientOptions::default(), Arc::default());
        let mut event_loop = EventLoop::<()>::new().unwrap();
        let context = event_loop.context();
        servers.turn_to(context, topology(&[(0, 16_383, 2)]), &mut |_, _| ());
        let named = servers.enter(context, address(3)).unwrap();
        servers.wait(b"k", 7);
        let key = servers.shared.waited.find(b"k").unwrap();
        let primary = servers.shared.waited.server(key).unwrap();
        let mut confirm = |servers: &mut Servers| {
            servers.shared.is_confirmed = true;
            servers.follow(context, &mut |_, _| ());
            [named, primary].map(|index| servers.all[index].is_retired())
        };
        servers.shared.waited.move_to(key, named);
        assert_eq!(confirm(&mut servers), [false, false], "a key waits there");
        servers.shared.waited.move_to(key, primary);
        assert_eq!(confirm(&mut servers), [true, false]);
    }

    #[test]
    fn each_name_of_a_cluster_that_is_down_has_its_own_times() {
        let kinds = Kinds {
            connection: 1,
            key: 2,
        };
        let delay = Duration::from_secs(1);
        let options = ClientOptions {
            reconnect_delay_min: delay,
            reconnect_delay_max: delay * 60,
            ..ClientOptions::default()
        };
        let names = [1, 2].map(address);
        let endpoint = Endpoint::Cluster(vec![names[0]]);
        let mut servers = Servers::new(kinds, endpoint, options, Arc::default());
        let mut event_loop = EventLoop::<()>::new().unwrap();
        let context = event_loop.context();
        servers.move_to(context, &Endpoint::Cluster(names.to_vec()));
        let mut next = |servers: &mut Servers| {
            let plain = &mut servers.all[0].plain;
            plain.ensure(context, &servers.options);
            // Where the refusal has not come at once.
            let mut on = |_: &mut Context, _: crate::link::LinkEvent<'_>| Ok(());
            plain.end(context, Failure::Connect, &servers.options, &mut on);
            servers.follow_names(context);
            servers.all[0].address().unwrap()
        };
        assert_eq!(next(&mut servers), names[1]);
        assert_eq!(next(&mut servers), names[1], "it is not time for the other");
        servers.names.forget_time(names[0]);
        assert_eq!(next(&mut servers), names[0]);
        assert_eq!(next(&mut servers), names[0]);
        let attempts = servers.all[0].plain.take_attempts(&servers.options);
        let next_at = attempts.next_at.unwrap();
        assert!(next_at >= context.now() + delay, "it has failed twice");
    }

    #[test]
    fn an_address_that_a_server_had_may_be_tried_again() {
        let kinds = Kinds {
            connection: 1,
            key: 2,
        };
        let endpoint = Endpoint::Cluster(vec![address(1)]);
        let mut servers = Servers::new(kinds, endpoint, ClientOptions::default(), Arc::default());
        let mut event_loop = EventLoop::<()>::new().unwrap();
        let context = event_loop.context();
        for port in [2, 3] {
            servers.turn_to(context, topology(&[(0, 16_383, port)]), &mut |_, _| ());
            // It keeps its place.
            servers.wait(b"k", 7);
        }
        assert!(servers.all[1].is_retired());
        servers.move_to(context, &Endpoint::Cluster(vec![address(3)]));
        assert_eq!(servers.all[0].address(), Some(address(1)), "one is there");
        servers.move_to(context, &Endpoint::Cluster(vec![address(2)]));
        assert_eq!(servers.all[0].address(), Some(address(2)));
        let primary = servers.enter(context, address(2));
        assert_eq!(primary, Some(0), "it is the one that is asked");
    }

    #[test]
    fn a_refusal_whose_time_is_over_is_forgotten_where_nothing_waits() {
        let kinds = Kinds {
            connection: 1,
            key: 2,
        };
        let endpoint = Endpoint::Unix("/none".into());
        let mut servers = Servers::new(kinds, endpoint, ClientOptions::default(), Arc::default());
        let mut event_loop = EventLoop::<()>::new().unwrap();
        let context = event_loop.context();
        let mut after = |until| {
            servers.all[0].waits.refused_reason = Some("NOPERM".into());
            servers.all[0].waits.refused_until = Some(until);
            servers.flush(context, &mut |_, _| ());
            let status = servers.first().status;
            (status.tracking, status.tracking_reason.map(str::to_owned))
        };
        let now = Instant::now();
        let past = now.checked_sub(Duration::from_secs(1)).unwrap();
        let refused = (Tracking::Refused, Some("NOPERM".to_owned()));
        assert_eq!(after(now + Duration::from_secs(60)), refused);
        assert_eq!(after(past), (Tracking::Idle, None));
    }
}
