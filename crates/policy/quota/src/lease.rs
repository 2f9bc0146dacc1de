//! Units that a group has borrowed from the store, and the requests for more.
//!
//! Units are borrowed in blocks, before the last block is used up if there is time, so few calls wait for the
//! disk. A block is at most a hundredth of the limit: if the process dies, no more than that is lost for the
//! window.

use std::sync::Arc;

use egret_store::{Borrower, Ledger, Loan, LoanRequest, PendingLoan, Window};

use super::group_kind::GroupKind;
use super::refusal::Why;

/// Time without a response after which the store counts as failed, and calls do not wait for it.
const RESPONSE_MAX_MICROS: u64 = 1_000_000;
/// Time for which a failed store is not asked.
const PAUSE_MICROS: u64 = 1_000_000;
/// If blocks are requested more often than this, they are too small.
const BLOCK_TIME_MIN_MICROS: u64 = 100_000;
/// If blocks last longer than this, they are too large.
const BLOCK_TIME_MAX_MICROS: u64 = 2_000_000;
/// The largest block is the limit divided by this.
const BLOCKS_MIN: u64 = 100;

/// The file of a quota's groups.
#[derive(Debug, Clone)]
pub(super) struct FileBacking {
    /// The ledger that lends units; without one, the store counts as failed from the start.
    pub ledger: Option<Ledger>,
    /// The quota's name.
    pub quota: Box<str>,
}

impl FileBacking {
    /// Creates the lease of a group, without borrowed units.
    pub(super) fn lease(&self, kind: GroupKind, name: &[u8]) -> Lease {
        // A quota's name contains no zero byte, so keys are unique.
        let key = [self.quota.as_bytes(), &[0], kind.tag().as_bytes(), name].concat().into();
        Lease { ledger: self.ledger.clone(), key, block: 1, ..Lease::default() }
    }
}

/// The units that a group has borrowed for its current window.
#[derive(Debug, Default)]
pub(super) struct Lease {
    ledger: Option<Ledger>,
    key: Box<[u8]>,
    /// Number of the window, as the meter counts them.
    epoch: u64,
    /// Units borrowed and not used.
    left: u64,
    /// Units used that were not borrowed: those in transit from the previous window, additional costs of
    /// calls, and those granted while the store failed.
    owed: u64,
    /// Units for which calls were rejected since the last request to the store.
    wanted: u64,
    block: u64,
    /// `true` if the store has reported the count of this window.
    is_known: bool,
    /// `true` if calls are granted while the store fails.
    is_open: bool,
    /// `true` if units that still arrive are returned at once.
    is_ending: bool,
    requested: Option<LeaseRequest>,
    last_requested: u64,
    failed_at: Option<u64>,
}

#[derive(Debug)]
struct LeaseRequest {
    at: u64,
    epoch: u64,
    owed: u64,
}

/// The group's count, as far as a lease needs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    pub now: u64,
    pub epoch: u64,
    pub used: u64,
    pub allowance: u64,
}

impl Lease {
    pub(super) fn set_open(&mut self, is_open: bool) {
        self.is_open = is_open;
    }

    /// Updates the window. Units borrowed for another window are void, and units already used in the new one
    /// are owed.
    pub(super) fn advance(&mut self, count: Count) {
        if count.epoch != self.epoch {
            self.epoch = count.epoch;
            self.left = 0;
            self.owed = count.used;
            self.is_known = false;
        }
    }

    /// Returns the reason why units that seem available cannot be used yet, and the time at which this may
    /// end.
    pub(super) fn refuses(&mut self, units: u64, now: u64) -> Option<(Why, u64)> {
        if self.left >= units && (self.is_known || self.is_open) {
            return None;
        }
        let silent_until =
            self.requested.as_ref().map(|request| request.at.saturating_add(RESPONSE_MAX_MICROS));
        let has_failed = self.failed_at.is_some() || silent_until.is_some_and(|until| until <= now);
        if has_failed && self.is_open {
            return None;
        }
        self.wanted = self.wanted.saturating_add(units);
        if has_failed {
            return Some((Why::StoreDown, now.saturating_add(PAUSE_MICROS)));
        }
        Some((Why::Fetching, silent_until.unwrap_or_else(|| now.saturating_add(RESPONSE_MAX_MICROS))))
    }

    /// Uses units, first the borrowed ones.
    pub(super) fn spend(&mut self, units: u64) {
        let lent = units.min(self.left);
        self.left -= lent;
        self.owed = self.owed.saturating_add(units - lent);
    }

    /// Reverts the use of units.
    pub(super) fn unspend(&mut self, units: u64) {
        let owed = units.min(self.owed);
        self.owed -= owed;
        self.left = self.left.saturating_add(units - owed);
    }

    /// Returns `true` if more units should be requested: half of the last block is used and more are
    /// available, or units are owed.
    pub(super) fn is_due(&self, count: Count) -> bool {
        if self.requested.is_some()
            || self.failed_at.is_some_and(|at| count.now < at.saturating_add(PAUSE_MICROS))
        {
            return false;
        }
        let has_more = count.allowance > count.used.saturating_add(self.left);
        self.owed > 0 || !self.is_known || (has_more && (self.wanted > 0 || self.left <= self.block / 2))
    }

    /// Asks for a block of `window`, or for the rejected units if they are more.
    pub(super) fn ask(&mut self, borrower: Arc<dyn Borrower>, window: Window, count: Count) {
        let since_last = count.now.saturating_sub(self.last_requested);
        if since_last < BLOCK_TIME_MIN_MICROS {
            self.block = self.block.saturating_mul(2);
        } else if since_last > BLOCK_TIME_MAX_MICROS {
            self.block /= 2;
        }
        self.block = self.block.clamp(1, (window.limit / BLOCKS_MIN).max(1));
        let wanted = self.block.max(std::mem::take(&mut self.wanted).min(window.limit));
        let request = LoanRequest { key: self.key.clone(), window, owed: self.owed, wanted, returned: 0 };
        let ask = PendingLoan { request, borrower: Some(borrower) };
        match self.ledger.as_ref().map(|ledger| ledger.ask(ask)) {
            Some(Ok(())) => {
                self.is_ending = false;
                self.requested = Some(LeaseRequest { at: count.now, epoch: self.epoch, owed: self.owed });
                self.last_requested = count.now;
            }
            Some(Err(_)) | None => self.failed_at = Some(count.now),
        }
    }

    /// Handles the store's response, `None` if it failed. Returns the units used in this window and those
    /// carried over to it, if the store has reported them.
    pub(super) fn lent(&mut self, loan: Option<Loan>, now: u64) -> Option<(u64, u64)> {
        let requested = self.requested.take()?;
        let Some(loan) = loan else {
            self.failed_at = Some(now);
            return None;
        };
        self.failed_at = None;
        if requested.epoch != self.epoch {
            return None;
        }
        self.owed = self.owed.saturating_sub(requested.owed);
        self.left = self.left.saturating_add(loan.units);
        self.is_known = true;
        Some((loan.used.saturating_sub(self.left).saturating_add(self.owed), loan.spilled))
    }

    /// Number of borrowed units that are not used, if calls may use them now.
    pub(super) fn available(&self) -> u64 {
        if self.is_known || self.is_open { self.left } else { 0 }
    }

    /// Returns `true` if units that arrived after the lease was returned must be returned too.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Returns the unused units, and those that still arrive, and reports the units owed. Afterwards units
    /// must be requested again.
    pub(super) fn give_back(&mut self, window: Window) {
        self.is_ending = self.requested.is_some();
        let on_its_way = self.requested.as_ref().map_or(0, |request| request.owed);
        let returned = std::mem::take(&mut self.left);
        // The pending request already reports some of the units owed.
        let owed = self.owed.saturating_sub(on_its_way);
        self.owed -= owed;
        self.is_known = false;
        if returned == 0 && owed == 0 {
            return;
        }
        let request = LoanRequest { key: self.key.clone(), window, owed, wanted: 0, returned };
        if let Some(ledger) = &self.ledger {
            // If the store does not accept the request, the borrowed units stay used, which is safe.
            let _ = ledger.ask(PendingLoan { request, borrower: None });
        }
    }

    /// Returns `true` if the lease can be dropped without a loss.
    pub(super) fn is_forgettable(&self) -> bool {
        self.owed == 0 && self.requested.is_none()
    }

    /// Returns `true` if the store does not respond.
    pub(super) fn has_failed(&self) -> bool {
        self.failed_at.is_some()
    }
}
