//! The moments of an exchange, and the deadlines that it is held to.

use std::task::Context;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::upstream::DialTimes;

/// Over how long a client's rate is judged (`limits.body_rate`).
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// The moments of an exchange. Each is one read of the clock.
pub(crate) struct Clock {
    /// The request's head had been parsed.
    pub begun: Instant,
    /// How long it took to get a connection.
    pub dial: DialTimes,
    /// How long the exchange had to wait for its remedies, and for calls that were made in vain.
    pub waited: Duration,
    /// The request's head, and what was there of its body, has been handed to the system.
    pub sent: Instant,
    /// The first byte of the response is here.
    pub first_byte: Instant,
    /// The response's head, and what was there of its body, has been handed to the system.
    pub forwarded: Instant,
}

impl Clock {
    /// An exchange whose head has been parsed at `begun`.
    pub fn new(begun: Instant) -> Self {
        let (dial, waited) = (DialTimes::default(), Duration::ZERO);
        Self { begun, dial, waited, sent: begun, first_byte: begun, forwarded: begun }
    }

    /// The part of the latency that the gateway itself took.
    pub fn footprint(&self) -> Duration {
        let dial = self.dial.dns + self.dial.connect + self.dial.tls;
        let there = self.sent.saturating_duration_since(self.begun).saturating_sub(dial + self.waited);
        there + self.forwarded.saturating_duration_since(self.first_byte)
    }
}

/// What the connection's one timer is set to: the nearest of these.
#[derive(Default)]
pub(crate) struct Deadlines {
    /// The end of the whole exchange.
    pub total: Option<Instant>,
    /// The end of the patience with a client that has closed its sending side.
    pub half_close: Option<Instant>,
    /// How much of the response had moved when `half_close` was set.
    pub half_close_moved_bytes: u64,
    /// What is waited for now: the first byte, or the next one.
    pub phase: Option<Instant>,
    /// The client's upload.
    pub rate: RateWindow,
}

/// Whether a client keeps up `limits.body_rate` while it sends a body. How fast it takes one cannot be told from here: the system
/// buffers megabytes on its way, and speaks of them in large portions.
#[derive(Default)]
pub(crate) struct RateWindow {
    ends: Option<Instant>,
    moved_bytes: u64,
}

impl Deadlines {
    /// Sets the client's timer to the nearest deadline.
    pub fn arm(&self, client: &Client) {
        let nearest = [self.total, self.half_close, self.phase, self.rate.ends].into_iter().flatten().min();
        client.timer.set_at(nearest);
    }

    /// After the timer went off without consequence: the next deadline, and somebody who is woken by it.
    pub fn rearm(&mut self, client: &Client, cx: &Context<'_>, now: Instant) {
        if self.rate.ends.is_some_and(|ends| ends <= now) {
            self.rate.ends = Some(now + RATE_WINDOW);
        }
        self.arm(client);
        client.timer.poll_expired(cx);
    }
}

impl RateWindow {
    /// A window that starts now, after `moved_bytes`.
    pub fn starting(now: Instant, moved_bytes: u64) -> Self {
        Self { ends: Some(now + RATE_WINDOW), moved_bytes }
    }

    /// Judges the window that ends now, if it does, and opens the next.
    pub fn keeps_up(&mut self, now: Instant, moved_bytes: u64, rate: u64) -> bool {
        if self.ends.is_none_or(|ends| ends > now) {
            return true;
        }
        let moved = moved_bytes.saturating_sub(self.moved_bytes);
        *self = Self::starting(now, moved_bytes);
        moved >= rate.saturating_mul(RATE_WINDOW.as_secs())
    }
}

/// Whole microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    // `as_micros` would compute in 128 bits.
    duration.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(duration.subsec_micros()))
}
