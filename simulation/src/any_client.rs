//! A client of either version of HTTP.

use egret_clock::Moment;
use egret_kernel::outside::EndId;

use crate::caller::Caller;
use crate::client::Client;
use crate::http2_client::Http2Client;
use crate::ledger::Ledger;
use crate::scenario::Dice;

/// A client.
pub enum AnyClient {
    /// It speaks HTTP/1.1.
    Http1(Box<Client>),
    /// It speaks HTTP/2.
    Http2(Box<Http2Client>),
}

impl AnyClient {
    /// Creates a client.
    pub fn new(caller: Caller) -> Self {
        if caller.plan.is_http2 {
            Self::Http2(Box::new(Http2Client::new(caller)))
        } else {
            Self::Http1(Box::new(Client::new(caller)))
        }
    }

    fn caller(&self) -> &Caller {
        match self {
            Self::Http1(client) => &client.caller,
            Self::Http2(client) => &client.caller,
        }
    }

    /// Goes on. Returns the time at which it wants to go on by itself.
    pub fn act(&mut self, now: Moment, dice: &mut Dice, ledger: &mut Ledger) -> Option<Moment> {
        match self {
            Self::Http1(client) => client.act(now, dice, ledger),
            Self::Http2(client) => client.act(now, dice, ledger),
        }
    }

    /// Its connection.
    pub fn end(&self) -> Option<EndId> {
        match self {
            Self::Http1(client) => client.link.as_ref().map(|link| link.end),
            Self::Http2(client) => client.end(),
        }
    }

    /// Returns `true` if it has nothing more to do.
    pub fn is_done(&self) -> bool {
        self.caller().is_done
    }

    /// Its state in a line.
    pub fn describe(&self) -> String {
        match self {
            Self::Http1(client) => client.describe(),
            Self::Http2(client) => client.describe(),
        }
    }
}
