//! Whether a client takes a response as fast as `limits.body_rate` wants it.
//!
//! Only while something is there that the client has not taken does time count: a provider that pauses, or is
//! slow itself, is not held against it. And how fast it takes what is there can only be told by what the
//! system takes of it, which buffers megabytes, and makes room again in large portions. So a window is longer
//! than that of an upload by as much as a client at the least rate needs for what the system may hide.

use std::task::Context;
use std::time::Duration;

use egret_clock::Moment;
use tracing::debug;

use crate::client::Client;
use crate::exchange::clock::RATE_WINDOW;

/// What a client's own system may hold back before it makes room: a segment, which is largest on loopback.
const SEGMENT_BYTES: u64 = 64 << 10;

/// How a client takes a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taking {
    /// Since when something has been waiting for the client; never where nothing does.
    since: Moment,
    /// For how long something waited before, in this window.
    waited: Duration,
    /// For how long something has to wait before it is judged how much was taken.
    window: Duration,
    /// What the client had taken when the window began.
    taken_before: u64,
}

impl Taking {
    /// Nothing waits for the client, and nothing has.
    pub const NOTHING: Self =
        Self { since: Moment::NEVER, waited: Duration::ZERO, window: RATE_WINDOW, taken_before: 0 };

    /// Whether something was waiting for the client when that was noted last.
    pub fn is_waiting(&self) -> bool {
        self.since != Moment::NEVER
    }

    /// When it is to be judged, if it goes on so.
    pub fn ends(&self) -> Moment {
        if self.is_waiting() { self.since + self.window.saturating_sub(self.waited) } else { Moment::NEVER }
    }

    /// Notes whether at `now`, when the client has taken `taken` bytes, something waits for it.
    pub fn note(&mut self, waits: bool, now: Moment, taken: u64) {
        if waits == self.is_waiting() {
            return;
        }
        if !waits {
            self.waited += now.since(self.since);
            self.since = Moment::NEVER;
            return;
        }
        if self.waited.is_zero() {
            self.taken_before = taken;
        }
        self.since = now;
    }

    /// Judges the window that ends at `now`, if one does, and opens the next. The client has taken `taken`
    /// bytes, as far as the system tells, which may be `hidden` behind; `rate` is in bytes per second, and 0
    /// is any.
    pub fn keeps_up(&mut self, now: Moment, taken: u64, rate: u64, hidden: impl FnOnce() -> u64) -> bool {
        if self.ends() > now {
            return true;
        }
        let extra = hidden().saturating_mul(1_000).checked_div(rate).map(Duration::from_millis);
        let needed = extra.map_or(Duration::MAX, |extra| RATE_WINDOW.saturating_add(extra));
        if needed > self.window {
            // The system buffers more than it did, or nobody has asked yet how much.
            self.window = needed;
            if self.ends() > now {
                return true;
            }
        }
        let taken_within = taken.saturating_sub(self.taken_before);
        *self = Self { since: now, taken_before: taken, ..Self::NOTHING };
        taken_within >= rate.saturating_mul(RATE_WINDOW.as_secs())
    }
}

/// Holds a client to `timeouts.idle` and `limits.body_rate` while it is sent what nobody else sends.
#[derive(Debug)]
pub(crate) struct Patience {
    idle: Option<Duration>,
    /// When the next byte has to have moved.
    next_byte: Moment,
    taking: Taking,
    taken: u64,
}

impl Patience {
    /// With `client`, from `now` on.
    pub fn new(client: &Client, idle: Option<Duration>, now: Moment) -> Self {
        let patience = Self { idle, next_byte: now.after(idle), taking: Taking::NOTHING, taken: 0 };
        patience.arm(client);
        patience
    }

    /// The client has taken so many bytes more.
    pub fn note_taken(&mut self, client: &Client, count: u64) {
        self.taken += count;
        self.next_byte = Moment::now().after(self.idle);
        self.arm(client);
    }

    /// Whether there is none left with the client: it has taken nothing, or too little, for too long.
    /// Something waits for it if `waits`; else more is still to come. If there is some left the task is woken
    /// when it is to be asked again.
    pub fn is_lost(&mut self, client: &Client, cx: &Context<'_>, waits: bool) -> bool {
        if waits != self.taking.is_waiting() {
            self.taking.note(waits, Moment::now(), self.taken);
            self.arm(client);
        }
        if !client.timer.poll_expired(cx) {
            return false;
        }
        let now = Moment::now();
        if self.next_byte <= now {
            return true;
        }
        let rate = client.worker.view().plan.limits.body_rate.bytes();
        if !self.taking.keeps_up(now, self.taken, rate, || hidden_bytes(client)) {
            give_up(client);
            return true;
        }
        self.arm(client);
        client.timer.poll_expired(cx);
        false
    }

    fn arm(&self, client: &Client) {
        client.timer.set_at(self.next_byte.min(self.taking.ends()));
    }
}

/// What the client may have taken without the system having told: the system makes room once a third of its
/// buffer is free, or a client's once a segment fits.
pub(crate) fn hidden_bytes(client: &Client) -> u64 {
    let buffer = socket2::SockRef::from(client.stream.socket()).send_buffer_size().unwrap_or_default();
    buffer as u64 / 2 + SEGMENT_BYTES
}

/// Drops what the system still holds for a client that takes too little: closed in order, the connection
/// would go on for as long as before.
pub(crate) fn give_up(client: &Client) {
    debug!("a client takes a response too slowly (`limits.body_rate`)");
    client.abort();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HIDDEN: u64 = 1_000_000;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(1_000_000_000) + Duration::from_millis(millis)
    }

    /// What becomes of a client for which something always waits, that takes `pace` bytes a second, and of
    /// which the system tells every `portion` bytes, over `seconds`: when it is given up.
    fn given_up_after(pace: u64, portion: u64, rate: u64, seconds: u64) -> Option<u64> {
        let mut taking = Taking::NOTHING;
        taking.note(true, at(0), 0);
        (1..=seconds * 10).map(|tenth| tenth * 100).find(|&millis| {
            let taken = pace * millis / 1_000 / portion * portion;
            taking.ends() <= at(millis) && !taking.keeps_up(at(millis), taken, rate, || HIDDEN)
        })
    }

    #[test]
    fn a_client_is_judged_over_ten_seconds_and_what_the_system_may_hide() {
        // 10 s, and 1 MB at 100 kB/s.
        assert_eq!(given_up_after(0, 1, 100_000, 60), Some(20_000));
        assert_eq!(given_up_after(1_000, 1, 100_000, 60), Some(20_000));
        assert_eq!(given_up_after(49_000, 1, 100_000, 60), Some(20_000));
        assert_eq!(given_up_after(100_000, 1, 100_000, 600), None);
        assert_eq!(given_up_after(100_000, HIDDEN, 100_000, 6_000), None);
    }

    #[test]
    fn what_a_client_is_not_waited_for_does_not_count() {
        let mut taking = Taking::NOTHING;
        let mut now = 0;
        // It takes nothing while something waits for 4 s; then the provider has nothing for an hour.
        for _ in 0..4 {
            taking.note(true, at(now), 0);
            assert_eq!(taking.ends() > at(now + 4_000), now < 2 * 3_604_000, "after 10 s in all");
            now += 4_000;
            taking.note(false, at(now), 0);
            assert_eq!(taking.ends(), Moment::NEVER);
            assert!(taking.keeps_up(at(now), 0, 1_000_000, || HIDDEN));
            now += 3_600_000;
        }
        taking.note(true, at(now), 0);
        assert!(!taking.keeps_up(at(now), 0, 1_000_000, || HIDDEN), "16 s of waiting and nothing taken");
    }

    #[test]
    fn any_rate_will_do_where_none_is_asked_for() {
        assert_eq!(given_up_after(0, 1, 0, 6_000), None);
    }

    #[test]
    fn a_buffer_that_grows_makes_the_window_longer() {
        let mut taking = Taking::NOTHING;
        taking.note(true, at(0), 0);
        assert!(taking.keeps_up(at(10_000), 0, 1_000, || 10_000));
        assert_eq!(taking.ends(), at(20_000));
        assert!(taking.keeps_up(at(20_000), 0, 1_000, || 20_000));
        assert_eq!(taking.ends(), at(30_000));
        assert!(!taking.keeps_up(at(30_000), 9_999, 1_000, || 20_000));
    }

    proptest! {
        /// Whoever takes what is asked for is never given up, however the system tells of it and however the
        /// provider pauses; who takes less than that over the longest window is, in the end.
        #[test]
        fn a_client_is_given_up_if_and_only_if_it_is_too_slow(
            rate in 1_u64..1_000_000,
            slower in 1_u64..90,
            portion in 1_u64..=HIDDEN,
            pauses in prop::collection::vec((1_u64..30_000, 0_u64..30_000), 1..200),
        ) {
            let (mut fast, mut slow) = (Taking::NOTHING, Taking::NOTHING);
            // What the least rate gives over a window, spread over all of it, and less than that: by more than
            // the half second that the window is looked at late.
            let window_millis = 10_000 + HIDDEN * 1_000 / rate;
            let slow_pace = rate * 10_000 / window_millis * slower / 100;
            let (mut now, mut waited, mut is_given_up) = (0, 0, false);
            for (waits, pauses) in pauses {
                let told = |pace: u64, waited: u64| pace * waited / 1_000 / portion * portion;
                fast.note(true, at(now), told(rate, waited));
                slow.note(true, at(now), told(slow_pace, waited));
                for _ in 0..waits.div_ceil(500) {
                    (now, waited) = (now + 500, waited + 500);
                    let fast_told = told(rate + rate / 50 + 1, waited);
                    prop_assert!(fast.keeps_up(at(now), fast_told, rate, || HIDDEN + portion));
                    is_given_up |= !slow.keeps_up(at(now), told(slow_pace, waited), rate, || HIDDEN);
                }
                fast.note(false, at(now), told(rate, waited));
                slow.note(false, at(now), told(slow_pace, waited));
                now += pauses;
            }
            // What is hidden comes out at once, and may fall into one window.
            if waited > 3 * window_millis + 1_000 && told_within_two_windows(slow_pace, portion, window_millis) < rate * 10 {
                prop_assert!(is_given_up);
            }
        }
    }

    fn told_within_two_windows(pace: u64, portion: u64, window_millis: u64) -> u64 {
        (pace * window_millis / 1_000).div_ceil(portion) * portion + portion
    }
}
