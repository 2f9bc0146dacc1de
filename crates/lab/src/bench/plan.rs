//! A checked and prepared run: the bytes to send, their destinations and order, the pace, and the end.

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
    /// The endpoints to connect to.
    pub endpoints: Vec<Endpoint>,
    /// The requests to send.
    pub requests: Vec<Request>,
    /// Indices into [`Plan::requests`] in the order of sending, repeated in a cycle. Never empty.
    pub order: Vec<usize>,
    /// Number of targets that the requests belong to.
    pub targets: usize,
    /// The rule that decides when the next exchange starts.
    pub pace: Pace,
    /// Number of exchanges; `None`: until the time is over.
    pub count: Option<u64>,
    /// Duration of the run; `None`: until all exchanges are done.
    pub duration: Option<Duration>,
    /// Initial time that is not counted.
    pub warmup: Duration,
    /// Number of concurrent exchanges.
    pub concurrency: usize,
    /// Number of threads, at most the number of concurrent exchanges.
    pub threads: usize,
    /// Keeps connections open between exchanges.
    pub keep_alive: bool,
    /// Timeout of an exchange, connecting included.
    pub timeout: Duration,
    /// Socket options.
    pub socket: SocketOptions,
    /// Checks of the responses.
    pub checks: Checks,
    /// Allows responses to one request to have bodies of different lengths.
    pub variable_length: bool,
    /// Ends the run when a connection breaks.
    pub stop_on_receive_error: bool,
    /// Maximum number of exchanges kept individually.
    pub samples_max: usize,
    /// Verbosity in ab's levels: 2 prints heads, 3 status codes, 4 bodies.
    pub verbosity: u8,
}

/// The destination of connections, and the preparation that precedes the first request.
#[derive(Debug)]
pub struct Endpoint {
    /// The address to connect to: the target's, or the proxy's.
    pub address: SocketAddr,
    /// The CONNECT request that asks the proxy for a tunnel.
    pub tunnel: Option<Vec<u8>>,
    /// TLS configuration and server name, if the target uses TLS.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// A request ready to be sent.
#[derive(Debug)]
pub struct Request {
    /// Index into [`Plan::endpoints`].
    pub endpoint: usize,
    /// Index of its target.
    pub target: usize,
    /// The method, as far as it affects the framing of the response.
    pub method: Method,
    /// All bytes of the request.
    pub bytes: Vec<u8>,
    /// Body length of the first response to it.
    pub length: FirstLength,
}

/// Body length of the first response. As in ab, the other responses must have the same length.
#[derive(Debug)]
pub struct FirstLength(AtomicU64);

/// The value before the first response. No body is this long.
const UNKNOWN: u64 = u64::MAX;

impl Default for FirstLength {
    fn default() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }
}

impl FirstLength {
    /// Returns `true` if `length` is the length of the first response. The first call sets it.
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

    /// The length; `None` before the first response.
    pub fn get(&self) -> Option<u64> {
        Some(self.0.load(Relaxed)).filter(|length| *length != UNKNOWN)
    }
}

impl Plan {
    /// Number of concurrent exchanges of thread `index`.
    pub fn share(&self, index: usize) -> usize {
        self.concurrency / self.threads + usize::from(index < self.concurrency % self.threads)
    }
}

/// Returns an order in which each index occurs as often as its weight says, spread as evenly as possible.
///
/// This is smooth weighted round robin: at each step every index gains its weight as credit, and the index
/// with the highest credit is chosen and pays the total.
pub fn spread(weights: &[u32]) -> Vec<usize> {
    let total: i64 = weights.iter().map(|weight| i64::from(*weight)).sum();
    let mut credit = vec![0_i64; weights.len()];
    (0..total)
        .map(|_| {
            for (credit, weight) in credit.iter_mut().zip(weights) {
                *credit += i64::from(*weight);
            }
            // Among equals the first wins, which keeps the order of the command line.
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
