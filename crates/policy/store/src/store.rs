//! What a store does: it lends units of windows, and what it lends is used, whatever becomes of the borrower.

use std::fmt;

/// Lends units of windows. Several processes may share one, which is why a borrower has to expect to be lent less than it knows to
/// be left, and why a loan may end before its window does.
pub trait Store {
    /// Does what is asked, in order, all of it or nothing, and makes it durable; `loans` then has one for each.
    fn apply(&mut self, requests: &[Request], loans: &mut Vec<Loan>) -> Result<(), StoreError>;
}

/// What is asked of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Whose window it is.
    pub key: Box<[u8]>,
    /// Which window.
    pub window: Window,
    /// Units that were used already without a loan. They are counted even above the limit.
    pub owed: u64,
    /// Units that are wanted beyond them. Fewer are lent where fewer are left.
    pub wanted: u64,
    /// Units lent before that will not be used.
    pub returned: u64,
}

/// A window, and what it allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// When it begins, in microseconds since the epoch, which also tells windows apart.
    pub begin: u64,
    /// When it ends.
    pub end: u64,
    /// When the window before it began.
    pub before: u64,
    /// Units that it has.
    pub limit: u64,
    /// The most units that it takes over from the window before.
    pub spillover: u64,
}

/// What a store lends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loan {
    /// The window that the units are of. A later one than was asked for, where another process has begun it.
    pub begin: u64,
    /// Units lent.
    pub units: u64,
    /// Units of the window that are used or lent, these included.
    pub used: u64,
    /// Units that the window has taken over from the one before.
    pub spilled: u64,
    /// When units that were not used by then can no longer be, in microseconds since the epoch.
    pub until: u64,
}

/// Why a store did not do what was asked. It says what the store said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// Another process has the file open.
    InUse,
    /// It cannot be read or written.
    Failed(String),
    /// The file is not one of this store's, or damaged beyond repair.
    Damaged(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => {
                f.write_str("another process has it open: give each gateway a `data_dir` of its own")
            }
            Self::Failed(why) => write!(f, "it cannot be read or written: {why}"),
            Self::Damaged(why) => write!(f, "it is damaged: {why}; move it away to begin anew"),
        }
    }
}

impl std::error::Error for StoreError {}

/// What is remembered of a key: its latest window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Record {
    pub begin: u64,
    pub end: u64,
    pub used: u64,
    pub spilled: u64,
}

impl Record {
    /// Does what is asked. A window that is over by now does not come back: who asks for it, because its clock is behind, is lent
    /// units of the latest one.
    pub(crate) fn apply(&mut self, request: &Request) -> Loan {
        let window = request.window;
        if window.begin > self.begin || self.end == 0 {
            *self = self.next(window);
        }
        if window.begin == self.begin {
            self.used = self.used.saturating_sub(request.returned);
        }
        self.used = self.used.saturating_add(request.owed);
        let left = window.limit.saturating_add(self.spilled).saturating_sub(self.used);
        let units = request.wanted.min(left);
        self.used += units;
        Loan { begin: self.begin, units, used: self.used, spilled: self.spilled, until: self.end }
    }

    /// The record of a later window.
    fn next(self, window: Window) -> Self {
        // Where they do not follow each other, nothing was used of the window in between.
        let follows = self.begin == window.before;
        let unused = if follows {
            window.limit.saturating_add(self.spilled).saturating_sub(self.used)
        } else {
            window.limit
        };
        // Before the first window there was none that could have left anything.
        let spilled = if self.end == 0 { 0 } else { unused.min(window.spillover) };
        Self { begin: window.begin, end: window.end, used: 0, spilled }
    }

    /// Whether nothing depends on it any more: its window is over, and so is the one that could take units over from it.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.end.saturating_add(self.end.saturating_sub(self.begin)) <= now
    }
}
