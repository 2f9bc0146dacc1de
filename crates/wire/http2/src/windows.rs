//! Windows of streams: the number of bytes that a peer may send before they are passed on (RFC 9113 §5.2).
//!
//! Readers that keep up make the windows of their connection grow, so a fast transfer over a long way is not
//! held up. Many streams at a time make them shrink. These hold at all times:
//!
//! - `MIN_BYTES` ≤ window.
//! - window × the most streams there have been at a time ≤ `SUM_BYTES_MAX`, unless the window is `MIN_BYTES`.

use crate::frame::DEFAULT_WINDOW_BYTES;

/// The window that a new connection announces for its streams.
pub(crate) const MIN_BYTES: u32 = 64 << 10;
/// Maximum sum of the windows of a connection's streams: enough for 160 MB/s over a round trip of 50 ms.
const SUM_BYTES_MAX: u32 = 8 << 20;
/// Factor by which a window grows, about once in a round trip.
const GROWTH: u32 = 16;

/// The window of each stream of a connection.
#[derive(Debug)]
pub(crate) struct Windows {
    bytes: u32,
    /// The window that was announced to the peer last.
    announced: u32,
    /// The window that the peer has confirmed last.
    confirmed: u32,
    streams: u32,
    /// The most streams at a time so far.
    streams_max: u32,
}

impl Default for Windows {
    /// The windows of a connection whose first settings are to be sent.
    fn default() -> Self {
        let (bytes, confirmed) = (MIN_BYTES, DEFAULT_WINDOW_BYTES);
        Self { bytes, announced: bytes, confirmed, streams: 0, streams_max: 0 }
    }
}

impl Windows {
    /// The number of bytes that a peer may send on a new stream. A larger window holds once it is announced,
    /// since some clients use it before they confirm it, and a smaller one once it is confirmed.
    pub fn allowed(&self) -> u32 {
        self.announced.max(self.confirmed)
    }

    /// The window that the peer has confirmed last.
    pub fn confirmed(&self) -> u32 {
        self.confirmed
    }

    /// Notes that a reader has read `count` bytes, and that it keeps up with its peer. `read` is the number
    /// of bytes that it has read within the present window.
    pub fn note_read(&mut self, read: &mut u32, count: u32) {
        *read = read.saturating_add(count);
        if *read >= self.bytes {
            *read = 0;
            self.bytes = (self.bytes * GROWTH).min(self.bytes_max());
        }
    }

    /// The largest window with so many streams.
    fn bytes_max(&self) -> u32 {
        (SUM_BYTES_MAX / self.streams_max.max(1)).max(MIN_BYTES)
    }

    /// Counts one more stream.
    pub fn open(&mut self) {
        self.streams += 1;
        if self.streams > self.streams_max {
            self.streams_max = self.streams;
            self.bytes = self.bytes.min(self.bytes_max());
        }
    }

    /// Counts one stream less.
    pub fn close(&mut self) {
        debug_assert!(self.streams > 0, "it was counted");
        self.streams = self.streams.saturating_sub(1);
    }

    /// Returns the window if it has to be announced to the peer, and the number of bytes by which each stream
    /// grows. `None` as long as the peer has not confirmed the last one.
    pub fn announce(&mut self) -> Option<(u32, u32)> {
        if self.bytes == self.announced || self.announced != self.confirmed {
            return None;
        }
        self.announced = self.bytes;
        Some((self.announced, self.announced.saturating_sub(self.confirmed)))
    }

    /// Notes that the peer has confirmed the last announcement. Returns the number of bytes by which each
    /// stream shrinks, or `None` if there was no announcement.
    pub fn confirm(&mut self) -> Option<u32> {
        if self.announced == self.confirmed {
            return None;
        }
        let before = std::mem::replace(&mut self.confirmed, self.announced);
        Some(before.saturating_sub(self.announced))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn read(windows: &mut Windows, bytes: usize) {
        let mut read = 0;
        for _ in 0..bytes / 1_024 {
            windows.note_read(&mut read, 1_024);
        }
    }

    /// Windows with one stream, whose first settings are confirmed.
    fn begun() -> Windows {
        let mut windows = Windows::default();
        windows.open();
        assert_eq!(windows.confirm(), Some(0));
        windows
    }

    fn announced(windows: &mut Windows) -> Option<u32> {
        let announced = windows.announce();
        assert_eq!(windows.confirm().is_some(), announced.is_some());
        announced.map(|(bytes, _)| bytes)
    }

    #[test]
    fn a_window_grows_once_its_reader_has_read_it() {
        let mut windows = begun();
        assert_eq!(announced(&mut windows), None);
        read(&mut windows, (64 << 10) - 1_024);
        assert_eq!(announced(&mut windows), None);
        read(&mut windows, 64 << 10);
        assert_eq!(announced(&mut windows), Some(1 << 20));
        assert_eq!(announced(&mut windows), None);
        read(&mut windows, 100 << 20);
        assert_eq!(announced(&mut windows), Some(8 << 20));
    }

    #[test]
    fn one_announcement_waits_for_the_answer_to_the_last() {
        let mut windows = Windows::default();
        windows.open();
        read(&mut windows, 64 << 10);
        assert_eq!(windows.announce(), None);
        assert_eq!((windows.confirm(), windows.confirm()), (Some(0), None));
        assert_eq!(windows.announce(), Some((1 << 20, 960 << 10)));
        assert_eq!((windows.announce(), windows.confirmed()), (None, 64 << 10));
        assert_eq!((windows.confirm(), windows.confirmed()), (Some(0), 1 << 20));
    }

    #[test]
    fn a_larger_window_holds_at_once_and_a_smaller_one_once_confirmed() {
        let mut windows = begun();
        read(&mut windows, 64 << 10);
        assert_eq!((windows.announce(), windows.allowed()), (Some((1 << 20, 960 << 10)), 1 << 20));
        windows.confirm();
        (1..64).for_each(|_| windows.open());
        assert_eq!((windows.announce(), windows.allowed()), (Some((128 << 10, 0)), 1 << 20));
        assert_eq!((windows.confirm(), windows.allowed()), (Some(896 << 10), 128 << 10));
    }

    #[test]
    fn windows_shrink_when_there_are_more_streams_and_stay_so() {
        let mut windows = begun();
        read(&mut windows, 100 << 20);
        (1..32).for_each(|_| windows.open());
        assert_eq!(announced(&mut windows), Some(256 << 10));
        (0..32).for_each(|_| windows.close());
        read(&mut windows, 100 << 20);
        assert_eq!(announced(&mut windows), None);
    }

    proptest! {
        #[test]
        fn all_windows_together_are_bounded(steps in vec((0..3_u8, 0..8_usize << 20), 0..200)) {
            let mut windows = Windows::default();
            let mut open = 0;
            for (step, bytes) in steps {
                match step {
                    0 => {
                        windows.open();
                        open += 1;
                    }
                    1 if open > 0 => {
                        windows.close();
                        open -= 1;
                    }
                    _ => read(&mut windows, bytes),
                }
                prop_assert!((MIN_BYTES..=SUM_BYTES_MAX).contains(&windows.bytes));
                prop_assert!(windows.bytes == MIN_BYTES || windows.bytes * open <= SUM_BYTES_MAX);
            }
        }
    }
}
