//! A resolver whose names the simulation answers, on its own thread.

use std::future::Future;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::lookup::Lookup;
use super::{Answer, DnsError, Resolver, serve};
use crate::config::DnsConfig;

/// The answer of the name servers about a name, and the time that it takes.
#[derive(Debug, Clone)]
pub struct SimulatedAnswer {
    /// Time until it arrives.
    pub after: Duration,
    /// The addresses, and the time for which they are valid.
    pub outcome: Result<(Vec<IpAddr>, Duration), DnsError>,
}

/// Plays the name servers.
pub type NameServers = Rc<dyn Fn(&str) -> SimulatedAnswer>;

struct Simulated(NameServers);

impl Lookup for Simulated {
    fn lookup(&mut self, host: Arc<str>) -> impl Future<Output = Result<Answer, DnsError>> + 'static {
        let SimulatedAnswer { after, outcome } = (self.0)(&host);
        async move {
            tokio::time::sleep(after).await;
            outcome.map(|(addresses, ttl)| Answer { addresses, ttl: Some(ttl) })
        }
    }

    fn reconfigure(&mut self, _: &DnsConfig) {}
}

impl Resolver {
    /// Creates a resolver that asks `servers`, and the future that it runs as, on a local runtime of tokio
    /// with a paused clock. It ends with the last handle.
    pub fn simulated(config: &DnsConfig, servers: NameServers) -> (Self, impl Future<Output = ()> + 'static) {
        let (resolver, receivers) = Self::new(config);
        let counters = Arc::clone(&resolver.counters);
        (resolver, serve(Simulated(servers), receivers, counters))
    }

    /// Returns `true` if a question waits for that future.
    pub fn is_asked(&self) -> bool {
        self.asks.capacity() < self.asks.max_capacity()
    }
}
