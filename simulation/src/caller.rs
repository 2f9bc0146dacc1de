//! The common part of clients that speak either version of HTTP: a plan, connections to the gateway, and the
//! time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use egret_clock::Moment;
use egret_kernel::outside;
use rustls::ClientConfig;

use crate::ledger::Ledger;
use crate::link::Link;
use crate::scenario::{ClientPlan, Dice, Leave, PROVIDERS, RequestPlan, TOTAL_S};

/// The address of the gateway.
const GATEWAY: ([u8; 4], u16) = ([127, 0, 0, 1], 8000);
/// Time beyond the total timeout after which an exchange has outlived it: the gateway's timers are coarse,
/// and a client may be accepted late.
const SLACK: Duration = Duration::from_secs(4);
/// Number of connections that a client opens for its requests.
const CONNECTIONS_MAX: u32 = 4;

/// A client.
pub struct Caller {
    number: u8,
    /// Its plan.
    pub plan: ClientPlan,
    /// The settings of its TLS, if it uses that.
    tls: Option<Arc<ClientConfig>>,
    connections: u32,
    /// The next of its requests.
    pub next: usize,
    /// Earliest time of the next request.
    pub next_at: Moment,
    /// Time up to which it reads nothing.
    pub stalled_until: Moment,
    /// It has nothing more to do.
    pub is_done: bool,
}

impl Caller {
    /// Creates a client.
    pub fn new(number: u8, plan: ClientPlan, tls: Option<Arc<ClientConfig>>, now: Moment) -> Self {
        let (next_at, stalled_until) = (now + plan.after, Moment::from_nanos(0));
        Self { number, plan, tls, connections: 0, next: 0, next_at, stalled_until, is_done: false }
    }

    /// Returns `true` if some of its requests were not begun.
    pub fn has_more(&self) -> bool {
        self.next < self.plan.requests.len()
    }

    /// Returns `true` if it uses TLS.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The numbers of requests.
    pub fn ids(&self, indexes: impl Iterator<Item = usize>) -> Vec<u64> {
        indexes.map(|index| self.plan.requests[index].id).collect()
    }

    /// Connects, or returns the time at which it is to be tried, if any.
    pub fn connect(&mut self, now: Moment, dice: &mut Dice) -> Result<Link, Option<Moment>> {
        if now < self.next_at {
            return Err(Some(self.next_at));
        }
        if !self.has_more() || self.connections == CONNECTIONS_MAX {
            self.is_done = true;
            return Err(None);
        }
        self.connections += 1;
        let port = u16::try_from(dice.between(1_024, 29_999)).unwrap_or(1_024);
        let from = SocketAddr::from(([127, 0, 0, self.number], port));
        let (plan, to) = (&self.plan, SocketAddr::from(GATEWAY));
        let Some(end) = outside::connect(from, to, plan.room, plan.gateway_room) else {
            self.is_done = true;
            return Err(None);
        };
        Ok(match &self.tls {
            None => Link::plain(end),
            Some(config) => Link::client(end, Arc::clone(config)).troubled(dice, plan.tls_trouble),
        })
    }

    /// Returns the way in which it leaves now, if it is to: `moved` is the number of bytes so far.
    pub fn leaves(&mut self, moved: u64) -> Option<Leave> {
        self.plan.leave.take_if(|(after, _)| moved >= *after).map(|(_, leave)| leave)
    }

    /// Begins to stall, if it is to. Returns the end of that.
    pub fn stalls(&mut self, moved: u64, now: Moment) -> Option<Moment> {
        let (_, time) = self.plan.stall.take_if(|(after, _)| moved >= *after)?;
        self.stalled_until = now + time;
        Some(self.stalled_until)
    }

    /// The time at which a request that the gateway has had since then has outlived its limit.
    pub fn due(since: Moment) -> Moment {
        since + Duration::from_secs(TOTAL_S) + SLACK
    }

    /// Accuses the gateway of a request that has outlived its limit.
    pub fn accuse_late(&self, index: Option<usize>, ledger: &mut Ledger) {
        let id = index.map(|index| self.plan.requests[index].id);
        ledger.accuse(format!("request {id:?} has outlived its time limit of {TOTAL_S} s"));
    }
}

/// The scheme, authority and path of a request's target, which names its provider or is the gateway's own.
pub fn target(plan: &RequestPlan, has_tls: bool) -> (&'static str, String, String) {
    let (provider, path) = (PROVIDERS[plan.provider], plan.path());
    let scheme = |is_secured| if is_secured { "https" } else { "http" };
    if plan.is_absolute {
        return (scheme(plan.is_secured), format!("{provider}.example"), path);
    }
    (scheme(has_tls), "127.0.0.1:8000".to_owned(), format!("/{provider}{path}"))
}
