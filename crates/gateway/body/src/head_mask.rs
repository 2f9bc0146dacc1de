//! Masks the secrets of an account in the head of a response.

use std::sync::Arc;

use egret_accounts::SecretPatterns;
use egret_http1::{KnownField, ResponseHead, Span};

/// Masks field values and the reason phrase of `response`, which was parsed from `bytes`. Fields that frame
/// the message stay.
pub fn mask_fields(response: &ResponseHead, bytes: &mut [u8], patterns: &Arc<SecretPatterns>) {
    let mut mask = |span: Span| patterns.mask(&mut bytes[span.range()]);
    mask(response.reason);
    for field in &response.fields {
        if !matches!(field.known, KnownField::ContentLength | KnownField::TransferEncoding) {
            mask(field.value);
        }
    }
}
