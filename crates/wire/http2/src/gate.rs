//! Counts the frames that a peer sends and that cost it nothing, and notices a flood of them.
//!
//! The library answers or applies each of these frames at once, so they take no memory, but they take time.
//! The counts decay by half every second, so a burst is forgotten and a flood is not.

use std::fmt;
use std::time::{Duration, Instant};

/// Length of the client's preface (RFC 9113 §3.4), which precedes the frames.
const PREFACE_BYTES: u64 = 24;
/// Length of the head of a frame (RFC 9113 §4.1).
const FRAME_HEAD_BYTES: usize = 9;
/// Time in which counts decay by half.
const HALF_LIFE: Duration = Duration::from_secs(1);
/// A count that decays by half every second stays below twice the rate at which it grows.
const PER_RATE: u32 = 2;
/// Frames per second that end a stream. Clients cancel calls with them, so a busy one sends some.
const RESETS: u32 = 100 * PER_RATE;
/// Frames that end a stream in the life of a connection.
const RESETS_IN_ALL: u32 = 10_000;
/// `SETTINGS` per second. An ordinary peer sends few in the life of a connection.
const SETTINGS: u32 = 50 * PER_RATE;
/// Maximum length of `SETTINGS`: 32 entries of 6 bytes. There are 8 in use.
const SETTINGS_BYTES_MAX: usize = 32 * 6;
/// `PING` per second, beyond those that sent bytes explain.
const PINGS: u32 = 100 * PER_RATE;
/// `PRIORITY` per second. They have no effect (RFC 9113 §5.3.2).
const PRIORITIES: u32 = 100 * PER_RATE;
/// `WINDOW_UPDATE` and frames of unknown types per second, beyond those that sent bytes explain.
const UPDATES: u32 = 1_000 * PER_RATE;
/// Number of bytes sent that explain one frame more. More than the bytes of an answered `PING`, so that pings
/// do not explain pings; few enough for a peer that acknowledges small messages, or measures its bandwidth
/// with each of them.
const BYTES_PER_FRAME: u64 = 64;
/// Maximum number of bytes sent that are remembered.
const BYTES_MAX: u64 = 64 << 20;

/// A flood of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// Streams that are reset as soon as they are opened ("Rapid Reset", CVE-2023-44487).
    Resets,
    /// `SETTINGS` (CVE-2019-9515), or one with too many entries.
    Settings,
    /// `PING` (CVE-2019-9512).
    Pings,
    /// `PRIORITY` (CVE-2019-9513).
    Priorities,
    /// `WINDOW_UPDATE`, or frames of unknown types.
    Updates,
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resets => "it resets too many streams (RST_STREAM)",
            Self::Settings => "it sends too many settings (SETTINGS)",
            Self::Pings => "it pings too often (PING)",
            Self::Priorities => "it sends too many priorities (PRIORITY)",
            Self::Updates => "it sends too many frames without data (WINDOW_UPDATE, or of unknown types)",
        })
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
    /// Number of bytes sent that have not explained a frame yet.
    sent_bytes: u64,
}

impl FrameGate {
    /// Creates the gate of a client's connection that begins at `now`.
    pub fn of_client(now: Instant) -> Self {
        Self {
            place: Place::Skipped(PREFACE_BYTES),
            head: [0; FRAME_HEAD_BYTES],
            decayed: now,
            resets: 0,
            resets_in_all: 0,
            settings: 0,
            pings: 0,
            priorities: 0,
            updates: 0,
            sent_bytes: 0,
        }
    }

    /// Notes that `count` bytes were sent to the peer.
    pub fn note_sent(&mut self, count: usize) {
        self.sent_bytes = (self.sent_bytes + count as u64).min(BYTES_MAX);
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
        match kind {
            // DATA, HEADERS, PUSH_PROMISE, GOAWAY, CONTINUATION: the library has bounds for them.
            0 | 1 | 5 | 7 | 9 => Ok(()),
            2 => count(&mut self.priorities, PRIORITIES, Flood::Priorities),
            3 => {
                count(&mut self.resets_in_all, RESETS_IN_ALL, Flood::Resets)?;
                count(&mut self.resets, RESETS, Flood::Resets)
            }
            4 if len > SETTINGS_BYTES_MAX => Err(Flood::Settings),
            4 => count(&mut self.settings, SETTINGS, Flood::Settings),
            6 if self.is_explained() => Ok(()),
            6 => count(&mut self.pings, PINGS, Flood::Pings),
            _ if self.is_explained() => Ok(()),
            _ => count(&mut self.updates, UPDATES, Flood::Updates),
        }
    }

    /// Returns `true` if bytes sent explain a frame.
    fn is_explained(&mut self) -> bool {
        let left = self.sent_bytes.checked_sub(BYTES_PER_FRAME);
        self.sent_bytes = left.unwrap_or(self.sent_bytes);
        left.is_some()
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
        assert_eq!(passing(2, 5), (PRIORITIES, Flood::Priorities));
        assert_eq!(passing(3, 4), (RESETS, Flood::Resets));
        assert_eq!(passing(4, 6), (SETTINGS, Flood::Settings));
        assert_eq!(passing(4, SETTINGS_BYTES_MAX + 6), (0, Flood::Settings));
        assert_eq!(passing(6, 8), (PINGS, Flood::Pings));
        assert_eq!(passing(8, 4), (UPDATES, Flood::Updates));
        assert_eq!(passing(0xbb, 0), (UPDATES, Flood::Updates));
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
        assert_eq!((flood, sent), (Some(Flood::Resets), RESETS_IN_ALL + 1));
    }

    #[test]
    fn frames_that_sent_bytes_explain_are_not_counted() {
        let now = Instant::now();
        let (mut gate, update) = (begun(now), frame(8, 4));
        for _ in 0..10 * UPDATES {
            gate.note_sent(64);
            gate.pass(&update, now).unwrap();
        }
        assert_eq!(gate.updates, 0);
    }

    #[test]
    fn answers_to_pings_do_not_explain_pings() {
        let now = Instant::now();
        let (mut gate, ping) = (begun(now), frame(6, 8));
        let flood = (0..2 * PINGS).find_map(|_| {
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
