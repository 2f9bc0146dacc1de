//! State of an account: its exchanges in flight, the outcomes of its calls, the provider's report of its
//! allowance, and its cool-down. All remedies that use the account share this state, in all workers, and it
//! survives a reload.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use egret_clock::{Timestamp, retry_after};
use egret_message::{Outcome, Response};
use egret_quota::{LearnConfig, Learned, ProviderReaders, ReportReader};
use egret_store::marks::Mark;
use parking_lot::Mutex;

use super::cooling::{CoolDown, Cooling, CoolingSnapshot};
use super::ending::Ending;
use super::handed_account::HandedAccount;
use super::shared_cooling::SharedCooling;
use super::snapshot::AccountSnapshot;

/// Minimum cool-down, even if the provider asks for less: it has just refused a call, and it usually rounds
/// down.
const COOL_DOWN_MIN: Duration = Duration::from_secs(1);
/// Marks a count as unknown.
const UNKNOWN: u64 = u64::MAX;

/// A call that the provider has refused because of its account.
#[derive(Debug, Clone, Copy)]
pub struct RefusedCall {
    /// Time at which the call began.
    pub started: Timestamp,
    /// Status code of the response.
    pub status: u16,
    /// Version of the credential that was used: [`Account::version`](crate::Account::version).
    pub version: u32,
    /// Time before which the provider wants no further call, if it says so.
    pub requested_pause: Option<Timestamp>,
}

/// The state of an account that all its users share.
#[derive(Debug)]
pub struct AccountState {
    in_flight: AtomicU32,
    endings: [AtomicU64; Ending::ALL.len()],
    /// Number of calls left by the provider's latest report, or [`UNKNOWN`].
    remaining: AtomicU64,
    /// Time at which the allowance is restored, in microseconds since the epoch; 0 if unknown.
    reset: AtomicU64,
    /// End of the cool-down in `cooling`, readable without the lock; 0 if there was none since the last
    /// success.
    until: AtomicU64,
    cooling: Mutex<Cooling>,
}

impl Default for AccountState {
    fn default() -> Self {
        Self {
            in_flight: AtomicU32::default(),
            endings: Default::default(),
            remaining: AtomicU64::new(UNKNOWN),
            reset: AtomicU64::default(),
            until: AtomicU64::default(),
            cooling: Mutex::default(),
        }
    }
}

impl AccountState {
    /// Counts the outcome of a call, and stores the provider's report of its allowance. `reader` has the
    /// fields of a well-known provider.
    pub fn record_outcome(
        &self,
        outcome: &Outcome<'_>,
        response: Option<&Response<'_>>,
        reader: Option<&ReportReader>,
        now: Timestamp,
    ) {
        let ending = match outcome {
            Outcome::None => return,
            Outcome::Failure(_) => Ending::Failed,
            Outcome::Response(received) => Ending::of(received.head.status),
        };
        self.endings[ending as usize].fetch_add(1, Relaxed);
        let learned = response.and_then(|response| learned(response, reader, now));
        if let Some(Learned { remaining: Some(remaining), reset, .. }) = learned {
            self.remaining.store(remaining, Relaxed);
            self.reset.store(reset.map_or(0, Timestamp::as_micros), Relaxed);
        }
    }

    /// Number of calls left by the provider's latest report, if it still holds.
    fn remaining(&self, now: Timestamp) -> Option<u64> {
        let remaining = self.remaining.load(Relaxed);
        let is_over = self.reset(now).is_none() && self.reset.load(Relaxed) > 0;
        (remaining != UNKNOWN && !is_over).then_some(remaining)
    }

    /// Time at which the allowance is restored, if it is in the future.
    fn reset(&self, now: Timestamp) -> Option<Timestamp> {
        Some(Timestamp::from_micros(self.reset.load(Relaxed))).filter(|reset| *reset > now)
    }

    /// Number of calls left by the provider's latest report, minus the calls in flight, if the report still
    /// holds.
    pub fn left(&self, now: Timestamp) -> Option<u64> {
        Some(self.remaining(now)?.saturating_sub(u64::from(self.in_flight())))
    }

    /// Number of exchanges that use the account now.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Number of calls that have ended.
    pub fn calls(&self) -> u64 {
        self.endings.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// End of the current cool-down for the credential of `version`, if there is one.
    pub fn cools_until(&self, now: Timestamp, version: u32) -> Option<Timestamp> {
        if self.until.load(Relaxed) <= now.as_micros() {
            return None;
        }
        self.cooling(|cooling| cooling.of(now, version).map(|cooling| cooling.until))
    }

    /// Starts or extends a cool-down after the refusal of `call`. It lasts until the time that the provider
    /// has requested, or as long as `rule` says. Refusals of calls that were in flight together count once.
    /// Returns the end of the cool-down if it is a new one.
    pub(super) fn cool(&self, call: RefusedCall, now: Timestamp, rule: CoolDown) -> Option<Timestamp> {
        let RefusedCall { started, status, version, requested_pause } = call;
        self.cooling(|cooling| {
            if version < cooling.version {
                return None;
            }
            let is_first = started > cooling.since;
            let until = match requested_pause {
                Some(requested) => requested.max(now + COOL_DOWN_MIN.min(rule.first)),
                None if is_first => now + rule.first.saturating_mul(cooling.refused(status)),
                None => return None,
            };
            let until = until.min(now + rule.max);
            if is_first {
                cooling.since = now;
            } else if until <= cooling.until {
                return None;
            }
            (cooling.until, cooling.status, cooling.version) = (until, status, version);
            self.until.store(until.as_micros(), Relaxed);
            is_first.then_some(until)
        })
    }

    /// Ends the cool-down after a success of a call that began at `started`. Returns `true` if there was one.
    pub(super) fn record_success(&self, started: Timestamp) -> bool {
        if self.until.load(Relaxed) == 0 {
            return false;
        }
        self.cooling(|cooling| {
            let is_proof = started > cooling.since;
            if is_proof {
                *cooling = Cooling { since: cooling.since, version: cooling.version, ..Cooling::default() };
                self.until.store(0, Relaxed);
            }
            is_proof
        })
    }

    /// The current cool-down for the credential of `version`, as other gateways are told about it.
    pub(super) fn mark(&self, now: Timestamp, version: u32) -> Option<Mark> {
        self.cooling(|cooling| cooling.of(now, version).map(|cooling| cooling.mark(now)))
    }

    /// Merges a cool-down of which another gateway tells. Its credential is that of `version`.
    pub(super) fn merge(&self, mark: &Mark, now: Timestamp, version: u32) {
        self.cooling(|cooling| {
            let told = Cooling::told(mark, now, version);
            if version >= cooling.version && told.until > cooling.until {
                *cooling = Cooling { since: told.since.max(cooling.since), ..told };
                self.until.store(cooling.until.as_micros(), Relaxed);
            }
        });
    }

    /// Writes the cool-down and the provider's report to `handed`, for the next process. `version` is that of
    /// the current credential. Returns `false` if there is neither.
    pub(super) fn hand_over(&self, now: Timestamp, version: u32, handed: &mut HandedAccount) -> bool {
        let is_cooling = self.cooling(|cooling| {
            let Some(cooling) = cooling.of(now, version) else { return false };
            handed.since_us = cooling.since.as_micros();
            handed.until_us = cooling.until.as_micros();
            handed.status = cooling.status;
            handed.repetitions = cooling.repetitions;
            true
        });
        handed.remaining = self.remaining(now);
        handed.reset_us = self.reset(now).map(Timestamp::as_micros);
        is_cooling || handed.remaining.is_some()
    }

    /// Takes over the cool-down and the provider's report of an earlier process. `version` is that of the
    /// current credential. The cool-down ends within [`CoolDown::LONGEST`].
    pub(super) fn inherit(&self, now: Timestamp, handed: &HandedAccount, version: u32) {
        let HandedAccount { status, repetitions, remaining, .. } = *handed;
        self.cooling(|cooling| {
            let since = Timestamp::from_micros(handed.since_us).min(now);
            let until = Timestamp::from_micros(handed.until_us).min(now + CoolDown::LONGEST);
            *cooling = Cooling { since, until, status, version, repetitions };
            self.until.store(until.as_micros(), Relaxed);
        });
        self.remaining.store(remaining.unwrap_or(UNKNOWN), Relaxed);
        self.reset.store(handed.reset_us.unwrap_or_default(), Relaxed);
    }

    fn cooling<T>(&self, act: impl FnOnce(&mut Cooling) -> T) -> T {
        act(&mut self.cooling.lock())
    }

    /// Returns the state at `now`, without the parts that the account itself adds.
    pub(super) fn snapshot(&self, now: Timestamp, version: u32) -> AccountSnapshot {
        let cooling = self.cooling(|cooling| {
            let cooling = cooling.of(now, version)?;
            Some(CoolingSnapshot { until: cooling.until, status: Some(cooling.status) })
        });
        let remaining = self.remaining(now);
        AccountSnapshot {
            cooling,
            in_flight: self.in_flight(),
            endings: self.endings.each_ref().map(|count| count.load(Relaxed)),
            remaining,
            reset: remaining.and(self.reset(now)),
            ..AccountSnapshot::default()
        }
    }
}

/// Reads the provider's report of its allowance from a response.
fn learned(response: &Response<'_>, reader: Option<&ReportReader>, now: Timestamp) -> Option<Learned> {
    static READER: LazyLock<ReportReader> = LazyLock::new(|| ReportReader::new(&LearnConfig::default()));
    let fields = response.fields.iter();
    let told = reader.and_then(|reader| reader.read(response.status, &fields, now));
    Learned::of_both(READER.read(response.status, &fields, now), told)
}

/// Returns the time at which a spent allowance is restored, from a response that refuses a call. `reader` has
/// the fields of a well-known provider.
pub fn reported_pause(
    response: &Response<'_>,
    reader: Option<&ReportReader>,
    now: Timestamp,
) -> Option<Timestamp> {
    let Learned { remaining, reset, .. } = learned(response, reader, now)?;
    let is_spent = remaining == Some(0) || response.status == 429;
    reset.filter(|_| is_spent)
}

/// Returns the time before which a provider wants no further call, by a response to any call: the time that a
/// refusal asks for, or the time at which an allowance that is spent is restored. `readers` has the fields of
/// a well-known provider.
pub fn wanted_pause(
    response: &Response<'_>,
    readers: Option<&ProviderReaders>,
    now: Timestamp,
) -> Option<Timestamp> {
    let asked = response.fields.get(b"retry-after").filter(|_| matches!(response.status, 429 | 503));
    let of = |reader: Option<&ReportReader>| {
        let told = learned(response, reader, now)?;
        told.reset.filter(|_| told.remaining == Some(0))
    };
    asked.and_then(|value| retry_after::read(value, now)).or_else(|| {
        let requests = of(readers.and_then(|readers| readers.requests.as_ref()));
        requests.max(of(readers.and_then(|readers| readers.tokens.as_ref())))
    })
}

/// An exchange that uses an account. It counts as in flight until this is dropped.
#[derive(Debug)]
pub struct AccountUse {
    state: Arc<AccountState>,
    shared: Option<Arc<SharedCooling>>,
    /// The account's number.
    pub account: usize,
    /// Time at which the use began.
    pub started: Timestamp,
}

impl AccountUse {
    /// Starts a use of the account with that `number` and `state`, at `now`.
    pub(super) fn new(
        state: Arc<AccountState>,
        shared: Option<Arc<SharedCooling>>,
        number: usize,
        now: Timestamp,
    ) -> Self {
        state.in_flight.fetch_add(1, Relaxed);
        Self { state, shared, account: number, started: now }
    }

    /// Ends a cool-down: the provider has accepted the request, at `now`.
    pub fn accepted(&self, now: Timestamp) {
        let is_ended = self.state.record_success(self.started);
        if let Some(shared) = self.shared.as_ref().filter(|_| is_ended) {
            shared.end(self.started, now);
        }
    }
}

impl Drop for AccountUse {
    fn drop(&mut self) {
        self.state.in_flight.fetch_sub(1, Relaxed);
    }
}
