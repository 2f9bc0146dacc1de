//! Placeholders: the client sends a word that is worth nothing in the place of a secret, wherever its API wants that, and the gateway puts
//! the secret there. So a program that nobody trusts with it can be given any client library.

use std::collections::BTreeSet;

use egret_config::Size;
use egret_har::base64;
use egret_http1::KnownField;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::credential::percent_encode;
use super::find::{Coding, Words, find_all};
use super::{Applied, Outgoing};
use crate::message::Fields;
use crate::remedies::retry::BODY_BYTES_MAX;
use crate::remedies::transform::remove_digests;
use crate::remedy::Fault;
use crate::template::write_json;

/// Shorter words might stand in a request by chance.
const TEXT_BYTES_MIN: usize = 8;
const TEXT_BYTES_MAX: usize = 256;

/// A request in which it stands more often is none that an API asks for, and might grow beyond all bounds.
const OCCURRENCES_MAX: usize = 64;

/// A word that the client sends in the place of the account's secret. The secret stands where the word does, and nowhere else: a request
/// without it is sent as it is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceholderConfig {
    /// The word: 8 to 256 visible characters of ASCII, which stand in nothing else.
    pub text: String,
    /// Where it is looked for. In a field of the header it is found within the Base64 of `Authorization: Basic` too; in a body that is
    /// JSON, a form or text.
    #[serde(default = "parts_default", rename = "in")]
    pub parts: BTreeSet<RequestPart>,
    /// The longest body that it is looked for in, up to `16MiB`. It is held back for that; a longer one is sent as it is.
    #[serde(default = "body_default")]
    pub body: Size,
}

/// Parts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestPart {
    /// The values of its fields.
    Header,
    /// Its query.
    Query,
    /// Its body.
    Body,
}

fn parts_default() -> BTreeSet<RequestPart> {
    [RequestPart::Header, RequestPart::Query].into()
}

fn body_default() -> Size {
    Size::from_kib(1024)
}

/// Puts a secret where a word stands for it.
pub struct Placeholder {
    word: Words,
    parts: BTreeSet<RequestPart>,
    body_bytes_max: usize,
}

impl std::fmt::Debug for Placeholder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Placeholder").field("in", &self.parts).finish_non_exhaustive()
    }
}

impl Placeholder {
    /// The one of `config`. Refused with the key of the config that is wrong, and why.
    pub fn compile(config: &PlaceholderConfig) -> Result<Self, (&'static str, String)> {
        let PlaceholderConfig { text, parts, body } = config;
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_visible || !(TEXT_BYTES_MIN..=TEXT_BYTES_MAX).contains(&text.len()) {
            let message =
                format!("{TEXT_BYTES_MIN} to {TEXT_BYTES_MAX} visible characters of ASCII, without spaces");
            return Err(("text", message));
        }
        if parts.is_empty() {
            return Err(("in", "nothing is looked at: name `header`, `query` or `body`".to_owned()));
        }
        if body.bytes() > BODY_BYTES_MAX {
            return Err(("body", "at most `16MiB`: it is kept in memory for each exchange".to_owned()));
        }
        Ok(Self {
            word: Words::new([text]),
            parts: parts.clone(),
            body_bytes_max: usize::try_from(body.bytes()).unwrap_or(usize::MAX),
        })
    }

    /// The longest body that it has to see, in bytes.
    pub fn body_bytes_max(&self) -> usize {
        if self.parts.contains(&RequestPart::Body) { self.body_bytes_max } else { 0 }
    }

    /// Puts `secret` wherever the word stands in a request, and says whether it does. A fault where the secret may not stand in a request
    /// or the word stands there too often.
    pub fn swap(&self, secret: &str, outgoing: &Outgoing<'_>, applied: &mut Applied) -> Result<bool, Fault> {
        if let Some(problem) = secret_problem(secret) {
            return Err(Fault(problem.into()));
        }
        let mut swap = Swap { word: &self.word, secret, left: OCCURRENCES_MAX };
        let mut is_there = false;
        if self.parts.contains(&RequestPart::Header) {
            is_there |= swap.fields(outgoing.fields, applied)?;
        }
        if self.parts.contains(&RequestPart::Query)
            && let Some(query) = outgoing.query
            && let Some(query) = swap.text(Coding::Percent, query)?
        {
            applied.target = Some([outgoing.path, b"?", &query].concat());
            is_there = true;
        }
        if self.parts.contains(&RequestPart::Body)
            && let Some(body) = outgoing.body.filter(|body| body.len() <= self.body_bytes_max)
            && let Some(coding) = coding_of(outgoing.fields)
            && let Some(body) = swap.text(coding, body)?
        {
            remove_digests(&mut applied.fields);
            applied.body = Some(body);
            is_there = true;
        }
        Ok(is_there)
    }
}

/// Why `secret` may not be put into requests, if it may not: in a field it would become one more line.
pub fn secret_problem(secret: &str) -> Option<&'static str> {
    let is_control = secret.chars().any(char::is_control);
    is_control.then_some(
        "a control character stands in it, a line end perhaps: it could not be sent in a header field",
    )
}

/// How a body is read in which a word is looked for; nothing where that is not known.
fn coding_of(fields: Fields<'_>) -> Option<Coding> {
    if fields.is_encoded() {
        return None;
    }
    let media_type = fields.get(b"content-type")?;
    let essence =
        media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    if crate::message::is_json(media_type) {
        Some(Coding::Json)
    } else if essence == b"application/x-www-form-urlencoded" {
        Some(Coding::Percent)
    } else {
        essence.starts_with(b"text/").then_some(Coding::Plain)
    }
}

/// Whether a field says where a message goes or how it is framed, or is one that the gateway writes itself.
fn is_left_alone(name: &[u8]) -> bool {
    let known = KnownField::of(name);
    known.is_hop_by_hop()
        || matches!(
            known,
            KnownField::Host
                | KnownField::ContentLength
                | KnownField::Trailer
                | KnownField::Expect
                | KnownField::MaxForwards
                | KnownField::Via
                | KnownField::XForwardedFor
        )
}

/// Puts the secret where the word stands in one request.
struct Swap<'a> {
    word: &'a Words,
    secret: &'a str,
    /// How often it may still stand there.
    left: usize,
}

impl Swap<'_> {
    /// Fields of a name of which one has the word are all written anew, in their order.
    fn fields(&mut self, fields: Fields<'_>, applied: &mut Applied) -> Result<bool, Fault> {
        let mut names: Vec<&[u8]> = Vec::new();
        let fields = fields.forwarded().filter(|(name, _)| !is_left_alone(name));
        for (name, value) in fields.clone() {
            let is_known = names.iter().any(|known| known.eq_ignore_ascii_case(name));
            if is_known || self.holds(name, value).is_none() {
                continue;
            }
            names.push(name);
            applied.fields.remove(name);
            for (same, value) in fields.clone().filter(|(other, _)| other.eq_ignore_ascii_case(name)) {
                match self.holds(same, value) {
                    Some(Holds::Plainly) => {
                        let swapped = self.text(Coding::Plain, value)?;
                        applied.fields.add(same, swapped.as_deref().unwrap_or(value));
                    }
                    Some(Holds::Credentials(credentials)) => {
                        let swapped = self.text(Coding::Plain, &credentials)?.map(Zeroizing::new);
                        let mut value = b"Basic ".to_vec();
                        base64::encode(swapped.as_ref().unwrap_or(&credentials), &mut value);
                        applied.fields.add(same, &value);
                    }
                    None => applied.fields.add(same, value),
                }
            }
        }
        Ok(!names.is_empty())
    }

    /// How the word stands in a field, if it does.
    fn holds(&self, name: &[u8], value: &[u8]) -> Option<Holds> {
        if self.is_in(value) {
            return Some(Holds::Plainly);
        }
        let (scheme, credentials) = value.split_at_checked(b"Basic ".len())?;
        let is_basic =
            KnownField::of(name) == KnownField::Authorization && scheme.eq_ignore_ascii_case(b"Basic ");
        let credentials = is_basic.then(|| base64::decode(credentials.trim_ascii())).flatten()?;
        self.is_in(&credentials).then(|| Holds::Credentials(Zeroizing::new(credentials)))
    }

    fn is_in(&self, text: &[u8]) -> bool {
        let mut is_in = false;
        find_all(self.word, Coding::Plain, text, |_, _| is_in = true);
        is_in
    }

    /// A text with the secret, encoded as the text is, wherever the word stands; nothing where it does not.
    fn text(&mut self, coding: Coding, text: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let mut places: Vec<(usize, usize)> = Vec::new();
        let mut is_too_often = false;
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        find_all(self.word, coding, text, |start, end| {
            let (start, end) = (place(start), place(end));
            if places.last().is_some_and(|(_, before)| start < *before) {
                return;
            }
            is_too_often |= places.len() == self.left;
            if !is_too_often {
                places.push((start, end));
            }
        });
        if is_too_often {
            let detail = format!("the placeholder stands more than {OCCURRENCES_MAX} times in the request");
            return Err(Fault(detail.into()));
        }
        if places.is_empty() {
            return Ok(None);
        }
        self.left -= places.len();
        let mut secret = Zeroizing::new(Vec::new());
        match coding {
            Coding::Plain => secret.extend_from_slice(self.secret.as_bytes()),
            Coding::Percent => percent_encode(self.secret.as_bytes(), &mut secret),
            Coding::Json => write_json(self.secret, &mut secret),
        }
        // All of it at once, so that no memory with parts of it is left behind.
        let mut swapped = Vec::with_capacity(text.len() + places.len() * secret.len());
        let mut at = 0;
        for (start, end) in places {
            swapped.extend_from_slice(&text[at..start]);
            swapped.extend_from_slice(&secret);
            at = end;
        }
        swapped.extend_from_slice(&text[at..]);
        Ok(Some(swapped))
    }
}

/// How a word stands in a field.
enum Holds {
    /// As it is.
    Plainly,
    /// In the user or the password of `Basic`, which are these together.
    Credentials(Zeroizing<Vec<u8>>),
}

#[cfg(test)]
mod tests {
    use egret_http1::{HeadLimits, Progress, RequestHead};
    use egret_store::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::message::Changes;

    const WORD: &str = "{{KEY/1}}";
    const SECRET: &str = "s\"e/c&r\\et=é";
    const ALL: [RequestPart; 3] = [RequestPart::Header, RequestPart::Query, RequestPart::Body];

    fn config(text: &str, parts: &[RequestPart]) -> PlaceholderConfig {
        PlaceholderConfig {
            text: text.to_owned(),
            parts: parts.iter().copied().collect(),
            body: body_default(),
        }
    }

    fn placeholder(parts: &[RequestPart]) -> Placeholder {
        Placeholder::compile(&config(WORD, parts)).unwrap()
    }

    /// A request as it goes on: its target, its lines of fields but for Host, its body.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Sent {
        target: String,
        lines: Vec<String>,
        body: String,
    }

    /// What becomes of a request whose lines of fields are `lines`.
    fn swapped(
        placeholder: &Placeholder,
        target: &str,
        lines: &str,
        body: &str,
    ) -> Result<(bool, Sent), Fault> {
        let bytes = format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n").into_bytes();
        let mut head = RequestHead::new();
        assert_eq!(head.parse(&bytes, &HeadLimits::default()).unwrap(), Progress::Complete);
        let (path, query) = crate::exchange::split_target(target.as_bytes());
        let fields = Fields::received(&head.fields, &bytes);
        let outgoing = Outgoing {
            now: Timestamp::from_secs(0),
            tls: true,
            method: b"POST",
            host: b"h",
            base: b"",
            path,
            query,
            fields,
            body: Some(body.as_bytes()),
        };
        let mut applied = Applied::default();
        let is_there = placeholder.swap(SECRET, &outgoing, &mut applied)?;
        if !is_there {
            assert!(applied.fields.is_empty() && applied.target.is_none() && applied.body.is_none());
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let Applied { fields: changes, target: new_target, body: new_body } = &applied;
        let line = |(name, value): (&[u8], &[u8])| format!("{}: {}", text(name), text(value));
        let sent = Sent {
            target: new_target.as_deref().map_or(target.to_owned(), text),
            lines: Fields::new(&head.fields, &bytes, changes).iter().skip(1).map(line).collect(),
            body: new_body.as_deref().map_or(body.to_owned(), text),
        };
        Ok((is_there, sent))
    }

    fn base64_of(text: &str) -> String {
        let mut out = Vec::new();
        base64::encode(text.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fields_get_the_secret_where_the_word_stands() {
        let lines = format!("X-A: 1\r\nCookie: a={WORD}; b={WORD}\r\nX-B: {WORD}\r\nCookie: c\r\nx-b: 2\r\n");
        let (is_there, sent) = swapped(&placeholder(&ALL), "/a?b", &lines, "").unwrap();
        assert!(is_there);
        let cookie = format!("Cookie: a={SECRET}; b={SECRET}");
        assert_eq!(sent.lines, ["X-A: 1", &*cookie, "Cookie: c", &*format!("X-B: {SECRET}"), "x-b: 2"]);
        assert_eq!((&*sent.target, &*sent.body), ("/a?b", ""));
    }

    #[test]
    fn credentials_of_basic_are_looked_into() {
        for (before, after) in [
            (format!("user:{WORD}"), format!("user:{SECRET}")),
            (format!("{WORD}:"), format!("{SECRET}:")),
            (format!("{WORD}:x{WORD}"), format!("{SECRET}:x{SECRET}")),
        ] {
            for scheme in ["Basic", "basic"] {
                let lines = format!("Authorization: {scheme} {}\r\n", base64_of(&before));
                let (is_there, sent) = swapped(&placeholder(&ALL), "/", &lines, "").unwrap();
                assert!(is_there);
                assert_eq!(sent.lines, [format!("Authorization: Basic {}", base64_of(&after))]);
            }
        }
        // Nowhere else: that would be a guess.
        let lines = format!("X-Other: Basic {}\r\nAuthorization: Basic no-Base64!\r\n", base64_of(WORD));
        assert!(!swapped(&placeholder(&ALL), "/", &lines, "").unwrap().0);
    }

    #[test]
    fn a_query_gets_it_encoded_however_the_word_is() {
        for word in ["{{KEY/1}}", "%7B%7BKEY%2F1%7D%7D", "%7b{KEY/1}%7d"] {
            let (_, sent) =
                swapped(&placeholder(&ALL), &format!("/{WORD}?a=1&key={word}&b"), "", "").unwrap();
            assert_eq!(sent.target, format!("/{WORD}?a=1&key=s%22e%2Fc%26r%5Cet%3D%C3%A9&b"), "{word}");
        }
    }

    #[test]
    fn a_body_gets_it_as_its_media_type_has_it() {
        for (media_type, body, expected) in [
            (
                "application/json",
                r#"{"a":["{{KEY/1}}","\u007b{KEY\/1}}"]}"#,
                r#"{"a":["s\"e/c&r\\et=é","s\"e/c&r\\et=é"]}"#,
            ),
            ("application/vnd.api+json; charset=utf-8", r#""{{KEY/1}}""#, r#""s\"e/c&r\\et=é""#),
            (
                "application/x-www-form-urlencoded",
                "a={{KEY/1}}&b=%7B%7BKEY%2F1}}",
                "a=s%22e%2Fc%26r%5Cet%3D%C3%A9&b=s%22e%2Fc%26r%5Cet%3D%C3%A9",
            ),
            ("Text/Plain", "a {{KEY/1}}", "a s\"e/c&r\\et=é"),
        ] {
            let lines = format!("Content-Type: {media_type}\r\nContent-MD5: x\r\n");
            let (is_there, sent) = swapped(&placeholder(&ALL), "/", &lines, body).unwrap();
            assert_eq!((is_there, &*sent.body), (true, expected));
            // What it was summed up to no longer holds.
            assert_eq!(sent.lines, [format!("Content-Type: {media_type}")]);
            let (is_there, sent) = swapped(&placeholder(&ALL[..2]), "/", &lines, body).unwrap();
            assert_eq!((is_there, &*sent.body), (false, body));
        }
    }

    #[test]
    fn what_cannot_be_read_or_must_not_be_touched_stays() {
        for lines in [
            "Content-Type: application/octet-stream\r\n",
            "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
            "",
        ] {
            assert!(!swapped(&placeholder(&ALL), "/", lines, WORD).unwrap().0, "{lines}");
        }
        for name in [
            "Connection",
            "Keep-Alive",
            "Proxy-Authorization",
            "Via",
            "X-Forwarded-For",
            "Trailer",
            "TE",
            "Expect",
        ] {
            assert!(is_left_alone(name.as_bytes()), "{name}");
        }
        let lines = format!("Connection: x-once\r\nX-Once: {WORD}\r\nX-Forwarded-For: {WORD}\r\n");
        assert!(!swapped(&placeholder(&ALL), &format!("/{WORD}"), &lines, "").unwrap().0);
    }

    #[test]
    fn what_remedies_have_removed_does_not_come_back() {
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\nX-A: {WORD}\r\n\r\n").into_bytes();
        let mut head = RequestHead::new();
        head.parse(&bytes, &HeadLimits::default()).unwrap();
        let mut changes = Changes::default();
        changes.remove(b"x-a");
        changes.add(b"x-b", WORD.as_bytes());
        let fields = Fields::new(&head.fields, &bytes, &changes);
        let mut applied = Applied::default();
        let placeholder = placeholder(&ALL);
        let mut swap = Swap { word: &placeholder.word, secret: SECRET, left: OCCURRENCES_MAX };
        assert!(swap.fields(fields, &mut applied).unwrap());
        assert_eq!(applied.fields.added().collect::<Vec<_>>(), [(&b"x-b"[..], SECRET.as_bytes())]);
    }

    #[test]
    fn a_request_that_would_grow_without_bounds_is_refused() {
        let often = |times: usize| {
            let lines = format!("X-A: {WORD}\r\nContent-Type: text/plain\r\n");
            swapped(&placeholder(&ALL), "/", &lines, &WORD.repeat(times))
        };
        assert!(often(OCCURRENCES_MAX - 1).unwrap().0);
        assert!(often(OCCURRENCES_MAX).unwrap_err().0.contains("more than 64 times"));
    }

    #[test]
    fn configs_and_secrets_that_cannot_be_are_refused() {
        let wrong = |config: PlaceholderConfig| Placeholder::compile(&config).unwrap_err().0;
        for text in ["", "1234567", "with space", "12345678\n", "12345678é", &"x".repeat(257)] {
            assert_eq!(wrong(config(text, &ALL)), "text", "{text}");
        }
        assert_eq!(wrong(config(WORD, &[])), "in");
        assert_eq!(wrong(PlaceholderConfig { body: Size::from_kib(16 << 11), ..config(WORD, &ALL) }), "body");
        for secret in ["a\r\nX-Evil: 1", "a\nb", "a\tb", "a\0b", "a\u{85}b"] {
            assert!(secret_problem(secret).is_some(), "{secret:?}");
        }
        assert_eq!(secret_problem(SECRET), None);
    }

    /// Pieces of what clients send, some of which make up the word.
    fn text(parts: &'static [&'static str]) -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(parts), 0..20).prop_map(|parts| parts.concat())
    }

    const PLAIN: &[&str] = &["{{KEY/1}}", "{{KEY", "/1}}", "{{", "a", "=", ";", "%7B", "\\", "\"", " a"];
    const PERCENT: &[&str] =
        &["{{KEY/1}}", "%7B%7BKEY%2F1%7D%7D", "{{KEY", "/1}}", "%7b", "{", "%4B", "a", "=", "%25", "&"];
    const JSON: &[&str] = &[
        "{{KEY/1}}",
        "\\u007B{KEY\\/1}}",
        "{{KEY",
        "/1}}",
        "\\/1}}",
        "{",
        "\\\\",
        "\\\"",
        "\\n",
        "\\u00e9",
        "a",
    ];

    proptest! {
        #[test]
        fn whatever_the_request_the_word_is_replaced_and_nothing_else(
            values in prop::collection::vec(text(PLAIN), 1..5),
            query in text(PERCENT),
            json in text(JSON),
        ) {
            let names = ["X-A", "X-B", "x-a", "X-C", "x-b"];
            let trimmed: Vec<_> = values.iter().map(|value| value.trim()).collect();
            let line = |(name, value): (&&str, &&str)| format!("{name}: {value}\r\n");
            let lines: String = names.iter().zip(&trimmed).map(line).collect();
            let lines = lines + "Content-Type: application/json\r\n";
            let target = format!("/p?{query}");
            let body = format!("[\"{json}\"]");
            let (_, sent) = swapped(&placeholder(&ALL), &target, &lines, &body).unwrap();
            // Fields of one name stay in order; of several, the order means nothing (RFC 9110 §5.3).
            let mut expected: Vec<_> = names.iter().zip(&trimmed).map(|(name, value)| format!("{name}: {}", value.replace(WORD, SECRET))).collect();
            expected.push("Content-Type: application/json".to_owned());
            let of = |lines: &[String], name: &str| -> Vec<String> {
                lines.iter().filter(|line| line.to_ascii_lowercase().starts_with(name)).cloned().collect()
            };
            for name in ["x-a:", "x-b:", "x-c:", "content-type:"] {
                prop_assert_eq!(of(&sent.lines, name), of(&expected, name));
            }
            prop_assert_eq!(sent.lines.len(), expected.len());
            let decoded = |query: &str| {
                let mut bytes = Vec::new();
                crate::matching::decode(query.as_bytes(), |piece| bytes.extend_from_slice(piece));
                String::from_utf8_lossy(&bytes).into_owned()
            };
            let is_there = decoded(&query).contains(WORD);
            prop_assert_eq!(decoded(&sent.target), format!("/p?{}", decoded(&query).replace(WORD, SECRET)));
            prop_assert_eq!(is_there, sent.target != target);
            let read = |body: &str| serde_json::from_str::<Vec<String>>(body).unwrap().concat();
            prop_assert_eq!(read(&sent.body), read(&body).replace(WORD, SECRET));
            prop_assert_eq!(read(&body).contains(WORD), sent.body != body);
        }
    }
}
