//! The script of a stream: its events in order, made as they are sent.

use super::framing::{Event, Framing};

/// Makes the event of a piece of text.
pub(super) type PieceEvent = Box<dyn Fn(&TextPiece) -> Event + Send>;

/// A piece of the text.
#[derive(Debug)]
pub(super) struct TextPiece {
    /// Index of the piece, from 0.
    pub index: u64,
    pub text: String,
    /// Number of output tokens made so far, this piece and reasoning included.
    pub produced: u64,
}

/// The events of a stream.
pub(super) struct EventScript {
    pub framing: Framing,
    /// Events before the text.
    pub first: Vec<Event>,
    pub piece: PieceEvent,
    /// Events after the text.
    pub last: Vec<Event>,
    /// Event of an error in the middle of the stream, after which nothing follows.
    pub error: Event,
    /// Bytes that show a waiting client that the stream is alive; empty if the dialect has none.
    pub keep_alive: &'static str,
    /// `true` if the dialect sends them even before a first event that comes at once.
    pub begins_alive: bool,
}
