//! Content codings (RFC 9110 §8.4.1), taken off as their bytes arrive: gzip, deflate, br and zstd.
//!
//! A decoder takes the pieces of a body in order, however they are cut, and passes on what they decode to in
//! pieces of at most 16 KiB. Its memory has a bound, and a receiver that has enough stops it.

mod brotli;
mod deflate;
mod gzip;
mod part;
mod passing;
mod receiver;
mod zstd;

use std::fmt;

use brotli::Brotli;
use deflate::Deflate;
use gzip::Gzip;
use receiver::Receiver;
use zstd::Zstd;

pub use passing::PassingDecoder;
pub use receiver::DecodeError;

/// Maximum number of codings of one body. Even two are rare.
pub const CODINGS_MAX: usize = 4;

/// Maximum length of a decoded piece.
const PIECE_BYTES: usize = 16 << 10;

/// Takes one content coding off a body.
pub struct Decoder {
    state: DecodingState,
    piece: Box<[u8]>,
}

enum DecodingState {
    Gzip(Gzip),
    Deflate(Deflate),
    Brotli(Box<Brotli>),
    Zstd(Box<Zstd>),
}

/// Shows nothing of the content.
impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decoder")
    }
}

impl Decoder {
    /// Returns a decoder for the coding of that name. Returns `None` if it is unknown.
    pub fn of(coding: &[u8]) -> Option<Self> {
        let state = match &*coding.to_ascii_lowercase() {
            b"gzip" | b"x-gzip" => DecodingState::Gzip(Gzip::default()),
            b"deflate" => DecodingState::Deflate(Deflate::default()),
            b"br" => DecodingState::Brotli(Box::default()),
            b"zstd" => DecodingState::Zstd(Box::default()),
            _ => return None,
        };
        Some(Self { state, piece: vec![0; PIECE_BYTES].into() })
    }

    /// Decodes the next bytes of the body, and passes all that they decode to on to `take`. Bytes behind the
    /// end of the coded data are ignored, except that gzip and zstd may begin again there.
    pub fn push(&mut self, bytes: &[u8], take: &mut Receiver<'_>) -> Result<(), DecodeError> {
        let Self { state, piece } = self;
        match state {
            DecodingState::Gzip(gzip) => gzip.push(bytes, piece, take),
            DecodingState::Deflate(deflate) => deflate.push(bytes, piece, take),
            DecodingState::Brotli(brotli) => brotli.push(bytes, piece, take),
            DecodingState::Zstd(zstd) => zstd.push(bytes, piece, take),
        }
    }

    /// Returns `true` if the coded data may end here: its end was reached, or there was none at all.
    pub fn is_complete(&self) -> bool {
        match &self.state {
            DecodingState::Gzip(gzip) => gzip.is_complete(),
            DecodingState::Deflate(deflate) => deflate.is_complete(),
            DecodingState::Brotli(brotli) => brotli.is_complete(),
            DecodingState::Zstd(zstd) => zstd.is_complete(),
        }
    }

    /// Returns an upper bound of the memory in use, in bytes.
    pub fn held_bytes(&self) -> usize {
        let state = match &self.state {
            DecodingState::Gzip(_) | DecodingState::Deflate(_) => deflate::STATE_BYTES,
            DecodingState::Brotli(brotli) => brotli.held_bytes(),
            DecodingState::Zstd(zstd) => zstd.held_bytes(),
        };
        PIECE_BYTES + state
    }
}

/// Takes all content codings off a body.
#[derive(Debug)]
pub struct ContentDecoder(Vec<Decoder>);

impl ContentDecoder {
    /// Returns a decoder for a list of codings, as in `Content-Encoding`, in the order in which they were
    /// applied. Returns `None` if one of them is unknown, or if there are more than [`CODINGS_MAX`].
    pub fn of(codings: &[u8]) -> Option<Self> {
        let mut decoders =
            listed(codings).take(CODINGS_MAX + 1).map(Decoder::of).collect::<Option<Vec<_>>>()?;
        decoders.reverse();
        (decoders.len() <= CODINGS_MAX).then_some(Self(decoders))
    }

    /// Decodes the next bytes of the body, and passes what they decode to on to `take`.
    pub fn push(&mut self, bytes: &[u8], take: &mut Receiver<'_>) -> Result<(), DecodeError> {
        push_through(&mut self.0, bytes, take)
    }

    /// Returns an upper bound of the memory in use, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.0.iter().map(Decoder::held_bytes).sum()
    }
}

/// Pushes `bytes` through the decoders, the outermost coding first.
fn push_through(decoders: &mut [Decoder], bytes: &[u8], take: &mut Receiver<'_>) -> Result<(), DecodeError> {
    match decoders.split_first_mut() {
        None if bytes.is_empty() => Ok(()),
        None => take(bytes),
        Some((outer, inner)) => outer.push(bytes, &mut |piece| push_through(inner, piece, take)),
    }
}

/// Returns the codings of a list other than `identity`.
pub fn listed(codings: &[u8]) -> impl Iterator<Item = &[u8]> {
    let codings = codings.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    codings.filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}

#[cfg(test)]
mod tests;
