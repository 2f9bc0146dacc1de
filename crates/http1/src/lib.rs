//! HTTP/1.1 message syntax over bytes: heads, framing, edits and bodies.
//!
//! The crate does no I/O and knows no policy. A head is a table of offsets into the bytes received
//! ([`RequestHead`], [`ResponseHead`]); what is to change in it is a list ([`Edits`]); both together are written
//! with one vectored write. Bodies are walked in place by [`BodyDecoder`], which hands out spans of body data.
//!
//! It is strict on purpose: a message that two implementations could read differently is refused, never repaired
//! (RFC 9112 §11.2). Each rule is a variant of [`HeadError`] or [`BodyError`].

mod body;
mod edits;
mod head;
mod span;
mod syntax;

pub use body::{
    BodyDecoder, BodyError, ChunkHead, LAST_CHUNK, MAX_CHUNK_EXTENSIONS, MAX_TRAILER_BYTES,
    MAX_TRAILER_FIELDS, TrailerNames, chunk_head,
};
pub use edits::{Edits, Slices};
pub use head::{
    Authority, Field, HeadError, HeadLimits, KnownField, MAX_CONNECTION_OPTIONS, MAX_FIELDS, MAX_HEAD,
    MAX_METHOD, Method, Progress, RequestFraming, RequestHead, ResponseFraming, ResponseHead, TargetForm,
    Version,
};
pub use span::Span;
