//! Units that a group has been lent by the store, and when it asks for more.
//!
//! The store is asked for blocks, before the last one is used up where there is time, so that a disk that takes its time to be sure
//! is felt by few calls. A block is at most a hundredth of the limit: that much is lost for the window when the process dies.

use std::sync::Arc;

use egret_store::{Ask, Borrower, Ledger, Loan, Request, Window};

use super::Why;

/// A store that has not answered for so long is taken to have failed; calls wait no longer for it.
const ANSWER_MAX_MICROS: u64 = 1_000_000;
/// How long a store that failed is left alone.
const PAUSE_MICROS: u64 = 1_000_000;
/// Blocks that are asked for in shorter succession than this are too small.
const BLOCK_TIME_MIN_MICROS: u64 = 100_000;
/// Blocks that last for longer than this are too large.
const BLOCK_TIME_MAX_MICROS: u64 = 2_000_000;
/// One of so many parts of a limit is the largest block.
const BLOCKS_MIN: u64 = 100;

/// Where the groups of a quota are kept.
#[derive(Debug, Clone)]
pub(super) struct Backing {
    /// Where units are asked for; without one the store has failed from the beginning.
    pub ledger: Option<Ledger>,
    /// The quota's name.
    pub quota: Box<str>,
}

/// Which groups there are with the same name.
#[derive(Debug, Clone, Copy)]
pub(super) enum GroupKind {
    /// All calls.
    Whole,
    /// One of the groups.
    Named,
    /// Those without a share of their own, together.
    Rest,
    /// Those that found no room, together.
    Overflow,
}

impl Backing {
    /// The lease of a group, with nothing lent.
    pub(super) fn lease(&self, place: GroupKind, name: &[u8]) -> Lease {
        let tag = match place {
            GroupKind::Whole => 'w',
            GroupKind::Named => 'n',
            GroupKind::Rest => 'r',
            GroupKind::Overflow => 'c',
        };
        // A quota's name has no zero byte, so that no two keys meet.
        let key = [self.quota.as_bytes(), &[0], tag.to_string().as_bytes(), name].concat().into();
        Lease {
            ledger: self.ledger.clone(),
            key,
            epoch: 0,
            left: 0,
            owed: 0,
            wanted: 0,
            block: 1,
            is_known: false,
            is_open: false,
            is_ending: false,
            asked: None,
            asked_last: 0,
            failed_at: None,
        }
    }
}

/// What a group has been lent of its present window.
#[derive(Debug)]
pub(super) struct Lease {
    ledger: Option<Ledger>,
    key: Box<[u8]>,
    /// Which window it is of, as the meter counts them.
    epoch: u64,
    /// Units lent and not used.
    left: u64,
    /// Units used that were not lent: those in transit from the window before, those that calls turned out to cost, and those
    /// granted while the store failed.
    owed: u64,
    /// Units that calls were refused since units were last asked for.
    wanted: u64,
    block: u64,
    /// Whether the store has told the count of this window.
    is_known: bool,
    /// Whether calls are granted while the store fails.
    is_open: bool,
    /// Whether what is still on its way goes back at once.
    is_ending: bool,
    asked: Option<Asked>,
    asked_last: u64,
    failed_at: Option<u64>,
}

#[derive(Debug)]
struct Asked {
    at: u64,
    epoch: u64,
    owed: u64,
}

/// What the group counted, as a lease needs to know it.
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

    /// Takes note of the window: what was lent of another one is no use any more, and what is used of a new one is owed.
    pub(super) fn advance(&mut self, count: Count) {
        if count.epoch != self.epoch {
            self.epoch = count.epoch;
            self.left = 0;
            self.owed = count.used;
            self.is_known = false;
        }
    }

    /// Why units that are there, by all that is known, cannot be used yet, and when that may be over.
    pub(super) fn refuses(&mut self, units: u64, now: u64) -> Option<(Why, u64)> {
        if self.left >= units && (self.is_known || self.is_open) {
            return None;
        }
        let silent_until = self.asked.as_ref().map(|asked| asked.at.saturating_add(ANSWER_MAX_MICROS));
        let has_failed = self.failed_at.is_some() || silent_until.is_some_and(|until| until <= now);
        if has_failed && self.is_open {
            return None;
        }
        self.wanted = self.wanted.saturating_add(units);
        if has_failed {
            return Some((Why::StoreDown, now.saturating_add(PAUSE_MICROS)));
        }
        Some((Why::Fetching, silent_until.unwrap_or_else(|| now.saturating_add(ANSWER_MAX_MICROS))))
    }

    /// Units were used: those lent, as far as they go.
    pub(super) fn spend(&mut self, units: u64) {
        let lent = units.min(self.left);
        self.left -= lent;
        self.owed = self.owed.saturating_add(units - lent);
    }

    /// Units that were used are not.
    pub(super) fn unspend(&mut self, units: u64) {
        let owed = units.min(self.owed);
        self.owed -= owed;
        self.left = self.left.saturating_add(units - owed);
    }

    /// Whether it is time to ask for more: there is more to have, and half of the last block is used, or something is owed.
    pub(super) fn is_due(&self, count: Count) -> bool {
        if self.asked.is_some()
            || self.failed_at.is_some_and(|at| count.now < at.saturating_add(PAUSE_MICROS))
        {
            return false;
        }
        let has_more = count.allowance > count.used.saturating_add(self.left);
        self.owed > 0 || !self.is_known || (has_more && (self.wanted > 0 || self.left <= self.block / 2))
    }

    /// Asks for a block of `window`, or, if so many were wanted, for them.
    pub(super) fn ask(&mut self, borrower: Arc<dyn Borrower>, window: Window, count: Count) {
        let since_last = count.now.saturating_sub(self.asked_last);
        if since_last < BLOCK_TIME_MIN_MICROS {
            self.block = self.block.saturating_mul(2);
        } else if since_last > BLOCK_TIME_MAX_MICROS {
            self.block /= 2;
        }
        self.block = self.block.clamp(1, (window.limit / BLOCKS_MIN).max(1));
        let wanted = self.block.max(std::mem::take(&mut self.wanted).min(window.limit));
        let request = Request { key: self.key.clone(), window, owed: self.owed, wanted, returned: 0 };
        let ask = Ask { request, borrower: Some(borrower) };
        match self.ledger.as_ref().map(|ledger| ledger.ask(ask)) {
            Some(Ok(())) => {
                self.is_ending = false;
                self.asked = Some(Asked { at: count.now, epoch: self.epoch, owed: self.owed });
                self.asked_last = count.now;
            }
            Some(Err(_)) | None => self.failed_at = Some(count.now),
        }
    }

    /// The store's answer, `None` if it failed. Gives the units used of this window, and those it has taken over, where it
    /// tells them.
    pub(super) fn lent(&mut self, loan: Option<Loan>, now: u64) -> Option<(u64, u64)> {
        let asked = self.asked.take()?;
        let Some(loan) = loan else {
            self.failed_at = Some(now);
            return None;
        };
        self.failed_at = None;
        if asked.epoch != self.epoch {
            return None;
        }
        self.owed = self.owed.saturating_sub(asked.owed);
        self.left = self.left.saturating_add(loan.units);
        self.is_known = true;
        Some((loan.used.saturating_sub(self.left).saturating_add(self.owed), loan.spilled))
    }

    /// Whether units that came after all were given back are to go back too.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Gives back what is left and what is still on its way, and tells what is owed. More has to be asked for after that.
    pub(super) fn give_back(&mut self, window: Window) {
        self.is_ending = self.asked.is_some();
        let on_its_way = self.asked.as_ref().map_or(0, |asked| asked.owed);
        let returned = std::mem::take(&mut self.left);
        // The request that is on its way tells of some that is owed.
        let owed = self.owed.saturating_sub(on_its_way);
        self.owed -= owed;
        self.is_known = false;
        if returned == 0 && owed == 0 {
            return;
        }
        let request = Request { key: self.key.clone(), window, owed, wanted: 0, returned };
        if let Some(ledger) = &self.ledger {
            // A store that takes no request keeps what it lent as used, which is never too little.
            let _ = ledger.ask(Ask { request, borrower: None });
        }
    }

    /// Whether forgetting it loses nothing but what is given back then.
    pub(super) fn is_forgettable(&self) -> bool {
        self.owed == 0 && self.asked.is_none()
    }

    /// Whether the store does not answer.
    pub(super) fn has_failed(&self) -> bool {
        self.failed_at.is_some()
    }
}
