//! Units that a process may still use after it has handed its counts over to the next one.
//!
//! The next process holds them as units in transit. It is told what has become of them, and lends more if it
//! has any. So the two together never exceed the limit.

/// The time between two reports to the next process, after which more units may be lent.
pub(crate) const REPORT_MICROS: u64 = 20_000;

/// The units that the next process holds for this one.
#[derive(Debug, Default)]
pub(super) struct Handed {
    held: u64,
    /// Units counted and given up since the last report.
    counted: u64,
    abandoned: u64,
    /// Units that calls need beyond those held, since the last report.
    wanted: u64,
    /// `true` if the next process has no more units to lend.
    is_denied: bool,
    /// `true` if the next process is not reached any more.
    is_cut: bool,
    /// Number of reports so far.
    reports: u64,
}

/// Mark of the units that are counted before the first report. No other gauge has such marks.
const FIRST_MARK: u64 = 1 << 63;

/// The use of the units since the last report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UsageReport {
    pub counted: u64,
    pub abandoned: u64,
    pub returned: u64,
    pub wanted: u64,
}

impl Handed {
    pub(super) fn new(held: u64) -> Self {
        Self { held, ..Self::default() }
    }

    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Units counted and not reported yet.
    pub(super) fn done(&self) -> u64 {
        self.counted.saturating_add(self.abandoned)
    }

    /// Counts units, and returns the mark by which they can be given back until the next report.
    pub(super) fn count(&mut self, units: u64) -> u64 {
        self.counted = self.counted.saturating_add(units);
        FIRST_MARK + self.reports
    }

    /// Takes back units that turned out not to be used, unless the next process has counted them already.
    pub(super) fn give_back(&mut self, units: u64, mark: u64) {
        if mark == FIRST_MARK + self.reports {
            self.counted = self.counted.saturating_sub(units);
        }
    }

    pub(super) fn abandon(&mut self, units: u64) {
        self.abandoned = self.abandoned.saturating_add(units);
    }

    /// Notes that calls need so many units together.
    pub(super) fn want(&mut self, units: u64) {
        self.wanted = self.wanted.max(units);
    }

    /// Returns `true` if units may arrive with the next report.
    pub(super) fn may_get(&self) -> bool {
        !self.is_denied && !self.is_cut
    }

    /// Returns the report, and keeps at most `calls` unused units, or as many as are needed.
    pub(super) fn report(&mut self, transit: u64, calls: u64) -> UsageReport {
        let (counted, abandoned) = (std::mem::take(&mut self.counted), std::mem::take(&mut self.abandoned));
        let wanted = std::mem::take(&mut self.wanted);
        self.reports += 1;
        self.held = self.held.saturating_sub(counted).saturating_sub(abandoned);
        let unused = self.held.saturating_sub(transit);
        let returned = unused.saturating_sub(calls.max(wanted));
        self.held -= returned;
        let missing = wanted.saturating_sub(unused);
        self.is_denied &= missing > 0;
        UsageReport { counted, abandoned, returned, wanted: missing }
    }

    /// Adds units that the next process has lent; 0 if it has none.
    pub(super) fn lend(&mut self, units: u64) {
        self.held = self.held.saturating_add(units);
        self.is_denied = units == 0;
    }

    /// Notes that no more units will come.
    pub(super) fn cut(&mut self) {
        self.is_cut = true;
    }
}
