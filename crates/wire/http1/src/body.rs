//! Message bodies: their framing, data, chunks and trailers (RFC 9112 §6, §7).

mod chunk;
mod decoder;
mod error;
mod trailers;

pub use chunk::{ChunkHead, LAST_CHUNK, MAX_CHUNK_EXTENSIONS, chunk_head};
pub use decoder::BodyDecoder;
pub use error::BodyError;
pub use trailers::{MAX_TRAILER_BYTES, MAX_TRAILER_FIELDS, TrailerNames};
