//! Checks that a client reads its response as fast as `limits.body_rate` requires.
//!
//! Time counts only while there are bytes that the client has not read, so a provider that pauses or is slow
//! is not held against the client. The gateway sees only the bytes that the kernel accepts. The kernel
//! buffers megabytes and frees them in large portions, so the window is longer than that of an upload: it
//! adds the time in which a client at the minimum rate reads as many bytes as the kernel may hide.

use std::task::Context;
use std::time::Duration;

use egret_clock::Moment;

use crate::deadline::Timer;
use crate::event_loop::Socket;

/// The window over which a client's rate is measured (`limits.body_rate`).
pub const RATE_WINDOW: Duration = Duration::from_secs(10);
/// Maximum number of bytes that the client's kernel may hold back before it opens its window: one segment,
/// which is largest on loopback.
const SEGMENT_BYTES: u64 = 64 << 10;

/// Measures the rate at which a client reads a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taking {
    /// Time since which bytes wait for the client. `NEVER` while none do.
    since: Moment,
    /// Time that bytes waited before `since`, in this window.
    waited: Duration,
    /// Time that bytes must wait before the rate is checked.
    window: Duration,
    /// Number of bytes that the client had read when the window began.
    taken_before: u64,
}

impl Taking {
    /// No bytes wait for the client, and none have waited.
    pub const NOTHING: Self =
        Self { since: Moment::NEVER, waited: Duration::ZERO, window: RATE_WINDOW, taken_before: 0 };

    /// Returns `true` if bytes waited for the client at the last call of `note`.
    pub fn is_waiting(&self) -> bool {
        self.since != Moment::NEVER
    }

    /// Returns the time of the next check, if bytes keep waiting.
    pub fn ends(&self) -> Moment {
        if self.is_waiting() { self.since + self.window.saturating_sub(self.waited) } else { Moment::NEVER }
    }

    /// Notes that bytes start or stop to wait for the client at `now`. The client has read `taken` bytes so
    /// far.
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

    /// Returns `true` if the client keeps up, or no window ends at `now`. Opens the next window when one
    /// ends. According to the kernel, the client has read `taken` bytes; `hidden` more may be unreported.
    /// `rate` is in bytes per second, and 0 disables the check.
    pub fn keeps_up(&mut self, now: Moment, taken: u64, rate: u64, hidden: impl FnOnce() -> u64) -> bool {
        if self.ends() > now {
            return true;
        }
        let extra = hidden().saturating_mul(1_000).checked_div(rate).map(Duration::from_millis);
        let needed = extra.map_or(Duration::MAX, |extra| RATE_WINDOW.saturating_add(extra));
        if needed > self.window {
            // The kernel's buffer has grown, or this is the first check.
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

/// Measures that a client keeps up `limits.body_rate` while it sends a body. [`Taking`] measures how fast it
/// reads one.
pub struct RateWindow {
    /// End of the window.
    pub ends: Moment,
    moved_bytes: u64,
}

impl RateWindow {
    /// No window: the rate is not measured.
    pub const NONE: Self = Self { ends: Moment::NEVER, moved_bytes: 0 };

    /// Starts a window at `now`, after `moved_bytes`.
    pub fn starting(now: Moment, moved_bytes: u64) -> Self {
        Self { ends: now + RATE_WINDOW, moved_bytes }
    }

    /// Returns `true` if the client kept up the rate, or the window has not ended. Opens the next window when
    /// one ends.
    pub fn keeps_up(&mut self, now: Moment, moved_bytes: u64, rate: u64) -> bool {
        if self.ends > now {
            return true;
        }
        let moved = moved_bytes.saturating_sub(self.moved_bytes);
        *self = Self::starting(now, moved_bytes);
        moved >= rate.saturating_mul(RATE_WINDOW.as_secs())
    }
}

/// Applies `timeouts.idle` and `limits.body_rate` to a client that is sent a stored response.
#[derive(Debug)]
pub struct Patience {
    idle: Option<Duration>,
    /// Deadline of the next byte.
    next_byte: Moment,
    taking: Taking,
    taken: u64,
}

impl Patience {
    /// Starts to measure a client at `now`, with the timer of its connection.
    pub fn new(timer: &Timer, idle: Option<Duration>, now: Moment) -> Self {
        let patience = Self { idle, next_byte: now.after(idle), taking: Taking::NOTHING, taken: 0 };
        patience.arm(timer);
        patience
    }

    /// Notes that the client has read `count` more bytes.
    pub fn note_taken(&mut self, timer: &Timer, count: u64) {
        self.taken += count;
        self.next_byte = Moment::now().after(self.idle);
        self.arm(timer);
    }

    /// Judges a client at its connection's `timer`. Bytes wait for it if `waits`; otherwise more are still to
    /// come. `rate` is `limits.body_rate`, and `hidden` are the bytes that it may have read without a report.
    /// If the client keeps up, the task is woken for the next check.
    pub fn judge(
        &mut self,
        timer: &Timer,
        cx: &Context<'_>,
        waits: bool,
        rate: u64,
        hidden: impl FnOnce() -> u64,
    ) -> Verdict {
        if waits != self.taking.is_waiting() {
            self.taking.note(waits, Moment::now(), self.taken);
            self.arm(timer);
        }
        if !timer.poll_expired(cx) {
            return Verdict::KeepsUp;
        }
        let now = Moment::now();
        if self.next_byte <= now {
            return Verdict::Idle;
        }
        if !self.taking.keeps_up(now, self.taken, rate, hidden) {
            return Verdict::TooSlow;
        }
        self.arm(timer);
        timer.poll_expired(cx);
        Verdict::KeepsUp
    }

    fn arm(&self, timer: &Timer) {
        timer.set_at(self.next_byte.min(self.taking.ends()));
    }
}

/// The judgement of a client that is sent a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It reads fast enough, as far as can be seen.
    KeepsUp,
    /// It has read nothing for too long (`timeouts.idle`).
    Idle,
    /// It reads too slowly (`limits.body_rate`).
    TooSlow,
}

/// Returns the maximum number of bytes that the client at the other end of `socket` may have read without a
/// report: the kernel reports free space once a third of its buffer is free, and the client's kernel once a
/// segment fits.
pub fn hidden_bytes(socket: &Socket) -> u64 {
    socket.send_buffer_size() as u64 / 2 + SEGMENT_BYTES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HIDDEN: u64 = 1_000_000;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(1_000_000_000) + Duration::from_millis(millis)
    }

    /// Simulates a client that reads `pace` bytes a second, reported in portions of `portion` bytes, while
    /// bytes always wait for it. Returns the time in milliseconds at which it is dropped, within `seconds`.
    fn given_up_after(pace: u64, portion: u64, rate: u64, seconds: u64) -> Option<u64> {
        let mut taking = Taking::NOTHING;
        taking.note(true, at(0), 0);
        (1..=seconds * 10).map(|tenth| tenth * 100).find(|&millis| {
            let taken = pace * millis / 1_000 / portion * portion;
            taking.ends() <= at(millis) && !taking.keeps_up(at(millis), taken, rate, || HIDDEN)
        })
    }

    #[test]
    fn a_client_is_judged_over_ten_seconds() {
        // 10 s, plus 1 MB at 100 kB/s.
        assert_eq!(given_up_after(0, 1, 100_000, 60), Some(20_000));
        assert_eq!(given_up_after(1_000, 1, 100_000, 60), Some(20_000));
        assert_eq!(given_up_after(49_000, 1, 100_000, 60), Some(20_000));
        assert_eq!(given_up_after(100_000, 1, 100_000, 600), None);
        assert_eq!(given_up_after(100_000, HIDDEN, 100_000, 6_000), None);
    }

    #[test]
    fn time_without_waiting_bytes_does_not_count() {
        let mut taking = Taking::NOTHING;
        let mut now = 0;
        // The client reads nothing while bytes wait for 4 s. Then the provider sends nothing for an hour.
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
        /// A client that reads at the required rate is never dropped, however the kernel reports it and
        /// however the provider pauses. A client that reads less over the longest window is dropped in the
        /// end.
        #[test]
        fn exactly_the_slow_clients_are_given_up(
            rate in 1_u64..1_000_000,
            slower in 1_u64..90,
            portion in 1_u64..=HIDDEN,
            pauses in prop::collection::vec((1_u64..30_000, 0_u64..30_000), 1..200),
        ) {
            let (mut fast, mut slow) = (Taking::NOTHING, Taking::NOTHING);
            // The bytes that the minimum rate gives over a window, spread over all of it, minus more than the
            // half second by which the window is checked late.
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
            // Hidden bytes are reported at once, and may fall into one window.
            if waited > 3 * window_millis + 1_000 && told_within_two_windows(slow_pace, portion, window_millis) < rate * 10 {
                prop_assert!(is_given_up);
            }
        }
    }

    fn told_within_two_windows(pace: u64, portion: u64, window_millis: u64) -> u64 {
        (pace * window_millis / 1_000).div_ceil(portion) * portion + portion
    }
}
