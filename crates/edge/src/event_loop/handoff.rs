//! Connections that one process hands to its successor: giving them away, and taking them over.

use super::EdgeLoop;
use crate::handoff::{HandedConnection, InheritedListener, ListenAddress, Role};
use crate::ops::admin::Admin;
use dwell_engine::Detached;
use dwell_evloop::{Context, Listener, Stream};
use dwell_store_server::StoreServer;
use std::io;
use std::os::fd::AsFd;

impl EdgeLoop {
    /// A descriptor more of every socket that is listened on here; one that the system refuses is
    /// left out, and its address closed.
    pub(crate) fn sockets(&self) -> Vec<InheritedListener> {
        let of = |role, listener: &Listener| {
            let descriptor = listener.as_fd().try_clone_to_owned().ok()?;
            let address = ListenAddress::of(listener, &descriptor).ok()?;
            Some(InheritedListener {
                role,
                address,
                owns_file: listener.path().is_some(),
                descriptor,
            })
        };
        let clients = self.http.listeners();
        let admin = self.admin.iter().flat_map(Admin::listeners);
        let store = self.store_server.iter().flat_map(StoreServer::listeners);
        let clients = clients.filter_map(|listener| of(Role::Client, listener));
        let admin = admin.filter_map(|listener| of(Role::Admin, listener));
        let store = store.filter_map(|listener| of(Role::Store, listener));
        clients.chain(admin).chain(store).collect()
    }

    /// Serves the connections that the process before has handed over.
    pub(crate) fn take_arrivals(&mut self, context: &mut Context) {
        for connection in self.handoff.queue.take(self.index) {
            if let Err(error) = self.take_arrival(context, connection) {
                tracing::warn!(%error, "a connection that was handed over is lost");
            }
        }
    }

    fn take_arrival(
        &mut self,
        context: &mut Context,
        connection: HandedConnection,
    ) -> io::Result<()> {
        let mut stream = Stream::from_descriptor(connection.descriptor)?;
        let input = connection.input;
        match (connection.role, &mut self.admin, &mut self.store_server) {
            (Role::Client, _, _) => {
                self.front.admission.count_adopted(&mut stream);
                let detached = Detached { stream, input };
                self.http.adopt_detached(context, detached, &mut self.front);
            }
            (Role::Admin, Some(admin), _) => admin.adopt(context, Detached { stream, input }),
            (Role::Store, _, Some(server)) => {
                server.adopt(context, stream, input, connection.is_trusted);
            }
            _ => return Err(io::Error::other("nobody listens for its kind any more")),
        }
        Ok(())
    }

    /// Hands the connections over that owe nothing, if another process serves: at once, and at the
    /// ends of later turns those that have come so far.
    pub(crate) fn hand_over(&mut self, context: &mut Context) {
        let Some(sender) = self.handoff.sender().filter(|_| self.draining.is_some()) else {
            return;
        };
        let give = |role, detached: &Detached| {
            sender.give(role, false, &detached.stream, &detached.input);
        };
        self.http
            .hand_over(context, &mut self.front, |_, detached| {
                give(Role::Client, &detached);
            });
        if let Some(admin) = &mut self.admin {
            admin.hand_over(context, |detached| give(Role::Admin, &detached));
        }
        if let Some(server) = &mut self.store_server {
            server.hand_over(context);
            for left in server.take_leaving(context) {
                sender.give(Role::Store, left.is_trusted, &left.stream, &left.input);
            }
        }
    }
}
