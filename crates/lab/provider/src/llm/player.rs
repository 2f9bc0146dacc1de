//! Plays a script: its events at their pace, with pauses, faults and gzip, under an open charge.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;

use super::framing::{Event, Framing};
use super::generation::Generation;
use super::ledger::OpenCharge;
use super::script::EventScript;
use crate::error::ProviderError;
use crate::pace::pause;
use crate::parameters::Parameters;

/// Maximum number of signs of life before the first event.
const ALIVE_MAX: u32 = 10_000;

/// The pace of a response, and its faults.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamPace {
    /// Time before the first event, or before a response in one piece.
    first_event: Duration,
    /// Time between signs of life while the client waits for the first event.
    keep_alive: Option<Duration>,
    /// Time for a word.
    word: Duration,
    /// The stream pauses for this duration after a number of events with text.
    stall: Duration,
    stall_after: Option<u64>,
    /// An error ends the stream after this number of events with text.
    error_after: Option<u64>,
    /// The connection is closed after this number of events with text.
    cut_after: Option<u64>,
    /// Compresses with gzip.
    pub gzip: bool,
    /// Stamps server-sent events with the moment at which they are sent.
    stamp: bool,
}

impl StreamPace {
    /// Reads the pace that the call asks for. The whole response takes at most the provider's maximum.
    pub fn read(parameters: Parameters<'_>, words: u64, max: Duration) -> Result<Self, ProviderError> {
        let per_second = parameters.count("tokens_per_second", 0, 0..=1_000_000)?;
        let word = match u32::try_from(per_second) {
            Ok(0) | Err(_) => Duration::ZERO,
            Ok(rate) => Duration::from_secs(1) / rate,
        };
        let keep_alive = parameters.duration("keep_alive", Duration::ZERO)?;
        let pace = Self {
            first_event: parameters.duration("first_event", Duration::ZERO)?,
            keep_alive: (!keep_alive.is_zero()).then_some(keep_alive),
            word,
            stall: parameters.duration("stall", Duration::from_secs(2))?,
            stall_after: parameters.parsed("stall_after")?,
            error_after: parameters.parsed("error_after")?,
            cut_after: parameters.parsed("cut_after")?,
            gzip: parameters.parsed("gzip")?.unwrap_or(false),
            stamp: parameters.parsed("stamp")?.unwrap_or(false),
        };
        let stall = pace.stall_after.map_or(Duration::ZERO, |_| pace.stall);
        let whole = pace.first_event + stall + pace.words(words);
        if whole > max {
            return Err(ProviderError::bad_request(format!("too much time: {whole:?} > {max:?}")));
        }
        Ok(pace)
    }

    /// Time for a number of words.
    fn words(self, count: u64) -> Duration {
        self.word.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Waits as long as a response in one piece takes.
    pub async fn wait(self, words: u64) {
        pause(self.first_event + self.words(words)).await;
    }
}

/// A step of a stream.
#[derive(Debug)]
enum Step {
    Wait(Duration),
    KeepAlive,
    Send(Event),
    /// An event with the text of this index.
    Piece(u64),
    Cut,
}

/// The error that cuts a stream: hyper closes the connection.
#[derive(Debug, thiserror::Error)]
#[error("cut on purpose")]
struct Cut;

/// The state of a stream.
struct Player {
    steps: VecDeque<Step>,
    script: EventScript,
    call: Arc<Generation>,
    charge: OpenCharge,
    /// `true` if the steps lead to the end of the script.
    is_whole: bool,
    has_sent_event: bool,
    has_ended: bool,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

/// The body of a stream.
pub(super) fn body(
    mut script: EventScript,
    call: &Arc<Generation>,
    pace: StreamPace,
    charge: OpenCharge,
) -> Body {
    if pace.stamp && script.framing == Framing::Events {
        script.framing = Framing::StampedEvents;
    }
    let (steps, is_whole) = steps(&script, call, pace);
    let gzip = pace.gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
    let call = Arc::clone(call);
    let player =
        Player { steps, script, call, charge, is_whole, has_sent_event: false, has_ended: false, gzip };
    Body::from_stream(stream::unfold(player, Player::next))
}

/// The steps of a stream, and `true` if they lead to its end.
fn steps(script: &EventScript, call: &Generation, pace: StreamPace) -> (VecDeque<Step>, bool) {
    let mut steps = VecDeque::new();
    if script.begins_alive {
        steps.push_back(Step::KeepAlive);
    }
    let mut left = pace.first_event;
    for interval in std::iter::repeat_n(pace.keep_alive, ALIVE_MAX as usize).flatten() {
        if script.keep_alive.is_empty() || left <= interval {
            break;
        }
        steps.extend([Step::Wait(interval), Step::KeepAlive]);
        left -= interval;
    }
    steps.push_back(Step::Wait(left));
    steps.extend(script.first.iter().cloned().map(Step::Send));
    let pieces = call.pieces();
    let is_at = |after: Option<u64>, index: u64| after.is_some_and(|after| after.min(pieces) == index);
    for index in 0..=pieces {
        if is_at(pace.stall_after, index) {
            steps.push_back(Step::Wait(pace.stall));
        }
        if is_at(pace.error_after, index) {
            steps.push_back(Step::Send(script.error.clone()));
            return (steps, false);
        }
        if is_at(pace.cut_after, index) {
            steps.push_back(Step::Cut);
            return (steps, false);
        }
        if index < pieces {
            if index > 0 {
                steps.push_back(Step::Wait(pace.words(call.words_per_event)));
            }
            steps.push_back(Step::Piece(index));
        }
    }
    steps.extend(script.last.iter().cloned().map(Step::Send));
    (steps, true)
}

impl Player {
    /// Makes the next bytes. Waiting steps are performed before.
    async fn next(mut self) -> Option<(Result<Bytes, Cut>, Self)> {
        if self.has_ended {
            return None;
        }
        let bytes = loop {
            match self.steps.pop_front() {
                None => break Vec::new(),
                Some(Step::Wait(duration)) if duration.is_zero() => tokio::task::yield_now().await,
                Some(Step::Wait(duration)) => pause(duration).await,
                Some(Step::KeepAlive) => break self.script.keep_alive.as_bytes().to_vec(),
                Some(Step::Send(event)) => break self.framed(&event),
                Some(Step::Piece(index)) => {
                    let piece = self.call.piece(index);
                    self.charge.has_produced(piece.produced);
                    let event = (self.script.piece)(&piece);
                    break self.framed(&event);
                }
                Some(Step::Cut) => {
                    self.charge.fail();
                    self.has_ended = true;
                    return Some((Err(Cut), self));
                }
            }
        };
        self.has_ended = self.steps.is_empty();
        let bytes = self.coded(bytes).unwrap_or_default();
        // Before the client has the last bytes, so that a client that has them finds the call in the ledger.
        match (self.has_ended, self.is_whole) {
            (true, true) => self.charge.complete(),
            (true, false) => self.charge.fail(),
            (false, _) => {}
        }
        Some((Ok(bytes.into()), self))
    }

    fn framed(&mut self, event: &Event) -> Vec<u8> {
        let is_first = !self.has_sent_event;
        self.has_sent_event = true;
        self.script.framing.bytes(event, is_first, self.steps.is_empty())
    }

    /// Compresses bytes if the call asks for it, so that the client can read them at once.
    fn coded(&mut self, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let Some(gzip) = &mut self.gzip else { return Ok(bytes) };
        gzip.write_all(&bytes)?;
        if self.has_ended {
            gzip.try_finish()?;
        } else {
            gzip.flush()?;
        }
        Ok(std::mem::take(gzip.get_mut()))
    }
}

/// Compresses the content of a response in one piece.
pub(super) fn compressed(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // A vector accepts all bytes.
    encoder.write_all(content).and_then(|()| encoder.finish()).unwrap_or_default()
}
