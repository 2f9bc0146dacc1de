//! The names of fields, as far as the code knows them.

use egret_http1::{KnownField, is_token};

/// The name of a field in HTTP/2. It is found once, when the name arrives, and kept in the tables.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldName {
    /// `:authority`
    Authority,
    /// `:method`
    Method,
    /// `:path`
    Path,
    /// `:protocol` (RFC 8441 §4)
    Protocol,
    /// `:scheme`
    Scheme,
    /// `:status`
    Status,
    /// Any other name that begins with a colon. No message has such a field (RFC 9113 §8.3).
    UnknownPseudo,
    /// Empty, with an upper-case letter or another byte that no name has. The message is malformed
    /// (RFC 9113 §8.2.1).
    Malformed,
    /// The valid name of an ordinary field.
    Field(KnownField),
}

impl FieldName {
    /// Returns the meaning of a name as a peer sends it.
    pub(super) fn of(name: &[u8]) -> Self {
        let is_pseudo = name.starts_with(b":");
        if is_pseudo || (is_token(name) && !name.iter().any(u8::is_ascii_uppercase)) {
            Self::of_valid(name)
        } else {
            Self::Malformed
        }
    }

    /// Returns the meaning of a name that is a token in lower case, maybe after a colon.
    #[inline]
    pub(super) fn of_valid(name: &[u8]) -> Self {
        match name {
            b":authority" => Self::Authority,
            b":method" => Self::Method,
            b":path" => Self::Path,
            b":protocol" => Self::Protocol,
            b":scheme" => Self::Scheme,
            b":status" => Self::Status,
            [b':', ..] => Self::UnknownPseudo,
            _ => Self::Field(KnownField::of(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_or_malformed() {
        for (name, known) in [
            (&b":path"[..], FieldName::Path),
            (b":protocol", FieldName::Protocol),
            (b":Path", FieldName::UnknownPseudo),
            (b":", FieldName::UnknownPseudo),
            (b"content-length", FieldName::Field(KnownField::ContentLength)),
            (b"x-own", FieldName::Field(KnownField::Other)),
            (b"", FieldName::Malformed),
            (b"Content-Length", FieldName::Malformed),
            (b"content\rlength", FieldName::Malformed),
            (b"te ", FieldName::Malformed),
            (b"te:", FieldName::Malformed),
        ] {
            assert_eq!(FieldName::of(name), known, "{name:?}");
        }
    }
}
