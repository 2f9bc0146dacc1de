//! An exchange on its way into a record: begun when flows with diagnoses are found for it, handed over when it ends.
//!
//! A record is the exchange as the client sees it: the request that it has sent, the response that it has got, the time that it has waited.
//! What was done in between stands beside it.

use std::mem;
use std::rc::Rc;
use std::time::Duration;

use egret_clock::Moment;
use egret_flow::Destination;
use egret_flow::finished::content_type;
use egret_flow::record::{Attempt, Facts, Record, Times, Url};
use egret_http1::{Rendering, RequestFraming, RequestHead, ResponseFraming, ResponseHead};

use super::{Exchange, Stop};
use crate::exchange::clock::Clock;
use crate::exchange::failure::ErrorKind;
use crate::exchange::pipe::Pipe;
use crate::exchange::route::Forward;
use crate::plan::default_port;
use crate::upstream::Connection;
use crate::upstream::authority::Authority;
use crate::worker::Worker;

/// How long an exchange waits for a place at most: a disk that hangs must not hang traffic for ever.
const PLACE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it looks for one.
const PLACE_INTERVAL: Duration = Duration::from_millis(5);

/// The host of a request that names none that could be called (RFC 6761 §6.4).
const NO_HOST: &str = "host.invalid";

/// An exchange that is recorded.
#[derive(Debug)]
pub(crate) struct Recording {
    record: Box<Record>,
    /// Whether a place is kept for it.
    has_place: bool,
    /// Bytes set aside for what is copied of the bodies, once that is decided.
    request_room: Option<usize>,
    response_room: Option<usize>,
}

impl Recording {
    /// Has a body that is about to be sent measured, and copied as far as it is wanted.
    fn tap_request(&mut self, request: &RequestHead, bytes: &[u8], up: &mut Pipe, worker: &Worker) {
        let length = match request.framing {
            RequestFraming::None => return,
            RequestFraming::Length(length) => length,
            RequestFraming::Chunked => u64::MAX,
        };
        let record = &mut self.record;
        let room = *self.request_room.get_or_insert_with(|| {
            if !record.wants_bodies() {
                return 0;
            }
            let wanted = record.wanted_bytes(content_type(&request.fields, bytes));
            worker.outbox.borrow_mut().set_aside(at_most(wanted, length))
        });
        let tap = up.tap.get_or_insert_default();
        tap.keep_start(mem::take(&mut record.request_body.bytes), room);
    }

    /// Takes the head of a response as it goes to the client, and has its body measured, and copied as far as it is wanted.
    pub fn tap_response(
        &mut self,
        response: &ResponseHead,
        bytes: &[u8],
        head: &Rendering<'_>,
        down: &mut Pipe,
        worker: &Worker,
    ) {
        let record = &mut self.record;
        record.set_response(|text| head.for_each_piece(|piece| text.extend_from_slice(piece)));
        let length = match response.framing {
            ResponseFraming::None => 0,
            ResponseFraming::Length(length) => length,
            ResponseFraming::Chunked | ResponseFraming::UntilClose => u64::MAX,
        };
        let room = *self.response_room.get_or_insert_with(|| {
            if !record.wants_bodies() {
                return 0;
            }
            let wanted = record.wanted_bytes(content_type(&response.fields, bytes));
            worker.outbox.borrow_mut().set_aside(at_most(wanted, length))
        });
        let tap = down.tap.get_or_insert_default();
        tap.keep_start(mem::take(&mut record.response_body.bytes), room);
    }

    /// Takes the connection over which the response has come.
    pub fn note_connection(&mut self, connection: &Connection) {
        self.record.facts.connection = Some(connection.id);
        self.record.facts.server = Some(connection.peer);
    }

    /// Takes a whole answer of the gateway's own.
    pub fn note_answer(&mut self, answer: &[u8], worker: &Worker) {
        let head_len = memchr::memmem::find(answer, b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
        let (head, body) = answer.split_at(head_len);
        let record = &mut self.record;
        record.set_response(|text| text.extend_from_slice(head));
        record.facts.is_generated = true;
        let capture = &mut record.response_body;
        capture.body_bytes = body.len() as u64;
        capture.bytes.clear();
        if self.record.wants_bodies() {
            let room = self.response_room.get_or_insert_default();
            *room += worker.outbox.borrow_mut().set_aside(body.len().saturating_sub(*room));
            self.record.response_body.bytes.extend_from_slice(&body[..body.len().min(*room)]);
        }
    }

    /// Takes an answer that a cache has stored: its head, and its body in pieces.
    pub fn note_stored(&mut self, head: &[u8], body: &[&[u8]], worker: &Worker) {
        let record = &mut self.record;
        record.set_response(|text| text.extend_from_slice(head));
        let len: usize = body.iter().map(|piece| piece.len()).sum();
        record.response_body.body_bytes = len as u64;
        record.response_body.bytes.clear();
        if !record.wants_bodies() {
            return;
        }
        let room = self.response_room.get_or_insert_default();
        *room += worker.outbox.borrow_mut().set_aside(len.saturating_sub(*room));
        let mut left = *room;
        for piece in body {
            let copied = left.min(piece.len());
            record.response_body.bytes.extend_from_slice(&piece[..copied]);
            left -= copied;
        }
    }

    /// Notes that the client does not get all of the response.
    pub fn note_cut(&mut self) {
        self.record.facts.is_cut_short = true;
    }
}

impl Exchange<'_> {
    /// Starts to record the client's call, if any flow that matched has diagnoses.
    pub(super) fn start_recording(&mut self) {
        let Some(flow_run) = &self.flow_run else { return };
        let diagnoses = &self.view.plan.flows.diagnoses;
        if !diagnoses.is_for(&flow_run.matches) {
            return;
        }
        let worker = &self.client.worker;
        let mut outbox = worker.outbox.borrow_mut();
        let mut record = outbox.blank();
        if !diagnoses.assign(&flow_run.matches, worker.number, outbox.sheds(), &mut record) {
            outbox.keep(record);
            return;
        }
        let bytes = self.state.input.filled();
        let target = flow_run.target.of(bytes);
        let head = &bytes[..self.state.request.len];
        if let Some(destination) = flow_run.forward.as_ref().map(Forward::destination) {
            let Destination { tls, host, port, base, has_bare_base, kept_host, .. } = destination;
            // Whoever gets the client's Host takes that for the place that was asked for.
            let (host, port) = kept_host.unwrap_or((host, port));
            // What it is sent where the path is empty, after a base path. A tunnel has no target at all.
            let is_empty = matches!(target.first(), None | Some(b'?')) && !base.is_empty();
            let slash: &[u8] = if is_empty && !has_bare_base { b"/" } else { b"" };
            record.set_request(&Url { tls, host, port, base: [base, slash], target }, head);
        } else {
            let (host, port) = named_host(&self.state.request, bytes);
            record.set_request(&Url { tls: false, host: &host, port, base: [b"", b""], target }, head);
        }
        self.recording =
            Some(Recording { record, has_place: false, request_room: None, response_room: None });
    }

    /// Whether the exchange has to wait until there is a place for its record.
    pub(super) fn waits_for_place(&mut self) -> bool {
        let Some(recording) = &mut self.recording else { return false };
        if recording.has_place || !recording.record.has_to_be_seen() {
            return false;
        }
        recording.has_place = self.client.worker.outbox.borrow_mut().try_reserve();
        !recording.has_place
    }

    /// Waits until there is a place for the record, or for too long: then it goes on, and may not be recorded.
    pub(super) async fn wait_for_place(&mut self) -> Result<(), Stop> {
        let since = Moment::now();
        let mut now = since;
        while self.waits_for_place() && now.since(since) < PLACE_TIMEOUT {
            self.wait_until(self.client.worker.shared.clock.timestamp(now + PLACE_INTERVAL)).await?;
            now = Moment::now();
        }
        self.clock.waited_nanos += now.nanos_since(since);
        Ok(())
    }

    /// Notes a call that is made again: what it has brought is a response of that status, or a failure of that kind.
    pub(super) fn note_attempt(&mut self, status: u16, error: Option<&'static str>) {
        let Some(recording) = &mut self.recording else { return };
        let started = self.client.request_since(self.clock.begun);
        let after = |moment: Moment| moment.nanos_since(started) / 1000;
        let before_us = recording.record.vain().last().map_or(0, |before| before.end_us);
        // What has failed before anything was sent has begun when the one before had ended.
        let (start_us, end_us) = (after(self.clock.sent).max(before_us), after(Moment::now()));
        recording.record.note_attempt(Attempt { start_us, end_us: end_us.max(start_us), status, error });
    }

    /// Has the request's body recorded when it is sent, or looked at.
    pub(super) fn tap_request(&mut self) {
        if let Some(recording) = &mut self.recording {
            let state = &mut *self.state;
            let bytes = state.input.filled();
            recording.tap_request(&state.request, bytes, &mut state.up, &self.client.worker);
        }
    }

    /// Hands the record over: the exchange has `ended`. The client has got a response if `is_answered`.
    pub(super) fn finish_recording(&mut self, is_answered: bool, ended: Moment) {
        let Some(recording) = self.recording.take() else { return };
        let ended = if is_answered { ended } else { Moment::now() };
        let Recording { mut record, has_place, request_room, response_room } = recording;
        if let Some(mut tap) = self.state.up.tap.take() {
            record.request_body.body_bytes = tap.passed_bytes();
            record.request_body.bytes = tap.take_start();
        } else if let Some(body) =
            self.flow_run.as_ref().and_then(|flow_run| flow_run.body.whole(self.state.input.filled()))
        {
            // A remedy has put another in its place.
            let kept = &body[..body.len().min(request_room.unwrap_or_default())];
            record.request_body.body_bytes = body.len() as u64;
            record.request_body.bytes.clear();
            record.request_body.bytes.extend_from_slice(kept);
        }
        if !record.facts.is_generated
            && let Some(tap) = &mut self.state.response_state.down.tap
        {
            record.response_body.body_bytes = tap.passed_bytes();
            record.response_body.bytes = tap.take_start();
        }
        if !is_answered {
            record.forget_response();
        }
        record.set_provider(self.upstream.plan.provider());
        if let Some(flow_run) = &self.flow_run {
            record.set_remedies(flow_run.decisions());
        }
        let is_made = self.flow_run.as_ref().is_some_and(|flow_run| flow_run.draft.calls > 0);
        if let Some(account) = self.account().filter(|_| is_made) {
            record.set_account(account.name());
        }
        let started = self.client.request_since(self.clock.begun);
        let is_called = !Rc::ptr_eq(&self.upstream, &self.view.nowhere);
        let worker = &self.client.worker;
        record.facts = Facts {
            started: worker.shared.clock.timestamp(started),
            times: times(&self.clock, is_answered, started, ended),
            client: self.client.peer_address(),
            attempts: self.flow_run.as_ref().map_or(u32::from(is_called), |flow_run| flow_run.draft.calls),
            trace_seed: self.flow_run.as_ref().map_or(0, |flow_run| flow_run.draft.trace_seed),
            informational: self.informational,
            error: self.failed.map(ErrorKind::slug),
            ..record.facts
        };
        let mut outbox = worker.outbox.borrow_mut();
        outbox.take_back(request_room.unwrap_or_default() + response_room.unwrap_or_default());
        outbox.hand_over(record, has_place);
    }
}

/// How long what took of an exchange that has `started`, and has `ended` with a response if `is_answered`.
fn times(clock: &Clock, is_answered: bool, started: Moment, ended: Moment) -> Times {
    let after = |moment: Moment| moment.nanos_since(started) / 1000;
    let ended_us = after(ended);
    let first_byte_us = if is_answered { after(clock.first_byte) } else { ended_us };
    let footprint_us = clock.footprint_nanos() / 1000;
    if clock.sent == clock.begun {
        // Nothing was sent to a provider: whatever took time was waiting for that.
        let waited_us = first_byte_us.saturating_sub(after(clock.begun));
        return Times {
            sent_us: first_byte_us,
            first_byte_us,
            ended_us,
            waited_us,
            dial: None,
            footprint_us,
        };
    }
    let dial = [clock.dial.dns, clock.dial.connect, clock.dial.tls]
        .map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    Times {
        sent_us: after(clock.sent.max(clock.uploaded)),
        first_byte_us,
        ended_us,
        waited_us: clock.waited_nanos.saturating_sub(clock.dial.total_nanos()) / 1000,
        dial: (clock.dial.total_nanos() > 0).then_some(dial),
        footprint_us,
    }
}

fn at_most(wanted: usize, length: u64) -> usize {
    wanted.min(usize::try_from(length).unwrap_or(usize::MAX))
}

/// The host that a request names which goes nowhere, if it is one, and the port.
fn named_host(request: &RequestHead, bytes: &[u8]) -> (String, u16) {
    let named = request.authority.or(request.host);
    let host = named.and_then(|host| host_and_port(host.of(bytes), false));
    host.unwrap_or_else(|| (NO_HOST.to_owned(), default_port(false)))
}

fn host_and_port(host: &[u8], tls: bool) -> Option<(String, u16)> {
    let authority = Authority::parse(host, Some(default_port(tls))).ok()?;
    Some((authority.host.to_string(), authority.port))
}
