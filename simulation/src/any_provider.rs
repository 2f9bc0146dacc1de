//! A provider's end of a connection, in either version of HTTP.

use egret_clock::Moment;

use crate::http2_provider::Http2Provider;
use crate::ledger::Ledger;
use crate::link::Link;
use crate::provider::Provider;
use crate::scenario::{Dice, Scenario, Trouble};

/// A provider's end of a connection.
pub enum AnyProvider {
    /// It speaks HTTP/1.1.
    Http1(Box<Provider>),
    /// It speaks HTTP/2.
    Http2(Box<Http2Provider>),
}

impl AnyProvider {
    /// Begins a connection to provider `number`.
    pub fn new(number: usize, link: Link, scenario: &Scenario, dice: &mut Dice) -> Self {
        if scenario.is_provider_http2[number] {
            Self::Http2(Box::new(Http2Provider::new(number, link, scenario.is_calm, dice)))
        } else {
            Self::Http1(Box::new(Provider::new(number, link, dice)))
        }
    }

    /// Goes on. Returns the time at which it wants to go on by itself.
    pub fn act(
        &mut self,
        now: Moment,
        dice: &mut Dice,
        trouble: Trouble,
        ledger: &mut Ledger,
    ) -> Option<Moment> {
        match self {
            Self::Http1(provider) => provider.act(now, dice, trouble, ledger),
            Self::Http2(provider) => provider.act(now, dice, trouble, ledger),
        }
    }

    /// Its state in a line.
    pub fn describe(&self) -> String {
        match self {
            Self::Http1(provider) => provider.describe(),
            Self::Http2(provider) => provider.describe(),
        }
    }
}
