//! The TLS of a world: its users, and its faults.

use egret_clock::Timestamp;

use crate::certificates::EXPIRIES_S;
use crate::scenario::{Dice, Scenario};
use crate::world::BEGINNING_S;

/// The users of TLS, and its faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TlsPlan {
    /// Clients do.
    pub clients: bool,
    /// The providers that do.
    pub providers: [bool; 2],
    /// Peers offer TLS 1.2 alone.
    pub is_old: bool,
    /// The time at which the providers' certificates expire, one of [`EXPIRIES_S`].
    pub expiry: usize,
    /// The chance, of 100, that something goes wrong on a connection.
    pub trouble: u64,
}

impl TlsPlan {
    /// Chooses one. In a calm world nothing goes wrong.
    pub fn draw(dice: &mut Dice, is_calm: bool) -> Self {
        let clients = dice.percent(60);
        let first = !clients || dice.percent(60);
        Self {
            clients,
            providers: [first, dice.percent(50)],
            is_old: dice.percent(25),
            expiry: if is_calm { 2 } else { dice.pick(&[0, 1, 2, 2]) },
            trouble: if is_calm { 0 } else { dice.pick(&[0, 10, 40]) },
        }
    }

    /// Changes a scenario accordingly.
    pub fn apply(self, scenario: &mut Scenario) {
        scenario.tls = self;
        for client in &mut scenario.clients {
            client.tls_trouble = self.trouble;
            for request in &mut client.requests {
                request.is_secured = self.providers[request.provider];
                // In HTTP/2 the scheme is that of the connection.
                request.is_absolute &= !client.is_http2 || request.is_secured == self.clients;
            }
        }
    }

    /// Returns `true` if nobody uses TLS.
    pub fn is_unused(&self) -> bool {
        !self.clients && self.providers == [false; 2]
    }

    /// The system's time at which the providers' certificates expire: after the last second in which they are
    /// valid.
    pub fn expires(&self) -> Timestamp {
        Timestamp::from_secs(BEGINNING_S + EXPIRIES_S[self.expiry] + 1)
    }
}
