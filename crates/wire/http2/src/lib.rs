//! HTTP/2 (RFC 9113) over the event loop.
//!
//! Each stream looks like a connection of HTTP/1.1 that carries one exchange. So the strict parser of
//! HTTP/1.1 judges every message, and what it refuses cannot be smuggled in through HTTP/2.
//!
//! From the lowest: `frame` and `hpack` are the bytes of a connection, `gate` and `windows` its bounds,
//! `table` its streams. `received`, `request`, `response` and `outgoing` translate messages. `state` is what
//! the streams of a connection share, `receive` what frames change in it, and `connection` moves its bytes.
//! The others are the handles of both sides.

mod body;
mod call;
mod client;
mod connection;
mod frame;
mod gate;
mod hpack;
mod lost;
mod outgoing;
mod output;
#[doc(hidden)]
pub mod parts;
mod receive;
mod received;
mod request;
mod response;
mod scratch;
mod server;
mod state;
mod stream;
mod table;
mod websocket;
mod windows;

pub use body::BodyFraming;
pub use call::{ClientStream, NoResponse};
pub use client::{ClientConnection, ConnectionEnd, Streams};
pub use gate::Flood;
pub use lost::Lost;
pub use output::Data;
pub use received::MessageRefusal;
pub use request::RequestText;
pub use response::ResponseText;
pub use server::{Arrived, ServerConnection, is_preface};
pub use state::{Bounds, Gone};
pub use stream::ServerStream;
pub use websocket::{is_websocket_accepted, websocket_accept, websocket_key};
