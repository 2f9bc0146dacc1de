//! The frames that a peer sends, and what each of them changes (RFC 9113 §5, §6).

use std::mem;

use egret_clock::Moment;

use crate::frame::{self, Head, Kind, MAX_31_BITS, PAYLOAD_BYTES_MAX, PING_BYTES, Reason, Setting};
use crate::gate::Flood;
use crate::hpack::{Error, FieldList};
use crate::lost::Lost;
use crate::received::{MessageRefusal, trailer_lines};
use crate::request::{Arrival, RequestText, request_text};
use crate::response::{Asked, ResponseText, response_text};
use crate::state::{Block, ConnectionPhase, Core, Ending, FrameFault, GOODBYE, Role, SIGN_OF_LIFE};
use crate::table::{Receiving, StreamSlot};

/// Number of frames behind the first one of a block of fields that are always allowed.
const CONTINUATIONS: usize = 5;
/// Number of informational responses that wait for their reader.
const INFORMATIONAL_MAX: usize = 32;
/// Number of streams that a client may reset before they are accepted, in one turn.
const RESETS_UNACCEPTED: usize = 20;

impl Core {
    /// Handles the whole frames at the start of `bytes`, which were received at `now`. Returns the number of
    /// bytes that are not needed any more: all of them once the connection ends.
    pub fn receive(&mut self, bytes: &[u8], now: Moment) -> usize {
        self.gate.note_time(now);
        let mut used = 0;
        while self.is_receiving() && !self.output.is_full_of_answers() {
            let rest = &bytes[used..];
            let Some((head, rest)) = rest.split_first_chunk() else { return used };
            let head = Head::read(*head);
            let taken = if head.len > PAYLOAD_BYTES_MAX {
                Err(FrameFault::Connection(Reason::FRAME_SIZE_ERROR))
            } else {
                let Some(payload) = rest.get(..head.len) else { return used };
                used += frame::HEAD_BYTES + head.len;
                self.frame(head, payload)
            };
            if let Err(fault) = taken {
                self.fail(head.stream, fault);
            }
        }
        if self.is_receiving() { used } else { bytes.len() }
    }

    /// Ends the stream or the connection by an error of the peer.
    fn fail(&mut self, stream: u32, fault: FrameFault) {
        match fault {
            FrameFault::Connection(reason) => {
                self.go_away(reason, Ending::Violation(reason), Lost::Violation(reason.name()));
            }
            FrameFault::Flood(flood) => {
                self.go_away(Reason::ENHANCE_YOUR_CALM, Ending::Flood(flood), Lost::Flood(flood));
            }
            // There is no stream to reset.
            FrameFault::Stream(reason) if self.is_idle(stream) => {
                self.fail(stream, FrameFault::Connection(reason));
            }
            FrameFault::Stream(_) if !self.resets.note_caused() => {
                self.fail(stream, FrameFault::Flood(Flood::Frames));
            }
            FrameFault::Stream(reason) => match self.table.find(stream) {
                Some(slot) => self.reset(slot, reason, Lost::Violation(reason.name())),
                None => self.put_reset(stream, reason),
            },
        }
    }

    /// Returns `true` if the stream has not been opened yet (RFC 9113 §5.1).
    fn is_idle(&self, stream: u32) -> bool {
        stream.is_multiple_of(2) || stream > self.last_stream
    }

    fn frame(&mut self, head: Head, payload: &[u8]) -> Result<(), FrameFault> {
        let is_expected = match &self.block {
            Some(block) => head.kind == Kind::Continuation && head.stream == block.stream,
            None if !self.peer.is_settled => head.kind == Kind::Settings && !head.has(frame::ACK),
            None => true,
        };
        if !is_expected {
            return Err(FrameFault::Connection(Reason::PROTOCOL_ERROR));
        }
        self.gate.note(head.kind, head.len)?;
        let is_of_connection = matches!(head.kind, Kind::Settings | Kind::Ping | Kind::GoAway);
        let is_of_both = matches!(head.kind, Kind::WindowUpdate | Kind::Unknown);
        if !is_of_both && is_of_connection != (head.stream == 0) {
            return Err(FrameFault::Connection(Reason::PROTOCOL_ERROR));
        }
        match head.kind {
            Kind::Data => self.data(head, payload),
            Kind::Headers => self.headers(head, payload),
            Kind::Continuation => self.continuation(head, payload),
            Kind::Priority => frame::check_priority(head, payload).map_err(FrameFault::Stream),
            Kind::Reset => self.stream_reset(head, payload),
            Kind::Settings => self.settings(head, payload),
            Kind::Ping => self.ping(head, payload),
            Kind::GoAway => self.peer_goes_away(payload),
            Kind::WindowUpdate => self.window_update(head, payload),
            // It was not allowed (RFC 9113 §8.4).
            Kind::PushPromise => Err(FrameFault::Connection(Reason::PROTOCOL_ERROR)),
            Kind::Unknown => Ok(()),
        }
    }

    fn data(&mut self, head: Head, payload: &[u8]) -> Result<(), FrameFault> {
        let data = frame::unpadded(head, payload).map_err(FrameFault::Connection)?;
        // The padding counts as well (RFC 9113 §6.1).
        let covered = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        if i64::from(covered) > self.receive_window {
            return Err(FrameFault::Connection(Reason::FLOW_CONTROL_ERROR));
        }
        if self.is_idle(head.stream) {
            return Err(FrameFault::Connection(Reason::PROTOCOL_ERROR));
        }
        self.receive_window -= i64::from(covered);
        let ends = head.has(frame::END_STREAM);
        if data.is_empty() && !ends {
            self.gate.note_empty_data()?;
        }
        let Some(slot) = self.table.find(head.stream) else {
            self.open_window(covered);
            return self.late(head.stream);
        };
        let kept = match self.stream_data(slot, data, covered) {
            Ok(kept) => kept,
            Err(reason) => {
                self.open_window(covered);
                return Err(FrameFault::Stream(reason));
            }
        };
        self.open_window(covered - kept);
        if ends { self.end_stream(slot, Vec::new()) } else { Ok(()) }
    }

    /// Adds data of a frame that takes `covered` bytes of the windows. Returns the number of bytes that the
    /// reader gives back.
    fn stream_data(&mut self, slot: StreamSlot, data: &[u8], covered: u32) -> Result<u32, Reason> {
        let stream = &mut self.table[slot];
        match stream.receiving {
            Receiving::Head => return Err(Reason::PROTOCOL_ERROR),
            Receiving::Ended => return Err(Reason::STREAM_CLOSED),
            Receiving::Body if i64::from(covered) > stream.receive_window => {
                return Err(Reason::FLOW_CONTROL_ERROR);
            }
            Receiving::Body => stream.receive_window -= i64::from(covered),
        }
        if let Some(left) = &mut stream.length_left {
            *left = left.checked_sub(data.len() as u64).ok_or(Reason::PROTOCOL_ERROR)?;
        }
        // A body that nobody will read has no room beyond its window.
        let kept = if stream.body.is_any() { u32::try_from(data.len()).unwrap_or(covered) } else { 0 };
        if kept > 0 {
            stream.body.push(data);
            self.woken.extend(stream.reader.take());
        }
        if stream.body.is_any() && covered > kept {
            stream.owed += covered - kept;
            self.open_stream_window(slot);
        }
        Ok(kept)
    }

    /// Notes the end of a received message, with the lines of its trailers.
    fn end_stream(&mut self, slot: StreamSlot, trailers: Vec<u8>) -> Result<(), FrameFault> {
        let stream = &mut self.table[slot];
        if stream.length_left.is_some_and(|left| left > 0) {
            return Err(FrameFault::Stream(Reason::PROTOCOL_ERROR));
        }
        stream.receiving = Receiving::Ended;
        stream.body.end(trailers);
        self.woken.extend(stream.reader.take());
        self.close_if_ended(slot);
        Ok(())
    }

    /// Judges a frame of a message on a closed stream. What the peer sent before it knew of a reset is
    /// ignored (RFC 9113 §5.1).
    fn late(&self, stream: u32) -> Result<(), FrameFault> {
        if self.resets.contains(stream) { Ok(()) } else { Err(FrameFault::Stream(Reason::STREAM_CLOSED)) }
    }

    fn headers(&mut self, head: Head, payload: &[u8]) -> Result<(), FrameFault> {
        let is_refused = match self.terms.role {
            Role::Client => self.is_idle(head.stream),
            Role::Server => head.stream.is_multiple_of(2),
        };
        if is_refused {
            return Err(FrameFault::Connection(Reason::PROTOCOL_ERROR));
        }
        let fields = frame::first_fields(head, payload).map_err(FrameFault::Connection)?;
        let (ends_stream, depends_on_itself) = (head.has(frame::END_STREAM), fields.depends_on_itself);
        if head.has(frame::END_HEADERS) {
            return self.fields(head.stream, fields.bytes, ends_stream, depends_on_itself);
        }
        let (stream, bytes, frames) = (head.stream, fields.bytes.to_vec(), 0);
        self.block = Some(Block { stream, bytes, frames, ends_stream, depends_on_itself });
        Ok(())
    }

    fn continuation(&mut self, head: Head, payload: &[u8]) -> Result<(), FrameFault> {
        let Some(mut block) = self.block.take() else {
            return Err(FrameFault::Connection(Reason::PROTOCOL_ERROR));
        };
        // A quarter more than the list, for blocks that are longer than what they decode to.
        let list_bytes = usize::try_from(self.terms.bounds.header_list).unwrap_or(usize::MAX);
        let bytes_max = list_bytes.saturating_add(list_bytes / 4).max(2 * PAYLOAD_BYTES_MAX);
        let frames_max = CONTINUATIONS.max(bytes_max / PAYLOAD_BYTES_MAX);
        block.frames += 1;
        if block.frames > frames_max || block.bytes.len() + payload.len() > bytes_max {
            return Err(Flood::Frames.into());
        }
        block.bytes.extend_from_slice(payload);
        if !head.has(frame::END_HEADERS) {
            self.block = Some(block);
            return Ok(());
        }
        self.fields(block.stream, &block.bytes, block.ends_stream, block.depends_on_itself)
    }

    /// Handles a whole block of fields. It is decoded even if its message is not wanted, because it changes
    /// the table of fields.
    fn fields(
        &mut self,
        stream: u32,
        block: &[u8],
        ends: bool,
        depends_on_itself: bool,
    ) -> Result<(), FrameFault> {
        let mut list = mem::replace(&mut self.list, FieldList::new(0, 0));
        let handled = match self.decoder.decode(block, &mut list) {
            Ok(()) => self.message(stream, &list, ends, depends_on_itself),
            Err(Error::ListTooLarge) => Err(Flood::Frames.into()),
            Err(_) => Err(FrameFault::Connection(Reason::COMPRESSION_ERROR)),
        };
        list.clear();
        self.list = list;
        handled
    }

    fn message(
        &mut self,
        stream: u32,
        list: &FieldList,
        ends: bool,
        depends_on_itself: bool,
    ) -> Result<(), FrameFault> {
        let Some(slot) = self.table.find(stream) else {
            return if self.is_idle(stream) {
                self.open_by_peer(stream, list, ends, depends_on_itself)
            } else if self.terms.role == Role::Server && !self.resets.contains(stream) {
                // Its number is not above those before (RFC 9113 §5.1.1).
                Err(FrameFault::Connection(Reason::PROTOCOL_ERROR))
            } else {
                self.late(stream)
            };
        };
        if depends_on_itself {
            return Err(FrameFault::Stream(Reason::PROTOCOL_ERROR));
        }
        match self.table[slot].receiving {
            Receiving::Head => self.response(slot, list, ends),
            Receiving::Body if !ends => Err(FrameFault::Stream(Reason::PROTOCOL_ERROR)),
            Receiving::Body => {
                let lines = trailer_lines(list).map_err(|_| FrameFault::Stream(Reason::PROTOCOL_ERROR))?;
                self.end_stream(slot, lines)
            }
            Receiving::Ended => Err(FrameFault::Stream(Reason::STREAM_CLOSED)),
        }
    }

    /// Opens a stream with the request of a client.
    fn open_by_peer(
        &mut self,
        id: u32,
        list: &FieldList,
        ends: bool,
        depends_on_itself: bool,
    ) -> Result<(), FrameFault> {
        self.last_stream = id;
        if self.phase == ConnectionPhase::Left {
            // It is ignored, and so is what follows on it (RFC 9113 §6.8).
            self.resets.note(id);
            return Ok(());
        }
        if self.table.len() >= usize::try_from(self.terms.bounds.streams).unwrap_or(usize::MAX) {
            return Err(FrameFault::Stream(Reason::REFUSED_STREAM));
        }
        let (is_tls, fields_max) = (self.terms.is_tls, self.terms.bounds.fields);
        let head = match request_text(list, Arrival { is_tls, ends, fields_max }, Vec::with_capacity(512)) {
            _ if depends_on_itself => return Err(FrameFault::Stream(Reason::PROTOCOL_ERROR)),
            Err(MessageRefusal::Malformed) => return Err(FrameFault::Stream(Reason::PROTOCOL_ERROR)),
            Err(MessageRefusal::Head(error)) => Err(error),
            Ok(text) => Ok(text),
        };
        let mut stream = self.new_stream(id);
        stream.receiving = if ends { Receiving::Ended } else { Receiving::Body };
        let head = head.map(|RequestText { text, framing, length, opens_websocket }| {
            stream.body.begin(framing);
            stream.length_left = length;
            stream.opens_websocket = opens_websocket;
            text
        });
        if ends {
            stream.body.end(Vec::new());
        }
        stream.heads.push(head);
        let slot = self.table.insert(stream);
        self.last_accepted = id;
        self.arrived.push_back(slot);
        Ok(())
    }

    /// Handles a response of a provider.
    fn response(&mut self, slot: StreamSlot, list: &FieldList, ends: bool) -> Result<(), FrameFault> {
        let fields_max = self.terms.bounds.fields;
        let stream = &mut self.table[slot];
        if stream.heads.len() >= INFORMATIONAL_MAX {
            return Err(FrameFault::Stream(Reason::ENHANCE_YOUR_CALM));
        }
        let asked = Asked { method: stream.method, accept: stream.accept.as_deref(), fields_max };
        let head = match response_text(list, asked, ends, Vec::with_capacity(512)) {
            Err(MessageRefusal::Malformed) => return Err(FrameFault::Stream(Reason::PROTOCOL_ERROR)),
            Err(MessageRefusal::Head(error)) => {
                stream.receiving = Receiving::Body;
                Err(error)
            }
            Ok(ResponseText { text, framing, length, is_informational }) => {
                if !is_informational {
                    stream.receiving = Receiving::Body;
                    stream.body.begin(framing);
                    stream.length_left = length;
                }
                Ok(text)
            }
        };
        stream.heads.push(head);
        self.woken.extend(stream.reader.take());
        if ends { self.end_stream(slot, Vec::new()) } else { Ok(()) }
    }

    fn stream_reset(&mut self, head: Head, payload: &[u8]) -> Result<(), FrameFault> {
        if payload.len() != 4 {
            return Err(FrameFault::Connection(Reason::FRAME_SIZE_ERROR));
        }
        if self.is_idle(head.stream) {
            return Err(FrameFault::Connection(Reason::PROTOCOL_ERROR));
        }
        let Some(slot) = self.table.find(head.stream) else { return Ok(()) };
        self.lose(slot, Lost::by_reset(Reason(frame::number(payload))));
        // Those that were not accepted are not seen by anybody else, so they are bounded here.
        if self.arrived.contains(&slot) {
            let lost = self.arrived.iter().filter(|slot| self.table[**slot].lost.is_some());
            if lost.count() > RESETS_UNACCEPTED {
                return Err(Flood::Frames.into());
            }
        }
        Ok(())
    }

    fn settings(&mut self, head: Head, payload: &[u8]) -> Result<(), FrameFault> {
        if head.has(frame::ACK) {
            return match self.windows.confirm() {
                _ if !payload.is_empty() => Err(FrameFault::Connection(Reason::FRAME_SIZE_ERROR)),
                None => Err(FrameFault::Connection(Reason::PROTOCOL_ERROR)),
                Some(shrinkage) => {
                    self.change_receive_windows(-i64::from(shrinkage));
                    self.announce_windows();
                    Ok(())
                }
            };
        }
        if !self.peer.is_settled {
            // There is no maximum until one is said (RFC 9113 §6.5.2).
            self.peer.streams_max = usize::MAX;
        }
        for setting in frame::settings(payload).map_err(FrameFault::Connection)? {
            self.apply(setting.map_err(FrameFault::Connection)?)?;
        }
        self.settle();
        self.output.answer(|out| frame::put_head(out, 0, Kind::Settings, frame::ACK, 0));
        Ok(())
    }

    /// Applies a setting of the peer.
    fn apply(&mut self, setting: Setting) -> Result<(), FrameFault> {
        match setting {
            Setting::HeaderTableBytes(bytes) => self.set_peer_table_bytes(bytes),
            // A server has nothing to allow (RFC 9113 §6.5.2).
            Setting::EnablePush(true) if self.terms.role == Role::Client => {
                return Err(FrameFault::Connection(Reason::PROTOCOL_ERROR));
            }
            Setting::StreamsMax(streams) => {
                self.peer.streams_max = usize::try_from(streams).unwrap_or(usize::MAX);
            }
            Setting::InitialWindow(bytes) => self.change_send_windows(bytes)?,
            Setting::EnableConnect(is_enabled) => self.peer.opens_websockets |= is_enabled,
            Setting::EnablePush(_) | Setting::Other => {}
        }
        Ok(())
    }

    /// Changes the windows of all streams, as the peer's setting says (RFC 9113 §6.9.2). They may become
    /// negative.
    fn change_send_windows(&mut self, bytes: u32) -> Result<(), FrameFault> {
        let change = i64::from(bytes) - i64::from(self.peer.initial_window);
        self.peer.initial_window = bytes;
        for place in 0..self.table.len() {
            let Some(slot) = self.table.slot_at(place) else { break };
            self.table[slot].send_window += change;
            if self.table[slot].send_window > i64::from(MAX_31_BITS) {
                return Err(FrameFault::Connection(Reason::FLOW_CONTROL_ERROR));
            }
            self.enqueue(slot);
        }
        Ok(())
    }

    /// Changes what the peer may send on all streams.
    pub fn change_receive_windows(&mut self, change: i64) {
        for place in 0..self.table.len() {
            let Some(slot) = self.table.slot_at(place) else { break };
            self.table[slot].receive_window += change;
            self.open_stream_window(slot);
        }
    }

    fn ping(&mut self, head: Head, payload: &[u8]) -> Result<(), FrameFault> {
        let payload: [u8; PING_BYTES] =
            payload.try_into().map_err(|_| FrameFault::Connection(Reason::FRAME_SIZE_ERROR))?;
        if !head.has(frame::ACK) {
            self.output.answer(|out| frame::put_ping(out, frame::ACK, payload));
            return Ok(());
        }
        if payload == SIGN_OF_LIFE {
            self.is_ping_open = false;
        }
        // All streams that were on their way have arrived.
        if payload == GOODBYE && self.phase == ConnectionPhase::Leaving {
            frame::put_go_away(self.output.writer(), self.last_accepted, Reason::NO_ERROR);
            self.phase = ConnectionPhase::Left;
        }
        Ok(())
    }

    fn peer_goes_away(&mut self, payload: &[u8]) -> Result<(), FrameFault> {
        if payload.len() < 8 {
            return Err(FrameFault::Connection(Reason::FRAME_SIZE_ERROR));
        }
        self.is_peer_leaving = true;
        if self.terms.role == Role::Client {
            self.lose_above(frame::number(payload) & MAX_31_BITS, Lost::NotProcessed);
        }
        Ok(())
    }

    fn window_update(&mut self, head: Head, payload: &[u8]) -> Result<(), FrameFault> {
        if payload.len() != 4 {
            return Err(FrameFault::Connection(Reason::FRAME_SIZE_ERROR));
        }
        let more = frame::number(payload) & MAX_31_BITS;
        if head.stream == 0 {
            self.send_window += i64::from(more);
            return match more {
                0 => Err(FrameFault::Connection(Reason::PROTOCOL_ERROR)),
                _ if self.send_window > i64::from(MAX_31_BITS) => {
                    Err(FrameFault::Connection(Reason::FLOW_CONTROL_ERROR))
                }
                _ => Ok(()),
            };
        }
        if self.is_idle(head.stream) {
            return Err(FrameFault::Connection(Reason::PROTOCOL_ERROR));
        }
        let Some(slot) = self.table.find(head.stream) else { return Ok(()) };
        let stream = &mut self.table[slot];
        stream.send_window += i64::from(more);
        match more {
            0 => return Err(FrameFault::Stream(Reason::PROTOCOL_ERROR)),
            _ if stream.send_window > i64::from(MAX_31_BITS) => {
                return Err(FrameFault::Stream(Reason::FLOW_CONTROL_ERROR));
            }
            _ => {}
        }
        self.enqueue(slot);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
