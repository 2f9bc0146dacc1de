//! Field lines: classified once, in the pass that turns them into offsets.

use super::connection::Connection;
use super::framing::check_transfer_encoding;
use super::{HeadError, KnownField, Version};
use crate::Span;
use crate::syntax::{decimal, list};

/// One field line of a head.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// The name, as sent.
    pub name: Span,
    /// The value, without the white space around it; may be empty and may hold bytes above 0x7f.
    pub value: Span,
    /// Which field it is.
    pub known: KnownField,
    /// Whether it must not be forwarded: it is for this connection only (RFC 9110 §7.6.1), `Connection` nominates it,
    /// or the message must not have it (a length where there is no body).
    pub hop_by_hop: bool,
    /// Offset after the line's CRLF.
    pub(crate) line_end: u32,
}

/// What the fields of a head say together.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is one fact, and they are independent")]
pub(super) struct Facts {
    pub host: Option<Span>,
    pub content_length: Option<u64>,
    pub chunked: bool,
    pub connection: Connection,
    pub has_upgrade: bool,
    pub te_trailers: bool,
    pub expect_continue: bool,
    pub keep_alive_timeout_s: Option<u32>,
    pub keep_alive_max: Option<u32>,
}

impl Facts {
    /// Turns parsed `headers` into `fields`; `head` is the whole head. Checks the line ends that httparse lets pass, and
    /// every rule that concerns fields alone.
    pub fn read(
        head: &[u8],
        headers: &[httparse::Header<'_>],
        version: Version,
        fields: &mut Vec<Field>,
    ) -> Result<Self, HeadError> {
        let mut facts = Self::default();
        // Every field is set below, so those of the last head need not be cleared.
        fields.resize(headers.len(), Field::default());
        check_line_end(head, head.len())?;
        for (at, (header, field)) in headers.iter().zip(fields.iter_mut()).enumerate() {
            // A line ends where the next name starts, and the last one before the CRLF that ends the head.
            let line_end =
                headers.get(at + 1).map_or(head.len() - 2, |next| offset(head, next.name.as_bytes()));
            check_line_end(head, line_end)?;
            let known = KnownField::of(header.name.as_bytes());
            *field = Field {
                name: span(head, header.name.as_bytes()),
                value: span(head, header.value),
                known,
                hop_by_hop: known.is_hop_by_hop(),
                line_end: narrow(line_end),
            };
            facts.note(field, header.value, version)?;
        }
        if facts.chunked && facts.content_length.is_some() {
            return Err(HeadError::LengthAndTransferEncoding);
        }
        facts.connection.mark_nominated(head, fields);
        Ok(facts)
    }

    fn note(&mut self, field: &Field, value: &[u8], version: Version) -> Result<(), HeadError> {
        match field.known {
            KnownField::Host => set_once(&mut self.host, field.value, HeadError::RepeatedHost)?,
            KnownField::ContentLength => {
                let length = decimal(value).ok_or(HeadError::ContentLength)?;
                set_once(&mut self.content_length, length, HeadError::RepeatedContentLength)?;
            }
            KnownField::TransferEncoding => self.note_transfer_encoding(value, version)?,
            KnownField::Connection => self.connection.read(value)?,
            KnownField::Upgrade => self.has_upgrade = true,
            KnownField::Te => {
                self.te_trailers |= list(value).any(|member| member.eq_ignore_ascii_case(b"trailers"));
            }
            KnownField::Expect => self.expect_continue |= value.eq_ignore_ascii_case(b"100-continue"),
            KnownField::KeepAlive => self.note_keep_alive(value),
            _ => {}
        }
        Ok(())
    }

    fn note_transfer_encoding(&mut self, value: &[u8], version: Version) -> Result<(), HeadError> {
        if version == Version::Http10 {
            return Err(HeadError::TransferEncodingInHttp10);
        }
        if std::mem::replace(&mut self.chunked, true) {
            return Err(HeadError::RepeatedTransferEncoding);
        }
        check_transfer_encoding(value)
    }

    /// `Keep-Alive: timeout=5, max=100`; whatever else it says is not of interest.
    fn note_keep_alive(&mut self, value: &[u8]) {
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

    /// Whether the message asks for another protocol, or agrees to it (RFC 9110 §7.8).
    pub fn upgrade(&self, version: Version) -> bool {
        version == Version::Http11 && self.has_upgrade && self.connection.upgrade
    }
}

/// Sets what may be set once only.
fn set_once<T>(place: &mut Option<T>, value: T, error: HeadError) -> Result<(), HeadError> {
    if place.replace(value).is_some() { Err(error) } else { Ok(()) }
}

/// Checks that the line that ends at offset `end` ends in CRLF: httparse takes LF alone.
#[inline]
pub(super) fn check_line_end(head: &[u8], end: usize) -> Result<(), HeadError> {
    if head[..end].ends_with(b"\r\n") { Ok(()) } else { Err(HeadError::BareLineFeed) }
}

/// An offset into a head.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a head is at most MAX_HEAD bytes long")]
fn narrow(offset: usize) -> u32 {
    offset as u32
}

/// Where `part`, a slice of `head`, starts in it.
#[inline]
fn offset(head: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr().wrapping_sub(head.as_ptr().addr())
}

/// `part`, a slice of `head`, as a span.
#[inline]
pub(super) fn span(head: &[u8], part: &[u8]) -> Span {
    let start = narrow(offset(head, part));
    Span { start, end: start.wrapping_add(narrow(part.len())) }
}
