//! A response as flows see it.

use super::Fields;

/// The final response of a provider, with the remedies' changes so far.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// Status code, 200 to 599.
    pub status: u16,
    /// Header fields.
    pub fields: Fields<'a>,
    /// The whole body without transfer framing, if a flow asks for it and it is within the size limit.
    pub body: Option<&'a [u8]>,
}
