//! A request as flows see it.

use super::Fields;

/// A request on its way to a provider, as the remedies so far have left it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The provider's name in the config; `-` where the request goes to a host that the config does not name.
    pub provider: &'a str,
    /// Whether it goes over TLS.
    pub tls: bool,
    /// The host it goes to, in lower case, without a port.
    pub host: &'a str,
    /// The port it goes to.
    pub port: u16,
    /// The method, as sent.
    pub method: &'a [u8],
    /// The path, relative to the provider's URL, as sent; starts with a slash, except for `*`.
    pub path: &'a [u8],
    /// What follows the question mark, if there is one.
    pub query: Option<&'a [u8]>,
    /// The fields.
    pub fields: Fields<'a>,
    /// Whether it asks its provider to change to another protocol (RFC 9110 §7.8).
    pub upgrade: bool,
    /// The application that calls: the value of `x-egret-consumer`, or of `x-lunar-consumer-tag`.
    pub consumer: Option<&'a [u8]>,
    /// What of the body is here: all of it, where a flow asks for it and it is not longer than allowed.
    pub body: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// The parameters of the query as sent: names with their values, which are empty where there is no equals sign.
    pub fn parameters(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let pairs =
            self.query.unwrap_or_default().split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| match memchr::memchr(b'=', pair) {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        })
    }
}
