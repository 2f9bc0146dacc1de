//! One line of the table of fields.

use super::known::KnownField;
use crate::span::Span;

/// One field line of a head.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// The name, as sent.
    pub name: Span,
    /// The value, without surrounding white space; may be empty and may hold bytes above 0x7f.
    pub value: Span,
    /// The known field with this name.
    pub known: KnownField,
    /// `true` if the field must not be forwarded: it is hop-by-hop (RFC 9110 §7.6.1), `Connection` nominates
    /// it, or the message must not have it (a length without a body).
    pub hop_by_hop: bool,
    /// Offset after the line's CRLF.
    pub(crate) line_end: u32,
}
