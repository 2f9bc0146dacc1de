//! HTTP/2 and gRPC of the lab's provider: the connections of a server that can end a stream or a connection
//! as badly as it is asked to, and the messages of a small gRPC service.
//!
//! The crate `h2` has the frames and the states of streams. The gateway uses the same crate, so scenarios
//! also call Egret with other implementations.

mod body;
mod connection;
pub mod grpc;

pub use body::RequestBody;
pub use connection::{Cut, StreamReply, serve};
pub use h2::Error as ConnectionError;
