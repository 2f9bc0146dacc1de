//! The counters of each worker, and their sum as a [`StatsSnapshot`](crate::stats::StatsSnapshot).

use std::sync::Arc;

use egret_clients::Unproven;
use egret_http1::Method;
use egret_http2::Flood;
use egret_net::counter::Counter;
use egret_net::histogram::Histogram;
use egret_net::policy::Reason;

use crate::failure::ErrorKind;
use crate::notice::Notice;
use crate::provider_errors::ProviderErrors;
use crate::stats::{ClientsSnapshot, Count, ExchangeCount, InterceptionSnapshot, ProviderSnapshot};

/// Names of the methods in the order of [`Method::index`].
const METHODS: [&str; 10] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "other"];
/// Names of the status classes. The first is for exchanges that ended without a response.
const STATUS_CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// One worker's counters for one provider. Aligned, so two workers never write to the same cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ProviderCounters {
    exchanges: [[Counter; STATUS_CLASSES.len()]; METHODS.len()],
    /// Responses among them that the gateway generated itself.
    generated: [Counter; STATUS_CLASSES.len()],
    /// Responses among them that came from a cache.
    stored: [Counter; STATUS_CLASSES.len()],
    /// Time from the end of a request's head until the last byte of the response was sent.
    pub latency: Histogram,
    /// The part of it spent in the gateway, without waits for the provider or the bodies.
    pub footprint: Histogram,
    /// Calls that got the head of a response.
    pub answered_calls: Counter,
    /// Time that they waited for it, once they were sent, in nanoseconds.
    pub waited_nanos: Counter,
    /// Bytes sent to the provider.
    pub sent_bytes: Counter,
    /// Bytes received from the provider.
    pub received_bytes: Counter,
    /// Connections opened.
    pub connects: Counter,
    /// Connections that could not be opened.
    pub connect_failures: Counter,
    /// Completed TLS handshakes.
    pub tls_handshakes: Counter,
    /// Failed TLS handshakes.
    pub tls_failures: Counter,
    /// Calls on an idle connection of the worker.
    pub pool_hits: Counter,
    /// Calls on an idle connection of another worker.
    pub pool_steals: Counter,
    /// Calls sent again because their idle connection had ended.
    pub repeats: Counter,
    /// Connections that are open.
    pub connections_open: Counter,
    /// Open connections that carry no call.
    pub connections_idle: Counter,
    /// Tunnels that are open.
    pub tunnels: Counter,
}

impl ProviderCounters {
    /// Counts a finished exchange. `status` is 0 if there was no response.
    pub fn exchange(&self, method: Method, status: u16) {
        self.exchanges[method.index()][class(status)].add(1);
    }

    /// Counts a response that the gateway generates itself.
    pub fn generated(&self, status: u16) {
        self.generated[class(status)].add(1);
    }

    /// Counts a response from a cache.
    pub fn stored(&self, status: u16) {
        self.stored[class(status)].add(1);
    }

    fn add_to(&self, total: &mut ProviderSnapshot) {
        for (method, classes) in METHODS.iter().zip(&self.exchanges) {
            for (status, counter) in STATUS_CLASSES.iter().zip(classes) {
                add_exchanges(&mut total.exchanges, method, status, counter.get());
            }
        }
        for (status, counter) in STATUS_CLASSES.iter().zip(&self.generated) {
            add_count(&mut total.generated, status, counter.get());
        }
        for (status, counter) in STATUS_CLASSES.iter().zip(&self.stored) {
            add_count(&mut total.stored, status, counter.get());
        }
        self.latency.add_to(&mut total.latency);
        self.footprint.add_to(&mut total.footprint);
        total.answered_calls += self.answered_calls.get();
        total.waited_us += self.waited_nanos.get() / 1_000;
        total.sent_bytes += self.sent_bytes.get();
        total.received_bytes += self.received_bytes.get();
        total.connects += self.connects.get();
        total.connect_failures += self.connect_failures.get();
        total.tls_handshakes += self.tls_handshakes.get();
        total.tls_failures += self.tls_failures.get();
        total.pool_hits += self.pool_hits.get();
        total.pool_steals += self.pool_steals.get();
        total.repeats += self.repeats.get();
        total.connections_open += self.connections_open.get();
        total.connections_idle += self.connections_idle.get();
        total.tunnels += self.tunnels.get();
    }
}

/// Returns `true` if a call with this status has failed: 401, 403, 429 or 5xx.
pub const fn is_failed_status(status: u16) -> bool {
    status >= 500 || status == 429 || status == 401 || status == 403
}

/// Returns the index of the class of a status.
fn class(status: u16) -> usize {
    let class = usize::from(status / 100);
    if class < STATUS_CLASSES.len() { class } else { 0 }
}

fn add_count(counts: &mut Vec<Count>, name: &'static str, count: u64) {
    match counts.iter_mut().find(|known| known.name == name) {
        Some(known) => known.count += count,
        None if count > 0 => counts.push(Count { name, count }),
        None => {}
    }
}

fn add_exchanges(exchanges: &mut Vec<ExchangeCount>, method: &'static str, status: &'static str, count: u64) {
    if count == 0 {
        return;
    }
    match exchanges.iter_mut().find(|known| known.method == method && known.status == status) {
        Some(known) => known.count += count,
        None => exchanges.push(ExchangeCount { method, status, count }),
    }
}

/// The counters of one provider, one set per worker.
#[derive(Debug)]
pub struct ProviderStats {
    name: String,
    /// The host, if it is one without a configured provider.
    host: Option<String>,
    workers: Box<[ProviderCounters]>,
    /// The log line about tunnels to the provider.
    pub bypassed: Notice,
    /// Its failed calls, and the errors in its place.
    pub errors: ProviderErrors,
}

impl ProviderStats {
    /// Creates counters that are zero.
    pub fn new(name: &str, workers: usize) -> Arc<Self> {
        Self::zero(name, None, workers)
    }

    /// Creates counters of a host without a configured provider.
    pub fn of_host(name: &str, host: &str, workers: usize) -> Arc<Self> {
        Self::zero(name, Some(host.to_owned()), workers)
    }

    fn zero(name: &str, host: Option<String>, workers: usize) -> Arc<Self> {
        let workers = (0..workers).map(|_| ProviderCounters::default()).collect();
        Arc::new(Self {
            name: name.to_owned(),
            host,
            workers,
            bypassed: Notice::default(),
            errors: ProviderErrors::default(),
        })
    }

    /// Returns the configured name, or `-`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the counters that worker `worker` writes to.
    pub fn of(&self, worker: usize) -> &ProviderCounters {
        &self.workers[worker]
    }

    /// Returns the workers other than `own` that seem to hold idle connections.
    pub fn with_idle(&self, own: usize) -> impl Iterator<Item = usize> {
        (0..self.workers.len())
            .filter(move |worker| *worker != own && self.workers[*worker].connections_idle.get() > 0)
    }

    /// Returns the sum over all workers.
    pub fn snapshot(&self) -> ProviderSnapshot {
        let (name, host) = (self.name.clone(), self.host.clone());
        let mut total = ProviderSnapshot { name, host, ..ProviderSnapshot::default() };
        for worker in &self.workers {
            worker.add_to(&mut total);
        }
        total.call_errors = self.errors.calls_snapshot();
        total.errors = self.errors.responses_snapshot();
        total
    }
}

/// One worker's counters that do not belong to a provider.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Accepted clients.
    pub accepted: Counter,
    /// Clients refused at the limit of connections.
    pub refused: Counter,
    /// Failed TLS handshakes.
    pub tls_failures: Counter,
    /// Clients that are connected.
    pub open: Counter,
    /// Connected clients without an exchange.
    pub idle: Counter,
    /// Tunnels that are open.
    pub tunnels: Counter,
    /// Bytes received from clients.
    pub received_bytes: Counter,
    /// Bytes sent to clients.
    pub sent_bytes: Counter,
    /// Lines that the access log lost.
    pub access_log_dropped: Counter,
    /// Exchanges that ended because their client closed the connection.
    pub gone_cancelled: Counter,
    /// Exchanges that went on after their client had closed its side.
    pub gone_finished: Counter,
    /// Tunnels whose inside the gateway serves.
    pub intercepted_connections: Counter,
    /// Requests inside them.
    pub intercepted_exchanges: Counter,
    /// Connections whose client refused the certificate.
    pub intercept_refused: Counter,
    /// Tunnels to an intercepted host that were closed because of their protocol.
    pub intercept_unknown: Counter,
    /// Clients that name another server in TLS than in their CONNECT.
    pub sni_mismatches: Counter,
    /// Tunnels that were relayed to a configured provider.
    pub provider_tunnels: Counter,
    generated: Each<{ ErrorKind::ALL.len() }>,
    denials: Each<{ Reason::ALL.len() }>,
    unproven: Each<{ Unproven::ALL.len() }>,
    floods: Each<{ Flood::ALL.len() }>,
}

/// One counter for each of `KINDS` kinds.
#[derive(Debug)]
struct Each<const KINDS: usize>([Counter; KINDS]);

impl<const KINDS: usize> Default for Each<KINDS> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl WorkerCounters {
    /// Counts a response generated by the gateway itself.
    pub fn generated(&self, kind: ErrorKind) {
        self.generated.0[kind as usize].add(1);
    }

    /// Counts an exchange whose client closed the connection before the response was complete.
    pub fn client_gone(&self, is_cancelled: bool) {
        if is_cancelled { &self.gone_cancelled } else { &self.gone_finished }.add(1);
    }

    /// Counts a denied target, even if report mode allowed it.
    pub fn denial(&self, reason: Reason) {
        self.denials.0[reason as usize].add(1);
    }

    /// Counts a request or a connection whose client has not proven who it is.
    pub fn unproven(&self, unproven: Unproven) {
        self.unproven.0[unproven as usize].add(1);
    }

    /// Counts a client's connection of HTTP/2 that was ended because of a flood of frames.
    pub fn flood(&self, flood: Flood) {
        self.floods.0[flood as usize].add(1);
    }
}

/// Returns the sum of all workers' client counters.
pub fn clients(workers: &[WorkerCounters]) -> ClientsSnapshot {
    let sum = |of: fn(&WorkerCounters) -> &Counter| workers.iter().map(|worker| of(worker).get()).sum();
    ClientsSnapshot {
        accepted: sum(|worker| &worker.accepted),
        refused: sum(|worker| &worker.refused),
        tls_failures: sum(|worker| &worker.tls_failures),
        open: sum(|worker| &worker.open),
        idle: sum(|worker| &worker.idle),
        tunnels: sum(|worker| &worker.tunnels),
        received_bytes: sum(|worker| &worker.received_bytes),
        sent_bytes: sum(|worker| &worker.sent_bytes),
        gone_cancelled: sum(|worker| &worker.gone_cancelled),
        gone_finished: sum(|worker| &worker.gone_finished),
    }
}

/// Returns the sum of all workers' counters of interception.
pub fn interception(workers: &[WorkerCounters]) -> InterceptionSnapshot {
    let sum = |of: fn(&WorkerCounters) -> &Counter| workers.iter().map(|worker| of(worker).get()).sum();
    InterceptionSnapshot {
        connections: sum(|worker| &worker.intercepted_connections),
        exchanges: sum(|worker| &worker.intercepted_exchanges),
        refused: sum(|worker| &worker.intercept_refused),
        unknown: sum(|worker| &worker.intercept_unknown),
        refusing: Vec::new(),
        sni_mismatches: sum(|worker| &worker.sni_mismatches),
        provider_tunnels: sum(|worker| &worker.provider_tunnels),
        ca_expires_s: None,
    }
}

/// Returns the number of responses generated by the gateway itself, by slug.
pub fn generated(workers: &[WorkerCounters]) -> Vec<Count> {
    let count = |kind: ErrorKind| workers.iter().map(|worker| worker.generated.0[kind as usize].get()).sum();
    ErrorKind::ALL.iter().map(|kind| Count { name: kind.slug(), count: count(*kind) }).collect()
}

/// Returns the number of denied targets, by reason.
pub fn denials(workers: &[WorkerCounters]) -> Vec<Count> {
    let count = |reason: Reason| workers.iter().map(|worker| worker.denials.0[reason as usize].get()).sum();
    Reason::ALL.iter().map(|reason| Count { name: reason.slug(), count: count(*reason) }).collect()
}

/// Returns the number of requests and connections of clients that have not proven who they are, by reason.
pub fn unproven(workers: &[WorkerCounters]) -> Vec<Count> {
    let count =
        |unproven: Unproven| workers.iter().map(|worker| worker.unproven.0[unproven as usize].get()).sum();
    Unproven::ALL.iter().map(|unproven| Count { name: unproven.slug(), count: count(*unproven) }).collect()
}

/// Returns the number of clients' connections that were ended because of floods of HTTP/2 frames, by kind.
pub fn floods(workers: &[WorkerCounters]) -> Vec<Count> {
    let count = |flood: Flood| workers.iter().map(|worker| worker.floods.0[flood as usize].get()).sum();
    Flood::ALL.iter().map(|flood| Count { name: flood.slug(), count: count(*flood) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_all_workers_add_up() {
        let stats = ProviderStats::new("stripe", 2);
        stats.of(0).exchange(Method::Get, 200);
        stats.of(1).exchange(Method::Get, 204);
        stats.of(1).exchange(Method::Post, 0);
        stats.of(1).exchange(Method::Post, 999);
        stats.of(0).generated(503);
        stats.of(1).generated(503);
        stats.of(1).stored(404);
        let snapshot = stats.snapshot();
        assert_eq!(
            snapshot.exchanges,
            [
                ExchangeCount { method: "GET", status: "2xx", count: 2 },
                ExchangeCount { method: "POST", status: "none", count: 2 },
            ]
        );
        assert_eq!(snapshot.generated, [Count { name: "5xx", count: 2 }]);
        assert_eq!(snapshot.stored, [Count { name: "4xx", count: 1 }]);
    }

    #[test]
    fn the_methods_are_named_in_the_order_of_their_numbers() {
        for method in [Method::Get, Method::Connect, Method::Patch, Method::Other] {
            assert_eq!(METHODS[method.index()], method.name());
        }
    }

    #[test]
    fn workers_with_idle_connections_are_asked_and_never_oneself() {
        let stats = ProviderStats::new("stripe", 3);
        assert_eq!(stats.with_idle(0).count(), 0);
        stats.of(0).connections_idle.add(9);
        stats.of(2).connections_idle.add(2);
        assert!(stats.with_idle(0).eq([2]));
        assert!(stats.with_idle(1).eq([0, 2]));
    }
}
