//! The handshake of WebSocket in HTTP/1.1 (RFC 6455 §4), which HTTP/2 does not have (RFC 8441 §5): the
//! gateway performs it in the place of the side that speaks HTTP/2.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::rand;
use data_encoding::BASE64;
use egret_http1::{Field, KnownField, Method, RequestFraming, RequestHead};

/// The name of the protocol.
pub(crate) const WEBSOCKET: &str = "websocket";
/// The field with the client's key.
pub(crate) const KEY_FIELD: &str = "sec-websocket-key";
/// The field by which a server shows that it has read the key.
pub(crate) const ACCEPT_FIELD: &str = "sec-websocket-accept";

/// Length of a key before its encoding (RFC 6455 §4.1).
const KEY_BYTES: usize = 16;
/// Appended to a key before its digest is made (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Makes a key. `None` if the system has no random numbers.
pub(crate) fn new_key() -> Option<String> {
    let mut key = [0; KEY_BYTES];
    rand::fill(&mut key).ok()?;
    Some(BASE64.encode(&key))
}

/// Returns the value of `Sec-WebSocket-Accept` for a key.
pub fn websocket_accept(key: &[u8]) -> String {
    BASE64.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()).as_ref())
}

/// Returns the key of a request that asks for WebSocket and for no other protocol, so that it has a form in
/// HTTP/2.
pub fn websocket_key<'a>(request: &RequestHead, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let is_plain = request.method == Method::Get && request.framing == RequestFraming::None;
    if !(request.upgrade && is_plain) {
        return None;
    }
    let mut upgrades = request.fields.iter().filter(|field| field.known == KnownField::Upgrade);
    let asked = upgrades.next()?.value.of(bytes);
    if upgrades.next().is_some() || !asked.eq_ignore_ascii_case(WEBSOCKET.as_bytes()) {
        return None;
    }
    only(&request.fields, KEY_FIELD, bytes).filter(|key| !key.is_empty())
}

/// Returns `true` if the fields of a response accept the WebSocket that was asked for with `key`.
pub fn is_websocket_accepted(fields: &[Field], bytes: &[u8], key: &[u8]) -> bool {
    only(fields, ACCEPT_FIELD, bytes) == Some(websocket_accept(key).as_bytes())
}

/// Returns the value of a field that is there once.
fn only<'a>(fields: &[Field], name: &str, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let mut named = fields.iter().filter(|field| field.name.of(bytes).eq_ignore_ascii_case(name.as_bytes()));
    let value = named.next()?.value.of(bytes);
    named.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use egret_http1::{HeadLimits, ResponseHead};

    use super::*;

    /// The example of RFC 6455 §1.3.
    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    #[test]
    fn a_key_is_answered_as_the_rfc_shows() {
        assert_eq!(websocket_accept(KEY.as_bytes()), ACCEPT);
        let (first, second) = (new_key().unwrap(), new_key().unwrap());
        assert_eq!(first.len(), 24);
        assert_ne!(first, second);
    }

    #[test]
    fn a_request_for_anything_else_has_no_form_in_http2() {
        let key_of = |method: &str, fields: &str| {
            let text = format!("{method} / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n{fields}\r\n");
            let mut head = RequestHead::new();
            head.parse(text.as_bytes(), &HeadLimits::default()).unwrap();
            websocket_key(&head, text.as_bytes()).map(<[u8]>::to_vec)
        };
        let key = format!("Sec-WebSocket-Key: {KEY}\r\n");
        let upgrade = format!("Upgrade: WebSocket\r\n{key}");
        assert_eq!(key_of("GET", &upgrade), Some(KEY.into()));
        assert_eq!(key_of("POST", &upgrade), None);
        for fields in [
            "Upgrade: websocket\r\n".to_owned(),
            format!("Upgrade: websocket, x\r\n{key}"),
            format!("Upgrade: websocket\r\nUpgrade: x\r\n{key}"),
            format!("{upgrade}{key}"),
            format!("{upgrade}Content-Length: 1\r\n"),
            key.clone(),
        ] {
            assert_eq!(key_of("GET", &fields), None, "{fields}");
        }
    }

    #[test]
    fn only_the_answer_to_the_key_accepts_a_websocket() {
        let is_accepted = |fields: &str| {
            let text = format!("HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n{fields}\r\n");
            let mut head = ResponseHead::new();
            head.parse(text.as_bytes(), &HeadLimits::default(), Method::Get).unwrap();
            is_websocket_accepted(&head.fields, text.as_bytes(), KEY.as_bytes())
        };
        let line = format!("Sec-WebSocket-Accept: {ACCEPT}\r\n");
        assert!(is_accepted(&line));
        assert!(!is_accepted("") && !is_accepted(&line.repeat(2)));
        assert!(!is_accepted("Sec-WebSocket-Accept: dGhlIHNhbXBsZSBub25jZQ==\r\n"));
    }
}
