//! The counters of hosts without a configured provider: one set for each of a bounded number of hosts, and
//! one for all others together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::counters::ProviderStats;
use crate::stats::ProviderSnapshot;

/// The counters of hosts. They outlive a reload.
#[derive(Debug)]
pub struct HostStats {
    /// Exchanges that reached no host, or a host beyond the bound.
    rest: Arc<ProviderStats>,
    /// By host, with the port if it is not the default one. Locked only when a worker meets a host for the
    /// first time, and when the counters are read.
    hosts: Mutex<BTreeMap<String, Arc<ProviderStats>>>,
    max: AtomicUsize,
    workers: usize,
}

impl HostStats {
    /// Creates counters for `workers` workers.
    pub fn new(name: &str, workers: usize) -> Arc<Self> {
        Arc::new(Self {
            rest: ProviderStats::new(name, workers),
            hosts: Mutex::default(),
            max: AtomicUsize::new(0),
            workers,
        })
    }

    /// Sets the maximum number of hosts with counters of their own. Hosts that have them keep them.
    pub fn set_max(&self, max: usize) {
        self.max.store(max, Relaxed);
    }

    /// Returns the counters of exchanges that reach no host.
    pub fn rest(&self) -> &Arc<ProviderStats> {
        &self.rest
    }

    /// Returns the counters of `host`. If there are too many, a host that no worker is connected to loses its
    /// own; if there is none, `host` is counted with the rest.
    pub fn of(&self, host: &str) -> Arc<ProviderStats> {
        let max = self.max.load(Relaxed);
        let mut hosts = self.hosts.lock();
        if let Some(known) = hosts.get(host) {
            return Arc::clone(known);
        }
        if hosts.len() >= max {
            let unused = hosts.iter().find(|(_, stats)| Arc::strong_count(stats) == 1);
            let unused = unused.map(|(host, _)| host.clone());
            match unused.filter(|_| max > 0) {
                Some(unused) => hosts.remove(&unused),
                None => return Arc::clone(&self.rest),
            };
        }
        let stats = ProviderStats::of_host(self.rest.name(), host, self.workers);
        hosts.insert(host.to_owned(), Arc::clone(&stats));
        stats
    }

    /// Returns the sums over all workers: of the rest first, then by host.
    pub fn snapshot(&self) -> Vec<ProviderSnapshot> {
        let hosts: Vec<_> = self.hosts.lock().values().map(Arc::clone).collect();
        std::iter::once(&self.rest).chain(&hosts).map(|stats| stats.snapshot()).collect()
    }
}

#[cfg(test)]
mod tests {
    use egret_http1::Method;

    use super::*;

    fn shown(stats: &HostStats) -> Vec<(Option<String>, u64)> {
        let count = |snapshot: ProviderSnapshot| {
            (snapshot.host, snapshot.exchanges.iter().map(|exchanges| exchanges.count).sum())
        };
        stats.snapshot().into_iter().map(count).collect()
    }

    #[test]
    fn hosts_beyond_the_bound_are_counted_together() {
        let stats = HostStats::new("-", 1);
        stats.set_max(2);
        let hosts = ["a.example", "b.example:8080", "c.example", "a.example"].map(|host| stats.of(host));
        for host in &hosts {
            host.of(0).exchange(Method::Get, 200);
        }
        let (a, b) = (Some("a.example".to_owned()), Some("b.example:8080".to_owned()));
        assert_eq!(shown(&stats), [(None, 1), (a, 2), (b, 1)]);
    }

    #[test]
    fn a_host_that_nobody_is_connected_to_makes_room() {
        let stats = HostStats::new("-", 1);
        stats.set_max(2);
        let kept = stats.of("a.example");
        drop(stats.of("b.example"));
        let new = stats.of("c.example");
        let names: Vec<_> = shown(&stats).into_iter().filter_map(|(host, _)| host).collect();
        assert_eq!(names, ["a.example", "c.example"]);
        drop((kept, new));
        stats.set_max(0);
        assert!(Arc::ptr_eq(&stats.of("d.example"), stats.rest()));
    }
}
