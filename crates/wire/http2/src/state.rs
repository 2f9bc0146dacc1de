//! The state of a connection, which its task and the handles of its streams share.
//!
//! These hold at all times:
//!
//! - Bytes that the peer may still send + bytes that it has sent and that are not passed on + bytes `owed` =
//!   the window of the connection.
//! - A stream in `queue` has a backlog that its own window admits. It is there once.
//! - Data waits in a backlog only if the windows or the output admit no more, or others wait before it.
//! - If bytes were added to an empty output, the task of the connection is woken.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use egret_clock::Moment;

use crate::frame::{self, Kind, PAYLOAD_BYTES_MAX, Reason, Setting};
use crate::gate::{Flood, FrameGate};
use crate::hpack::{Decoder, Encoder, FieldList, Indexing};
use crate::lost::Lost;
use crate::outgoing::{OutgoingRequest, OutgoingResponse, check_trailers, for_each_trailer};
use crate::output::{Data, Output};
use crate::table::{MessageEnd, Receiving, Resets, Sending, StreamSlot, StreamState, Table};
use crate::windows::{self, Windows};

/// Memory for the compression of fields in each direction: the value that every peer begins with.
const HEADER_TABLE_BYTES: usize = 4096;
/// Number of pseudo-fields of a message at most.
const PSEUDO_FIELDS: usize = 5;
/// The number of a stream from which on no further one is opened on its connection: half of those that there
/// are (RFC 9113 §5.1.1), so that the rest can still be used while the connection is replaced.
const LAST_STREAM: u32 = 1 << 30;
/// Number of streams that are assumed at most before the provider says its maximum.
const STREAMS_ASSUMED: usize = 100;
/// The payload of the `PING` that follows the first `GOAWAY`, by whose answer the peer shows that it has read
/// both.
pub(crate) const GOODBYE: [u8; frame::PING_BYTES] = *b"farewell";
/// The payload of other `PING`s.
pub(crate) const SIGN_OF_LIFE: [u8; frame::PING_BYTES] = *b"are u ok";

/// The stream was reset, or its connection is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

impl From<crate::outgoing::Untranslatable> for Gone {
    fn from(_: crate::outgoing::Untranslatable) -> Self {
        Self
    }
}

/// The side of a connection that this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Client,
}

/// The bounds of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Maximum number of streams at the same time. On a connection to a provider, which has a maximum of its
    /// own, it is the number to assume before that is known.
    pub streams: u32,
    /// Maximum length of a message's fields, with 32 bytes more for each (RFC 9113 §6.5.2).
    pub header_list: u32,
    /// Maximum number of a message's fields.
    pub fields: usize,
}

/// The parameters of a side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub role: Role,
    pub bounds: Bounds,
    pub is_tls: bool,
    /// Number of bytes that the peer may send on all streams before they are passed on.
    pub window_bytes: u32,
    /// Number of streams that the peer may make this side reset before the connection ends.
    pub caused_resets_max: usize,
}

/// The reason why a connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// In order, or the peer has closed it.
    Closed,
    /// It has failed.
    Failed(io::ErrorKind),
    /// The peer breaks a rule.
    Violation(Reason),
    /// The peer sends a flood of frames.
    Flood(Flood),
}

/// The phases of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    Open,
    /// The peer was told that it must open no more streams. Some may be on their way (RFC 9113 §6.8).
    Leaving,
    /// The peer was told the last stream. The connection ends with the streams.
    Left,
    /// Nothing is received any more. The connection ends once the output is sent.
    Closing(Ending),
    Closed(Ending),
}

/// The error that a frame causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameFault {
    /// An error of the connection (RFC 9113 §5.4.1).
    Connection(Reason),
    /// An error of the stream (RFC 9113 §5.4.2).
    Stream(Reason),
    Flood(Flood),
}

impl From<Flood> for FrameFault {
    fn from(flood: Flood) -> Self {
        Self::Flood(flood)
    }
}

/// The facts about the peer that its settings say (RFC 9113 §6.5.2).
#[derive(Debug)]
pub(crate) struct Peer {
    /// The window that streams begin with.
    pub initial_window: u32,
    /// Maximum number of streams that this side may open.
    pub streams_max: usize,
    /// `true` if extended CONNECT is understood.
    pub opens_websockets: bool,
    /// `true` once the first settings have arrived.
    pub is_settled: bool,
    /// The calls that wait for them.
    pub waiting: Vec<Waker>,
}

/// A block of fields whose end has not arrived.
#[derive(Debug)]
pub(crate) struct Block {
    pub stream: u32,
    pub bytes: Vec<u8>,
    /// Number of frames behind the first.
    pub frames: usize,
    pub ends_stream: bool,
    pub depends_on_itself: bool,
}

/// The state of a connection.
pub(crate) struct Core {
    pub terms: Terms,
    pub phase: ConnectionPhase,
    pub table: Table,
    pub output: Output,
    pub gate: FrameGate,
    pub windows: Windows,
    pub peer: Peer,
    pub decoder: Decoder,
    pub list: FieldList,
    pub block: Option<Block>,
    pub resets: Resets,
    /// Number of the last stream that was opened: by the peer if it is a client, else by this side.
    pub last_stream: u32,
    /// Number of the client's last stream that was not refused at once.
    pub last_accepted: u32,
    /// Number of bytes that the peer may send on all streams.
    pub receive_window: i64,
    /// Number of bytes by which the window of the connection has not been opened.
    pub owed: u32,
    /// Number of bytes that may be sent on all streams.
    pub send_window: i64,
    /// `true` once the peer has announced the end of the connection.
    pub is_peer_leaving: bool,
    /// `true` while the answer to a `PING` is awaited.
    pub is_ping_open: bool,
    /// Streams of a client that were not taken.
    pub arrived: VecDeque<StreamSlot>,
    /// The tasks to wake, once nothing is borrowed.
    pub woken: Vec<Waker>,
    encoder: Encoder,
    /// The streams that have something to send, in the order of their turns.
    queue: VecDeque<StreamSlot>,
    /// The streams whose senders wait until the output is shorter.
    waiting_for_room: Vec<StreamSlot>,
    /// The task of the connection, and whether it runs or was woken.
    task: Option<Waker>,
    is_task_due: bool,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("phase", &self.phase).finish_non_exhaustive()
    }
}

impl Core {
    /// Creates the state of a new connection, with its first frames in the output.
    pub fn new(terms: Terms) -> Self {
        let now = Moment::now();
        let gate = match terms.role {
            Role::Server => FrameGate::of_client(now),
            Role::Client => FrameGate::of_provider(now),
        };
        let list_bytes = usize::try_from(terms.bounds.header_list).unwrap_or(usize::MAX);
        let mut core = Self {
            terms,
            phase: ConnectionPhase::Open,
            table: Table::default(),
            output: Output::default(),
            gate,
            windows: Windows::default(),
            peer: Peer {
                initial_window: frame::DEFAULT_WINDOW_BYTES,
                streams_max: usize::try_from(terms.bounds.streams)
                    .map_or(STREAMS_ASSUMED, |streams| streams.min(STREAMS_ASSUMED)),
                opens_websockets: false,
                is_settled: false,
                waiting: Vec::new(),
            },
            decoder: Decoder::new(HEADER_TABLE_BYTES),
            list: FieldList::new(list_bytes, terms.bounds.fields.saturating_add(PSEUDO_FIELDS)),
            block: None,
            resets: Resets::new(terms.caused_resets_max),
            last_stream: 0,
            last_accepted: 0,
            receive_window: i64::from(terms.window_bytes),
            owed: 0,
            send_window: i64::from(frame::DEFAULT_WINDOW_BYTES),
            is_peer_leaving: false,
            is_ping_open: false,
            arrived: VecDeque::new(),
            woken: Vec::new(),
            encoder: Encoder::new(),
            queue: VecDeque::new(),
            waiting_for_room: Vec::new(),
            task: None,
            is_task_due: false,
        };
        core.begin();
        core
    }

    /// Writes the preface (RFC 9113 §3.4): settings, and the window of the connection.
    fn begin(&mut self) {
        let Terms { role, bounds, window_bytes, .. } = self.terms;
        let out = self.output.writer();
        let common = [
            (Setting::INITIAL_WINDOW_SIZE, windows::MIN_BYTES),
            (Setting::MAX_HEADER_LIST_SIZE, bounds.header_list),
        ];
        match role {
            Role::Client => {
                out.extend_from_slice(PREFACE);
                let own = [(Setting::ENABLE_PUSH, 0)];
                frame::put_settings(out, &[&own[..], &common].concat());
            }
            Role::Server => {
                let own = [
                    (Setting::MAX_CONCURRENT_STREAMS, bounds.streams),
                    (Setting::ENABLE_CONNECT_PROTOCOL, 1),
                ];
                frame::put_settings(out, &[&own[..], &common].concat());
            }
        }
        let more = window_bytes.saturating_sub(frame::DEFAULT_WINDOW_BYTES);
        frame::put_number(out, Kind::WindowUpdate, 0, more);
    }

    /// Notes the task of the connection, which runs now.
    pub fn begin_turn(&mut self, task: &Waker) {
        if !self.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            self.task = Some(task.clone());
        }
        self.is_task_due = true;
    }

    /// Notes that the task of the connection ends its turn. Returns the tasks to wake.
    pub fn end_turn(&mut self, is_woken_again: bool) -> Vec<Waker> {
        self.is_task_due = is_woken_again;
        self.output.take_new();
        mem::take(&mut self.woken)
    }

    /// Wakes the task of the connection, unless it runs or was woken.
    pub fn wake_task(&mut self) {
        if !mem::replace(&mut self.is_task_due, true)
            && let Some(task) = &self.task
        {
            self.woken.push(task.clone());
        }
    }

    /// Returns `true` if streams may be opened by this side.
    pub fn may_open(&self) -> bool {
        self.phase == ConnectionPhase::Open && !self.is_peer_leaving && self.last_stream < LAST_STREAM
    }

    /// Returns `true` if this side may open a stream now (RFC 9113 §5.1.2). A maximum that the peer has
    /// lowered does not end streams.
    pub fn has_room(&self) -> bool {
        self.may_open() && self.table.len() < self.peer.streams_max
    }

    /// Opens a stream with the head of a request. What follows a request that opens a WebSocket is its
    /// tunnel. `None` if none may be opened, so nothing is sent.
    pub fn open(&mut self, request: &OutgoingRequest<'_>, ends: bool) -> Option<StreamSlot> {
        if !self.has_room() {
            return None;
        }
        self.last_stream = if self.last_stream == 0 { 1 } else { self.last_stream + 2 };
        let id = self.last_stream;
        let mut stream = self.new_stream(id);
        stream.method = request.head.method;
        stream.accept.clone_from(&request.accept);
        stream.sending = if ends { Sending::Ended } else { Sending::Body };
        let slot = self.table.insert(stream);
        self.put_fields(id, ends, |encoder, out| {
            request.for_each_field(|name, value, index| encoder.encode(name, value, index, out));
        });
        Some(slot)
    }

    /// Creates a stream, which is counted.
    pub fn new_stream(&mut self, id: u32) -> StreamState {
        self.windows.open();
        self.announce_windows();
        StreamState::new(id, self.windows.allowed(), self.peer.initial_window.into())
    }

    /// Writes the frames of a block of fields.
    fn put_fields(&mut self, id: u32, ends: bool, encode: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        let out = self.output.writer();
        let start = out.len();
        out.extend_from_slice(&[0; frame::HEAD_BYTES]);
        self.encoder.begin(out);
        encode(&mut self.encoder, out);
        frame::close_block(out, start, if ends { frame::END_STREAM } else { 0 }, id);
    }

    /// Changes the size of the table of fields that the peer allows.
    pub fn set_peer_table_bytes(&mut self, bytes: u32) {
        self.encoder.set_peer_table_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// Sends the head of a response, the last of its stream if it `ends`. An informational one precedes the
    /// final one.
    pub fn respond(
        &mut self,
        slot: StreamSlot,
        response: &OutgoingResponse<'_>,
        is_final: bool,
        ends: bool,
    ) -> Result<(), Gone> {
        let stream = &mut self.table[slot];
        if stream.lost.is_some() || stream.sending != Sending::Head {
            return Err(Gone);
        }
        let id = stream.id;
        if is_final {
            stream.sending = if ends { Sending::Ended } else { Sending::Body };
        }
        self.put_fields(id, ends, |encoder, out| {
            response.for_each_field(|name, value, index| encoder.encode(name, value, index, out));
        });
        self.close_if_ended(slot);
        Ok(())
    }

    /// Sends data, as far as the windows and the output admit, and the end of the message behind it, with the
    /// lines of the trailers. The rest becomes the backlog.
    pub fn send(
        &mut self,
        slot: StreamSlot,
        mut data: Data<'_>,
        trailers: Option<&[u8]>,
    ) -> Result<(), Gone> {
        match trailers {
            Some(trailers) => check_trailers(trailers)?,
            // The head may not even be sent.
            None if data.is_empty() => return Ok(()),
            None => {}
        }
        let stream = &self.table[slot];
        if stream.lost.is_some() || stream.sending != Sending::Body {
            return Err(Gone);
        }
        if !self.queue.is_empty() {
            self.pump();
        }
        let stream = &mut self.table[slot];
        if let (MessageEnd::None, Some(trailers)) = (&stream.end, trailers) {
            stream.end =
                if trailers.is_empty() { MessageEnd::Plain } else { MessageEnd::Trailers(trailers.to_vec()) };
        }
        let mut left = data.len();
        let has_turn = self.queue.is_empty() && stream.backlog.is_empty();
        while left > 0 && has_turn {
            let count = self.admitted(slot).min(left);
            if count == 0 {
                break;
            }
            left -= count;
            self.put_data_head(slot, count, left == 0);
            data.move_to(count, self.output.writer());
        }
        self.table[slot].backlog.reserve_exact(left);
        data.move_to(left, &mut self.table[slot].backlog);
        if self.table[slot].backlog.is_empty() {
            self.finish(slot);
        }
        self.enqueue(slot);
        Ok(())
    }

    /// Number of bytes that may be sent on a stream now, in one frame.
    fn admitted(&self, slot: StreamSlot) -> usize {
        let window = self.table[slot].send_window.min(self.send_window);
        let room = self.output.room().saturating_sub(frame::HEAD_BYTES);
        usize::try_from(window).unwrap_or(0).min(room).min(PAYLOAD_BYTES_MAX)
    }

    /// Writes the head of a frame of data, whose `count` bytes follow. It ends the stream if it is the last
    /// one and no trailers follow.
    fn put_data_head(&mut self, slot: StreamSlot, count: usize, is_last: bool) {
        let stream = &mut self.table[slot];
        let ends = is_last && stream.end == MessageEnd::Plain;
        let bytes = i64::try_from(count).unwrap_or(i64::MAX);
        stream.send_window -= bytes;
        stream.moved_bytes += count as u64;
        self.send_window -= bytes;
        debug_assert!(stream.send_window >= 0 && self.send_window >= 0);
        if ends {
            stream.end = MessageEnd::None;
            stream.sending = Sending::Ended;
        }
        let flags = if ends { frame::END_STREAM } else { 0 };
        frame::put_head(self.output.writer(), count, Kind::Data, flags, stream.id);
        if ends {
            self.close_if_ended(slot);
        }
    }

    /// Sends the end of a message without a backlog, if it has been noted.
    fn finish(&mut self, slot: StreamSlot) {
        let stream = &mut self.table[slot];
        debug_assert!(stream.backlog.is_empty());
        let id = stream.id;
        match mem::take(&mut stream.end) {
            MessageEnd::None => return,
            MessageEnd::Plain => frame::put_head(self.output.writer(), 0, Kind::Data, frame::END_STREAM, id),
            MessageEnd::Trailers(lines) => {
                let is_request = self.terms.role == Role::Client;
                self.put_fields(id, true, |encoder, out| {
                    for_each_trailer(&lines, is_request, |name, value, index: Indexing| {
                        encoder.encode(name, value, index, out);
                    });
                });
            }
        }
        self.table[slot].sending = Sending::Ended;
        self.close_if_ended(slot);
    }

    /// Gives a stream a turn to send, if it has a backlog that its window admits.
    pub fn enqueue(&mut self, slot: StreamSlot) {
        let stream = &mut self.table[slot];
        if !stream.is_queued && stream.lost.is_none() && stream.is_ready_to_send() {
            stream.is_queued = true;
            self.queue.push_back(slot);
        }
    }

    /// Sends from the backlogs, a frame of each stream in turn, as far as the window of the connection and
    /// the output admit.
    pub fn pump(&mut self) {
        if self.output.room() > 0 {
            let waiting = self.waiting_for_room.drain(..);
            self.woken.extend(waiting.filter_map(|slot| self.table[slot].writer.take()));
        }
        while self.send_window > 0 && self.output.room() > frame::HEAD_BYTES {
            let Some(slot) = self.queue.pop_front() else { break };
            self.table[slot].is_queued = false;
            self.send_backlog(slot);
        }
    }

    /// Sends a frame of the backlog of a stream, or its end.
    fn send_backlog(&mut self, slot: StreamSlot) {
        let count = self.admitted(slot).min(self.table[slot].backlog.len());
        if count > 0 {
            let is_last = count == self.table[slot].backlog.len();
            self.put_data_head(slot, count, is_last);
            let backlog = &mut self.table[slot].backlog;
            let (first, second) = backlog.as_slices();
            let in_first = count.min(first.len());
            let out = self.output.writer();
            out.extend_from_slice(&first[..in_first]);
            out.extend_from_slice(&second[..count - in_first]);
            backlog.drain(..count);
        }
        if self.table[slot].backlog.is_empty() {
            self.table[slot].backlog = VecDeque::new();
            self.finish(slot);
        }
        self.enqueue(slot);
        let writer = self.table[slot].writer.take();
        self.woken.extend(writer);
    }

    /// Ready once no data of a stream waits, and the output is not too long for more heads. Adds the number
    /// of bytes sent meanwhile to `moved_bytes`.
    pub fn poll_backlog(
        &mut self,
        slot: StreamSlot,
        cx: &Context<'_>,
        moved_bytes: &mut u64,
    ) -> Poll<Result<(), Gone>> {
        let is_full = self.output.room() == 0;
        let stream = &mut self.table[slot];
        *moved_bytes += mem::take(&mut stream.moved_bytes);
        if stream.sending == Sending::Ended {
            return Poll::Ready(Ok(()));
        }
        if stream.lost.is_some() {
            // Only if there is something is it known to be lost: the peer may have read all that came before.
            return Poll::Ready(if stream.backlog.is_empty() { Ok(()) } else { Err(Gone) });
        }
        if stream.backlog.is_empty() && !is_full {
            return Poll::Ready(Ok(()));
        }
        wait(&mut stream.writer, cx);
        if stream.backlog.is_empty() && !self.waiting_for_room.contains(&slot) {
            self.waiting_for_room.push(slot);
        }
        Poll::Pending
    }

    /// Returns `true` if data of a stream waits, or the output is too long for more heads.
    pub fn has_backlog(&self, slot: StreamSlot) -> bool {
        let stream = &self.table[slot];
        let is_full = stream.lost.is_none() && self.output.room() == 0;
        stream.sending != Sending::Ended && (is_full || !stream.backlog.is_empty())
    }

    /// Reads more of a body into `buffer`, which is not empty. Ready with `None` behind its end.
    pub fn poll_read(
        &mut self,
        slot: StreamSlot,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<Option<usize>, Lost>> {
        self.give_credit(slot);
        let stream = &mut self.table[slot];
        match (stream.body.read(buffer), stream.lost) {
            (count @ 1.., _) => Poll::Ready(Ok(Some(count))),
            (0, _) if stream.body.is_read() => Poll::Ready(Ok(None)),
            (0, Some(lost)) => Poll::Ready(Err(lost)),
            (0, None) => {
                wait(&mut stream.reader, cx);
                Poll::Pending
            }
        }
    }

    /// Opens the windows by what was read of a stream before.
    fn give_credit(&mut self, slot: StreamSlot) {
        let stream = &mut self.table[slot];
        let count = u32::try_from(stream.body.take_read()).unwrap_or(u32::MAX);
        if count == 0 {
            return;
        }
        if !stream.lags {
            self.windows.note_read(&mut stream.prompt, count);
        }
        stream.lags &= !stream.body.is_empty();
        stream.owed += count;
        self.open_stream_window(slot);
        self.open_window(count);
        self.announce_windows();
    }

    /// Opens the window of a stream if half of it is owed.
    pub fn open_stream_window(&mut self, slot: StreamSlot) {
        let stream = &mut self.table[slot];
        let is_open = stream.receiving == Receiving::Body && stream.lost.is_none();
        let window = self.windows.confirmed();
        if is_open && stream.owed > 0 && stream.owed >= window.min(stream.window) / 2 {
            let owed = mem::take(&mut stream.owed);
            stream.window = window;
            stream.receive_window += i64::from(owed);
            frame::put_number(self.output.writer(), Kind::WindowUpdate, stream.id, owed);
        }
    }

    /// Opens the window of the connection, if a quarter of it is owed with `count` bytes more.
    pub fn open_window(&mut self, count: u32) {
        self.owed += count;
        if self.owed >= self.terms.window_bytes / 4 && self.is_receiving() {
            let owed = mem::take(&mut self.owed);
            self.receive_window += i64::from(owed);
            frame::put_number(self.output.writer(), Kind::WindowUpdate, 0, owed);
        }
    }

    /// Announces the window of streams to the peer, if it has changed.
    pub fn announce_windows(&mut self) {
        if self.is_receiving()
            && let Some((bytes, growth)) = self.windows.announce()
        {
            frame::put_settings(self.output.writer(), &[(Setting::INITIAL_WINDOW_SIZE, bytes)]);
            self.change_receive_windows(growth.into());
        }
    }

    /// Notes that the reader of a stream cannot take what has arrived.
    pub fn note_lag(&mut self, slot: StreamSlot) {
        let stream = &mut self.table[slot];
        stream.lags |= !stream.body.is_empty();
    }

    /// Closes a stream if both directions have ended.
    pub fn close_if_ended(&mut self, slot: StreamSlot) {
        if !self.table[slot].is_open() {
            self.table.close(slot);
        }
    }

    /// Notes that a stream has ended before both directions have, and wakes those that wait for it.
    pub fn lose(&mut self, slot: StreamSlot, lost: Lost) {
        let stream = &mut self.table[slot];
        stream.lost.get_or_insert(lost);
        stream.end = MessageEnd::None;
        if mem::take(&mut stream.is_queued) {
            self.queue.retain(|queued| *queued != slot);
        }
        self.waiting_for_room.retain(|waiting| *waiting != slot);
        let stream = &mut self.table[slot];
        self.woken.extend(stream.reader.take());
        self.woken.extend(stream.writer.take());
        self.table.close(slot);
    }

    /// Notes that all open streams above `last` have ended.
    pub fn lose_above(&mut self, last: u32, lost: Lost) {
        let streams = self.table.len();
        // From the last one on, because the others keep their places.
        for place in (0..streams).rev() {
            if let Some(slot) = self.table.slot_at(place)
                && self.table[slot].id > last
            {
                self.lose(slot, lost);
            }
        }
    }

    /// Ends a stream by an error of this side (RFC 9113 §6.4).
    pub fn reset(&mut self, slot: StreamSlot, reason: Reason, lost: Lost) {
        if self.table[slot].is_open() {
            self.put_reset(self.table[slot].id, reason);
            self.lose(slot, lost);
        }
    }

    /// Writes the end of a stream, and remembers it.
    pub fn put_reset(&mut self, id: u32, reason: Reason) {
        self.output.answer(|out| frame::put_number(out, Kind::Reset, id, reason.0));
        self.resets.note(id);
    }

    /// Gives up a stream whose handle is dropped. If it has not ended, it is reset.
    pub fn release(&mut self, slot: StreamSlot, reason: Reason) {
        self.reset(slot, reason, Lost::Connection);
        let covered = self.table[slot].body.covered();
        self.open_window(u32::try_from(covered).unwrap_or(u32::MAX));
        self.waiting_for_room.retain(|waiting| *waiting != slot);
        self.table.release(slot);
        self.windows.close();
        if self.table.len() == 0 && self.phase != ConnectionPhase::Open {
            self.wake_task();
        }
    }

    /// Ends the connection: the peer is told the `reason`, and all streams are lost.
    pub fn go_away(&mut self, reason: Reason, ending: Ending, lost: Lost) {
        frame::put_go_away(self.output.writer(), self.last_accepted, reason);
        self.lose_above(0, lost);
        self.phase = ConnectionPhase::Closing(ending);
        self.settle();
    }

    /// Notes that the connection is gone.
    pub fn end(&mut self, ending: Ending) {
        let ending = if let ConnectionPhase::Closing(ending) | ConnectionPhase::Closed(ending) = self.phase {
            ending
        } else {
            ending
        };
        self.lose_above(0, Lost::Connection);
        self.output.clear();
        self.phase = ConnectionPhase::Closed(ending);
        self.settle();
    }

    /// Notes that the settings of the peer have arrived, or will not.
    pub fn settle(&mut self) {
        self.peer.is_settled = true;
        self.woken.append(&mut self.peer.waiting);
    }

    /// Returns `true` if frames are to be received.
    #[inline]
    pub fn is_receiving(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Open | ConnectionPhase::Leaving | ConnectionPhase::Left)
    }

    /// Ends a connection that nobody uses any more. `is_unused` if this side will open no more streams.
    pub fn close_if_unused(&mut self, is_unused: bool) {
        if self.table.len() > 0 || !self.is_receiving() {
            return;
        }
        match self.terms.role {
            Role::Server if self.phase == ConnectionPhase::Left => {
                self.phase = ConnectionPhase::Closing(Ending::Closed);
            }
            Role::Server if self.is_peer_leaving && self.arrived.is_empty() => {
                self.go_away(Reason::NO_ERROR, Ending::Closed, Lost::Connection);
            }
            Role::Client if is_unused => self.go_away(Reason::NO_ERROR, Ending::Closed, Lost::Connection),
            Role::Server | Role::Client => {}
        }
    }
}

/// The preface of a client (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Lets the task of `cx` be woken.
pub(crate) fn wait(place: &mut Option<Waker>, cx: &Context<'_>) {
    if !place.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
        *place = Some(cx.waker().clone());
    }
}

/// A connection's state, as its task and its streams hold it.
#[derive(Debug, Clone)]
pub(crate) struct SharedCore(Rc<RefCell<Core>>);

impl SharedCore {
    /// Shares a state.
    pub fn new(core: Core) -> Self {
        Self(Rc::new(RefCell::new(core)))
    }

    /// Acts for a stream. Wakes the tasks for which that has consequences.
    pub fn act<R>(&self, act: impl FnOnce(&mut Core) -> R) -> R {
        let (result, woken) = self.turn(|core| {
            let result = act(core);
            if core.output.take_new() {
                core.wake_task();
            }
            (result, mem::take(&mut core.woken))
        });
        if !woken.is_empty() {
            woken.into_iter().for_each(Waker::wake);
        }
        result
    }

    /// Acts for the connection, in the turn of its task.
    pub fn turn<R>(&self, act: impl FnOnce(&mut Core) -> R) -> R {
        act(&mut self.0.borrow_mut())
    }

    /// Reads the state.
    pub fn read<R>(&self, read: impl FnOnce(&Core) -> R) -> R {
        read(&self.0.borrow())
    }

    /// Notes that this holder gives it up. The connection is told if no other is left.
    pub fn leave(&self) {
        if Rc::strong_count(&self.0) <= 2 {
            self.act(Core::wake_task);
        }
    }

    /// Returns `true` if only the connection holds it.
    pub fn is_alone(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }
}
