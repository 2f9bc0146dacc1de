//! The interface of a store. It lends units of windows. Lent units count as used, whatever happens to the
//! borrower.

/// Lends units of windows. Several processes may share a store. So a borrower may be lent less than it
/// believes is left, and a loan may end before its window.
pub trait Store {
    /// Applies all requests in order, or none, and makes the result durable. Then `loans` has one loan for
    /// each.
    fn apply(&mut self, requests: &[LoanRequest], loans: &mut Vec<Loan>) -> Result<(), StoreError>;
}

/// A request to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoanRequest {
    /// The key of the window's owner.
    pub key: Box<[u8]>,
    /// The window.
    pub window: Window,
    /// Units that were used without a loan. They are counted even above the limit.
    pub owed: u64,
    /// Units requested in addition. If fewer are left, fewer are lent.
    pub wanted: u64,
    /// Units lent earlier that will not be used.
    pub returned: u64,
}

/// A window and its allowance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Begin, in microseconds since the epoch; it identifies the window.
    pub begin: u64,
    /// End of the window.
    pub end: u64,
    /// Begin of the previous window.
    pub before: u64,
    /// Number of units.
    pub limit: u64,
    /// Maximum number of units carried over from the previous window.
    pub spillover: u64,
}

/// A loan of units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loan {
    /// Begin of the window of the units. It is a later window than requested if another process has begun
    /// one.
    pub begin: u64,
    /// Units lent.
    pub units: u64,
    /// Units of the window that are used or lent, including this loan.
    pub used: u64,
    /// Units that the window has carried over from the previous one.
    pub spilled: u64,
    /// Time after which unused units are void, in microseconds since the epoch.
    pub until: u64,
}

/// Reason why a store has failed, with its own message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another process has the file open.
    #[error("another process has it open: give each gateway its own `data_dir`")]
    InUse,
    /// The file cannot be read or written.
    #[error("read or write failed: {0}")]
    Failed(String),
    /// The file is not a store, or is damaged beyond repair.
    #[error("the file is damaged: {0}; move it away to start with an empty one")]
    Damaged(String),
}

/// The stored state of a key: its latest window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WindowRecord {
    pub begin: u64,
    pub end: u64,
    pub used: u64,
    pub spilled: u64,
}

impl WindowRecord {
    /// Applies a request. An expired window is not reopened: a borrower whose clock is behind is lent units
    /// of the latest window.
    pub(crate) fn apply(&mut self, request: &LoanRequest) -> Loan {
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

    /// Returns the record of a later window.
    fn next(self, window: Window) -> Self {
        // If the windows are not adjacent, the one in between is completely unused.
        let follows = self.begin == window.before;
        let unused = if follows {
            window.limit.saturating_add(self.spilled).saturating_sub(self.used)
        } else {
            window.limit
        };
        // Before the first window there was none to carry units over from.
        let spilled = if self.end == 0 { 0 } else { unused.min(window.spillover) };
        Self { begin: window.begin, end: window.end, used: 0, spilled }
    }

    /// Returns `true` if the record is not needed any more: its window is over, and so is the next one, which
    /// could take units over from it.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.end.saturating_add(self.end.saturating_sub(self.begin)) <= now
    }
}
