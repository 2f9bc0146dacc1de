//! What a run will do, checked and prepared: bytes to send, where to, in what order, how fast and until when.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_http1::Method;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::check::Checks;
use super::pace::Pace;
use super::transport::SocketOptions;

/// A prepared run.
#[derive(Debug)]
pub struct Plan {
    /// Where connections go.
    pub endpoints: Vec<Endpoint>,
    /// What can be sent.
    pub requests: Vec<Request>,
    /// Indices into [`Plan::requests`], in the order of sending, over and over. Never empty.
    pub order: Vec<usize>,
    /// How many targets the requests belong to.
    pub targets: usize,
    /// Who decides when the next exchange starts.
    pub pace: Pace,
    /// Exchanges to make; none: until the time is over.
    pub count: Option<u64>,
    /// Time to run; none: until all are made.
    pub duration: Option<Duration>,
    /// Time at the start that is not counted.
    pub warmup: Duration,
    /// Exchanges at a time.
    pub concurrency: usize,
    /// Threads, at most as many as exchanges at a time.
    pub threads: usize,
    /// Whether connections are kept.
    pub keep_alive: bool,
    /// How long an exchange may take, connecting included.
    pub timeout: Duration,
    /// How sockets are made.
    pub socket: SocketOptions,
    /// What responses are held against.
    pub checks: Checks,
    /// Whether bodies of one request may differ in length.
    pub variable_length: bool,
    /// Whether the run ends when a connection breaks.
    pub stop_on_receive_error: bool,
    /// How many exchanges are kept one by one.
    pub samples_max: usize,
    /// How much of each exchange is printed: ab's levels, 2 for heads, 3 for statuses, 4 for bodies.
    pub verbosity: u8,
}

/// Where connections go, and what is done before a request can be sent.
#[derive(Debug)]
pub struct Endpoint {
    /// The address to connect to: the target's, or its proxy's.
    pub address: SocketAddr,
    /// A CONNECT request with which the proxy is asked for a tunnel.
    pub tunnel: Option<Vec<u8>>,
    /// How TLS is spoken.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// A request as it is sent.
#[derive(Debug)]
pub struct Request {
    /// Index into [`Plan::endpoints`].
    pub endpoint: usize,
    /// Which target it belongs to.
    pub target: usize,
    /// Its method, as far as it decides how the response is framed.
    pub method: Method,
    /// All of its bytes.
    pub bytes: Vec<u8>,
    /// Length of the first body that came in answer.
    pub length: FirstLength,
}

/// The length of the first response's body, which all others are held against, as ab does.
#[derive(Debug)]
pub struct FirstLength(AtomicU64);

/// No length so far: no body is that long.
const UNKNOWN: u64 = u64::MAX;

impl Default for FirstLength {
    fn default() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }
}

impl FirstLength {
    /// Whether this length is that of the first response, which it is if it comes first.
    #[inline]
    pub fn agrees(&self, length: u64) -> bool {
        match self.0.load(Relaxed) {
            UNKNOWN => self
                .0
                .compare_exchange(UNKNOWN, length, Relaxed, Relaxed)
                .map_or_else(|first| first == length, |_| true),
            first => first == length,
        }
    }

    /// The length; none before the first response.
    pub fn get(&self) -> Option<u64> {
        Some(self.0.load(Relaxed)).filter(|length| *length != UNKNOWN)
    }
}

impl Plan {
    /// Exchanges at a time that thread `index` is to make.
    pub fn share(&self, index: usize) -> usize {
        self.concurrency / self.threads + usize::from(index < self.concurrency % self.threads)
    }
}

/// An order in which each index comes as often as its weight says, spread as evenly as can be.
///
/// At each step every index gains its weight, and the richest is taken and pays for the round: smooth weighted round robin.
pub fn spread(weights: &[u32]) -> Vec<usize> {
    let total: i64 = weights.iter().map(|weight| i64::from(*weight)).sum();
    let mut credit = vec![0_i64; weights.len()];
    (0..total)
        .map(|_| {
            for (credit, weight) in credit.iter_mut().zip(weights) {
                *credit += i64::from(*weight);
            }
            // Of equals the first, so that the order is that of the command line.
            let richest = (0..credit.len()).rev().max_by_key(|index| credit[*index]).unwrap_or(0);
            credit[richest] -= total;
            richest
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_kept_and_spread() {
        assert_eq!(spread(&[1]), [0]);
        assert_eq!(spread(&[1, 1]), [0, 1]);
        assert_eq!(spread(&[5, 1, 1]), [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn the_first_length_is_the_measure() {
        let length = FirstLength::default();
        assert_eq!(length.get(), None);
        assert!(length.agrees(5) && length.agrees(5) && !length.agrees(6));
        assert_eq!(length.get(), Some(5));
    }
}
