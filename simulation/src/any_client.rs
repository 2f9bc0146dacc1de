//! A client of either version of HTTP.

use egret_clock::Moment;
use egret_kernel::outside::EndId;

use crate::client::Client;
use crate::http2_client::Http2Client;
use crate::ledger::Ledger;
use crate::scenario::{ClientPlan, Dice};

/// A client.
pub enum AnyClient {
    /// It speaks HTTP/1.1.
    Http1(Box<Client>),
    /// It speaks HTTP/2.
    Http2(Box<Http2Client>),
}

impl AnyClient {
    /// Creates the client of a plan.
    pub fn new(number: u8, plan: ClientPlan, now: Moment) -> Self {
        if plan.is_http2 {
            Self::Http2(Box::new(Http2Client::new(number, plan, now)))
        } else {
            Self::Http1(Box::new(Client::new(number, plan, now)))
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
            Self::Http1(client) => client.end,
            Self::Http2(client) => client.end,
        }
    }

    /// Returns `true` if it has nothing more to do.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Http1(client) => client.is_done,
            Self::Http2(client) => client.is_done,
        }
    }

    /// Its state in a line.
    pub fn describe(&self) -> String {
        match self {
            Self::Http1(client) => client.describe(),
            Self::Http2(client) => client.describe(),
        }
    }
}
