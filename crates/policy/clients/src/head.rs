//! The head of a request whose client was asked for a proof: what it claims and what it proves it by is
//! removed, and the proven name is added.

use egret_http1::{Edits, Field, KnownField, RequestHead, list};

use crate::given::is_token_field;

/// Maximum number of bytes by which a settled head is longer than the received one.
pub const ADDED_BYTES_MAX: usize = 512;

/// Maximum number of fields that are added.
pub const ADDED_FIELDS_MAX: usize = 1;

/// The field that names the consumer to everything that follows.
const CONSUMER_FIELD: &str = "x-egret-consumer";

/// The same in another gateway's words.
const OTHER_CONSUMER_FIELD: &[u8] = b"x-lunar-consumer-tag";

/// Returns the whole head of `request`, which is at the start of `bytes`, without tokens and claimed names,
/// and with the `proven` name, if there is one. `edits` is memory to use.
pub fn settle(request: &RequestHead, bytes: &[u8], proven: Option<&str>, edits: &mut Edits) -> Vec<u8> {
    edits.clear();
    for (index, field) in request.fields.iter().enumerate() {
        match field.known {
            KnownField::ProxyAuthorization => edits.remove(index),
            // An option of `Connection` would withdraw the proven name, for remedies that heed it.
            KnownField::Connection => without_claims(index, field, bytes, edits),
            KnownField::Other if is_removed(field.name.of(bytes)) => edits.remove(index),
            _ => {}
        }
    }
    if let Some(name) = proven {
        edits.insert(CONSUMER_FIELD, name.as_bytes());
    }
    let head = request.render(bytes, edits).to_vec();
    edits.clear();
    head
}

/// Returns `true` for fields that hold a token or name a consumer.
fn is_removed(name: &[u8]) -> bool {
    is_token_field(name) || is_claim(name)
}

fn is_claim(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(CONSUMER_FIELD.as_bytes()) || name.eq_ignore_ascii_case(OTHER_CONSUMER_FIELD)
}

/// Removes the options of a `Connection` field that name a consumer's field.
fn without_claims(index: usize, field: &Field, bytes: &[u8], edits: &mut Edits) {
    let value = field.value.of(bytes);
    if list(value).any(is_claim) {
        let kept: Vec<&[u8]> = list(value).filter(|option| !option.is_empty() && !is_claim(option)).collect();
        if kept.is_empty() {
            edits.remove(index);
        } else {
            edits.replace_value(index, &kept.join(&b", "[..]));
        }
    }
}

#[cfg(test)]
mod tests {
    use egret_http1::{HeadLimits, Progress};
    use proptest::prelude::*;

    use super::*;

    fn parse(bytes: &[u8]) -> RequestHead {
        let mut request = RequestHead::new();
        assert_eq!(request.parse(bytes, &HeadLimits::default()), Ok(Progress::Complete));
        request
    }

    /// Returns the fields of a settled request.
    fn settled(fields: &str, proven: Option<&str>) -> String {
        let bytes = format!("POST /a?b HTTP/1.1\r\nHost: h\r\n{fields}\r\nbody").into_bytes();
        let head = settle(&parse(&bytes), &bytes, proven, &mut Edits::new());
        assert_eq!(parse(&head).len, head.len());
        let text = String::from_utf8(head).unwrap();
        let fields = text.strip_prefix("POST /a?b HTTP/1.1\r\nHost: h\r\n").unwrap();
        fields.strip_suffix("\r\n").unwrap().to_owned()
    }

    #[test]
    fn tokens_and_claims_are_removed_and_the_proven_name_is_added() {
        let claims = "X-Egret-Consumer: admin\r\nx-lunar-consumer-tag: admin\r\nx-egret-consumer: root\r\n";
        let tokens = "Proxy-Authorization: Basic x\r\nPROXY-authorization: y\r\nX-Egret-Token: z\r\n";
        let kept = "A: 1\r\nX-Egret-Host: a.example\r\nAuthorization: Bearer k\r\n";
        let fields =
            format!("{claims}A: 1\r\n{tokens}X-Egret-Host: a.example\r\nAuthorization: Bearer k\r\n");
        assert_eq!(settled(&fields, Some("checkout")), format!("{kept}x-egret-consumer: checkout\r\n"));
        assert_eq!(settled(&fields, None), kept);
        assert_eq!(settled(kept, None), kept);
    }

    #[test]
    fn a_client_cannot_withdraw_its_name() {
        for (value, kept) in [
            ("x-egret-consumer", ""),
            ("close, X-Egret-Consumer", "Connection: close\r\n"),
            ("X-LUNAR-consumer-tag , x-a,,keep-alive", "Connection: x-a, keep-alive\r\n"),
            ("keep-alive,x-a", "Connection: keep-alive,x-a\r\n"),
        ] {
            let found = settled(&format!("Connection: {value}\r\n"), Some("a"));
            assert_eq!(found, format!("{kept}x-egret-consumer: a\r\n"), "{value}");
        }
    }

    proptest! {
        #[test]
        fn a_settled_head_names_exactly_the_proven_client(
            fields in "((x-egret-consumer|X-EGRET-Token|Connection|Proxy-Authorization|A): [a-z, -]{0,20}\r\n){0,8}",
        ) {
            let head = settled(&fields, Some("n"));
            let named = |name: &str| head.lines().filter(|line| line.to_ascii_lowercase().starts_with(name)).count();
            prop_assert!(head.ends_with("x-egret-consumer: n\r\n"));
            prop_assert_eq!(named("x-egret-consumer:"), 1);
            prop_assert_eq!(named("x-egret-token:") + named("proxy-authorization:"), 0);
            prop_assert!(head.len() <= fields.len() + ADDED_BYTES_MAX);
        }
    }
}
