//! The provider of the model: counts calls at the moment they reach it, and judges by its own limit.

use std::collections::VecDeque;

/// The way in which a group's units come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sliding,
    Fixed,
    Bucket,
    Concurrency,
    /// A long window, lent in blocks.
    Blocks,
}

/// Length of a short window, or time in which an empty bucket fills.
pub const WINDOW_MS: u64 = 1_000;
/// Length of a long window.
pub const LONG_WINDOW_MS: u64 = 10_000;

impl Kind {
    pub fn window_ms(self) -> u64 {
        if self == Self::Blocks { LONG_WINDOW_MS } else { WINDOW_MS }
    }

    /// Cool-down of a used unit, for the store.
    pub fn cool_down_ms(self) -> u64 {
        match self {
            Self::Sliding | Self::Fixed | Self::Bucket => WINDOW_MS,
            Self::Concurrency | Self::Blocks => 0,
        }
    }
}

#[derive(Debug)]
pub struct Provider {
    kind: Kind,
    limit: u64,
    times: VecDeque<u64>,
    window: u64,
    count: u64,
    /// Tokens of the bucket, times the window.
    level: u64,
    filled_ms: u64,
    /// The most that was counted at once.
    pub worst: u64,
    /// Calls counted in all.
    pub calls: u64,
    /// `true` if calls above the limit are refused, and not counted.
    pub refuses: bool,
    /// `true` if its answers tell how many units are left.
    pub tells: bool,
    /// Calls in each window that is over.
    pub windows: Vec<u64>,
}

impl Provider {
    pub fn new(kind: Kind, limit: u64) -> Self {
        Self {
            kind,
            limit,
            times: VecDeque::new(),
            window: 0,
            count: 0,
            level: limit * WINDOW_MS,
            filled_ms: 0,
            worst: 0,
            calls: 0,
            refuses: false,
            tells: false,
            windows: Vec::new(),
        }
    }

    /// Units left, and the time until the count restarts.
    pub fn left(&mut self, now_ms: u64) -> (u64, u64) {
        self.advance(now_ms);
        let window_ms = self.kind.window_ms();
        match self.kind {
            Kind::Sliding => (self.limit.saturating_sub(self.times.len() as u64), window_ms),
            _ => (self.limit.saturating_sub(self.count), window_ms - now_ms % window_ms),
        }
    }

    fn advance(&mut self, now_ms: u64) {
        while self.times.front().is_some_and(|time| time + WINDOW_MS <= now_ms) {
            self.times.pop_front();
        }
        let window = now_ms / self.kind.window_ms();
        if window != self.window && matches!(self.kind, Kind::Fixed | Kind::Blocks) {
            self.windows.push(self.count);
            self.count = 0;
            self.window = window;
        }
    }

    /// Counts a call. Returns by how much the limit is exceeded.
    pub fn count(&mut self, now_ms: u64) -> u64 {
        if self.refuses && self.left(now_ms).0 == 0 {
            return 1;
        }
        self.advance(now_ms);
        self.calls += 1;
        let counted = match self.kind {
            Kind::Sliding => {
                self.times.push_back(now_ms);
                self.times.len() as u64
            }
            Kind::Fixed | Kind::Blocks | Kind::Concurrency => {
                self.count += 1;
                self.count
            }
            Kind::Bucket => {
                let filled = self.level + self.limit * (now_ms - self.filled_ms);
                self.level = filled.min(self.limit * WINDOW_MS);
                self.filled_ms = now_ms;
                let Some(level) = self.level.checked_sub(WINDOW_MS) else { return 1 };
                self.level = level;
                self.limit - level / WINDOW_MS
            }
        };
        self.worst = self.worst.max(counted);
        counted.saturating_sub(self.limit)
    }

    /// Ends a call.
    pub fn end(&mut self) {
        if self.kind == Kind::Concurrency {
            self.count -= 1;
        }
    }
}
