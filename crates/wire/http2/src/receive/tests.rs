//! Frames of peers that break rules, and of those that keep them, against the state of a connection.

use std::task::{Context, Poll, Waker};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::frame::{ACK, DEFAULT_WINDOW_BYTES, END_HEADERS, END_STREAM, HAS_PRIORITY, HEAD_BYTES, PADDED};
use crate::outgoing::OutgoingRequest;
use crate::output::Data;
use crate::state::{Bounds, Terms};
use crate::table::{Sending, StreamState};

/// The window of a connection in these tests.
const WINDOW_BYTES: u32 = 512 << 10;
const STREAMS_MAX: u32 = 10;

/// A frame.
fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::put_head(&mut bytes, payload.len().min(PAYLOAD_BYTES_MAX), kind, flags, stream);
    bytes[1..3].copy_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Fields in literal form, without a table or compression (RFC 7541 §6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            bytes.push(u8::try_from(text.len()).unwrap());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":authority", "h"), (":path", "/")];

fn headers(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(Kind::Headers, END_HEADERS | flags, stream, &block(fields))
}

/// A request whose body follows.
fn post(stream: u32) -> Vec<u8> {
    headers(stream, 0, &POST)
}

/// A request without a body.
fn get(stream: u32) -> Vec<u8> {
    headers(stream, END_STREAM, &POST)
}

fn data(stream: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame(Kind::Data, flags, stream, payload)
}

fn reset(stream: u32, reason: Reason) -> Vec<u8> {
    frame(Kind::Reset, 0, stream, &reason.0.to_be_bytes())
}

fn update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(Kind::WindowUpdate, 0, stream, &bytes.to_be_bytes())
}

fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::put_settings(&mut bytes, settings);
    bytes
}

fn connection(role: Role) -> Core {
    let bounds = Bounds { streams: STREAMS_MAX, header_list: 16 << 10, fields: 100 };
    let (window_bytes, caused_resets_max) = (WINDOW_BYTES, 100);
    let mut core = Core::new(Terms { role, bounds, is_tls: false, window_bytes, caused_resets_max });
    assert_eq!(role == Role::Client, core.output.waiting().starts_with(crate::state::PREFACE));
    core.output.clear();
    core
}

/// A connection whose peer has sent its settings and confirmed those of this side.
fn begun(role: Role) -> Core {
    let mut core = connection(role);
    receive(&mut core, &[settings(&[]), frame(Kind::Settings, ACK, 0, &[])].concat());
    assert_eq!(sent(&mut core), [(Kind::Settings, ACK, 0, Vec::new())]);
    core
}

fn receive(core: &mut Core, bytes: &[u8]) {
    assert_eq!(core.receive(bytes, Moment::now()), bytes.len());
}

/// Takes the frames in the output.
fn sent(core: &mut Core) -> Vec<(Kind, u8, u32, Vec<u8>)> {
    core.pump();
    let (mut rest, mut frames) = (core.output.waiting(), Vec::new());
    while let Some((head, after)) = rest.split_first_chunk() {
        let head = Head::read(*head);
        let (payload, after) = after.split_at(head.len);
        frames.push((head.kind, head.flags, head.stream, payload.to_vec()));
        rest = after;
    }
    core.output.clear();
    frames
}

/// The way in which an error is told to the peer.
fn fault(core: &mut Core) -> Option<(u32, Reason)> {
    let frames = sent(core);
    frames.iter().find_map(|(kind, _, stream, payload)| match kind {
        Kind::GoAway => Some((0, Reason(frame::number(&payload[4..])))),
        Kind::Reset => Some((*stream, Reason(frame::number(payload)))),
        _ => None,
    })
}

fn stream_of(core: &mut Core, id: u32) -> &mut StreamState {
    let slot = core.table.find(id).unwrap();
    &mut core.table[slot]
}

/// The frames that open streams and a frame that breaks a rule, with the section of RFC 9113 and the error.
type Violation = (&'static str, Vec<u8>, (u32, Reason));

/// An error of the connection.
fn of_connection(section: &'static str, bytes: &[&[u8]], reason: Reason) -> Violation {
    (section, bytes.concat(), (0, reason))
}

/// An error of the first stream.
fn of_stream(section: &'static str, bytes: &[&[u8]], reason: Reason) -> Violation {
    (section, bytes.concat(), (1, reason))
}

#[test]
fn frames_on_streams_in_the_wrong_state_are_errors() {
    use Reason as R;
    let first = frame(Kind::Headers, 0, 1, &block(&POST));
    let more = frame(Kind::Continuation, END_HEADERS, 1, &[]);
    assert_faults(&[
        of_connection("5.1 idle", &[&data(1, 0, b"a")], R::PROTOCOL_ERROR),
        of_connection("5.1 idle", &[&reset(1, R::CANCEL)], R::PROTOCOL_ERROR),
        of_connection("5.1 idle", &[&update(1, 1)], R::PROTOCOL_ERROR),
        of_connection("5.1 idle", &[&more], R::PROTOCOL_ERROR),
        of_stream("5.1 half-closed", &[&get(1), &data(1, 0, b"a")], R::STREAM_CLOSED),
        of_stream("5.1 half-closed", &[&get(1), &get(1)], R::STREAM_CLOSED),
        of_connection("5.1 half-closed", &[&get(1), &more], R::PROTOCOL_ERROR),
        of_stream("5.1 closed", &[&post(1), &reset(1, R::CANCEL), &data(1, 0, b"a")], R::STREAM_CLOSED),
        of_connection("5.1 closed", &[&get(1), &reset(1, R::CANCEL), &get(1)], R::PROTOCOL_ERROR),
        of_connection("5.1.1", &[&get(2)], R::PROTOCOL_ERROR),
        of_connection("5.1.1", &[&get(5), &get(3)], R::PROTOCOL_ERROR),
        of_connection("6.10", &[&first, &data(1, 0, b"a")], R::PROTOCOL_ERROR),
        of_connection("4.3", &[&first, &frame(Kind::Priority, 0, 1, &[0; 5])], R::PROTOCOL_ERROR),
        of_connection("4.3", &[&first, &get(3)], R::PROTOCOL_ERROR),
        of_connection("5.5", &[&first, &frame(Kind::Unknown, 0, 0, &[])], R::PROTOCOL_ERROR),
        of_connection("6.10", &[&first, &frame(Kind::Continuation, END_HEADERS, 3, &[])], R::PROTOCOL_ERROR),
        of_connection("6.10", &[&post(1), &more], R::PROTOCOL_ERROR),
        of_connection("8.4", &[&frame(Kind::PushPromise, END_HEADERS, 1, &[0, 0, 0, 2])], R::PROTOCOL_ERROR),
    ]);
}

#[test]
fn frames_of_the_wrong_size_or_place_are_errors() {
    use Reason as R;
    let zero = |kind, payload: &[u8]| frame(kind, END_HEADERS, 0, payload);
    let of_one = |kind, payload: &[u8]| frame(kind, 0, 1, payload);
    let goodbye = [0_u8; 8];
    assert_faults(&[
        of_connection("4.2", &[&post(1), &data(1, 0, &vec![0; PAYLOAD_BYTES_MAX + 1])], R::FRAME_SIZE_ERROR),
        of_connection("6.1", &[&zero(Kind::Data, b"a")], R::PROTOCOL_ERROR),
        of_connection("6.1", &[&post(1), &data(1, PADDED, &[2, 0])], R::PROTOCOL_ERROR),
        of_connection("6.2", &[&zero(Kind::Headers, &block(&POST))], R::PROTOCOL_ERROR),
        of_connection("6.2", &[&frame(Kind::Headers, END_HEADERS | PADDED, 1, &[9, 0])], R::PROTOCOL_ERROR),
        of_connection("6.2", &[&frame(Kind::Headers, HAS_PRIORITY, 1, &[0; 4])], R::FRAME_SIZE_ERROR),
        of_connection("6.3", &[&zero(Kind::Priority, &[0; 5])], R::PROTOCOL_ERROR),
        of_stream("6.3", &[&post(1), &of_one(Kind::Priority, &[0; 4])], R::FRAME_SIZE_ERROR),
        of_connection("6.4", &[&zero(Kind::Reset, &[0; 4])], R::PROTOCOL_ERROR),
        of_connection("6.4", &[&post(1), &of_one(Kind::Reset, &[0; 3])], R::FRAME_SIZE_ERROR),
        of_connection("6.5", &[&frame(Kind::Settings, ACK, 0, &[0; 6])], R::FRAME_SIZE_ERROR),
        of_connection("6.5", &[&frame(Kind::Settings, ACK, 0, &[])], R::PROTOCOL_ERROR),
        of_connection("6.5", &[&of_one(Kind::Settings, &[])], R::PROTOCOL_ERROR),
        of_connection("6.5", &[&frame(Kind::Settings, 0, 0, &[0; 7])], R::FRAME_SIZE_ERROR),
        of_connection("6.5.2", &[&settings(&[(2, 2)])], R::PROTOCOL_ERROR),
        of_connection("6.5.2", &[&settings(&[(4, 1 << 31)])], R::FLOW_CONTROL_ERROR),
        of_connection("6.5.2", &[&settings(&[(5, 16_383)])], R::PROTOCOL_ERROR),
        of_connection("6.7", &[&of_one(Kind::Ping, &[0; 8])], R::PROTOCOL_ERROR),
        of_connection("6.7", &[&frame(Kind::Ping, 0, 0, &[0; 6])], R::FRAME_SIZE_ERROR),
        of_connection("6.8", &[&of_one(Kind::GoAway, &goodbye)], R::PROTOCOL_ERROR),
        of_connection("6.8", &[&frame(Kind::GoAway, 0, 0, &goodbye[1..])], R::FRAME_SIZE_ERROR),
        of_connection("6.9", &[&update(0, 0)], R::PROTOCOL_ERROR),
        of_stream("6.9", &[&post(1), &update(1, 0)], R::PROTOCOL_ERROR),
        of_connection("6.9", &[&frame(Kind::WindowUpdate, 0, 0, &[0; 3])], R::FRAME_SIZE_ERROR),
        of_connection("6.9.1", &[&update(0, MAX_31_BITS)], R::FLOW_CONTROL_ERROR),
        of_stream("6.9.1", &[&post(1), &update(1, MAX_31_BITS)], R::FLOW_CONTROL_ERROR),
        of_connection(
            "6.9.2",
            &[&post(1), &update(1, 1), &settings(&[(4, MAX_31_BITS)])],
            R::FLOW_CONTROL_ERROR,
        ),
        of_connection("6.10", &[&zero(Kind::Continuation, &[])], R::PROTOCOL_ERROR),
    ]);
}

#[test]
fn malformed_messages_are_errors_of_their_streams() {
    use Reason as R;
    let priority_on_itself = [&[0, 0, 0, 1, 9][..], &block(&POST)].concat();
    let with_length = |length| headers(1, 0, &[&POST[..], &[("content-length", length)]].concat());
    let trailers = |fields| headers(1, END_STREAM, fields);
    assert_faults(&[
        of_connection("4.3", &[&frame(Kind::Headers, END_HEADERS, 1, &[0x40, 1])], R::COMPRESSION_ERROR),
        of_stream(
            "5.3.1",
            &[&frame(Kind::Headers, END_HEADERS | HAS_PRIORITY, 1, &priority_on_itself)],
            R::PROTOCOL_ERROR,
        ),
        of_stream("5.3.1", &[&post(1), &frame(Kind::Priority, 0, 1, &[0, 0, 0, 1, 9])], R::PROTOCOL_ERROR),
        of_stream("8.1", &[&post(1), &headers(1, 0, &[("x-a", "1")])], R::PROTOCOL_ERROR),
        of_stream("8.1.1", &[&with_length("1"), &data(1, END_STREAM, b"ab")], R::PROTOCOL_ERROR),
        of_stream("8.1.1", &[&with_length("3"), &data(1, END_STREAM, b"ab")], R::PROTOCOL_ERROR),
        of_stream("8.1.1", &[&with_length("3"), &trailers(&[])], R::PROTOCOL_ERROR),
        of_stream("8.2", &[&headers(1, 0, &[&POST[..], &[("X-A", "1")]].concat())], R::PROTOCOL_ERROR),
        of_stream(
            "8.2.2",
            &[&headers(1, 0, &[&POST[..], &[("connection", "x")]].concat())],
            R::PROTOCOL_ERROR,
        ),
        of_stream("8.3", &[&headers(1, 0, &POST[1..])], R::PROTOCOL_ERROR),
        of_stream("8.3", &[&post(1), &trailers(&[(":path", "/")])], R::PROTOCOL_ERROR),
        of_stream("8.1", &[&post(1), &trailers(&[("connection", "x")])], R::PROTOCOL_ERROR),
        of_stream("8.2.1", &[&post(1), &trailers(&[("x-a", "1\r\nx-b: 2")])], R::PROTOCOL_ERROR),
        of_stream("8.2.1", &[&post(1), &trailers(&[("x-a", " 1")])], R::PROTOCOL_ERROR),
    ]);
}

fn assert_faults(violations: &[Violation]) {
    for (section, bytes, (stream, reason)) in violations {
        let mut core = begun(Role::Server);
        receive(&mut core, bytes);
        assert_eq!(fault(&mut core), Some((*stream, *reason)), "RFC 9113 §{section}: {bytes:?}");
        assert_eq!(core.is_receiving(), *stream != 0, "RFC 9113 §{section}: {bytes:?}");
        // The streams beside it go on.
        if *stream != 0 {
            receive(&mut core, &get(7));
            assert_eq!((fault(&mut core), core.table.find(7).is_some()), (None, true), "{section}");
        }
    }
}

#[test]
fn a_server_breaks_rules_of_its_own() {
    use Reason as R;
    for (bytes, reason) in [
        (headers(1, 0, &[(":status", "200")]), R::PROTOCOL_ERROR),
        (headers(2, 0, &[(":status", "200")]), R::PROTOCOL_ERROR),
        (settings(&[(2, 1)]), R::PROTOCOL_ERROR),
        (frame(Kind::PushPromise, END_HEADERS, 2, &[0, 0, 0, 4]), R::PROTOCOL_ERROR),
    ] {
        let mut core = begun(Role::Client);
        receive(&mut core, &bytes);
        assert_eq!(fault(&mut core), Some((0, reason)), "{bytes:?}");
    }
}

#[test]
fn unknown_frames_and_settings_are_ignored() {
    let mut core = begun(Role::Server);
    let mut unknown = frame(Kind::Unknown, 0xff, 0, b"x");
    unknown[3] = 0xbb;
    unknown[5] = 0x80;
    let priority = frame(Kind::Priority, 0, 9, &[0, 0, 0, 3, 1]);
    let ping = frame(Kind::Ping, 0xfe, 0, b"12345678");
    receive(&mut core, &[unknown, priority, ping, settings(&[(0xbb, 1)]), post(1)].concat());
    let answers = [(Kind::Ping, ACK, 0, b"12345678".to_vec()), (Kind::Settings, ACK, 0, Vec::new())];
    assert_eq!(sent(&mut core), answers);
    // An answer has none.
    receive(&mut core, &frame(Kind::Ping, ACK, 0, b"12345678"));
    assert_eq!((sent(&mut core), core.phase), (Vec::new(), ConnectionPhase::Open));
}

#[test]
fn the_first_frame_is_settings() {
    for bytes in [get(1), frame(Kind::Settings, ACK, 0, &[]), frame(Kind::Ping, 0, 0, &[0; 8])] {
        let mut core = connection(Role::Server);
        receive(&mut core, &bytes);
        assert_eq!(fault(&mut core), Some((0, Reason::PROTOCOL_ERROR)), "{bytes:?}");
    }
}

#[test]
fn a_request_arrives_with_its_body_and_trailers() {
    let mut core = begun(Role::Server);
    let split = block(&POST);
    let head = [
        frame(Kind::Headers, PADDED, 1, &[&[2][..], &split[..9], &[0, 0]].concat()),
        frame(Kind::Continuation, 0, 1, &split[9..20]),
        frame(Kind::Continuation, END_HEADERS, 1, &split[20..]),
    ]
    .concat();
    let body = [data(1, 0, b"ab"), data(1, PADDED, b"\x02c\0\0")].concat();
    receive(&mut core, &[head, body, headers(1, END_STREAM, &[("x-a", "1")])].concat());
    let slot = core.arrived.pop_front().unwrap();
    let text = core.table[slot].heads.take().unwrap().unwrap();
    assert_eq!(text, b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n");
    let mut buffer = [0; 64];
    let cx = Context::from_waker(Waker::noop());
    let expected = b"3\r\nabc\r\n0\r\nx-a: 1\r\n\r\n";
    let read = core.poll_read(slot, &cx, &mut buffer);
    assert_eq!((read, &buffer[..expected.len()]), (Poll::Ready(Ok(Some(expected.len()))), &expected[..]));
    assert_eq!(core.poll_read(slot, &cx, &mut buffer), Poll::Ready(Ok(None)));
    assert_eq!(fault(&mut core), None);
}

#[test]
fn more_streams_than_allowed_are_refused() {
    let mut core = begun(Role::Server);
    for number in 0..STREAMS_MAX {
        receive(&mut core, &get(2 * number + 1));
    }
    assert_eq!(fault(&mut core), None);
    let next = 2 * STREAMS_MAX + 1;
    receive(&mut core, &post(next));
    assert_eq!(fault(&mut core), Some((next, Reason::REFUSED_STREAM)));
    // What was sent before the refusal arrived is ignored.
    receive(&mut core, &[data(next, 0, b"late"), update(next, 1), reset(next, Reason::CANCEL)].concat());
    assert_eq!(fault(&mut core), None);
    // A place is free again.
    receive(&mut core, &[reset(1, Reason::CANCEL), get(next + 2)].concat());
    assert_eq!(fault(&mut core), None);
}

#[test]
fn windows_bound_what_a_peer_sends() {
    let mut core = begun(Role::Server);
    receive(&mut core, &[post(1), post(3)].concat());
    let full = vec![b'x'; PAYLOAD_BYTES_MAX];
    for _ in 0..4 {
        receive(&mut core, &data(1, 0, &full));
    }
    assert_eq!((fault(&mut core), stream_of(&mut core, 1).receive_window), (None, 0));
    receive(&mut core, &data(3, 0, b"x"));
    assert_eq!(fault(&mut core), None);
    receive(&mut core, &data(1, 0, b"x"));
    assert_eq!(fault(&mut core), Some((1, Reason::FLOW_CONTROL_ERROR)));
    // The window of the connection is used up by streams that nobody reads.
    for stream in 0..9 {
        receive(&mut core, &post(2 * stream + 5));
        (0..4).for_each(|_| receive(&mut core, &data(2 * stream + 5, 0, &full)));
    }
    assert_eq!(fault(&mut core), Some((0, Reason::FLOW_CONTROL_ERROR)));
}

#[test]
fn windows_open_once_half_of_them_is_read() {
    let mut core = begun(Role::Server);
    receive(&mut core, &post(1));
    let slot = core.arrived.pop_front().unwrap();
    let (mut buffer, cx) = (vec![0; PAYLOAD_BYTES_MAX + 16], Context::from_waker(Waker::noop()));
    let (mut updates, mut received) = (Vec::new(), 0);
    for _ in 0..32 {
        receive(&mut core, &data(1, 0, &[b'x'; PAYLOAD_BYTES_MAX]));
        received += i64::try_from(PAYLOAD_BYTES_MAX).unwrap();
        for _ in 0..2 {
            let _ = core.poll_read(slot, &cx, &mut buffer);
        }
        updates.extend(sent(&mut core).into_iter().filter(|(kind, ..)| *kind == Kind::WindowUpdate));
        let covered = i64::try_from(core.table[slot].body.covered()).unwrap();
        let owed = i64::from(core.owed);
        assert_eq!(core.receive_window + covered + owed, i64::from(WINDOW_BYTES));
    }
    let opened = |stream| -> i64 {
        let of_stream = updates.iter().filter(|(_, _, id, _)| *id == stream);
        of_stream.map(|(.., payload)| i64::from(frame::number(payload))).sum()
    };
    assert!((received - opened(0)) < i64::from(WINDOW_BYTES) / 4 && opened(1) > received / 2);
    assert!(updates.len() < 32);
}

/// A client like that of Java 17: larger windows by `SETTINGS` hold at once, before it confirms them, but
/// once its window is used up it waits for `WINDOW_UPDATE`.
struct WaitingClient {
    connection_window: usize,
    initial_window: usize,
    window: usize,
    is_waiting: bool,
    unconfirmed: usize,
    left: usize,
}

impl WaitingClient {
    fn obey(&mut self, core: &mut Core) {
        for (kind, flags, id, payload) in sent(core) {
            match (kind, id) {
                (Kind::WindowUpdate, 0) => self.connection_window += frame::number(&payload) as usize,
                (Kind::WindowUpdate, _) => {
                    self.window += frame::number(&payload) as usize;
                    self.is_waiting = false;
                }
                (Kind::Settings, _) => {
                    let bytes = frame::number(&payload[2..]) as usize;
                    self.window += bytes - mem::replace(&mut self.initial_window, bytes);
                    self.unconfirmed += 1;
                }
                other => panic!("{other:?} with flags {flags}"),
            }
        }
    }

    fn send(&mut self, core: &mut Core) {
        while !self.is_waiting && self.left > 0 && self.connection_window > 0 {
            let count = PAYLOAD_BYTES_MAX.min(self.window).min(self.left).min(self.connection_window);
            receive(core, &data(1, 0, &vec![b'x'; count]));
            (self.window, self.left) = (self.window - count, self.left - count);
            self.connection_window -= count;
            self.is_waiting = self.window == 0;
        }
        for _ in 0..mem::take(&mut self.unconfirmed) {
            receive(core, &frame(Kind::Settings, ACK, 0, &[]));
        }
    }
}

#[test]
fn a_client_that_waits_for_window_updates_is_not_held_up() {
    const BYTES: usize = 4 << 20;
    for reads in [1_000, 16_384, 40_000, 65_536, 200_000] {
        let mut core = begun(Role::Server);
        receive(&mut core, &post(1));
        let slot = core.arrived.pop_front().unwrap();
        let mut client = WaitingClient {
            connection_window: WINDOW_BYTES as usize,
            initial_window: 64 << 10,
            window: 64 << 10,
            is_waiting: false,
            unconfirmed: 0,
            left: BYTES,
        };
        let (mut buffer, cx) = (vec![0; reads], Context::from_waker(Waker::noop()));
        for _ in 0..2 * (BYTES / reads + 1) {
            client.send(&mut core);
            let _ = core.poll_read(slot, &cx, &mut buffer);
            client.obey(&mut core);
        }
        assert_eq!(client.left, 0, "{reads}");
    }
}

#[test]
fn padding_is_given_back_at_once() {
    let mut core = begun(Role::Server);
    receive(&mut core, &post(1));
    // Each is a byte of data in 256 of the window.
    let padded = [&[254, b'x'][..], &[0; 254]].concat();
    for _ in 0..2_000 {
        receive(&mut core, &data(1, PADDED, &padded));
        assert_eq!(fault(&mut core), None);
    }
    assert_eq!(stream_of(&mut core, 1).body.covered(), 2_000);
}

#[test]
fn data_that_nobody_reads_does_not_use_up_the_connection() {
    let mut core = begun(Role::Server);
    for number in 0..100 {
        let stream = 2 * number + 1;
        receive(&mut core, &[post(stream), data(stream, 0, &[0; PAYLOAD_BYTES_MAX])].concat());
        let slot = core.arrived.pop_front().unwrap();
        core.release(slot, Reason::INTERNAL_ERROR);
        // What was on its way is ignored, and given back, too.
        receive(&mut core, &data(stream, 0, &[0; PAYLOAD_BYTES_MAX]));
    }
    assert_eq!(core.receive_window + i64::from(core.owed), i64::from(WINDOW_BYTES));
    assert!(core.is_receiving());
}

#[test]
fn streams_that_this_side_is_made_to_reset_are_counted() {
    let mut core = begun(Role::Server);
    for number in 0..=100 {
        assert!(core.is_receiving(), "{number}");
        receive(&mut core, &[get(2 * number + 1), update(2 * number + 1, MAX_31_BITS)].concat());
    }
    assert_eq!(core.phase, ConnectionPhase::Closing(Ending::Flood(Flood::Frames)));
}

#[test]
fn blocks_without_an_end_and_those_that_grow_are_floods() {
    let growing = |core: &mut Core, bytes: &[u8]| {
        receive(core, bytes);
        core.phase == ConnectionPhase::Closing(Ending::Flood(Flood::Frames))
    };
    let mut core = begun(Role::Server);
    receive(&mut core, &frame(Kind::Headers, 0, 1, &block(&POST)));
    let ends = (0..10).find(|_| growing(&mut core, &frame(Kind::Continuation, 0, 1, &[])));
    assert_eq!(ends, Some(CONTINUATIONS));
    let mut core = begun(Role::Server);
    receive(&mut core, &frame(Kind::Headers, 0, 1, &block(&POST)));
    let ends = (0..10).find(|_| growing(&mut core, &frame(Kind::Continuation, 0, 1, &[0; 16_384])));
    assert_eq!(ends, Some(1));
    // A field of 3,000 bytes that is repeated by a byte each.
    let mut bomb = block(&POST);
    bomb.extend([&[0x40, 1, b'a', 0x7f, 0xb9, 0x16][..], &[b'x'; 3_000]].concat());
    bomb.extend([0xbe; 12_000]);
    let mut core = begun(Role::Server);
    assert!(growing(&mut core, &frame(Kind::Headers, END_HEADERS, 1, &bomb)));
}

#[test]
fn streams_reset_before_they_are_accepted_are_a_flood() {
    let mut core = begun(Role::Server);
    for number in 0..=RESETS_UNACCEPTED {
        assert!(core.is_receiving(), "{number}");
        let stream = u32::try_from(2 * number + 1).unwrap();
        receive(&mut core, &[get(stream), reset(stream, Reason::CANCEL)].concat());
    }
    assert_eq!(core.phase, ConnectionPhase::Closing(Ending::Flood(Flood::Frames)));
}

#[test]
fn no_frame_is_read_while_answers_wait() {
    let mut core = begun(Role::Server);
    // Explained by sent bytes, so they are no flood.
    core.gate.note_sent(1 << 20);
    let pings = frame(Kind::Ping, 0, 0, &[0; 8]).repeat(2_000);
    let used = core.receive(&pings, Moment::now());
    assert!(used < pings.len() && core.output.waiting().len() < (16 << 10) + 32);
    core.output.clear();
    assert!(core.receive(&pings[used..], Moment::now()) > 0);
}

#[test]
fn a_leaving_server_ignores_further_streams() {
    let mut core = begun(Role::Server);
    receive(&mut core, &post(1));
    core.phase = ConnectionPhase::Leaving;
    receive(&mut core, &[get(3), frame(Kind::Ping, ACK, 0, &GOODBYE)].concat());
    let last = sent(&mut core).pop().unwrap();
    assert_eq!((last.0, frame::number(&last.3)), (Kind::GoAway, 3));
    receive(&mut core, &[post(5), data(5, 0, b"x"), reset(5, Reason::CANCEL), post(7)].concat());
    assert_eq!((sent(&mut core), core.table.len(), core.is_receiving()), (Vec::new(), 2, true));
    core.close_if_unused(false);
    assert_eq!(core.phase, ConnectionPhase::Left);
    for slot in [core.table.slot_at(0), core.table.slot_at(1)].into_iter().flatten().collect::<Vec<_>>() {
        core.release(slot, Reason::INTERNAL_ERROR);
    }
    core.close_if_unused(false);
    assert_eq!(core.phase, ConnectionPhase::Closing(Ending::Closed));
}

/// Sends a request on a client's connection.
fn call(core: &mut Core, method: &str) -> StreamSlot {
    let text = format!("{method} / HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut head = egret_http1::RequestHead::new();
    let request = OutgoingRequest::read(text.as_bytes(), &mut head, false).unwrap();
    core.open(&request, false).unwrap()
}

#[test]
fn a_reset_says_whether_the_request_was_processed() {
    for (reason, lost) in [
        (Reason::REFUSED_STREAM, Lost::NotProcessed),
        (Reason::HTTP_1_1_REQUIRED, Lost::Http11Required),
        (Reason::CANCEL, Lost::Reset("CANCEL")),
        (Reason(99), Lost::Reset("an unknown error")),
    ] {
        let mut core = begun(Role::Client);
        let slot = call(&mut core, "GET");
        receive(&mut core, &reset(1, reason));
        assert_eq!(core.table[slot].lost, Some(lost));
    }
}

#[test]
fn a_goaway_loses_the_streams_above_its_number() {
    let mut core = begun(Role::Client);
    let slots = [call(&mut core, "GET"), call(&mut core, "GET"), call(&mut core, "GET")];
    receive(&mut core, &frame(Kind::GoAway, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]));
    let lost = slots.map(|slot| core.table[slot].lost);
    assert_eq!(lost, [None, None, Some(Lost::NotProcessed)]);
    assert!(!core.may_open() && core.is_receiving());
    core.end(Ending::Closed);
    assert_eq!(core.table[slots[0]].lost, Some(Lost::Connection));
}

#[test]
fn a_client_opens_no_more_streams_than_the_provider_admits() {
    let mut core = connection(Role::Client);
    for _ in 0..STREAMS_MAX {
        call(&mut core, "GET");
    }
    // Before its settings, as many are assumed as the pool says. Without a maximum in them, there is none.
    assert!(!core.has_room());
    receive(&mut core, &settings(&[]));
    assert!(core.has_room());
    // A lower maximum is for new streams only, and may be raised again.
    for (max, has_room) in [(STREAMS_MAX, false), (STREAMS_MAX + 1, true), (0, false), (1, false)] {
        receive(&mut core, &settings(&[(3, max)]));
        assert_eq!((core.has_room(), core.table.len()), (has_room, 10), "{max}");
    }
    let mut head = egret_http1::RequestHead::new();
    let request = OutgoingRequest::read(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", &mut head, false).unwrap();
    assert!(core.open(&request, true).is_none());
    for id in (1..20).step_by(2) {
        receive(&mut core, &reset(id, Reason::CANCEL));
    }
    assert!(core.open(&request, true).is_some() && !core.has_room());
}

#[test]
fn responses_arrive_behind_informational_ones() {
    let mut core = begun(Role::Client);
    let slot = call(&mut core, "GET");
    core.send(slot, Data::whole(&[]), Some(&[])).unwrap();
    let informational = headers(1, 0, &[(":status", "103")]);
    let response = headers(1, 0, &[(":status", "200"), ("content-length", "2")]);
    receive(&mut core, &[informational, response, data(1, END_STREAM, b"ok")].concat());
    let text = |core: &mut Core| String::from_utf8(core.table[slot].heads.take().unwrap().unwrap()).unwrap();
    assert_eq!(text(&mut core), "HTTP/1.1 103 \r\n\r\n");
    assert_eq!(text(&mut core), "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n");
    let (mut buffer, cx) = ([0; 9], Context::from_waker(Waker::noop()));
    assert_eq!(core.poll_read(slot, &cx, &mut buffer), Poll::Ready(Ok(Some(2))));
    assert_eq!((fault(&mut core), core.table.len()), (None, 0));
}

#[test]
fn a_provider_that_sends_informational_responses_without_end_is_stopped() {
    let mut core = begun(Role::Client);
    call(&mut core, "GET");
    let informational = headers(1, 0, &[(":status", "103")]);
    receive(&mut core, &informational.repeat(INFORMATIONAL_MAX + 1));
    assert_eq!(fault(&mut core), Some((1, Reason::ENHANCE_YOUR_CALM)));
}

#[test]
fn a_response_to_head_has_no_data() {
    let mut core = begun(Role::Client);
    call(&mut core, "HEAD");
    let response = headers(1, 0, &[(":status", "200"), ("content-length", "2")]);
    receive(&mut core, &[response, data(1, 0, b"ok")].concat());
    assert_eq!(fault(&mut core), Some((1, Reason::PROTOCOL_ERROR)));
}

#[test]
fn data_waits_for_windows_and_is_sent_in_turns() {
    let mut core = begun(Role::Client);
    let slots = [call(&mut core, "POST"), call(&mut core, "POST")];
    sent(&mut core);
    receive(&mut core, &settings(&[(4, 10)]));
    sent(&mut core);
    // The streams were opened with a larger window, which the setting has shrunk.
    for slot in slots {
        core.send(slot, Data::whole(&[b'x'; 25]), Some(&[])).unwrap();
    }
    let lens = |core: &mut Core| -> Vec<(u32, usize, bool)> {
        let frames = sent(core).into_iter().filter(|(kind, ..)| *kind == Kind::Data);
        frames.map(|(_, flags, stream, payload)| (stream, payload.len(), flags & END_STREAM != 0)).collect()
    };
    assert_eq!(lens(&mut core), [(1, 10, false), (3, 10, false)]);
    receive(&mut core, &settings(&[(4, 5)]));
    receive(&mut core, &update(1, 5));
    assert_eq!((lens(&mut core), core.table[slots[0]].send_window), (Vec::new(), 0));
    receive(&mut core, &[update(1, 7), update(3, 100)].concat());
    assert_eq!(lens(&mut core), [(1, 7, false), (3, 15, true)]);
    assert_eq!(core.table[slots[1]].sending, Sending::Ended);
    receive(&mut core, &settings(&[(4, DEFAULT_WINDOW_BYTES)]));
    assert_eq!(lens(&mut core), [(1, 8, true)]);
}

#[test]
fn streams_share_the_window_of_the_connection() {
    let mut core = begun(Role::Client);
    receive(&mut core, &settings(&[(4, 1 << 20)]));
    let slots = [call(&mut core, "POST"), call(&mut core, "POST"), call(&mut core, "POST")];
    for slot in slots {
        core.send(slot, Data::whole(&vec![b'x'; 100_000]), Some(b"x-a: 1\r\n")).unwrap();
    }
    let mut sums = [0; 3];
    let mut trailers = Vec::new();
    for _ in 0..40 {
        for (kind, flags, stream, payload) in sent(&mut core) {
            let place = (stream as usize).saturating_sub(1) / 2;
            match kind {
                Kind::Data => sums[place] += payload.len(),
                Kind::Headers if flags & END_STREAM != 0 => trailers.push(stream),
                _ => {}
            }
        }
        // The second and third had their turn as soon as the first had used up what there was.
        let least = sums[1].min(sums[2]);
        assert!(sums[0] <= DEFAULT_WINDOW_BYTES as usize + least + PAYLOAD_BYTES_MAX, "{sums:?}");
        receive(&mut core, &update(0, 10_000));
    }
    assert_eq!((sums, trailers.len()), ([100_000; 3], 3));
    assert!(core.table[slots[0]].backlog.is_empty() && core.send_window >= 0);
}

#[test]
fn the_output_is_bounded_however_large_the_windows_are() {
    let mut core = begun(Role::Client);
    receive(&mut core, &[settings(&[(4, 1 << 30)]), update(0, 1 << 30)].concat());
    let slot = call(&mut core, "POST");
    core.send(slot, Data::whole(&vec![b'x'; 1 << 20]), None).unwrap();
    let mut moved = 0;
    let cx = Context::from_waker(Waker::noop());
    assert!(core.poll_backlog(slot, &cx, &mut moved).is_pending() && core.has_backlog(slot));
    assert!(core.output.waiting().len() <= 64 << 10 && moved > 60_000);
    while core.has_backlog(slot) {
        let waiting = core.output.waiting().len();
        core.output.note_sent(waiting / 2 + 1);
        core.pump();
        assert!(core.output.waiting().len() <= 64 << 10);
    }
    assert_eq!(core.poll_backlog(slot, &cx, &mut moved), Poll::Ready(Ok(())));
    assert_eq!(moved, 1 << 20);
}

#[test]
fn a_stream_without_a_reader_is_reset_as_its_side_does() {
    // A client cancels a call, and a server that has responded does not want the rest of the request.
    let mut core = begun(Role::Client);
    let slot = call(&mut core, "GET");
    sent(&mut core);
    core.release(slot, Reason::CANCEL);
    assert_eq!(fault(&mut core), Some((1, Reason::CANCEL)));
    let mut core = begun(Role::Client);
    let slot = call(&mut core, "GET");
    core.send(slot, Data::whole(b"x"), Some(&[])).unwrap();
    receive(&mut core, &headers(1, END_STREAM, &[(":status", "200")]));
    core.release(slot, Reason::CANCEL);
    assert_eq!(fault(&mut core), None);
}

/// A sequence of frames, most of which keep the rules.
fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let stream = prop_oneof![Just(1_u32), Just(3), Just(5)];
    let one = (stream, 0..12_u8, vec(any::<u8>(), 0..40), any::<bool>()).prop_map(
        |(stream, kind, payload, ends)| match kind {
            0..=2 => headers(stream, u8::from(ends), &POST),
            3..=6 => data(stream, u8::from(ends), &payload),
            7 => update(stream, u32::try_from(payload.len() + 1).unwrap()),
            8 => frame(Kind::Ping, 0, 0, &[7; 8]),
            9 => settings(&[(4, 100)]),
            10 => reset(stream, Reason::CANCEL),
            _ => frame(Kind::Unknown, 0, 0, &payload),
        },
    );
    vec(one, 0..30)
}

/// The parts that can be seen of a connection.
fn seen(core: &mut Core) -> impl PartialEq + std::fmt::Debug + use<> {
    let bodies: Vec<_> = core.arrived.iter().map(|slot| core.table[*slot].body.covered()).collect();
    (sent(core), bodies, core.phase, core.receive_window, core.send_window, core.table.len())
}

proptest! {
    #[test]
    fn frames_have_the_same_effect_wherever_they_are_cut(
        frames in frames(),
        cuts in vec(1..30_usize, 1..20),
    ) {
        let bytes = frames.concat();
        let now = Moment::now();
        let (mut whole, mut cut) = (begun(Role::Server), begun(Role::Server));
        let used = whole.receive(&bytes, now);
        prop_assert_eq!(used, bytes.len());
        let (mut rest, mut partial) = (&bytes[..], Vec::new());
        for len in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*len).min(rest.len()));
            partial.extend_from_slice(piece);
            let used = cut.receive(&partial, now);
            partial.drain(..used);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(seen(&mut whole), seen(&mut cut));
    }

    #[test]
    fn any_bytes_keep_the_invariants_of_a_connection(
        bytes in vec(prop_oneof![4 => 0..10_u8, 1 => any::<u8>()], 0..600),
        valid in frames(),
        role in prop_oneof![Just(Role::Server), Just(Role::Client)],
    ) {
        let mut core = begun(role);
        if role == Role::Client {
            call(&mut core, "POST");
            call(&mut core, "GET");
        }
        core.receive(&[valid.concat(), bytes].concat(), Moment::now());
        let streams = (0..core.table.len()).filter_map(|place| core.table.slot_at(place));
        let covered: usize = streams.map(|slot| core.table[slot].body.covered()).sum();
        let sum = core.receive_window + i64::from(core.owed) + i64::try_from(covered).unwrap();
        prop_assert!(sum <= i64::from(WINDOW_BYTES));
        prop_assert!(core.table.len() <= STREAMS_MAX as usize);
        sent(&mut core);
    }
}

#[test]
fn a_frame_of_the_tests_has_its_length() {
    assert_eq!(frame(Kind::Data, 0, 1, b"abc").len(), HEAD_BYTES + 3);
}
