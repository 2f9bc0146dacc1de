//! The streams of a connection.
//!
//! These hold at all times:
//!
//! - Streams that are open ≤ streams that have a slot: a stream keeps its slot until its handle is dropped.
//! - The numbers of open streams are in ascending order.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::task::Waker;

use egret_http1::{HeadError, Method};

use crate::body::Body;
use crate::lost::Lost;

/// The place of a stream in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamSlot(usize);

/// The receiving direction of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// The head of a message is awaited.
    Head,
    /// Data and trailers are awaited.
    Body,
    /// All has arrived.
    Ended,
}

/// The sending direction of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// The head of the message is not sent.
    Head,
    /// The head is sent.
    Body,
    /// All is in the output.
    Ended,
}

/// The end of a message that data in the backlog may precede.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum MessageEnd {
    /// More may follow.
    #[default]
    None,
    /// There are no trailers.
    Plain,
    /// The lines of the trailers, which are valid.
    Trailers(Vec<u8>),
}

/// The text of a received head, or the rule that it breaks.
pub(crate) type HeadText = Result<Vec<u8>, HeadError>;

/// Received heads that were not taken.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    first: Option<HeadText>,
    others: VecDeque<HeadText>,
}

impl Heads {
    /// Adds one.
    pub fn push(&mut self, head: HeadText) {
        if self.first.is_none() {
            self.first = Some(head);
        } else {
            self.others.push_back(head);
        }
    }

    /// Takes the first one.
    pub fn take(&mut self) -> Option<HeadText> {
        std::mem::replace(&mut self.first, self.others.pop_front())
    }

    /// Number of heads.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

/// A stream.
#[derive(Debug)]
pub(crate) struct StreamState {
    /// Its number.
    pub id: u32,
    pub receiving: Receiving,
    pub heads: Heads,
    pub body: Body,
    /// Number of bytes that the peer may send.
    pub receive_window: i64,
    /// Size of the window of which the peer has heard by `WINDOW_UPDATE`, or with which the stream began.
    /// Java 17 waits for `WINDOW_UPDATE` even after `SETTINGS` that make its window larger.
    pub window: u32,
    /// Number of bytes that were read and by which the peer's window has not been opened.
    pub owed: u32,
    /// Number of bytes that were read within the present window, if the reader keeps up with the peer.
    pub prompt: u32,
    /// `true` while bytes wait that the reader could not take when they arrived.
    pub lags: bool,
    /// Number of bytes of data that have to follow, if the head says it.
    pub length_left: Option<u64>,
    pub sending: Sending,
    /// Number of bytes that may be sent.
    pub send_window: i64,
    /// Data that waits for the windows and the output.
    pub backlog: VecDeque<u8>,
    /// The end of the message behind the backlog.
    pub end: MessageEnd,
    /// Number of bytes of data in the output that their sender has not been told of.
    pub moved_bytes: u64,
    /// `true` while the stream waits for its turn to send.
    pub is_queued: bool,
    /// The task that waits for what arrives.
    pub reader: Option<Waker>,
    /// The task that waits for room, or for the loss of the stream.
    pub writer: Option<Waker>,
    /// `Some` once the stream has ended before both directions have.
    pub lost: Option<Lost>,
    /// The method of the request that was sent, which decides whether its response has a body.
    pub method: Method,
    /// The value of `Sec-WebSocket-Accept` for the client, if a request was sent that opens a WebSocket.
    pub accept: Option<String>,
    /// `true` if a client has opened the stream for a WebSocket (RFC 8441).
    pub opens_websocket: bool,
}

impl StreamState {
    /// Creates a stream with these windows.
    pub fn new(id: u32, receive_window: u32, send_window: i64) -> Self {
        Self {
            id,
            receiving: Receiving::Head,
            heads: Heads::default(),
            body: Body::default(),
            receive_window: receive_window.into(),
            window: receive_window,
            owed: 0,
            prompt: 0,
            lags: false,
            length_left: None,
            sending: Sending::Head,
            send_window,
            backlog: VecDeque::new(),
            end: MessageEnd::None,
            moved_bytes: 0,
            is_queued: false,
            reader: None,
            writer: None,
            lost: None,
            method: Method::Get,
            accept: None,
            opens_websocket: false,
        }
    }

    /// Frees the memory of a stream that is gone.
    fn clear(&mut self) {
        self.id = 0;
        self.heads = Heads::default();
        self.body = Body::default();
        self.backlog = VecDeque::new();
        (self.reader, self.writer) = (None, None);
        self.accept = None;
    }

    /// Returns `true` unless both directions have ended, or the stream is lost.
    pub fn is_open(&self) -> bool {
        self.lost.is_none() && (self.receiving != Receiving::Ended || self.sending != Sending::Ended)
    }

    /// Returns `true` if data waits that the peer's window admits.
    pub fn is_ready_to_send(&self) -> bool {
        !self.backlog.is_empty() && self.send_window > 0
    }
}

/// The streams of a connection.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Vec<StreamState>,
    free: Vec<StreamSlot>,
    /// The numbers and slots of the open streams.
    open: Vec<(u32, StreamSlot)>,
}

impl Table {
    /// Adds a stream, which is open. Its number is above all others.
    pub fn insert(&mut self, stream: StreamState) -> StreamSlot {
        let id = stream.id;
        debug_assert!(self.open.last().is_none_or(|(last, _)| *last < id));
        let slot = if let Some(slot) = self.free.pop() {
            self.slots[slot.0] = stream;
            slot
        } else {
            self.slots.push(stream);
            StreamSlot(self.slots.len() - 1)
        };
        self.open.push((id, slot));
        slot
    }

    /// Returns the slot of the open stream with this number.
    #[inline]
    pub fn find(&self, id: u32) -> Option<StreamSlot> {
        let at = self.open.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.open.get(at).map(|(_, slot)| *slot)
    }

    /// Notes that the stream is closed. It keeps its slot.
    pub fn close(&mut self, slot: StreamSlot) {
        let id = self[slot].id;
        if let Ok(at) = self.open.binary_search_by_key(&id, |(id, _)| *id) {
            self.open.remove(at);
        }
    }

    /// Frees the slot of a closed stream.
    pub fn release(&mut self, slot: StreamSlot) {
        debug_assert!(self.find(self[slot].id).is_none(), "it is closed");
        self.slots[slot.0].clear();
        self.free.push(slot);
        if self.free.len() == self.slots.len() {
            self.slots.clear();
            self.free.clear();
        }
    }

    /// Number of open streams.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns the slot of the open stream at this place, in the order of their numbers.
    pub fn slot_at(&self, place: usize) -> Option<StreamSlot> {
        self.open.get(place).map(|(_, slot)| *slot)
    }
}

impl Index<StreamSlot> for Table {
    type Output = StreamState;

    fn index(&self, slot: StreamSlot) -> &StreamState {
        &self.slots[slot.0]
    }
}

impl IndexMut<StreamSlot> for Table {
    fn index_mut(&mut self, slot: StreamSlot) -> &mut StreamState {
        &mut self.slots[slot.0]
    }
}

/// Number of streams that this side has reset and that are remembered, so that what the peer had sent before
/// it knew is ignored (RFC 9113 §5.4.2).
const RESETS_REMEMBERED: usize = 64;

/// The streams that this side has reset last.
#[derive(Debug)]
pub(crate) struct Resets {
    ids: VecDeque<u32>,
    /// Number of resets that the peer has caused, since the connection began.
    caused: usize,
    /// Maximum of that number.
    caused_max: usize,
}

impl Resets {
    /// Creates an empty list, for a peer that may cause so many resets.
    pub fn new(caused_max: usize) -> Self {
        Self { ids: VecDeque::new(), caused: 0, caused_max }
    }

    /// Notes one.
    pub fn note(&mut self, id: u32) {
        if self.ids.len() >= RESETS_REMEMBERED {
            self.ids.pop_front();
        }
        self.ids.push_back(id);
    }

    /// Notes that the peer has caused one. Returns `false` if it causes too many.
    pub fn note_caused(&mut self) -> bool {
        self.caused += 1;
        self.caused <= self.caused_max
    }

    /// Returns `true` if the stream was reset by this side, as far as that is remembered.
    pub fn contains(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn heads_are_taken_in_their_order() {
        let mut heads = Heads::default();
        assert!(heads.take().is_none() && heads.is_empty());
        for number in 0..3 {
            heads.push(Ok(vec![number]));
        }
        assert_eq!(heads.len(), 3);
        for number in 0..3 {
            assert_eq!(heads.take(), Some(Ok(vec![number])));
        }
        assert!(heads.is_empty());
    }

    #[test]
    fn the_last_resets_are_remembered() {
        let mut resets = Resets::new(2);
        (1..=65).for_each(|id| resets.note(id));
        assert!(!resets.contains(1) && resets.contains(2) && resets.contains(65));
        assert!(resets.note_caused() && resets.note_caused() && !resets.note_caused());
    }

    proptest! {
        #[test]
        fn streams_keep_their_slots_until_they_are_released(steps in vec((0..3_u8, any::<prop::sample::Index>()), 0..100)) {
            let (mut table, mut open, mut closed, mut next) = (Table::default(), Vec::new(), Vec::new(), 1);
            for (step, index) in steps {
                match step {
                    0 => {
                        open.push((next, table.insert(StreamState::new(next, 0, 0))));
                        next += 2;
                    }
                    1 if !open.is_empty() => {
                        let (id, slot) = open.remove(index.index(open.len()));
                        table.close(slot);
                        closed.push((id, slot));
                    }
                    _ if !closed.is_empty() => {
                        let (id, slot) = closed.swap_remove(index.index(closed.len()));
                        prop_assert_eq!(table[slot].id, id);
                        table.release(slot);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), open.len());
                for (place, (id, slot)) in open.iter().enumerate() {
                    prop_assert_eq!((table.find(*id), table.slot_at(place)), (Some(*slot), Some(*slot)));
                    prop_assert_eq!(table[*slot].id, *id);
                }
                for (id, slot) in &closed {
                    prop_assert_eq!((table.find(*id), table[*slot].id), (None, *id));
                }
            }
        }
    }
}
