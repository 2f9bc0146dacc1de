//! The moments of an exchange, and its deadlines.

use std::task::Context;

use egret_clock::Moment;
use egret_net::deadline::Timer;
use egret_net::pace::{RATE_WINDOW, RateWindow, Taking};

use crate::upstream::DialTimes;

/// The moments of an exchange.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The worker turned to the request, before its head was completely received.
    pub begun: Moment,
    /// Duration of obtaining a connection.
    pub dial: DialTimes,
    /// Time that the request waited for a connection, for its remedies, and for calls that failed.
    pub waited_nanos: u64,
    /// The request's head, and the part of its body received by then, was written to the socket.
    pub sent: Moment,
    /// The rest of the request's body, if any, was written to the socket.
    pub uploaded: Moment,
    /// The worker turned to the response, or to its first byte.
    pub first_byte: Moment,
    /// The response's head, and the part of its body received by then, was written to the socket.
    pub forwarded: Moment,
}

impl Clock {
    /// Creates the clock of an exchange that began at `begun`.
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

    /// Returns the part of the latency that the gateway itself added.
    pub fn footprint_nanos(&self) -> u64 {
        let there = self.sent.nanos_since(self.begun).saturating_sub(self.waited_nanos);
        there + self.forwarded.nanos_since(self.first_byte)
    }
}

/// The deadlines of an exchange. The connection's only timer is set to the nearest.
pub(crate) struct Deadlines {
    /// The end of the whole exchange.
    pub total: Moment,
    /// The time at which a client that has half-closed its connection counts as gone.
    pub half_close: Moment,
    /// Number of response bytes sent when `half_close` was set.
    pub half_close_moved_bytes: u64,
    /// The deadline of the current wait: for the first byte, or for the next one.
    pub phase: Moment,
    /// The deadline of the next byte of a response that is being stored. It does not depend on the client's
    /// reading.
    pub fill: Moment,
    /// The rate of the client's upload.
    pub rate: RateWindow,
    /// The rate at which the client reads the response.
    pub taking: Taking,
    /// The time from which the client is watched while the exchange waits for the provider. `NEVER` once it
    /// is watched.
    pub watch: Moment,
}

impl Deadlines {
    /// Creates deadlines that hold only the end of the whole exchange, if it has one.
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

    /// Returns `true` if the client's socket is being watched for a disconnect.
    pub fn watches_client(&self) -> bool {
        self.watch == Moment::NEVER
    }

    /// Sets the connection's timer to the nearest deadline.
    pub fn arm(&self, timer: &Timer) {
        let nearest = self.total.min(self.half_close).min(self.phase).min(self.fill);
        timer.set_at(nearest.min(self.rate.ends).min(self.taking.ends()).min(self.watch));
    }

    /// Sets the timer to the next deadline and registers the waker, after the timer expired without
    /// consequence.
    pub fn rearm(&mut self, timer: &Timer, cx: &Context<'_>, now: Moment) {
        if self.watch <= now {
            self.watch = Moment::NEVER;
        }
        if self.rate.ends <= now {
            self.rate.ends = now + RATE_WINDOW;
        }
        self.arm(timer);
        timer.poll_expired(cx);
    }
}
