//! Exchanges without the secrets that accounts send: no recording shows them, however they look and wherever
//! a provider repeats them.

use std::sync::Arc;

use egret_accounts::SecretPatterns;
use egret_har::observed::Captured;
use egret_har::recorder::decoded_body;

use crate::finished::{Parsed, RecordReader};
use crate::record::{Capture, ExchangeSide, RecordedExchange};

/// Maximum length of a decoded body. It is the same as in recordings.
const DECODED_BYTES_MAX: usize = 1 << 20;

/// Returns the exchange with its secrets masked, or `None` if it has none. A coded body with a secret becomes
/// one without a coding.
pub(crate) fn masked(
    exchange: &RecordedExchange,
    patterns: &Arc<SecretPatterns>,
    reader: &mut RecordReader,
) -> Option<RecordedExchange> {
    let text = exchange.masked_text(|text| patterns.masked(text));
    let parsed = reader.read(exchange);
    let bodies = ExchangeSide::ALL.map(|side| masked_body(side, exchange, parsed, patterns));
    if text.is_none() && bodies.iter().all(Option::is_none) {
        return None;
    }
    let mut masked = text.unwrap_or_else(|| exchange.copy([usize::MAX; 2]));
    for (side, body) in ExchangeSide::ALL.into_iter().zip(bodies) {
        let Some((bytes, coding)) = body else { continue };
        let capture = masked.body_mut(side);
        if coding.is_some() {
            let is_whole = capture.bytes.len() as u64 == capture.body_bytes;
            let len = bytes.len() as u64;
            capture.body_bytes = if is_whole { len } else { capture.body_bytes.max(len + 1) };
        }
        capture.bytes = bytes;
        for value in coding.into_iter().flatten() {
            masked.blank(side, value);
        }
    }
    Some(masked)
}

/// A masked body, and the values of `Content-Encoding` that are no longer true, if it was decoded.
type MaskedBody = (Vec<u8>, Option<Vec<egret_http1::Span>>);

fn masked_body(
    side: ExchangeSide,
    exchange: &RecordedExchange,
    parsed: Option<Parsed<'_>>,
    patterns: &Arc<SecretPatterns>,
) -> Option<MaskedBody> {
    let Capture { bytes, body_bytes, is_wanted } = exchange.body(side);
    if bytes.is_empty() {
        return None;
    }
    let (values, codings) = parsed.map(|parsed| parsed.codings(side)).unwrap_or_default();
    let is_whole = bytes.len() as u64 == *body_bytes;
    let captured = Captured { bytes, is_whole, is_wanted: *is_wanted };
    match decoded_body(&captured, &codings, DECODED_BYTES_MAX) {
        Some(decoded) => Some((masked_bytes(&decoded, patterns)?, Some(values))),
        None => Some((masked_bytes(bytes, patterns)?, None)),
    }
}

/// Masks secrets, also those in UTF-16 and UTF-32, whose zero bytes come between the letters.
fn masked_bytes(bytes: &[u8], patterns: &Arc<SecretPatterns>) -> Option<Vec<u8>> {
    let masked = patterns.masked(bytes);
    if !bytes.contains(&0) {
        return masked;
    }
    let before = masked.as_deref().unwrap_or(bytes);
    let places: Vec<usize> = (0..before.len()).filter(|at| before[*at] != 0).collect();
    let narrow: Vec<u8> = places.iter().map(|at| before[*at]).collect();
    let Some(narrow) = patterns.masked(&narrow) else { return masked };
    let mut wide = before.to_vec();
    for (at, byte) in places.into_iter().zip(narrow) {
        wide[at] = byte;
    }
    Some(wide)
}
