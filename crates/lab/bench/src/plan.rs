//! A checked and prepared run: the bytes to send, their destinations and order, the pace, and the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_http1::Method;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::check::Checks;
use crate::pace::Pace;
use crate::session::Http2Request;
use crate::transport::SocketOptions;

/// A prepared run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The destinations to connect to.
    pub destinations: Vec<Destination>,
    /// The requests to send.
    pub requests: Vec<PreparedRequest>,
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
    /// Number of streams on each connection of HTTP/2; `None` for HTTP/1.1.
    pub streams: Option<usize>,
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
pub(crate) struct Destination {
    /// The address to connect to: the target's, or the proxy's.
    pub address: SocketAddr,
    /// The CONNECT request that asks the proxy for a tunnel.
    pub tunnel: Option<Vec<u8>>,
    /// TLS configuration and server name, if the target uses TLS.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// A request ready to be sent.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    /// Index into [`Plan::destinations`].
    pub destination: usize,
    /// Index of its target.
    pub target: usize,
    /// The method, as far as it affects the framing of the response.
    pub method: Method,
    /// All bytes of a request of HTTP/1.1.
    pub bytes: Vec<u8>,
    /// The request, if it is one of HTTP/2.
    pub http2: Option<Http2Request>,
    /// Body length of the first response to it.
    pub length: FirstLength,
}

/// Body length of the first response. As in ab, the other responses must have the same length.
#[derive(Debug)]
pub(crate) struct FirstLength(AtomicU64);

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
        let streams = self.streams.unwrap_or(1);
        let connections = self.concurrency / streams;
        (connections / self.threads + usize::from(index < connections % self.threads)) * streams
    }
}

/// Returns an order in which each index occurs as often as its weight says, spread as evenly as possible.
///
/// This is smooth weighted round robin: at each step every index gains its weight as credit, and the index
/// with the highest credit is chosen and pays the total.
pub(crate) fn spread(weights: &[u32]) -> Vec<usize> {
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
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::compiled;

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

    proptest! {
        #[test]
        fn every_prefix_of_the_order_is_nearly_in_proportion(weights in prop::collection::vec(1_u32..20, 1..6)) {
            let order = spread(&weights);
            let total: u32 = weights.iter().sum();
            prop_assert_eq!(order.len(), usize::try_from(total).unwrap());
            for (index, weight) in weights.iter().enumerate() {
                let mut count = 0_u32;
                for (sent, chosen) in (1_u32..).zip(&order) {
                    count += u32::from(*chosen == index);
                    let due = f64::from(sent) * f64::from(*weight) / f64::from(total);
                    let apart = (f64::from(count) - due).abs();
                    prop_assert!(apart < f64::from(u32::try_from(weights.len()).unwrap()), "{apart} after {sent}");
                }
                prop_assert_eq!(count, *weight);
            }
        }

        #[test]
        fn the_threads_share_all_exchanges_evenly(concurrency in 1_usize..200, threads in 1_usize..32) {
            let plan = compiled(|it| {
                (it.concurrency, it.threads, it.requests) = (concurrency, threads, Some(1_000));
                it.yes = true;
            })
            .plan;
            let shares: Vec<usize> = (0..plan.threads).map(|index| plan.share(index)).collect();
            prop_assert_eq!(shares.iter().sum::<usize>(), concurrency);
            prop_assert!(shares[0] - shares[shares.len() - 1] <= 1 && shares.is_sorted_by(|one, next| one >= next));
            prop_assert!(plan.threads <= concurrency);
        }
    }
}
