//! The moments of an exchange, and the deadlines that it is held to.

use std::task::Context;
use std::time::Duration;

use egret_clock::Moment;

use crate::client::Client;
use crate::exchange::pace::Taking;
use crate::upstream::DialTimes;

/// Over how long a client's rate is judged (`limits.body_rate`).
pub(crate) const RATE_WINDOW: Duration = Duration::from_secs(10);

/// The moments of an exchange.
pub(crate) struct Clock {
    /// The worker turned to the request, whose head had not been received yet, or not all of it.
    pub begun: Moment,
    /// How long it took to get a connection.
    pub dial: DialTimes,
    /// How long the request had to wait for a connection, for its remedies, and for calls that were made in vain.
    pub waited_nanos: u64,
    /// The request's head, and what was there of its body, has been handed to the system.
    pub sent: Moment,
    /// The rest of the request's body has been handed to the system, if some was left.
    pub uploaded: Moment,
    /// The worker turned to the response, or to the first byte of it.
    pub first_byte: Moment,
    /// The response's head, and what was there of its body, has been handed to the system.
    pub forwarded: Moment,
}

impl Clock {
    /// An exchange that has begun at `begun`.
    pub fn new(begun: Moment) -> Self {
        let dial = DialTimes::default();
        Self {
            begun,
            dial,
            waited_nanos: 0,
            sent: begun,
            uploaded: begun,
            first_byte: begun,
            forwarded: begun,
        }
    }

    /// The part of the latency that the gateway itself took.
    pub fn footprint_nanos(&self) -> u64 {
        let there = self.sent.nanos_since(self.begun).saturating_sub(self.waited_nanos);
        there + self.forwarded.nanos_since(self.first_byte)
    }
}

/// What the connection's one timer is set to: the nearest of these.
pub(crate) struct Deadlines {
    /// The end of the whole exchange.
    pub total: Moment,
    /// The end of the patience with a client that has closed its sending side.
    pub half_close: Moment,
    /// How much of the response had moved when `half_close` was set.
    pub half_close_moved_bytes: u64,
    /// What is waited for now: the first byte, or the next one.
    pub phase: Moment,
    /// The next byte of a response that is being stored, whatever its client takes.
    pub fill: Moment,
    /// The client's upload.
    pub rate: RateWindow,
    /// How the client takes the response.
    pub taking: Taking,
    /// From when on the client is watched while its provider is waited for; never once it is.
    pub watch: Moment,
}

/// Whether a client keeps up `limits.body_rate` while it sends a body. How fast it takes one is told by
/// [`Taking`].
pub(crate) struct RateWindow {
    ends: Moment,
    moved_bytes: u64,
}

impl Deadlines {
    /// Only the end of the whole exchange, if it has one.
    pub fn new(total: Moment) -> Self {
        let never = Moment::NEVER;
        Self {
            total,
            half_close: never,
            half_close_moved_bytes: 0,
            phase: never,
            fill: never,
            rate: RateWindow::NONE,
            taking: Taking::NOTHING,
            watch: never,
        }
    }

    /// Whether it is time to look whether the client is still there.
    pub fn watches_client(&self) -> bool {
        self.watch == Moment::NEVER
    }

    /// Sets the client's timer to the nearest deadline.
    pub fn arm(&self, client: &Client) {
        let nearest = self.total.min(self.half_close).min(self.phase).min(self.fill);
        client.timer.set_at(nearest.min(self.rate.ends).min(self.taking.ends()).min(self.watch));
    }

    /// After the timer went off without consequence: the next deadline, and somebody who is woken by it.
    pub fn rearm(&mut self, client: &Client, cx: &Context<'_>, now: Moment) {
        if self.watch <= now {
            self.watch = Moment::NEVER;
        }
        if self.rate.ends <= now {
            self.rate.ends = now + RATE_WINDOW;
        }
        self.arm(client);
        client.timer.poll_expired(cx);
    }
}

impl RateWindow {
    /// None: nothing is judged.
    pub const NONE: Self = Self { ends: Moment::NEVER, moved_bytes: 0 };

    /// A window that starts now, after `moved_bytes`.
    pub fn starting(now: Moment, moved_bytes: u64) -> Self {
        Self { ends: now + RATE_WINDOW, moved_bytes }
    }

    /// Judges the window that ends now, if it does, and opens the next.
    pub fn keeps_up(&mut self, now: Moment, moved_bytes: u64, rate: u64) -> bool {
        if self.ends > now {
            return true;
        }
        let moved = moved_bytes.saturating_sub(self.moved_bytes);
        *self = Self::starting(now, moved_bytes);
        moved >= rate.saturating_mul(RATE_WINDOW.as_secs())
    }
}
