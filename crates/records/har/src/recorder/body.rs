//! Writes the kept part of a body: as text if possible, or else as Base64.

use std::borrow::Cow;

use serde_json::Value;

use super::characters::utf8_or_latin1;
use super::coding::{Decoded, decode, is_coded};
use super::completeness::Completeness;
use crate::charset::{self, Charset};
use crate::har::{Content, Extra, Param, PostData};
use crate::media::{self, Syntax};
use crate::multipart::{self, FormPart};
use crate::observed::Captured;
use crate::{base64, parameters};

/// Maximum decoded size of a compressed body, regardless of the size that was kept.
const DECODED_BYTES_MAX: usize = 1 << 20;

/// A kept body with the header fields that describe it.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptBody<'a> {
    pub(super) captured: Captured<'a>,
    /// Media type as in the header.
    pub(super) media_type: &'a str,
    /// Content codings, as in the header.
    pub(super) codings: &'a [u8],
    /// Size of the body as it was sent.
    pub(super) body_bytes: u64,
}

/// Returns the body of a response for its entry.
pub(super) fn content(kept: &KeptBody<'_>) -> (Content, Completeness) {
    let decoded = decoded_body(kept);
    let whole = (decoded.completeness == Completeness::Whole).then_some(decoded.bytes.len());
    let (sent, size) = (signed(kept.body_bytes), whole.and_then(|bytes| i64::try_from(bytes).ok()));
    let is_coded = is_coded(kept.codings);
    let mut content = Content {
        size: if is_coded { size.unwrap_or(-1) } else { sent },
        compression: size.filter(|_| is_coded).map(|size| size - sent),
        mime_type: kept.media_type.to_owned(),
        extra: marks(decoded.completeness),
        ..Content::default()
    };
    let (text, is_base64) = written(&decoded.bytes, kept.media_type, decoded.completeness);
    content.text = Some(text.into_owned());
    content.encoding = is_base64.then(|| "base64".to_owned());
    (content, decoded.completeness)
}

/// Returns the body of a request for its entry.
pub(super) fn post_data(kept: &KeptBody<'_>) -> (PostData, Completeness) {
    let decoded = decoded_body(kept);
    let (text, is_base64) = written(&decoded.bytes, kept.media_type, decoded.completeness);
    let params = match media::syntax(kept.media_type) {
        Syntax::Form if !is_base64 => Some(form(&text)),
        Syntax::Multipart(boundary) => multipart::parts(&decoded.bytes, &boundary).map(|parts| files(&parts)),
        _ => None,
    };
    let mut extra = marks(decoded.completeness);
    if is_base64 {
        extra.insert("_encoding".to_owned(), Value::from("base64"));
    }
    let mime_type = kept.media_type.to_owned();
    let text = Some(text.into_owned());
    (PostData { mime_type, params, text, extra, ..PostData::default() }, decoded.completeness)
}

/// Decodes the body as far as possible.
fn decoded_body<'a>(kept: &KeptBody<'a>) -> Decoded<'a> {
    decode(kept.captured.bytes, kept.captured.is_whole, kept.codings, DECODED_BYTES_MAX)
}

/// Returns the completeness of a body. Marks it as malformed if it should be JSON and `is_json` is false.
pub(super) fn judge(
    completeness: Completeness,
    kept: &KeptBody<'_>,
    text: Option<&String>,
    is_json: bool,
    extra: &mut Extra,
) -> Completeness {
    let is_text = completeness == Completeness::Whole && text.is_some_and(|text| !text.is_empty());
    if !is_text || is_json || media::syntax(kept.media_type) != Syntax::Json {
        return completeness;
    }
    extra.extend(marks(Completeness::Malformed));
    Completeness::Malformed
}

/// Converts a length. One that does not fit is written as the maximum.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn marks(completeness: Completeness) -> Extra {
    let mark = (completeness != Completeness::Whole)
        .then(|| (format!("_{}", completeness.word()), Value::from(true)));
    mark.into_iter().collect()
}

/// Returns the body as text, and `true` if that is Base64.
fn written<'a>(bytes: &'a [u8], media_type: &str, completeness: Completeness) -> (Cow<'a, str>, bool) {
    if completeness != Completeness::Coded
        && let Some(text) =
            text(bytes, media_type, matches!(completeness, Completeness::Truncated | Completeness::Corrupt))
    {
        return (text, false);
    }
    let mut text = Vec::new();
    base64::encode(bytes, &mut text);
    (Cow::Owned(String::from_utf8(text).unwrap_or_default()), true)
}

/// Decodes a body in its charset, if that is known and the body is valid in it. A body without a charset is
/// read as UTF-8.
fn text<'a>(bytes: &'a [u8], media_type: &str, is_cut: bool) -> Option<Cow<'a, str>> {
    if let Some(text) = charset::utf_16(bytes, media_type, is_cut) {
        return Some(Cow::Owned(text));
    }
    match charset::of(media_type) {
        Charset::Utf8 => match std::str::from_utf8(bytes) {
            Ok(text) => Some(Cow::Borrowed(text)),
            // The body is cut off within a character.
            Err(error) if is_cut && error.error_len().is_none() => {
                std::str::from_utf8(&bytes[..error.valid_up_to()]).ok().map(Cow::Borrowed)
            }
            Err(_) => None,
        },
        Charset::Latin1 => Some(Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect())),
        Charset::Utf16(_) | Charset::AsciiBased | Charset::Other => None,
    }
}

/// Parses the parameters of a form, decoded.
fn form(text: &str) -> Vec<Param> {
    let parts = text.split('&').filter(|part| !part.is_empty());
    let pairs = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    let text = |encoded: &str| utf8_or_latin1(&parameters::decode(encoded, true)).into_owned();
    pairs
        .map(|(name, value)| Param { name: text(name), value: Some(text(value)), ..Param::default() })
        .collect()
}

/// Parses the fields and files of a multipart form. A part that is not text gets no value.
fn files(parts: &[FormPart<'_>]) -> Vec<Param> {
    let param = |part: &FormPart<'_>| {
        let field = |wanted: &str| {
            let field = part.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            field.map_or("", |(_, value)| *value)
        };
        let disposition = |wanted: &str| {
            media::parameters(field("content-disposition"))
                .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
                .map(|(_, value)| value)
        };
        let media_type = Some(field("content-type")).filter(|media_type| !media_type.is_empty());
        Param {
            name: disposition("name").unwrap_or_default(),
            value: std::str::from_utf8(part.content).ok().map(str::to_owned),
            file_name: disposition("filename"),
            content_type: media_type.map(str::to_owned),
            ..Param::default()
        }
    };
    parts.iter().map(param).collect()
}
