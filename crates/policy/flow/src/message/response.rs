//! A response as flows see it.

use super::Fields;

/// The final response of a provider, as the remedies so far have left it.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// The status code, 200 to 599.
    pub status: u16,
    /// The fields.
    pub fields: Fields<'a>,
    /// What of the body is here, without the framing of the connection: all of it, where a flow asks for it and it is not longer than allowed.
    pub body: Option<&'a [u8]>,
}
