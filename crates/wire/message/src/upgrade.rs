//! The protocols that a connection may be upgraded to (RFC 9110 §7.8).
//!
//! After an upgrade the gateway relays bytes unread, and no flow, limit or rule applies to them. So only
//! protocols that the config names are forwarded in `Upgrade`; others are removed. A request without any is
//! an ordinary one.

use std::borrow::Cow;

use egret_config::Problem;
use egret_http1::{Field, KnownField, RequestHead, ResponseHead, is_token, list};

/// Protocols that requests may ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protocols(Box<[Box<[u8]>]>);

impl Protocols {
    /// Compiles the names that the config lists at `path`. Each is a name, optionally with a slash and a
    /// version.
    pub fn compile(names: &[String], path: &str, problems: &mut Vec<Problem>) -> Self {
        for (number, name) in names.iter().enumerate() {
            let is_one =
                name.split('/').count() <= 2 && name.split('/').all(|part| is_token(part.as_bytes()));
            if !is_one {
                let message = "expected a protocol name, optionally with a version: `websocket`, `TLS/1.0`";
                problems.push(Problem::new(format!("{path}[{number}]"), message));
            }
        }
        Self(names.iter().map(|name| name.as_bytes().into()).collect())
    }

    /// Returns `true` if `member` of an `Upgrade` field is one of them. A protocol configured without a
    /// version matches any version.
    fn has(&self, member: &[u8]) -> bool {
        let name = member.split(|byte| *byte == b'/').next().unwrap_or_default();
        let is_it = |named: &[u8]| named.eq_ignore_ascii_case(member) || named.eq_ignore_ascii_case(name);
        self.0.iter().any(|named| is_it(named))
    }

    /// Turns a request that asks for none of them into an ordinary one.
    #[inline]
    pub fn settle(&self, request: &mut RequestHead, bytes: &[u8]) {
        if request.upgrade {
            request.upgrade = protocols(&request.fields, bytes).any(|protocol| self.has(protocol));
        }
    }

    /// Returns the value of a request's `Upgrade` field with only the permitted protocols, in order. Returns
    /// `None` if there are none.
    pub fn left_of<'a>(&self, value: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let members = || list(value).filter(|member| !member.is_empty());
        if members().all(|member| self.has(member)) {
            return (members().next().is_some()).then_some(Cow::Borrowed(value));
        }
        let left: Vec<&[u8]> = members().filter(|member| self.has(member)).collect();
        (!left.is_empty()).then(|| Cow::Owned(left.join(&b", "[..])))
    }

    /// Returns `true` if a response with status 101 names at least one protocol, and the forwarded `request`
    /// asked for all that it names.
    pub fn are_agreed_on(
        &self,
        request: &RequestHead,
        request_bytes: &[u8],
        response: &ResponseHead,
        response_bytes: &[u8],
    ) -> bool {
        let asked = |protocol: &[u8]| {
            self.has(protocol)
                && protocols(&request.fields, request_bytes).any(|asked| asked.eq_ignore_ascii_case(protocol))
        };
        let mut answered = protocols(&response.fields, response_bytes).peekable();
        request.upgrade && response.upgrade && answered.peek().is_some() && answered.all(asked)
    }
}

/// Returns the protocols that the `Upgrade` fields name.
fn protocols<'a>(fields: &'a [Field], bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let upgrades = fields.iter().filter(|field| field.known == KnownField::Upgrade);
    upgrades.flat_map(|field| list(field.value.of(bytes))).filter(|protocol| !protocol.is_empty())
}

#[cfg(test)]
mod tests {
    use egret_http1::{HeadLimits, Method};
    use proptest::prelude::*;

    use super::*;

    fn named(names: &[&str]) -> Protocols {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut problems = Vec::new();
        let protocols = Protocols::compile(&names, "gateway.upgrades", &mut problems);
        assert_eq!(problems, []);
        protocols
    }

    #[test]
    fn protocols_not_allowed_are_removed() {
        let both = named(&["websocket", "TLS/1.0"]);
        for (value, left) in [
            ("websocket", Some("websocket")),
            ("WebSocket", Some("WebSocket")),
            ("websocket/13", Some("websocket/13")),
            ("websocket,TLS/1.0", Some("websocket,TLS/1.0")),
            ("h2c", None),
            ("TLS/1.2", None),
            ("TLS", None),
            ("websockets", None),
            ("websocket2", None),
            ("h2c, websocket", Some("websocket")),
            ("foo, websocket,, h2c ,tls/1.0", Some("websocket, tls/1.0")),
            ("", None),
            (" , ", None),
        ] {
            let found = both.left_of(value.as_bytes());
            assert_eq!(found.as_deref(), left.map(str::as_bytes), "{value}");
        }
        assert_eq!(named(&[]).left_of(b"websocket"), None);
    }

    #[test]
    fn an_invalid_protocol_is_refused() {
        for name in ["", "a b", "a/", "/1", "a/1/2", "a,b"] {
            let mut problems = Vec::new();
            Protocols::compile(&[name.to_owned()], "gateway.upgrades", &mut problems);
            assert_eq!(problems.len(), 1, "{name:?}");
            assert_eq!(problems[0].path, "gateway.upgrades[0]");
        }
    }

    #[test]
    fn a_provider_may_only_change_to_what_it_was_asked_for() {
        let agreed = |asked: &str, answered: &str| {
            let request =
                format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: {asked}\r\n\r\n");
            let response = format!("HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: {answered}\r\n\r\n");
            let (mut head, mut answer) = (RequestHead::new(), ResponseHead::new());
            head.parse(request.as_bytes(), &HeadLimits::default()).unwrap();
            answer.parse(response.as_bytes(), &HeadLimits::default(), Method::Get).unwrap();
            let protocols = named(&["websocket", "x"]);
            protocols.are_agreed_on(&head, request.as_bytes(), &answer, response.as_bytes())
        };
        assert!(
            agreed("websocket", "WebSocket") && agreed("h2c, websocket", "websocket") && agreed("x", "x")
        );
        for (asked, answered) in [
            ("websocket", "x"),
            ("h2c, websocket", "h2c"),
            ("h2c", "h2c"),
            ("websocket", ""),
            ("websocket", "websocket, x"),
        ] {
            assert!(!agreed(asked, answered), "{asked} {answered}");
        }
    }

    proptest! {
        #[test]
        fn only_named_protocols_are_left(value in "[a-zA-Z0-9/, ]{0,40}") {
            let protocols = named(&["websocket", "a"]);
            if let Some(left) = protocols.left_of(value.as_bytes()) {
                let members: Vec<&[u8]> = list(&left).filter(|member| !member.is_empty()).collect();
                prop_assert!(!members.is_empty() && members.iter().all(|member| protocols.has(member)));
            } else {
                prop_assert!(list(value.as_bytes()).all(|member| member.is_empty() || !protocols.has(member)));
            }
        }
    }
}
