//! Placeholders: the client sends a worthless word wherever its API expects a secret, and the gateway
//! replaces the word with the secret. So a program that must not know the secret can use any client library.

use std::collections::BTreeSet;
use std::ops::Range;

use egret_aws::percent_encode;
use egret_config::{Problem, Size};
use egret_har::base64;
use egret_http1::{KnownField, is_token};
use egret_json::pointer::{Pointers, pointer_problem};
use egret_match::form::decode_form;
use egret_message::{FLOW_BODY_BYTES_MAX, Fault, Fields};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::find::{Coding, WordTrie, find_all};
use super::outgoing::{Applied, Outgoing};

/// Minimum length of the word. Shorter words might occur in a request by chance.
const TEXT_BYTES_MIN: usize = 8;
const TEXT_BYTES_MAX: usize = 256;

/// Maximum number of replacements in one request. No API needs more, and the limit bounds the growth of the
/// request.
const OCCURRENCES_MAX: usize = 64;

/// A word that the client sends in place of the account's secret. Egret replaces the word with the secret; a
/// request without the word is sent unchanged. Unless you name places, only a word that is a complete value
/// is replaced. Otherwise a client could make the provider pass the secret on, for example in a URL that the
/// provider calls.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceholderConfig {
    /// The word: 8 to 256 visible ASCII characters. It must not occur anywhere else in requests.
    pub text: String,
    /// Parts of the request in which the word is replaced. In the header it is also found inside the Base64
    /// of `Authorization: Basic`. A body is searched only if it is JSON, a form or text.
    #[serde(default = "parts_default", rename = "in")]
    pub parts: BTreeSet<RequestPart>,
    /// The only header fields in which the word is replaced, anywhere in their values. If the list is empty,
    /// it is replaced in most fields, but only as the whole value, after a scheme (`Bearer WORD`), as user or
    /// password of `Basic`, as a cookie, or as a parameter of `Authorization`. It is never replaced in
    /// `Referer`, `Origin`, `Forwarded`, `X-Forwarded-Host` and other fields that name the origin or the
    /// target of a request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// The only parameters, of the query and of a form, in which the word is replaced, anywhere in their
    /// values. If the list is empty, it is replaced in all parameters, but only as the whole value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
    /// JSON pointers (RFC 6901) to the only places of a JSON body in which the word is replaced: `/auth/key`.
    /// If the list is empty, it is replaced in all values, but only as a whole string.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pointers: Vec<String>,
    /// Maximum size of a body to search, up to `16MiB`. The body is buffered for the search; a larger one is
    /// sent unchanged.
    #[serde(default = "egret_config::kib::<1024>")]
    pub body: Size,
}

/// A part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestPart {
    /// The values of its header fields.
    Header,
    /// Its query.
    Query,
    /// Its body.
    Body,
}

fn parts_default() -> BTreeSet<RequestPart> {
    [RequestPart::Header, RequestPart::Query].into()
}

/// A compiled placeholder: replaces a word with a secret.
pub struct Placeholder {
    word: WordTrie,
    parts: BTreeSet<RequestPart>,
    body_bytes_max: usize,
    scope: ReplacementScope,
}

/// The fields, parameters and members in which the word may be replaced. An empty list allows all of them,
/// but only as a complete value.
#[derive(Debug, Default)]
struct ReplacementScope {
    headers: Vec<String>,
    parameters: Vec<String>,
    pointers: Pointers,
}

impl std::fmt::Debug for Placeholder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Placeholder")
            .field("in", &self.parts)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl Placeholder {
    /// Compiles `config`, which is at `path` in the whole config.
    pub fn compile(config: &PlaceholderConfig, path: &str) -> Result<Self, Problem> {
        let PlaceholderConfig { text, parts, body, headers, parameters, pointers } = config;
        let problem = |key: &str, message: String| Err(Problem::new(format!("{path}.{key}"), message));
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_visible || !(TEXT_BYTES_MIN..=TEXT_BYTES_MAX).contains(&text.len()) {
            let message = format!(
                "must consist of {TEXT_BYTES_MIN} to {TEXT_BYTES_MAX} visible ASCII characters, without spaces"
            );
            return problem("text", message);
        }
        if parts.is_empty() {
            return problem("in", "must not be empty: name `header`, `query` or `body`".to_owned());
        }
        if body.bytes() > FLOW_BODY_BYTES_MAX {
            let message = "at most `16MiB`: the body is buffered in memory for each exchange";
            return problem("body", message.to_owned());
        }
        if let Some((key, message)) = scope_problem(config) {
            return problem(key, message);
        }
        Ok(Self {
            word: WordTrie::new([text]),
            parts: parts.clone(),
            body_bytes_max: usize::try_from(body.bytes()).unwrap_or(usize::MAX),
            scope: ReplacementScope {
                headers: headers.clone(),
                parameters: parameters.clone(),
                pointers: Pointers::new(pointers.iter().map(String::as_str)),
            },
        })
    }

    /// Maximum size of a body to search, in bytes; 0 if bodies are not searched.
    pub fn body_bytes_max(&self) -> usize {
        if self.parts.contains(&RequestPart::Body) { self.body_bytes_max } else { 0 }
    }

    /// Replaces the word with `secret` everywhere in a request where that is allowed. Returns `true` if there
    /// was one. Fails if the secret cannot be sent in a request, or if the word occurs too often.
    pub fn swap(&self, secret: &str, outgoing: &Outgoing<'_>, applied: &mut Applied) -> Result<bool, Fault> {
        if let Some(problem) = secret_problem(secret) {
            return Err(Fault(problem.into()));
        }
        let mut swap = Swap { word: &self.word, scope: &self.scope, secret, left: OCCURRENCES_MAX };
        let mut is_replaced = false;
        if self.parts.contains(&RequestPart::Header) {
            is_replaced |= swap.fields(outgoing.fields, applied)?;
        }
        if self.parts.contains(&RequestPart::Query)
            && let Some(query) = outgoing.query
            && let Some(query) = swap.form(query)?
        {
            applied.target = Some([outgoing.path, b"?", &query].concat());
            is_replaced = true;
        }
        if self.parts.contains(&RequestPart::Body)
            && let Some(body) = outgoing.body.filter(|body| body.len() <= self.body_bytes_max)
            && let Some(coding) = coding_of(outgoing.fields)
            && let Some(body) = swap.body(coding, body)?
        {
            applied.fields.remove_digests();
            applied.body = Some(body);
            is_replaced = true;
        }
        Ok(is_replaced)
    }
}

/// Returns the first config key that limits the replacements in a way that cannot be applied, and the reason.
fn scope_problem(config: &PlaceholderConfig) -> Option<(&'static str, String)> {
    let PlaceholderConfig { parts, headers, parameters, pointers, .. } = config;
    let (header, query, body) = (RequestPart::Header, RequestPart::Query, RequestPart::Body);
    if !headers.is_empty() && !parts.contains(&header) {
        return Some(("headers", "`in` excludes the header: add `header`".to_owned()));
    }
    if !parameters.is_empty() && !parts.contains(&query) && !parts.contains(&body) {
        return Some(("parameters", "`in` excludes query and body: add one of them".to_owned()));
    }
    if !pointers.is_empty() && !parts.contains(&body) {
        return Some(("pointers", "`in` excludes the body: add `body`".to_owned()));
    }
    for name in headers {
        if !is_token(name.as_bytes()) {
            return Some(("headers", format!("`{name}` is not a valid header field name")));
        }
        if is_left_alone(name.as_bytes()) {
            let message = format!("a secret is never put into `{name}`, because other parties read it");
            return Some(("headers", message));
        }
    }
    let message = pointers.iter().find_map(|pointer| pointer_problem(pointer))?;
    Some(("pointers", message))
}

/// Returns the reason why `secret` must not be put into requests, if there is one: a line end would add a
/// line to the header.
pub fn secret_problem(secret: &str) -> Option<&'static str> {
    let is_control = secret.chars().any(char::is_control);
    is_control
        .then_some("contains a control character, perhaps a line end, which is not allowed in a header field")
}

/// Returns the encoding of the body in which the word is searched for; `None` if it is unknown.
fn coding_of(fields: Fields<'_>) -> Option<Coding> {
    if fields.is_encoded() {
        return None;
    }
    let media_type = fields.get(b"content-type")?;
    let essence =
        media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    if egret_message::is_json(media_type) {
        Some(Coding::Json)
    } else if essence == b"application/x-www-form-urlencoded" {
        Some(Coding::Percent)
    } else {
        essence.starts_with(b"text/").then_some(Coding::Plain)
    }
}

/// Returns `true` for a field that names the origin or the target of a message, frames it, or is written by
/// the gateway. Providers log such fields, pass them on, and call the hosts they name.
fn is_left_alone(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 8] = [
        b"referer",
        b"origin",
        b"forwarded",
        b"x-real-ip",
        b"x-original-host",
        b"x-original-url",
        b"x-rewrite-url",
        b"x-host",
    ];
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
        || NAMES.iter().any(|other| name.eq_ignore_ascii_case(other))
        || name.get(..12).is_some_and(|start| start.eq_ignore_ascii_case(b"x-forwarded-"))
}

impl ReplacementScope {
    /// Returns `true` if the word may be replaced in the value of a field, between `before` and `after`.
    fn allows_in_field(&self, name: &[u8], before: &[u8], after: &[u8]) -> bool {
        if !self.headers.is_empty() {
            return self.headers.iter().any(|header| header.as_bytes().eq_ignore_ascii_case(name));
        }
        if after.is_empty() && (before.is_empty() || is_scheme(before)) {
            return true;
        }
        if name.eq_ignore_ascii_case(b"cookie") {
            is_parameter(before, after, b';')
        } else {
            name.eq_ignore_ascii_case(b"authorization") && is_parameter(before, after, b',')
        }
    }

    /// Returns `true` if the word may be replaced in the `user:password` of `Basic`.
    fn allows_in_credentials(&self, before: &[u8], after: &[u8]) -> bool {
        let is_user = before.is_empty() && after.first() == Some(&b':');
        let is_password =
            after.is_empty() && before.iter().position(|byte| *byte == b':') == before.len().checked_sub(1);
        !self.headers.is_empty() || is_user || is_password
    }

    /// Returns `true` if the word may be replaced in a query or form that consists of `before`, the word and
    /// `after`.
    fn allows_in_form(&self, before: &[u8], after: &[u8]) -> bool {
        let pair = before.rsplit(|byte| *byte == b'&').next().unwrap_or_default();
        let (name, value) = match memchr::memchr(b'=', pair) {
            Some(at) => (Some(&pair[..at]), &pair[at + 1..]),
            None => (None, pair),
        };
        if !self.parameters.is_empty() {
            let name = name.map(decode_form);
            return name.is_some_and(|name| self.parameters.iter().any(|wanted| wanted.as_bytes() == &*name));
        }
        value.is_empty() && matches!(after.first(), None | Some(b'&'))
    }

    /// Returns `true` if the word may be replaced in JSON. `selected` are the ranges that the pointers
    /// select.
    fn allows_in_json(&self, selected: &[Range<usize>], text: &[u8], word: &Range<usize>) -> bool {
        if !self.pointers.is_empty() {
            return selected.iter().any(|range| range.start <= word.start && word.end <= range.end);
        }
        let (before, after) = (&text[..word.start], &text[word.end..]);
        // A quotation mark after a backslash is a character of the string.
        let begins = before.ends_with(b"\"") && !before.ends_with(b"\\\"");
        let rest = after.strip_prefix(b"\"").map(<[u8]>::trim_ascii_start);
        begins && rest.is_some_and(|rest| rest.first() != Some(&b':'))
    }
}

/// Returns `true` if the word is delimited on both sides, so it cannot be part of a URL.
fn is_alone(before: &[u8], after: &[u8]) -> bool {
    let is_end = |byte: Option<&u8>| {
        byte.is_none_or(|byte| byte.is_ascii_whitespace() || matches!(byte, b'<' | b'>' | b'"' | b'\''))
    };
    is_end(before.last()) && is_end(after.first())
}

/// Returns `true` if `before` is an authentication scheme, as in `Bearer WORD`.
fn is_scheme(before: &[u8]) -> bool {
    let scheme = before.trim_ascii_end();
    scheme.len() < before.len() && is_token(scheme)
}

/// Returns `true` if the word is the value of a parameter, quoted or not, in a list with that `separator`:
/// `Token key="WORD", n=1`.
fn is_parameter(before: &[u8], after: &[u8], separator: u8) -> bool {
    let before =
        before.rsplit(|byte| *byte == separator || byte.is_ascii_whitespace()).next().unwrap_or_default();
    let after = after.split(|byte| *byte == separator).next().unwrap_or_default().trim_ascii_end();
    let (before, after) = match (before.strip_suffix(b"\""), after.strip_prefix(b"\"")) {
        (Some(before), Some(after)) => (before, after),
        (None, None) => (before, after),
        _ => return false,
    };
    after.is_empty() && before.strip_suffix(b"=").is_some_and(is_token)
}

/// The replacement of the word in one request.
struct Swap<'a> {
    word: &'a WordTrie,
    scope: &'a ReplacementScope,
    secret: &'a str,
    /// Number of replacements that are still allowed.
    left: usize,
}

/// The occurrences of the word in a text.
type Found = Vec<Range<usize>>;

impl Swap<'_> {
    /// Replaces the word in the header fields. If one field of a name contains the word, all fields of that
    /// name are rewritten, in their order.
    fn fields(&mut self, fields: Fields<'_>, applied: &mut Applied) -> Result<bool, Fault> {
        let mut names: Vec<&[u8]> = Vec::new();
        let fields = fields.forwarded().filter(|(name, _)| !is_left_alone(name));
        for (name, value) in fields.clone() {
            let is_known = names.iter().any(|known| known.eq_ignore_ascii_case(name));
            if is_known || self.occurrences(name, value).is_none() {
                continue;
            }
            names.push(name);
            applied.fields.remove(name);
            for (same, value) in fields.clone().filter(|(other, _)| other.eq_ignore_ascii_case(name)) {
                match self.occurrences(same, value) {
                    Some(Occurrences::Plainly(found)) => {
                        applied.fields.add(same, &self.replace(Coding::Plain, value, &found)?);
                    }
                    Some(Occurrences::Credentials(credentials, found)) => {
                        let swapped = Zeroizing::new(self.replace(Coding::Plain, &credentials, &found)?);
                        let mut value = b"Basic ".to_vec();
                        base64::encode(&swapped, &mut value);
                        applied.fields.add(same, &value);
                    }
                    None => applied.fields.add(same, value),
                }
            }
        }
        Ok(!names.is_empty())
    }

    /// Returns the occurrences of the word in a field at which it may be replaced, if any.
    fn occurrences(&self, name: &[u8], value: &[u8]) -> Option<Occurrences> {
        let scope = self.scope;
        let found = self.find(Coding::Plain, value, |word| {
            scope.allows_in_field(name, &value[..word.start], &value[word.end..])
        });
        if !found.is_empty() {
            return Some(Occurrences::Plainly(found));
        }
        let (scheme, credentials) = value.split_at_checked(b"Basic ".len())?;
        let is_basic =
            KnownField::of(name) == KnownField::Authorization && scheme.eq_ignore_ascii_case(b"Basic ");
        let is_wanted = scope.headers.is_empty() || scope.allows_in_field(name, b"", b"");
        let credentials =
            (is_basic && is_wanted).then(|| base64::decode(credentials.trim_ascii())).flatten()?;
        let found = self.find(Coding::Plain, &credentials, |word| {
            scope.allows_in_credentials(&credentials[..word.start], &credentials[word.end..])
        });
        (!found.is_empty()).then(|| Occurrences::Credentials(Zeroizing::new(credentials), found))
    }

    /// Returns a query or form with the secret in place of the word; `None` if there is nothing to replace.
    fn form(&mut self, text: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let scope = self.scope;
        let found = self
            .find(Coding::Percent, text, |word| scope.allows_in_form(&text[..word.start], &text[word.end..]));
        self.text(Coding::Percent, text, &found)
    }

    /// Returns a body, decoded as `coding`, with the secret in place of the word; `None` if there is nothing
    /// to replace.
    fn body(&mut self, coding: Coding, text: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let scope = self.scope;
        let found = match coding {
            Coding::Percent => return self.form(text),
            Coding::Json => {
                let selected = scope.pointers.places(text).unwrap_or_default();
                let selected: Vec<_> = selected.into_iter().flatten().collect();
                self.find(Coding::Json, text, |word| scope.allows_in_json(&selected, text, word))
            }
            Coding::Plain => {
                self.find(Coding::Plain, text, |word| is_alone(&text[..word.start], &text[word.end..]))
            }
        };
        self.text(coding, text, &found)
    }

    fn text(&mut self, coding: Coding, text: &[u8], found: &Found) -> Result<Option<Vec<u8>>, Fault> {
        if found.is_empty() { Ok(None) } else { self.replace(coding, text, found).map(Some) }
    }

    /// Returns the occurrences of the word in `text` that `may` accepts: at most one more than the limit.
    fn find(&self, coding: Coding, text: &[u8], may: impl Fn(&Range<usize>) -> bool) -> Found {
        let mut all = Found::new();
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        find_all(self.word, coding, text, |start, end| {
            let found = index(start)..index(end);
            let overlaps = all.last().is_some_and(|before: &Range<usize>| found.start < before.end);
            if !overlaps && all.len() <= self.left && may(&found) {
                all.push(found);
            }
        });
        all
    }

    /// Returns `text` with the secret, encoded as the text is, at the occurrences in `found`.
    fn replace(&mut self, coding: Coding, text: &[u8], found: &Found) -> Result<Vec<u8>, Fault> {
        self.left = self.left.checked_sub(found.len()).ok_or_else(|| {
            Fault(format!("the placeholder occurs more than {OCCURRENCES_MAX} times in the request").into())
        })?;
        let mut secret = Zeroizing::new(Vec::new());
        match coding {
            Coding::Plain => secret.extend_from_slice(self.secret.as_bytes()),
            Coding::Percent => percent_encode(self.secret.as_bytes(), &mut secret),
            Coding::Json => egret_json::write_escaped(self.secret.as_bytes(), &mut secret),
        }
        // Allocated at once: a reallocation would leave memory with parts of the secret behind.
        let mut swapped = Vec::with_capacity(text.len() + found.len() * secret.len());
        let mut at = 0;
        for word in found {
            swapped.extend_from_slice(&text[at..word.start]);
            swapped.extend_from_slice(&secret);
            at = word.end;
        }
        swapped.extend_from_slice(&text[at..]);
        Ok(swapped)
    }
}

/// The occurrences of the word in a field.
enum Occurrences {
    /// In the plain value.
    Plainly(Found),
    /// In the decoded user and password of `Basic`, which are the first part.
    Credentials(Zeroizing<Vec<u8>>, Found),
}

#[cfg(test)]
mod tests;
