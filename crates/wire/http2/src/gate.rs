//! Counts the frames that a peer sends and that cost it nothing, and notices a flood of them.
//!
//! The library answers or applies each of these frames at once, so they take no memory, but they take time.
//! The counts decay by half every second, so a burst is forgotten and a flood is not.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use egret_items::words;

/// Length of the client's preface (RFC 9113 §3.4), which precedes the frames.
const PREFACE_BYTES: u64 = 24;
/// Length of the head of a frame (RFC 9113 §4.1).
const FRAME_HEAD_BYTES: usize = 9;
/// Time in which counts decay by half.
const HALF_LIFE: Duration = Duration::from_secs(1);
/// A count that decays by half every second stays below twice the rate at which it grows.
const PER_RATE: u32 = 2;
/// Maximum length of `SETTINGS`: 32 entries of 6 bytes. There are 8 in use.
const SETTINGS_BYTES_MAX: usize = 32 * 6;

/// The numbers of frames that a peer may send.
#[derive(Debug)]
struct Rates {
    /// `RST_STREAM` per second. Clients cancel calls with them, so a busy one sends some.
    resets: u32,
    /// `RST_STREAM` in the life of a connection.
    resets_in_all: u32,
    /// `SETTINGS` per second. An ordinary peer sends few in the life of a connection.
    settings: u32,
    /// `PING` per second, beyond those that sent bytes explain.
    pings: u32,
    /// `PRIORITY` per second. They have no effect (RFC 9113 §5.3.2).
    priorities: u32,
    /// `WINDOW_UPDATE` and frames of unknown types per second, beyond those that sent bytes explain.
    updates: u32,
}

/// The rates of clients.
const OF_CLIENT: Rates = Rates {
    resets: 100 * PER_RATE,
    resets_in_all: 10_000,
    settings: 50 * PER_RATE,
    pings: 100 * PER_RATE,
    priorities: 100 * PER_RATE,
    updates: 1_000 * PER_RATE,
};
/// The rates of providers, which end streams of their own accord only to refuse them, on connections that
/// many clients share.
const OF_PROVIDER: Rates = Rates {
    resets: 1_000 * PER_RATE,
    resets_in_all: 1_000_000,
    settings: 100 * PER_RATE,
    pings: 1_000 * PER_RATE,
    priorities: 100 * PER_RATE,
    updates: 10_000 * PER_RATE,
};

/// Number of bytes sent that explain one frame more. More than the bytes of an answered `PING`, so that pings
/// do not explain pings; few enough for a peer that acknowledges small messages, or measures its bandwidth
/// with each of them.
const BYTES_PER_FRAME: u64 = 64;
/// Maximum number of bytes sent that are remembered.
const BYTES_MAX: u64 = 64 << 20;
/// Number of frames more that a piece of a message explains, however small it is: for each that arrives, gRPC
/// for Go opens a window of the connection and one of the stream, and measures its bandwidth by a `PING`.
const FRAMES_PER_PIECE: u32 = 3;
/// Maximum number of frames that pieces have explained before they arrive.
const FRAMES_MAX: u32 = 1 << 20;

words! {
    /// A flood of frames. Its slug is the name in metrics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    pub enum Flood: slug {
        /// Streams that are reset as soon as they are opened ("Rapid Reset", CVE-2023-44487).
        #[error("it resets too many streams (RST_STREAM)")]
        Resets => "resets",
        /// `SETTINGS` (CVE-2019-9515), or one with too many entries.
        #[error("it sends too many settings (SETTINGS)")]
        Settings => "settings",
        /// `PING` (CVE-2019-9512).
        #[error("it pings too often (PING)")]
        Pings => "pings",
        /// `PRIORITY` (CVE-2019-9513).
        #[error("it sends too many priorities (PRIORITY)")]
        Priorities => "priorities",
        /// `WINDOW_UPDATE`, or frames of unknown types.
        #[error("it sends too many frames without data (WINDOW_UPDATE, or of unknown types)")]
        Updates => "updates",
        /// Frames for which the library has a bound: `CONTINUATION` without an end (VU#421644), `DATA` with
        /// hardly any bytes (CVE-2019-9518), or streams that are reset before they are accepted.
        #[error("it sends too many frames that only cost (CONTINUATION, DATA or RST_STREAM)")]
        Frames => "frames",
    }
}

/// Counts the pieces of messages that are sent on a connection. A piece is what the other leg has brought at
/// once. How the peer's window cuts it does not count: otherwise each window of a byte would explain itself
/// (CVE-2019-9511).
#[derive(Debug, Clone, Default)]
pub(crate) struct SentPieces(Rc<Cell<u32>>);

impl SentPieces {
    /// Notes one more.
    pub fn note(&self) {
        self.0.set(self.0.get().saturating_add(1));
    }
}

/// The part of the peer's bytes that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// This number of bytes has no frames in it: the preface, or the payload of a frame.
    Skipped(u64),
    /// The head of a frame, of which this number of bytes is known.
    Head(usize),
}

/// Counts frames by their heads, as the bytes of a connection pass.
#[derive(Debug)]
pub(crate) struct FrameGate {
    rates: &'static Rates,
    place: Place,
    head: [u8; FRAME_HEAD_BYTES],
    /// Time of the last decay.
    decayed: Instant,
    resets: u32,
    resets_in_all: u32,
    settings: u32,
    pings: u32,
    priorities: u32,
    updates: u32,
    /// The arrival of the peer's settings.
    first_settings: FirstSettings,
    /// Number of bytes sent that have not explained a frame yet.
    sent_bytes: u64,
    /// Pieces sent that have not explained a frame yet.
    pieces: SentPieces,
    /// Number of frames that earlier pieces have explained and that have not arrived.
    explained: u32,
}

/// The arrival of the first `SETTINGS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstSettings {
    Awaited,
    /// Its head has arrived.
    Begun,
    Complete,
}

impl FrameGate {
    /// Creates the gate of a client's connection that begins at `now`.
    pub fn of_client(now: Instant) -> Self {
        Self::new(&OF_CLIENT, Place::Skipped(PREFACE_BYTES), now)
    }

    /// Creates the gate of a connection to a provider that begins at `now`.
    pub fn of_provider(now: Instant) -> Self {
        Self::new(&OF_PROVIDER, Place::Head(0), now)
    }

    fn new(rates: &'static Rates, place: Place, now: Instant) -> Self {
        Self {
            rates,
            place,
            head: [0; FRAME_HEAD_BYTES],
            decayed: now,
            resets: 0,
            resets_in_all: 0,
            settings: 0,
            pings: 0,
            priorities: 0,
            updates: 0,
            first_settings: FirstSettings::Awaited,
            sent_bytes: 0,
            pieces: SentPieces::default(),
            explained: 0,
        }
    }

    /// Returns the counter of pieces that are sent on the connection.
    pub fn pieces(&self) -> SentPieces {
        self.pieces.clone()
    }

    /// Notes that `count` bytes were sent to the peer.
    pub fn note_sent(&mut self, count: usize) {
        self.sent_bytes = (self.sent_bytes + count as u64).min(BYTES_MAX);
    }

    /// Returns `true` if the peer's settings have arrived as a whole.
    pub fn has_settings(&self) -> bool {
        self.first_settings == FirstSettings::Complete
    }

    /// Counts the frames in `bytes`, the next ones that the peer has sent. Fails if they are a flood.
    pub fn pass(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), Flood> {
        self.decay(now);
        while !bytes.is_empty() {
            match self.place {
                Place::Skipped(left) => {
                    let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    bytes = &bytes[taken..];
                    let left = left - taken as u64;
                    self.place = if left > 0 { Place::Skipped(left) } else { Place::Head(0) };
                    if left == 0 && self.first_settings == FirstSettings::Begun {
                        self.first_settings = FirstSettings::Complete;
                    }
                }
                Place::Head(known) => {
                    let taken = bytes.len().min(FRAME_HEAD_BYTES - known);
                    self.head[known..known + taken].copy_from_slice(&bytes[..taken]);
                    bytes = &bytes[taken..];
                    self.place = Place::Head(known + taken);
                    if known + taken == FRAME_HEAD_BYTES {
                        self.begin_frame()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Halves the counts for each half-life that has passed.
    fn decay(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.decayed);
        if passed < HALF_LIFE {
            return;
        }
        let halves = u32::try_from(passed.as_millis() / HALF_LIFE.as_millis()).unwrap_or(u32::MAX);
        let counts =
            [&mut self.resets, &mut self.settings, &mut self.pings, &mut self.priorities, &mut self.updates];
        for count in counts {
            *count = count.checked_shr(halves).unwrap_or(0);
        }
        self.decayed = now;
    }

    fn begin_frame(&mut self) -> Result<(), Flood> {
        let [high, middle, low, kind, ..] = self.head;
        let len = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.place = if len > 0 { Place::Skipped(len as u64) } else { Place::Head(0) };
        let rates = self.rates;
        if kind == 4 && self.first_settings == FirstSettings::Awaited {
            let is_complete = len == 0;
            self.first_settings = if is_complete { FirstSettings::Complete } else { FirstSettings::Begun };
        }
        match kind {
            // DATA, HEADERS, PUSH_PROMISE, GOAWAY, CONTINUATION: the library has bounds for them.
            0 | 1 | 5 | 7 | 9 => Ok(()),
            2 => count(&mut self.priorities, rates.priorities, Flood::Priorities),
            3 => {
                count(&mut self.resets_in_all, rates.resets_in_all, Flood::Resets)?;
                count(&mut self.resets, rates.resets, Flood::Resets)
            }
            4 if len > SETTINGS_BYTES_MAX => Err(Flood::Settings),
            4 => count(&mut self.settings, rates.settings, Flood::Settings),
            6 if self.is_explained() => Ok(()),
            6 => count(&mut self.pings, rates.pings, Flood::Pings),
            _ if self.is_explained() => Ok(()),
            _ => count(&mut self.updates, rates.updates, Flood::Updates),
        }
    }

    /// Returns `true` if what was sent explains a frame.
    fn is_explained(&mut self) -> bool {
        if let Some(left) = self.sent_bytes.checked_sub(BYTES_PER_FRAME) {
            self.sent_bytes = left;
            return true;
        }
        let more = self.pieces.0.take().saturating_mul(FRAMES_PER_PIECE);
        let explained = self.explained.saturating_add(more).min(FRAMES_MAX);
        self.explained = explained.saturating_sub(1);
        explained > 0
    }
}

fn count(count: &mut u32, max: u32, flood: Flood) -> Result<(), Flood> {
    *count = count.saturating_add(1);
    if *count > max { Err(flood) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(kind: u8, len: usize) -> Vec<u8> {
        let mut bytes = u32::try_from(len).unwrap().to_be_bytes()[1..].to_vec();
        bytes.extend_from_slice(&[kind, 0, 0, 0, 0, 1]);
        bytes.resize(FRAME_HEAD_BYTES + len, 3);
        bytes
    }

    fn begun(now: Instant) -> FrameGate {
        let mut gate = FrameGate::of_client(now);
        gate.pass(&[3; 24], now).unwrap();
        gate
    }

    /// Returns the number of frames of `kind` that pass at once.
    fn passing(kind: u8, len: usize) -> (u32, Flood) {
        let now = Instant::now();
        let (mut gate, frame) = (begun(now), frame(kind, len));
        for number in 0.. {
            if let Err(flood) = gate.pass(&frame, now) {
                return (number, flood);
            }
        }
        unreachable!()
    }

    #[test]
    fn each_kind_of_frame_has_a_bound() {
        assert_eq!(passing(2, 5), (OF_CLIENT.priorities, Flood::Priorities));
        assert_eq!(passing(3, 4), (OF_CLIENT.resets, Flood::Resets));
        assert_eq!(passing(4, 6), (OF_CLIENT.settings, Flood::Settings));
        assert_eq!(passing(4, SETTINGS_BYTES_MAX + 6), (0, Flood::Settings));
        assert_eq!(passing(6, 8), (OF_CLIENT.pings, Flood::Pings));
        assert_eq!(passing(8, 4), (OF_CLIENT.updates, Flood::Updates));
        assert_eq!(passing(0xbb, 0), (OF_CLIENT.updates, Flood::Updates));
    }

    #[test]
    fn a_provider_may_send_more_and_begins_without_a_preface() {
        let now = Instant::now();
        let (mut gate, reset) = (FrameGate::of_provider(now), frame(3, 4));
        let refused = (0..2 * OF_PROVIDER.resets).find(|_| gate.pass(&reset, now).is_err());
        assert_eq!(refused, Some(OF_PROVIDER.resets));
    }

    #[test]
    fn counts_decay_but_resets_are_also_counted_in_all() {
        let start = Instant::now();
        let (mut gate, reset) = (begun(start), frame(3, 4));
        let mut sent = 0;
        let flood = (0..).find_map(|second| {
            let now = start + Duration::from_secs(second);
            (0..90).find_map(|_| {
                sent += 1;
                gate.pass(&reset, now).err()
            })
        });
        assert_eq!((flood, sent), (Some(Flood::Resets), OF_CLIENT.resets_in_all + 1));
    }

    #[test]
    fn frames_that_sent_bytes_explain_are_not_counted() {
        let now = Instant::now();
        let (mut gate, update) = (begun(now), frame(8, 4));
        for _ in 0..10 * OF_CLIENT.updates {
            gate.note_sent(64);
            gate.pass(&update, now).unwrap();
        }
        assert_eq!(gate.updates, 0);
    }

    #[test]
    fn a_small_piece_explains_the_frames_that_answer_it() {
        let now = Instant::now();
        let (mut gate, update, ping) = (begun(now), frame(8, 4), frame(6, 8));
        for _ in 0..10 * OF_CLIENT.updates {
            gate.pieces().note();
            for answer in [&update, &update, &ping] {
                gate.pass(answer, now).unwrap();
            }
        }
        assert_eq!((gate.updates, gate.pings), (0, 0));
        gate.pass(&ping, now).unwrap();
        assert_eq!(gate.pings, 1);
    }

    #[test]
    fn settings_have_arrived_with_their_last_byte() {
        let now = Instant::now();
        for (len, before) in [(12, FRAME_HEAD_BYTES + 11), (0, FRAME_HEAD_BYTES - 1)] {
            let (mut gate, settings) = (FrameGate::of_provider(now), frame(4, len));
            gate.pass(&frame(8, 4), now).unwrap();
            gate.pass(&settings[..before], now).unwrap();
            assert!(!gate.has_settings(), "{len}");
            gate.pass(&settings[before..], now).unwrap();
            assert!(gate.has_settings(), "{len}");
        }
    }

    #[test]
    fn answers_to_pings_do_not_explain_pings() {
        let now = Instant::now();
        let (mut gate, ping) = (begun(now), frame(6, 8));
        let flood = (0..2 * OF_CLIENT.pings).find_map(|_| {
            gate.note_sent(FRAME_HEAD_BYTES + 8);
            gate.pass(&ping, now).err()
        });
        assert_eq!(flood, Some(Flood::Pings));
    }

    proptest! {
        #[test]
        fn frames_are_found_wherever_the_bytes_are_cut(
            frames in prop::collection::vec((0_u8..12, 0_usize..40), 0..30),
            cuts in prop::collection::vec(1_usize..30, 1..20),
        ) {
            let now = Instant::now();
            let mut bytes = vec![0; 24];
            for (kind, len) in &frames {
                bytes.extend(frame(*kind, *len));
            }
            let (mut whole, mut cut) = (FrameGate::of_client(now), FrameGate::of_client(now));
            prop_assert_eq!(whole.pass(&bytes, now), Ok(()));
            let mut rest = &bytes[..];
            for len in cuts.iter().cycle() {
                let (piece, after) = rest.split_at((*len).min(rest.len()));
                prop_assert_eq!(cut.pass(piece, now), Ok(()));
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            let counts = |gate: &FrameGate| {
                (gate.place, gate.resets, gate.settings, gate.pings, gate.priorities, gate.updates)
            };
            prop_assert_eq!(counts(&whole), counts(&cut));
        }
    }
}
