//! The rules that all received fields have to keep (RFC 9113 §8.2), and trailers as lines of HTTP/1.1.

use egret_http1::{HeadError, KnownField, decimal};
use thiserror::Error;

use crate::hpack::{Field, FieldList, FieldName, ValueForm};

/// The reason why a received message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageRefusal {
    /// It is malformed: its stream is reset (RFC 9113 §8.1.1).
    #[error("a message is malformed")]
    Malformed,
    /// It breaks a rule that its sender can be told in a response.
    #[error("{0}")]
    Head(#[from] HeadError),
}

/// Returns the known field that a field is, unless it breaks a rule that holds for requests, responses and
/// trailers: it is a pseudo-field, it is about the connection, or its name or value have no form in HTTP/1.1.
#[inline]
pub(crate) fn checked(field: &Field<'_>) -> Result<KnownField, MessageRefusal> {
    let FieldName::Field(known) = field.known else { return Err(MessageRefusal::Malformed) };
    match field.form {
        _ if is_about_connection(known) => Err(MessageRefusal::Malformed),
        ValueForm::Plain => Ok(known),
        ValueForm::Surrounded => Err(HeadError::SurroundedValue.into()),
        ValueForm::Invalid => Err(MessageRefusal::Malformed),
    }
}

/// Returns `true` for a field that HTTP/2 does not have (RFC 9113 §8.2.2).
pub(crate) fn is_about_connection(known: KnownField) -> bool {
    matches!(
        known,
        KnownField::Connection
            | KnownField::KeepAlive
            | KnownField::ProxyConnection
            | KnownField::TransferEncoding
            | KnownField::Upgrade
    )
}

/// Returns the error of a list with more fields than allowed.
pub(crate) fn check_size(list: &FieldList, fields: usize, fields_max: usize) -> Result<(), MessageRefusal> {
    if fields > fields_max {
        return Err(HeadError::TooManyFields.into());
    }
    if list.is_too_large() { Err(HeadError::HeadTooLong.into()) } else { Ok(()) }
}

/// Notes the value of `content-length`, of which there is one.
pub(crate) fn note_length(length: &mut Option<u64>, value: &[u8]) -> Result<(), MessageRefusal> {
    let number = decimal(value).ok_or(MessageRefusal::Malformed)?;
    match length.replace(number) {
        None => Ok(()),
        Some(other) if other == number => Err(HeadError::RepeatedContentLength.into()),
        Some(_) => Err(MessageRefusal::Malformed),
    }
}

/// Writes a field line.
#[inline]
pub(crate) fn put_line(name: &[u8], value: &[u8], text: &mut Vec<u8>) {
    text.extend_from_slice(name);
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// Writes received trailers as lines.
pub(crate) fn trailer_lines(list: &FieldList) -> Result<Vec<u8>, MessageRefusal> {
    check_size(list, 0, 0)?;
    for field in list.iter() {
        checked(&field)?;
    }
    Ok(list.lines(0, list.iter().len()).to_vec())
}
