//! HTTP/2 (RFC 9113) over the event loop: a seam over the crate `h2`, which no other crate sees.
//!
//! `h2` has the frames, the compression of fields, the states of streams and their flow control. Here are
//! the bounds that it lacks, and the translation: each stream looks like a connection of HTTP/1.1 that
//! carries one exchange. So the strict parser of HTTP/1.1 judges every message, and what it refuses cannot be
//! smuggled in through HTTP/2.

mod body;
mod call;
mod client;
mod gate;
mod lost;
mod outgoing;
mod request;
mod response;
mod server;
mod stream;
mod transport;
mod unsent;
mod websocket;
mod windows;

pub use call::{ClientStream, NoResponse};
pub use client::{ClientConnection, ConnectionEnd, Streams};
pub use gate::Flood;
pub use lost::Lost;
pub use outgoing::{OutgoingRequest, outgoing_request};
pub use request::{BodyFraming, RequestText, request_text};
pub use response::{ResponseText, Untranslatable, response, response_text, trailer_map};
pub use server::{Arrived, Bounds, ServerConnection, is_preface};
pub use stream::ServerStream;
pub use unsent::Gone;
pub use websocket::{is_websocket_accepted, websocket_accept, websocket_key};
