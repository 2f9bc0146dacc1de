//! Translations of messages by their fields, which pass the compression first: for property tests and
//! fuzzing.

use egret_clock::Moment;
use egret_http1::{Method, RequestFraming, RequestHead, ResponseHead};

use crate::frame::put_settings;
use crate::hpack::{Decoder, Encoder, FieldList, Indexing};
use crate::outgoing::{OutgoingRequest, OutgoingResponse};
use crate::received::MessageRefusal;
use crate::request::{Arrival, RequestText, request_text};
use crate::response::{Asked, ResponseText, response_text};
use crate::state::{Bounds, Core, Role, Terms};

/// Size of a list that holds all fields of a test.
const LIST_BYTES_MAX: usize = 1 << 20;
/// Number of fields of such a list.
const FIELDS_MAX: usize = 1 << 10;

/// The names and values of fields.
pub type FieldPairs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// Returns the fields with these names and values.
pub fn fields<'a>(fields: &[(&'a str, &'a str)]) -> FieldPairs<'a> {
    fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect()
}

/// A message that can be sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent {
    /// The fields in their order.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Number of bytes of its head in HTTP/1.1.
    pub len: usize,
    /// The framing of a request's body in HTTP/1.1.
    pub framing: RequestFraming,
    /// `true` if it opens a WebSocket.
    pub opens_websocket: bool,
}

/// Handles bytes that a peer sends behind its settings, as both sides of a connection do. Returns the number
/// of bytes with which they answer.
pub fn receive(bytes: &[u8]) -> usize {
    let bounds = Bounds { streams: 100, header_list: 1 << 14, fields: 100 };
    [Role::Server, Role::Client].map(|role| answered(role, bounds, bytes)).iter().sum()
}

fn answered(role: Role, bounds: Bounds, bytes: &[u8]) -> usize {
    let terms = Terms { role, bounds, is_tls: false, window_bytes: 1 << 20, caused_resets_max: 1_000 };
    let mut core = Core::new(terms);
    let (mut settings, now) = (Vec::new(), Moment::now());
    put_settings(&mut settings, &[]);
    core.receive(&settings, now);
    let mut head = RequestHead::new();
    if let Ok(request) = OutgoingRequest::read(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", &mut head, false) {
        for _ in 0..3 {
            core.open(&request, false);
        }
    }
    let mut used = 0;
    // Answers are sent, and then more is received.
    while used < bytes.len() {
        let more = core.receive(&bytes[used..], now);
        if more == 0 {
            break;
        }
        used += more;
        core.pump();
        core.output.note_sent(core.output.waiting().len() / 2);
    }
    core.output.waiting().len()
}

/// The names and values of the fields of a block.
pub type BlockFields = Vec<(Vec<u8>, Vec<u8>)>;

/// Decodes the blocks of a connection in their order, until one is refused.
pub fn decoded<'a>(blocks: impl IntoIterator<Item = &'a [u8]>) -> Vec<BlockFields> {
    let mut decoder = Decoder::new(4_096);
    let mut list = FieldList::new(LIST_BYTES_MAX, FIELDS_MAX);
    let mut decoded = Vec::new();
    for block in blocks {
        list.clear();
        if decoder.decode(block, &mut list).is_err() {
            break;
        }
        decoded.push(list.iter().map(|field| (field.name.to_vec(), field.value.to_vec())).collect());
    }
    decoded
}

/// Encodes the blocks of a connection in their order. The tables get every field.
pub fn encoded(blocks: &[BlockFields]) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new();
    let encode = |fields: &BlockFields| {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value) in fields {
            encoder.encode(name, value, Indexing::Add, &mut block);
        }
        block
    };
    blocks.iter().map(encode).collect()
}

/// Encodes and decodes fields.
fn passed(fields: &[(&[u8], &[u8])]) -> FieldList {
    let (mut encoder, mut block) = (Encoder::new(), Vec::new());
    let mut list = FieldList::new(LIST_BYTES_MAX, FIELDS_MAX);
    encoder.begin(&mut block);
    for (name, value) in fields {
        encoder.encode(name, value, Indexing::Never, &mut block);
    }
    // A longer list is cut, and refused for its size.
    let _ = Decoder::new(4_096).decode(&block, &mut list);
    list
}

/// Translates a received request.
pub fn received_request(
    fields: &[(&[u8], &[u8])],
    is_tls: bool,
    ends: bool,
    fields_max: usize,
) -> Result<RequestText, MessageRefusal> {
    request_text(&passed(fields), Arrival { is_tls, ends, fields_max }, Vec::new())
}

/// Translates a received response to a request of this method. `accept` is the value of
/// `Sec-WebSocket-Accept` if the request opens a WebSocket.
pub fn received_response(
    fields: &[(&[u8], &[u8])],
    method: Method,
    accept: Option<&str>,
    ends: bool,
    fields_max: usize,
) -> Result<ResponseText, MessageRefusal> {
    response_text(&passed(fields), Asked { method, accept, fields_max }, ends, Vec::new())
}

/// Translates the text of a request to send. `None` if it has no form in HTTP/2.
pub fn sent_request(text: &[u8], is_tls: bool) -> Option<Sent> {
    let mut head = RequestHead::new();
    let request = OutgoingRequest::read(text, &mut head, is_tls).ok()?;
    let mut fields = Vec::new();
    request.for_each_field(|name, value, _| fields.push((name.to_vec(), value.to_vec())));
    let (len, framing) = (request.head.len, request.head.framing);
    Some(Sent { fields, len, framing, opens_websocket: request.accept.is_some() })
}

/// Translates the text of a response to send. `None` if it has no form in HTTP/2.
pub fn sent_response(text: &[u8]) -> Option<Sent> {
    let mut head = ResponseHead::new();
    let response = OutgoingResponse::read(text, &mut head).ok()?;
    let mut fields = Vec::new();
    response.for_each_field(|name, value, _| fields.push((name.to_vec(), value.to_vec())));
    let len = response.head.len;
    Some(Sent { fields, len, framing: RequestFraming::None, opens_websocket: false })
}
