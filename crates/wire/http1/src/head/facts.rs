//! The meaning of the fields for the connection and the body, gathered in the pass that turns the field lines
//! into offsets.

use super::connection::ConnectionOptions;
use super::diagnose;
use super::error::HeadError;
use super::fields::Field;
use super::framing::check_transfer_encoding;
use super::known::KnownField;
use super::limits::HeadLimits;
use super::repeated::RepeatedLines;
use super::version::Version;
use crate::span::{Span, to_u32};
use crate::syntax::{
    CRLF, decimal, find_colon, find_control, is_token, list, token_len, trim_end, trim_start,
};

/// The combined meaning of the fields of a head.
#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is one fact, and they are independent")]
pub(super) struct Facts {
    pub host: Option<Span>,
    pub content_length: Option<u64>,
    pub chunked: bool,
    pub connection: ConnectionOptions,
    pub has_upgrade: bool,
    pub te_trailers: bool,
    pub expect_continue: bool,
    pub keep_alive_timeout_s: Option<u32>,
    pub keep_alive_max: Option<u32>,
}

impl Facts {
    /// Parses the field lines of `window` from offset `start` up to the empty line that ends the head, into
    /// `fields`, and checks every rule that concerns fields alone. `repeated` has lines of heads before.
    /// Returns their meaning and the end of the head, or `None` if the head continues beyond `window`.
    #[inline]
    pub fn read(
        window: &[u8],
        start: usize,
        version: Version,
        limits: &HeadLimits,
        repeated: Option<&mut RepeatedLines>,
        fields: &mut Vec<Field>,
    ) -> Result<Option<(Self, usize)>, HeadError> {
        fields.clear();
        if let Some(lines) = &repeated
            && let Some(found) = lines.find_all(window, start, version, limits, fields)
        {
            return Ok(Some(found));
        }
        let mut facts = Self::default();
        let end = facts.read_lines(window, start, version, limits, repeated, fields)?;
        Ok(end.map(|end| (facts, end)))
    }

    /// Parses the field lines one by one.
    fn read_lines(
        &mut self,
        window: &[u8],
        start: usize,
        version: Version,
        limits: &HeadLimits,
        mut repeated: Option<&mut RepeatedLines>,
        fields: &mut Vec<Field>,
    ) -> Result<Option<usize>, HeadError> {
        let mut at = start;
        let mut all_repeated = true;
        loop {
            match &window[at..] {
                [b'\r', b'\n', ..] => break,
                [] | [b'\r'] => return Ok(None),
                _ if fields.len() == limits.max_fields() => return Err(HeadError::TooManyFields),
                _ => {}
            }
            let number = fields.len();
            let known = repeated.as_deref().and_then(|lines| lines.find(number, window, at));
            let field = if let Some(field) = known {
                field
            } else {
                let Some(field) = read_line(window, at)? else { return Ok(None) };
                if let Some(lines) = repeated.as_deref_mut() {
                    lines.note(number, window, at, field);
                }
                all_repeated = false;
                field
            };
            fields.push(field);
            self.record(&field, window, version)?;
            at = field.line_end as usize;
        }
        if self.chunked && self.content_length.is_some() {
            return Err(HeadError::LengthAndTransferEncoding);
        }
        self.connection.mark_nominated(window, fields);
        let end = at + CRLF.len();
        if let Some(lines) = repeated {
            if all_repeated {
                lines.note_all(&window[..end], start, version, self, fields);
            } else {
                lines.forget_all();
            }
        }
        Ok(Some(end))
    }

    /// Records the meaning of a `field` of `window`.
    #[inline]
    fn record(&mut self, field: &Field, window: &[u8], version: Version) -> Result<(), HeadError> {
        match field.known {
            KnownField::Host => set_once(&mut self.host, field.value, HeadError::RepeatedHost),
            KnownField::ContentLength => {
                let length = decimal(field.value.of(window)).ok_or(HeadError::ContentLength)?;
                set_once(&mut self.content_length, length, HeadError::RepeatedContentLength)
            }
            KnownField::Connection => self.connection.read(field.value.of(window)),
            KnownField::TransferEncoding
            | KnownField::Upgrade
            | KnownField::Te
            | KnownField::Expect
            | KnownField::KeepAlive => self.record_rare(field.known, field.value.of(window), version),
            _ => Ok(()),
        }
    }

    /// Records fields that few heads have; a separate function, so the registers stay free for the common
    /// ones.
    #[inline(never)]
    fn record_rare(&mut self, known: KnownField, value: &[u8], version: Version) -> Result<(), HeadError> {
        match known {
            KnownField::TransferEncoding => self.record_transfer_encoding(value, version)?,
            KnownField::Upgrade => self.has_upgrade = true,
            KnownField::Te => {
                self.te_trailers |= list(value).any(|member| member.eq_ignore_ascii_case(b"trailers"));
            }
            KnownField::Expect => self.expect_continue |= value.eq_ignore_ascii_case(b"100-continue"),
            KnownField::KeepAlive => self.record_keep_alive(value),
            _ => {}
        }
        Ok(())
    }

    fn record_transfer_encoding(&mut self, value: &[u8], version: Version) -> Result<(), HeadError> {
        if version == Version::Http10 {
            return Err(HeadError::TransferEncodingInHttp10);
        }
        if std::mem::replace(&mut self.chunked, true) {
            return Err(HeadError::RepeatedTransferEncoding);
        }
        check_transfer_encoding(value)
    }

    /// Parses `Keep-Alive: timeout=5, max=100`; other parameters are ignored.
    fn record_keep_alive(&mut self, value: &[u8]) {
        for parameter in list(value) {
            let Some(equals) = parameter.iter().position(|&byte| byte == b'=') else { continue };
            let number = decimal(&parameter[equals + 1..]).and_then(|number| u32::try_from(number).ok());
            if parameter[..equals].eq_ignore_ascii_case(b"timeout") {
                self.keep_alive_timeout_s = number;
            } else if parameter[..equals].eq_ignore_ascii_case(b"max") {
                self.keep_alive_max = number;
            }
        }
    }

    /// Returns `true` if the message asks for another protocol, or agrees to it (RFC 9110 §7.8).
    pub fn upgrade(&self, version: Version) -> bool {
        version == Version::Http11 && self.has_upgrade && self.connection.upgrade
    }
}

/// Parses the field line of `window` at offset `at`. Returns `None` if the line continues beyond `window`. A
/// function of its own, so the registers stay free for the lines that need not be parsed.
#[inline(never)]
pub(super) fn read_line(window: &[u8], at: usize) -> Result<Option<Field>, HeadError> {
    let rest = &window[at..];
    let Some(name_len) = find_colon(rest) else {
        return if token_len(rest) == rest.len() { Ok(None) } else { malformed(window, at) };
    };
    let (name, after) = rest.split_at(name_len);
    let known = KnownField::of(name);
    // A known name without control characters is a token.
    if after[0] != b':' || (known == KnownField::Other && !is_token(name)) {
        return malformed(window, at);
    }
    let text = trim_start(&after[1..]);
    let Some(text_len) = find_control(text) else { return Ok(None) };
    match &text[text_len..] {
        [b'\r', b'\n', ..] => {}
        [b'\r'] => return Ok(None),
        _ => return malformed(window, at),
    }
    let value_start = window.len() - text.len();
    let value = trim_end(&text[..text_len]);
    Ok(Some(Field {
        name: Span { start: to_u32(at), end: to_u32(at + name_len) },
        value: Span { start: to_u32(value_start), end: to_u32(value_start + value.len()) },
        known,
        hop_by_hop: known.is_hop_by_hop(),
        line_end: to_u32(value_start + text_len + CRLF.len()),
    }))
}

/// Sets a value that may occur only once.
fn set_once<T>(slot: &mut Option<T>, value: T, error: HeadError) -> Result<(), HeadError> {
    if slot.replace(value).is_some() { Err(error) } else { Ok(()) }
}

/// Returns the error for the malformed field line at `at`.
#[cold]
fn malformed<T>(window: &[u8], at: usize) -> Result<T, HeadError> {
    Err(diagnose::field_line(&window[..at], &window[at..]))
}
