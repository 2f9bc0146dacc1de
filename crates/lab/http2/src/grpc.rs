//! Messages of gRPC over HTTP/2: their framing, the status of a call, and the messages of the echo service.
//!
//! Two messages with two fields each need no library for Protocol Buffers.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::pin::Pin;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Body, Frame};

/// The definition of the echo service.
pub const PROTO: &str = include_str!("echo.proto");
/// Full name of the echo service.
pub const SERVICE: &str = "egret.provider.Echo";

/// Length of what precedes a message: a flag of compression, and the message's length.
const PREFIX_BYTES: usize = 5;

/// The status code of a call: the number in `grpc-status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusCode(pub u8);

impl StatusCode {
    /// The call has succeeded.
    pub const OK: Self = Self(0);
    /// The client's request is wrong.
    pub const INVALID_ARGUMENT: Self = Self(3);
    /// A message is too long.
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    /// The method, or what it was asked for, does not exist.
    pub const UNIMPLEMENTED: Self = Self(12);
    /// A message cannot be read.
    pub const INTERNAL: Self = Self(13);
    /// The highest code, `UNAUTHENTICATED`.
    pub const MAX: u8 = 16;
}

/// The status of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallStatus {
    /// The code.
    pub code: StatusCode,
    /// A description for people; may be empty.
    pub message: String,
}

impl CallStatus {
    /// A call that has succeeded.
    pub fn ok() -> Self {
        Self { code: StatusCode::OK, message: String::new() }
    }

    /// A call that has failed.
    pub fn error(code: StatusCode, message: impl std::fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }

    /// The fields that tell the status: trailers, or header fields of a response without messages.
    pub fn fields(&self) -> HeaderMap {
        let mut fields = HeaderMap::new();
        fields.insert(HeaderName::from_static("grpc-status"), HeaderValue::from(u16::from(self.code.0)));
        if !self.message.is_empty()
            && let Ok(value) = HeaderValue::from_str(&escaped(&self.message))
        {
            fields.insert(HeaderName::from_static("grpc-message"), value);
        }
        fields
    }
}

/// Encodes the bytes of a text that `grpc-message` does not allow with percent signs.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// The reason why a message cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The message is longer than allowed.
    #[error("a message of {length} bytes exceeds the maximum of {max}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// The maximum length in bytes.
        max: usize,
    },
    /// The message is compressed, or its flag is unknown.
    #[error("compressed messages are not supported")]
    Compressed,
    /// The body ends within a message.
    #[error("the body ends within a message")]
    Cut,
    /// The message asks for more responses than allowed.
    #[error("{count} responses exceed the maximum of {max}")]
    TooMany {
        /// The number of responses that it asks for.
        count: u32,
        /// The maximum number.
        max: u32,
    },
    /// The message is no `EchoRequest`.
    #[error("the message is not an EchoRequest")]
    Malformed,
}

impl MessageError {
    /// The status that reports the error.
    pub fn status(&self) -> CallStatus {
        let code = match self {
            Self::TooLong { .. } => StatusCode::RESOURCE_EXHAUSTED,
            Self::TooMany { .. } => StatusCode::INVALID_ARGUMENT,
            Self::Compressed => StatusCode::UNIMPLEMENTED,
            Self::Cut | Self::Malformed => StatusCode::INTERNAL,
        };
        CallStatus::error(code, self)
    }
}

/// The messages of a request's body, one after the other.
#[derive(Debug)]
pub struct Messages<B> {
    body: B,
    received: BytesMut,
    bytes_max: usize,
}

impl<B: Body<Data = Bytes> + Unpin> Messages<B> {
    /// Reads messages of at most `bytes_max` bytes each.
    pub fn new(body: B, bytes_max: usize) -> Self {
        Self { body, received: BytesMut::new(), bytes_max }
    }

    /// The next message; `None` after the last one.
    pub async fn next(&mut self) -> Option<Result<EchoRequest, MessageError>> {
        loop {
            match self.take() {
                Ok(Some(message)) => return Some(EchoRequest::decode(&message)),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
            match poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.received.extend_from_slice(&data);
                    }
                }
                None if self.received.is_empty() => return None,
                Some(Err(_)) | None => return Some(Err(MessageError::Cut)),
            }
        }
    }

    /// Takes a message that has arrived as a whole.
    fn take(&mut self) -> Result<Option<Bytes>, MessageError> {
        let Some((&[flag, a, b, c, d], _)) = self.received.split_first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if flag != 0 {
            return Err(MessageError::Compressed);
        }
        if length > self.bytes_max {
            return Err(MessageError::TooLong { length, max: self.bytes_max });
        }
        if self.received.len() - PREFIX_BYTES < length {
            return Ok(None);
        }
        self.received.advance(PREFIX_BYTES);
        Ok(Some(self.received.split_to(length).freeze()))
    }
}

/// The request message of the echo service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EchoRequest {
    /// Bytes to return.
    pub payload: Bytes,
    /// Number of responses of `ServerStream`.
    pub count: u32,
}

/// The response message of the echo service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EchoResponse {
    /// The bytes of the request.
    pub payload: Bytes,
    /// Number of the response, from 1; of `ClientStream`, the number of requests.
    pub number: u32,
}

/// The tags of the fields: their number and type. The highest wire type of a message is that of bytes.
const PAYLOAD: u64 = 1 << 3 | BYTES;
const NUMBER: u64 = 2 << 3 | VARINT;
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

impl EchoRequest {
    /// Reads a message. Fields that it does not have are skipped.
    pub fn decode(message: &Bytes) -> Result<Self, MessageError> {
        let mut request = Self::default();
        let mut rest = message.clone();
        while !rest.is_empty() {
            let tag = varint(&mut rest)?;
            match tag {
                PAYLOAD => request.payload = bytes(&mut rest)?,
                NUMBER => {
                    request.count = u32::try_from(varint(&mut rest)?).map_err(|_| MessageError::Malformed)?;
                }
                other => skip(other & 7, &mut rest)?,
            }
        }
        Ok(request)
    }
}

impl EchoResponse {
    /// The frame of data that carries the message.
    pub fn frame(&self) -> Frame<Bytes> {
        let mut message = Vec::with_capacity(self.payload.len() + 2 * VARINT_BYTES_MAX);
        if !self.payload.is_empty() {
            push_varint(&mut message, PAYLOAD);
            push_varint(&mut message, self.payload.len() as u64);
            message.extend_from_slice(&self.payload);
        }
        push_varint(&mut message, NUMBER);
        push_varint(&mut message, u64::from(self.number));
        Frame::data(framed(&message))
    }
}

/// A message with its prefix.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], message].concat().into()
}

/// Maximum length of a number in base 128.
const VARINT_BYTES_MAX: usize = 10;

fn varint(rest: &mut Bytes) -> Result<u64, MessageError> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = rest.try_get_u8().map_err(|_| MessageError::Malformed)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(MessageError::Malformed)
}

fn push_varint(message: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        message.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    message.push(number.to_le_bytes()[0]);
}

fn bytes(rest: &mut Bytes) -> Result<Bytes, MessageError> {
    let length = usize::try_from(varint(rest)?).map_err(|_| MessageError::Malformed)?;
    if length > rest.len() {
        return Err(MessageError::Malformed);
    }
    Ok(rest.split_to(length))
}

fn skip(wire_type: u64, rest: &mut Bytes) -> Result<(), MessageError> {
    let length = match wire_type {
        VARINT => return varint(rest).map(drop),
        BYTES => return bytes(rest).map(drop),
        FIXED64 => 8,
        FIXED32 => 4,
        _ => return Err(MessageError::Malformed),
    };
    if length > rest.len() {
        return Err(MessageError::Malformed);
    }
    rest.advance(length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use proptest::prelude::*;

    use super::*;

    /// The messages of a body, read to the first error.
    async fn read(body: Vec<u8>, bytes_max: usize) -> (Vec<EchoRequest>, Option<MessageError>) {
        let mut messages = Messages::new(Full::from(body), bytes_max);
        let mut read = Vec::new();
        while let Some(message) = messages.next().await {
            match message {
                Ok(message) => read.push(message),
                Err(error) => return (read, Some(error)),
            }
        }
        (read, None)
    }

    fn data(frame: Frame<Bytes>) -> Bytes {
        frame.into_data().unwrap()
    }

    #[tokio::test]
    async fn a_response_is_read_as_a_request_of_the_same_numbers() {
        let responses = [1, 300, u32::MAX].map(|number| EchoResponse { payload: "text".into(), number });
        let body = responses.clone().map(|response| data(response.frame())).concat();
        let (read, error) = read(body, 100).await;
        let expected = responses.map(|it| EchoRequest { payload: it.payload, count: it.number });
        assert_eq!((read.as_slice(), error), (&expected[..], None));
    }

    #[tokio::test]
    async fn broken_messages_are_refused() {
        let long = MessageError::TooLong { length: 9, max: 8 };
        for (bytes, expected) in [
            (&[0, 0, 0, 0, 9][..], long),
            (&[1, 0, 0, 0, 0], MessageError::Compressed),
            (&[0, 0, 0], MessageError::Cut),
            (&[0, 0, 0, 0, 2, 8], MessageError::Cut),
            (&[0, 0, 0, 0, 2, 0x0a, 9], MessageError::Malformed),
            (&[0, 0, 0, 0, 1, 0x0b], MessageError::Malformed),
        ] {
            assert_eq!(read(bytes.to_vec(), 8).await, (vec![], Some(expected)), "{bytes:?}");
        }
    }

    #[test]
    fn a_status_is_told_in_printable_text() {
        let fields = CallStatus::error(StatusCode(14), "100 % \u{fc}ber\n").fields();
        assert_eq!(fields["grpc-status"], "14");
        assert_eq!(fields["grpc-message"], "100 %25 %C3%BCber%0A");
        assert!(!CallStatus::ok().fields().contains_key("grpc-message"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = EchoRequest::decode(&bytes.into());
        }

        #[test]
        fn unknown_fields_are_skipped(payload in "[a-z]{0,9}", unknown in any::<u64>()) {
            let mut message = Vec::new();
            push_varint(&mut message, 9 << 3 | VARINT);
            push_varint(&mut message, unknown);
            let known = data(EchoResponse { payload: payload.clone().into(), number: 7 }.frame());
            message.extend_from_slice(&known[PREFIX_BYTES..]);
            let request = EchoRequest::decode(&message.into());
            prop_assert_eq!(request, Ok(EchoRequest { payload: payload.into(), count: 7 }));
        }
    }
}
