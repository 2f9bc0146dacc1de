//! HTTP/1.1 message syntax over bytes: heads, framing, edits and bodies.
//!
//! The crate does no I/O and makes no policy decisions. A head is a table of offsets into the received bytes
//! ([`RequestHead`], [`ResponseHead`]), and its changes are a list ([`Edits`]); both are sent together with
//! one vectored write. [`BodyDecoder`] walks bodies in place and returns spans of body data.
//!
//! It is deliberately strict: a message that two implementations could read differently is rejected, never
//! repaired (RFC 9112 §11.2). Each rule is a variant of [`HeadError`] or [`BodyError`].
//!
//! ```
//! use egret_http1::{BodyDecoder, Edits, HeadLimits, Progress, RequestHead};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let received = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi";
//! let mut head = RequestHead::new();
//! assert_eq!(head.parse(received, &HeadLimits::default())?, Progress::Complete);
//!
//! let mut edits = Edits::new();
//! edits.remove_hop_by_hop(&head.fields);
//! edits.insert("via", b"1.1 egret");
//! let sent = head.render(received, &edits).to_vec();
//! assert_eq!(sent, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nvia: 1.1 egret\r\n\r\n");
//!
//! let mut body = BodyDecoder::from(head.framing);
//! let mut spans = Vec::new();
//! let rest = &received[head.len..];
//! assert_eq!(body.decode(rest, &mut spans)?, 2);
//! assert_eq!(spans[0].of(rest), b"hi");
//! assert!(body.is_done());
//! # Ok(())
//! # }
//! ```

mod body;
mod edits;
mod head;
mod span;
mod status;
mod syntax;

pub use body::{
    BodyDecoder, BodyError, ChunkHead, LAST_CHUNK, MAX_CHUNK_EXTENSIONS, MAX_TRAILER_BYTES,
    MAX_TRAILER_FIELDS, TrailerNames, chunk_head,
};
pub use edits::{Edits, Rendering};
pub use head::{
    AuthoritySpan, Field, HeadError, HeadLimits, KnownField, MAX_CONNECTION_OPTIONS, MAX_FIELDS, MAX_HEAD,
    MAX_METHOD, Method, Progress, RequestFraming, RequestHead, ResponseFraming, ResponseHead, TargetForm,
    Version,
};
pub use span::Span;
pub use status::reason;
pub use syntax::{
    decimal, is_field_value, is_target, is_token, is_white_space, list, push_decimal, token_len, trim,
};
