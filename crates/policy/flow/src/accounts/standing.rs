//! How an account stands: what it is used for now, how its calls have ended, what the provider has told of its count, and whether it
//! cools down. All remedies that use the account share this, in all workers, and it outlives a reload.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use egret_clock::Timestamp;

use super::{Account, AccountSnapshot};
use crate::exchange::{Exchange, Outcome};
use crate::quota::{LearnConfig, Learned, Reader};

/// The shortest cool-down, whatever the provider says: it has just refused, and mostly rounds down.
const COOL_DOWN_MIN: Duration = Duration::from_secs(1);
/// What stands for a count that is not known.
const UNKNOWN: u64 = u64::MAX;

/// How a call with an account ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With a response that is none of those below.
    Answered,
    /// With 401: the provider does not know the credential.
    Unauthorized,
    /// With 403: it knows it, and refuses.
    Forbidden,
    /// With 429: it has had enough.
    Throttled,
    /// Without a response.
    Failed,
}

impl Ending {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Answered, Self::Unauthorized, Self::Forbidden, Self::Throttled, Self::Failed];

    /// Its name in metrics and the API.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Unauthorized => "401",
            Self::Forbidden => "403",
            Self::Throttled => "429",
            Self::Failed => "failed",
        }
    }

    /// Whether the provider says by it that it has not acted, since it does not take the call from this account.
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::Unauthorized | Self::Forbidden | Self::Throttled)
    }

    /// That of a response with `status`.
    pub const fn of(status: u16) -> Self {
        match status {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            429 => Self::Throttled,
            _ => Self::Answered,
        }
    }
}

/// See the file's first line.
#[derive(Debug)]
pub struct AccountState {
    in_flight: AtomicU32,
    endings: [AtomicU64; Ending::ALL.len()],
    /// Calls that are left, by the provider's last word, or [`UNKNOWN`].
    remaining: AtomicU64,
    /// When they come back, in microseconds since the epoch; 0 where that was not said.
    reset: AtomicU64,
    /// What `cooling` says of when it ends, for a look without the lock; 0 where it has not cooled down since its last success.
    until: AtomicU64,
    cooling: Mutex<Cooling>,
}

/// The last time that the account was told to cool down.
#[derive(Debug, Default)]
struct Cooling {
    since: Timestamp,
    until: Timestamp,
    /// What the provider had answered.
    status: u16,
    /// Whose credential it had answered so: [`Account::version`].
    version: u32,
    /// How often in a row the credential was refused, with no success between.
    repetitions: u32,
}

/// A cool-down that is not over, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoolingSnapshot {
    /// Until when.
    pub until: Timestamp,
    /// What the provider had answered; nothing where no token can be had.
    pub status: Option<u16>,
}

impl CoolingSnapshot {
    /// Why, as the API has it: the status, or `token`.
    pub fn reason(&self) -> String {
        self.status.map_or_else(|| "token".to_owned(), |status| status.to_string())
    }
}

/// How long accounts cool down.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CoolDown {
    /// Where the provider says nothing else.
    pub first: Duration,
    /// The longest.
    pub max: Duration,
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
    /// Counts how a call has ended, and takes note of what the response says of the provider's own count.
    pub(crate) fn heard(&self, exchange: &Exchange<'_>) {
        let ending = match exchange.outcome {
            Outcome::None => return,
            Outcome::Failure(_) => Ending::Failed,
            Outcome::Response(received) => Ending::of(received.head.status),
        };
        self.endings[ending as usize].fetch_add(1, Relaxed);
        if let Some(Learned { remaining: Some(remaining), reset, .. }) = learned(exchange) {
            self.remaining.store(remaining, Relaxed);
            self.reset.store(reset.map_or(0, Timestamp::as_micros), Relaxed);
        }
    }

    /// Calls that are left, by the provider's last word, if that still holds.
    fn remaining(&self, now: Timestamp) -> Option<u64> {
        let remaining = self.remaining.load(Relaxed);
        let is_over = self.reset(now).is_none() && self.reset.load(Relaxed) > 0;
        (remaining != UNKNOWN && !is_over).then_some(remaining)
    }

    /// When they come back, if that lies ahead.
    fn reset(&self, now: Timestamp) -> Option<Timestamp> {
        Some(Timestamp::from_micros(self.reset.load(Relaxed))).filter(|reset| *reset > now)
    }

    /// Calls that are left besides those under way, by the provider's last word, if that still holds.
    pub(crate) fn left(&self, now: Timestamp) -> Option<u64> {
        Some(self.remaining(now)?.saturating_sub(u64::from(self.in_flight())))
    }

    /// Exchanges that use the account now.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// All calls that have ended.
    pub(crate) fn calls(&self) -> u64 {
        self.endings.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Until when the account cools down with its credential of `version`, if it does.
    pub(crate) fn cools_until(&self, now: Timestamp, version: u32) -> Option<Timestamp> {
        if self.until.load(Relaxed) <= now.as_micros() {
            return None;
        }
        self.cooling(|cooling| cooling.of(now, version).map(|cooling| cooling.until))
    }

    /// Has the account cool down since a call begun at `started` with its credential of `version` was answered with `status`: until the
    /// time that the provider has `asked` for, or as long as `rule` says. Calls that were under way together say together what one of
    /// them says. Says until when, if that is news.
    pub(crate) fn cool(
        &self,
        (started, now): (Timestamp, Timestamp),
        (status, version): (u16, u32),
        asked: Option<Timestamp>,
        rule: CoolDown,
    ) -> Option<Timestamp> {
        self.cooling(|cooling| {
            if version < cooling.version {
                return None;
            }
            let is_first = started > cooling.since;
            let until = match asked {
                Some(asked) => asked.max(now + COOL_DOWN_MIN.min(rule.first)),
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

    /// A call begun at `started` has shown that the account can be used.
    fn worked(&self, started: Timestamp) {
        if self.until.load(Relaxed) == 0 {
            return;
        }
        self.cooling(|cooling| {
            if started > cooling.since {
                *cooling = Cooling { since: cooling.since, version: cooling.version, ..Cooling::default() };
                self.until.store(0, Relaxed);
            }
        });
    }

    fn cooling<T>(&self, act: impl FnOnce(&mut Cooling) -> T) -> T {
        act(&mut self.cooling.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How it stands now, without what the account knows of itself.
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

/// What a response says of the provider's own count.
fn learned(exchange: &Exchange<'_>) -> Option<Learned> {
    static READER: LazyLock<Reader> = LazyLock::new(|| Reader::new(&LearnConfig::default()));
    let response = exchange.response()?;
    READER.read(response.status, &response.fields.iter(), exchange.now)
}

/// The time before which the provider wants no call with an account, by a response that refuses one: what it says outright, or when its
/// allowance comes back, if it is that.
pub(crate) fn asked(exchange: &Exchange<'_>) -> Option<Timestamp> {
    let when_back = || {
        let Learned { remaining, reset, .. } = learned(exchange)?;
        let is_spent = remaining == Some(0) || exchange.response()?.status == 429;
        reset.filter(|_| is_spent)
    };
    exchange.retry_after().or_else(when_back)
}

impl Cooling {
    /// It, if it is not over and holds against the credential of `version`: what a new one makes good is not held against it.
    fn of(&self, now: Timestamp, version: u32) -> Option<&Self> {
        let is_of_credential = is_of_credential(self.status);
        (self.until > now && (self.version == version || !is_of_credential)).then_some(self)
    }

    /// By how much a cool-down is longer than the first, now that `status` is answered.
    fn refused(&mut self, status: u16) -> u32 {
        self.repetitions = if is_of_credential(status) { self.repetitions.saturating_add(1) } else { 0 };
        1_u32.checked_shl(self.repetitions.saturating_sub(1)).unwrap_or(u32::MAX)
    }
}

/// Whether the provider says by `status` that the credential is no good.
fn is_of_credential(status: u16) -> bool {
    matches!(Ending::of(status), Ending::Unauthorized | Ending::Forbidden)
}

/// An exchange that uses an account, and counts as under way until this is dropped.
#[derive(Debug)]
pub struct Use {
    standing: Arc<AccountState>,
    /// The account's number.
    pub(crate) account: usize,
    /// Since when.
    pub(crate) started: Timestamp,
}

impl Use {
    /// Of `account`, whose number is `number`, from `now` on.
    pub(crate) fn of(account: &Account, number: usize, now: Timestamp) -> Self {
        let standing = Arc::clone(account.standing());
        standing.in_flight.fetch_add(1, Relaxed);
        Self { standing, account: number, started: now }
    }

    /// Ends a cool-down if the provider has done what it was asked for.
    pub(crate) fn answered(&self, exchange: &Exchange<'_>) {
        if exchange.answered.is_none() && exchange.response().is_some_and(|response| response.status < 400) {
            self.standing.worked(self.started);
        }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.standing.in_flight.fetch_sub(1, Relaxed);
    }
}
