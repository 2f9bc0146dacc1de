//! Windows of streams: the number of bytes that a peer may send before they are passed on (RFC 9113 §5.2).
//!
//! Readers that keep up make the windows of their connection grow, so a fast transfer over a long way is not
//! held up. Many streams at a time make them shrink. These hold at all times:
//!
//! - `MIN_BYTES` ≤ window.
//! - window × the most streams there have been at a time ≤ `SUM_BYTES_MAX`, unless the window is `MIN_BYTES`.

use std::cell::Cell;
use std::rc::Rc;

/// The window of a new connection's streams: the value that most peers begin with.
pub(crate) const MIN_BYTES: u32 = 64 << 10;
/// Maximum sum of the windows of a connection's streams: enough for 160 MB/s over a round trip of 50 ms.
const SUM_BYTES_MAX: u32 = 8 << 20;
/// Factor by which a window grows, about once in a round trip.
const GROWTH: u32 = 4;

/// The window of each stream of a connection.
#[derive(Debug)]
pub(crate) struct Windows {
    bytes: Cell<u32>,
    /// The window that was announced to the peer.
    announced: Cell<u32>,
    streams: Cell<u32>,
    /// The most streams at a time so far.
    streams_max: Cell<u32>,
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            bytes: Cell::new(MIN_BYTES),
            announced: Cell::new(MIN_BYTES),
            streams: Cell::default(),
            streams_max: Cell::default(),
        }
    }
}

impl Windows {
    /// Notes that a reader has read `count` bytes, and that it keeps up with its peer. `read` is the number
    /// of bytes that it has read within the present window.
    pub fn note_read(&self, read: &mut u32, count: usize) {
        *read = read.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if *read >= self.bytes.get() {
            *read = 0;
            self.grow();
        }
    }

    fn grow(&self) {
        self.bytes.set((self.bytes.get() * GROWTH).min(self.bytes_max()));
    }

    /// The largest window with so many streams.
    fn bytes_max(&self) -> u32 {
        (SUM_BYTES_MAX / self.streams_max.get().max(1)).max(MIN_BYTES)
    }

    /// Announces the window to the peer if it has changed. `announce` returns `false` as long as the peer has
    /// not confirmed the last one.
    pub fn announce(&self, announce: impl FnOnce(u32) -> bool) {
        let bytes = self.bytes.get();
        if bytes != self.announced.get() && announce(bytes) {
            self.announced.set(bytes);
        }
    }
}

/// A stream that is open. It is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream(Rc<Windows>);

impl OpenStream {
    pub fn new(windows: Rc<Windows>) -> Self {
        let streams = windows.streams.get().saturating_add(1);
        windows.streams.set(streams);
        windows.streams_max.set(windows.streams_max.get().max(streams));
        windows.bytes.set(windows.bytes.get().min(windows.bytes_max()));
        Self(windows)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        debug_assert!(self.0.streams.get() > 0, "it was counted");
        self.0.streams.set(self.0.streams.get().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn read(windows: &Windows, bytes: usize) {
        let mut read = 0;
        for _ in 0..bytes / 1_024 {
            windows.note_read(&mut read, 1_024);
        }
    }

    fn announced(windows: &Windows) -> Option<u32> {
        let mut announced = None;
        windows.announce(|bytes| {
            announced = Some(bytes);
            true
        });
        announced
    }

    #[test]
    fn a_window_grows_once_its_reader_has_read_it() {
        let windows = Rc::new(Windows::default());
        let _stream = OpenStream::new(Rc::clone(&windows));
        assert_eq!(announced(&windows), None);
        read(&windows, (64 << 10) - 1_024);
        assert_eq!(announced(&windows), None);
        read(&windows, 64 << 10);
        windows.announce(|_| false);
        assert_eq!(announced(&windows), Some(256 << 10));
        assert_eq!(announced(&windows), None);
        read(&windows, 100 << 20);
        assert_eq!(announced(&windows), Some(8 << 20));
    }

    #[test]
    fn windows_shrink_when_there_are_more_streams_and_stay_so() {
        let windows = Rc::new(Windows::default());
        let first = OpenStream::new(Rc::clone(&windows));
        read(&windows, 100 << 20);
        let others: Vec<_> = (1..32).map(|_| OpenStream::new(Rc::clone(&windows))).collect();
        assert_eq!(announced(&windows), Some(256 << 10));
        drop((first, others));
        read(&windows, 100 << 20);
        assert_eq!(announced(&windows), None);
    }

    proptest! {
        #[test]
        fn all_windows_together_are_bounded(steps in vec((0..3_u8, 0..8_usize << 20), 0..200)) {
            let windows = Rc::new(Windows::default());
            let mut streams = Vec::new();
            for (step, bytes) in steps {
                match step {
                    0 => streams.push(OpenStream::new(Rc::clone(&windows))),
                    1 => drop(streams.pop()),
                    _ => read(&windows, bytes),
                }
                let (window, open) = (windows.bytes.get(), u32::try_from(streams.len()).unwrap());
                prop_assert!((MIN_BYTES..=SUM_BYTES_MAX).contains(&window));
                prop_assert!(window == MIN_BYTES || window * open <= SUM_BYTES_MAX);
            }
        }
    }
}
