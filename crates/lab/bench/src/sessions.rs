//! Kept TLS sessions, for connections that resume one instead of making a full handshake.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Maximum number of tickets kept for a server. rustls keeps eight, fewer than a run has connections, and a
/// ticket serves once.
const TICKETS_MAX: usize = 4_096;

/// The sessions of all servers of a run. Servers are told apart by name, as in rustls.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    servers: Mutex<HashMap<ServerName<'static>, ServerSessions>>,
}

#[derive(Debug, Default)]
struct ServerSessions {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.servers.lock().entry(server).or_default().group = Some(group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.servers.lock().get(&server.to_owned())?.group
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.servers.lock().entry(server).or_default().tls12 = Some(session);
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.servers.lock().get(&server.to_owned())?.tls12.clone()
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        if let Some(sessions) = self.servers.lock().get_mut(server) {
            sessions.tls12 = None;
        }
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut servers = self.servers.lock();
        let tickets = &mut servers.entry(server).or_default().tickets;
        if tickets.len() == TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(ticket);
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.servers.lock().get_mut(server)?.tickets.pop_back()
    }
}
