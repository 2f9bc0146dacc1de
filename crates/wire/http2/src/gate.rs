//! Counts the frames that a peer sends and that cost it nothing, and notices a flood of them.
//!
//! Each of these frames is answered or applied at once, so they take no memory, but they take time. The
//! counts decay by half every second, so a burst is forgotten and a flood is not.

use std::fmt;
use std::time::Duration;

use egret_clock::Moment;

use crate::frame::Kind;

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
    /// `DATA` without bytes per second that does not end its stream.
    empties: u32,
}

/// The rates of clients.
const OF_CLIENT: Rates = Rates {
    resets: 100 * PER_RATE,
    resets_in_all: 10_000,
    settings: 50 * PER_RATE,
    pings: 100 * PER_RATE,
    priorities: 100 * PER_RATE,
    updates: 1_000 * PER_RATE,
    empties: 50 * PER_RATE,
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
    empties: 1_000 * PER_RATE,
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
    /// Other frames that only cost: `CONTINUATION` without an end (VU#421644), fields that grow when decoded
    /// (CVE-2016-6581), `DATA` without bytes (CVE-2019-9518), and streams that this side is made to reset
    /// (CVE-2025-8671) or that are reset before they are accepted.
    Frames,
}

impl Flood {
    /// All kinds of floods.
    pub const ALL: [Self; 6] =
        [Self::Resets, Self::Settings, Self::Pings, Self::Priorities, Self::Updates, Self::Frames];

    /// The name of the kind in metrics.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Resets => "resets",
            Self::Settings => "settings",
            Self::Pings => "pings",
            Self::Priorities => "priorities",
            Self::Updates => "updates",
            Self::Frames => "frames",
        }
    }
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resets => "it resets too many streams (RST_STREAM)",
            Self::Settings => "it sends too many settings (SETTINGS)",
            Self::Pings => "it pings too often (PING)",
            Self::Priorities => "it sends too many priorities (PRIORITY)",
            Self::Updates => "it sends too many frames without data (WINDOW_UPDATE, or of unknown types)",
            Self::Frames => "it sends too many frames that only cost (CONTINUATION, DATA or RST_STREAM)",
        })
    }
}

/// Counts the frames of a connection.
#[derive(Debug)]
pub(crate) struct FrameGate {
    rates: &'static Rates,
    /// Time of the last decay.
    decayed: Moment,
    resets: u32,
    resets_in_all: u32,
    settings: u32,
    pings: u32,
    priorities: u32,
    updates: u32,
    empties: u32,
    /// Number of bytes sent that have not explained a frame yet.
    sent_bytes: u64,
    /// Number of frames that pieces of messages have explained and that have not arrived.
    explained: u32,
}

impl FrameGate {
    /// Creates the gate of a client's connection that begins at `now`.
    pub fn of_client(now: Moment) -> Self {
        Self::new(&OF_CLIENT, now)
    }

    /// Creates the gate of a connection to a provider that begins at `now`.
    pub fn of_provider(now: Moment) -> Self {
        Self::new(&OF_PROVIDER, now)
    }

    fn new(rates: &'static Rates, now: Moment) -> Self {
        Self {
            rates,
            decayed: now,
            resets: 0,
            resets_in_all: 0,
            settings: 0,
            pings: 0,
            priorities: 0,
            updates: 0,
            empties: 0,
            sent_bytes: 0,
            explained: 0,
        }
    }

    /// Notes that `count` bytes were sent to the peer.
    pub fn note_sent(&mut self, count: usize) {
        self.sent_bytes = (self.sent_bytes + count as u64).min(BYTES_MAX);
    }

    /// Notes that a piece of a message is sent: what the other leg has brought at once. How the peer's window
    /// cuts it does not count: otherwise each window of a byte would explain itself (CVE-2019-9511).
    pub fn note_piece(&mut self) {
        self.explained = self.explained.saturating_add(FRAMES_PER_PIECE).min(FRAMES_MAX);
    }

    /// Notes the time at which frames arrive. The counts are halved for each half-life that has passed.
    pub fn note_time(&mut self, now: Moment) {
        let passed = now.since(self.decayed);
        if passed >= HALF_LIFE {
            self.decay(passed);
            self.decayed = now;
        }
    }

    #[cold]
    fn decay(&mut self, passed: Duration) {
        let halves = u32::try_from(passed.as_millis() / HALF_LIFE.as_millis()).unwrap_or(u32::MAX);
        let counts = [
            &mut self.resets,
            &mut self.settings,
            &mut self.pings,
            &mut self.priorities,
            &mut self.updates,
            &mut self.empties,
        ];
        for count in counts {
            *count = count.checked_shr(halves).unwrap_or(0);
        }
    }

    /// Counts a frame with a payload of `len` bytes. Fails if it belongs to a flood.
    #[inline]
    pub fn note(&mut self, kind: Kind, len: usize) -> Result<(), Flood> {
        // They have bounds of their own.
        if matches!(kind, Kind::Data | Kind::Headers) { Ok(()) } else { self.note_rare(kind, len) }
    }

    fn note_rare(&mut self, kind: Kind, len: usize) -> Result<(), Flood> {
        let rates = self.rates;
        match kind {
            Kind::Data | Kind::Headers | Kind::PushPromise | Kind::GoAway | Kind::Continuation => Ok(()),
            Kind::Priority => count(&mut self.priorities, rates.priorities, Flood::Priorities),
            Kind::Reset => {
                count(&mut self.resets_in_all, rates.resets_in_all, Flood::Resets)?;
                count(&mut self.resets, rates.resets, Flood::Resets)
            }
            Kind::Settings if len > SETTINGS_BYTES_MAX => Err(Flood::Settings),
            Kind::Settings => count(&mut self.settings, rates.settings, Flood::Settings),
            Kind::Ping | Kind::WindowUpdate | Kind::Unknown if self.is_explained() => Ok(()),
            Kind::Ping => count(&mut self.pings, rates.pings, Flood::Pings),
            Kind::WindowUpdate | Kind::Unknown => count(&mut self.updates, rates.updates, Flood::Updates),
        }
    }

    /// Counts `DATA` without bytes that does not end its stream. Fails if it belongs to a flood.
    pub fn note_empty_data(&mut self) -> Result<(), Flood> {
        count(&mut self.empties, self.rates.empties, Flood::Frames)
    }

    /// Returns `true` if what was sent explains a frame.
    fn is_explained(&mut self) -> bool {
        if let Some(left) = self.sent_bytes.checked_sub(BYTES_PER_FRAME) {
            self.sent_bytes = left;
            return true;
        }
        let explained = self.explained;
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

    fn begun() -> (FrameGate, Moment) {
        let now = Moment::now();
        (FrameGate::of_client(now), now)
    }

    /// Returns the number of frames of `kind` that pass at once.
    fn passing(kind: Kind, len: usize) -> (u32, Flood) {
        let (mut gate, _) = begun();
        (0..).find_map(|number| gate.note(kind, len).err().map(|flood| (number, flood))).unwrap()
    }

    #[test]
    fn each_kind_of_frame_has_a_bound() {
        assert_eq!(passing(Kind::Priority, 5), (OF_CLIENT.priorities, Flood::Priorities));
        assert_eq!(passing(Kind::Reset, 4), (OF_CLIENT.resets, Flood::Resets));
        assert_eq!(passing(Kind::Settings, 6), (OF_CLIENT.settings, Flood::Settings));
        assert_eq!(passing(Kind::Settings, SETTINGS_BYTES_MAX + 6), (0, Flood::Settings));
        assert_eq!(passing(Kind::Ping, 8), (OF_CLIENT.pings, Flood::Pings));
        assert_eq!(passing(Kind::WindowUpdate, 4), (OF_CLIENT.updates, Flood::Updates));
        assert_eq!(passing(Kind::Unknown, 0), (OF_CLIENT.updates, Flood::Updates));
        let (mut gate, _) = begun();
        let refused = (0..2 * OF_CLIENT.empties).find(|_| gate.note_empty_data().is_err());
        assert_eq!(refused, Some(OF_CLIENT.empties));
    }

    #[test]
    fn a_provider_may_send_more() {
        let mut gate = FrameGate::of_provider(Moment::now());
        let refused = (0..2 * OF_PROVIDER.resets).find(|_| gate.note(Kind::Reset, 4).is_err());
        assert_eq!(refused, Some(OF_PROVIDER.resets));
    }

    #[test]
    fn counts_decay_but_resets_are_also_counted_in_all() {
        let (mut gate, start) = begun();
        let mut sent = 0;
        let flood = (0..).find_map(|second| {
            gate.note_time(start + Duration::from_secs(second));
            (0..90).find_map(|_| {
                sent += 1;
                gate.note(Kind::Reset, 4).err()
            })
        });
        assert_eq!((flood, sent), (Some(Flood::Resets), OF_CLIENT.resets_in_all + 1));
    }

    #[test]
    fn frames_that_sent_bytes_explain_are_not_counted() {
        let (mut gate, _) = begun();
        for _ in 0..10 * OF_CLIENT.updates {
            gate.note_sent(64);
            gate.note(Kind::WindowUpdate, 4).unwrap();
        }
        assert_eq!(gate.updates, 0);
    }

    #[test]
    fn a_small_piece_explains_the_frames_that_answer_it() {
        let (mut gate, _) = begun();
        for _ in 0..10 * OF_CLIENT.updates {
            gate.note_piece();
            for answer in [Kind::WindowUpdate, Kind::WindowUpdate, Kind::Ping] {
                gate.note(answer, 4).unwrap();
            }
        }
        assert_eq!((gate.updates, gate.pings), (0, 0));
        gate.note(Kind::Ping, 8).unwrap();
        assert_eq!(gate.pings, 1);
    }

    #[test]
    fn answers_to_pings_do_not_explain_pings() {
        let (mut gate, _) = begun();
        let flood = (0..2 * OF_CLIENT.pings).find_map(|_| {
            gate.note_sent(17);
            gate.note(Kind::Ping, 8).err()
        });
        assert_eq!(flood, Some(Flood::Pings));
    }
}
