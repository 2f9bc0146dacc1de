//! Obfuscates HAR files: every value is replaced by its pseudonym unless it is excluded.
//!
//! These stay: names, the method, the status code and its registered reason phrase, the scheme, host and port
//! of the URL, times, sizes, media types, cookie attributes, the structure of bodies, `true`, `false`, `null`
//! and empty values. Names, hosts and lengths of lists can therefore leak information. Everything else is
//! replaced, including custom fields and comments: unknown data is never shown.
//!
//! A value has the same pseudonym wherever it appears and however it is encoded there. Sizes are those of the
//! recorded exchange, not of the obfuscated one.

use std::borrow::Cow;

use egret_clock::rfc3339;
use egret_json::tokenizer as json;
use serde_json::{Map, Value};

use crate::body::{Body, field_value};
use crate::exclusions::{Exclusions, MessageExclusions};
use crate::har::{
    Cached, Content, Cookie, Extra, Har, HarEntry, NameValue, Page, Param, PostData, Request, Response,
};
use crate::key::Key;
use crate::memo::{Memory, Pseudonymizer};
use crate::parameters::{self, Encodings};
use crate::pseudonym::{PREFIX, Pseudonym, is_pseudonym};
use crate::redact::Redact;
use crate::rewrite::Rewriter;
use crate::{base64, media, media_obfuscation, named, names, url};

pub use crate::redact::MessageKind;

/// Field of an entry with the method and key of its obfuscation: `hmac-sha256:0123456789abcdef`.
pub const MARK: &str = "_obfuscation";

/// Reason phrases that may be shown (RFC 9110 §15, RFC 6585, RFC 4918). A provider may write anything there.
const PHRASES: &str = "|OK|Created|Accepted|Non-Authoritative Information|No Content|Reset Content|Partial Content|Multi-Status\
|Multiple Choices|Moved Permanently|Found|See Other|Not Modified|Use Proxy|Temporary Redirect|Permanent Redirect|Bad Request\
|Unauthorized|Payment Required|Forbidden|Not Found|Method Not Allowed|Not Acceptable|Proxy Authentication Required\
|Request Timeout|Conflict|Gone|Length Required|Precondition Failed|Content Too Large|Payload Too Large\
|Request Entity Too Large|URI Too Long|Unsupported Media Type|Range Not Satisfiable|Expectation Failed|I'm a teapot\
|Misdirected Request|Unprocessable Content|Unprocessable Entity|Locked|Failed Dependency|Too Early|Upgrade Required\
|Precondition Required|Too Many Requests|Request Header Fields Too Large|Unavailable For Legal Reasons|Internal Server Error\
|Not Implemented|Bad Gateway|Service Unavailable|Gateway Timeout|HTTP Version Not Supported|Insufficient Storage\
|Network Authentication Required|Continue|Switching Protocols|Processing|Early Hints|";

/// Obfuscates values by a key, except for excluded ones. It keeps nothing of the values that it has
/// processed.
#[derive(Debug, Clone)]
pub struct Obfuscator {
    key: Key,
    exclusions: Exclusions,
}

impl Obfuscator {
    /// Returns an obfuscator with this key and these exclusions.
    pub fn new(key: Key, exclusions: Exclusions) -> Self {
        Self { key, exclusions }
    }

    /// Returns the key's [`Key::id`].
    pub fn key_id(&self) -> &str {
        self.key.id()
    }

    /// Returns an obfuscator for a body of this media type, to be pushed piece by piece and without content
    /// coding.
    pub fn body(&self, message: MessageKind, media_type: &str) -> Body<'_> {
        Body::new(&self.key, self.side(message), media_type)
    }

    /// Obfuscates a whole file.
    pub fn har(&self, har: &mut Har) {
        let log = &mut har.log;
        for entry in &mut log.entries {
            self.entry(entry);
        }
        for page in log.pages.iter_mut().flatten() {
            self.page(page);
        }
        for creator in std::iter::once(&mut log.creator).chain(&mut log.browser) {
            for text in [&mut creator.name, &mut creator.version] {
                if names::may_reveal_value(text) {
                    self.value(text);
                }
            }
            self.rest(&mut creator.comment, &mut creator.extra);
        }
        self.rest(&mut log.comment, &mut log.extra);
        self.extra(&mut har.extra);
    }

    /// Obfuscates one exchange, and marks it with [`MARK`].
    pub fn entry(&self, entry: &mut HarEntry) {
        self.request(&mut entry.request);
        self.response(&mut entry.response);
        self.optional(&mut entry.pageref);
        self.time(&mut entry.started_date_time);
        let timings = &mut entry.timings;
        self.rest(&mut timings.comment, &mut timings.extra);
        let cache = &mut entry.cache;
        for cached in [&mut cache.before_request, &mut cache.after_request] {
            if let Some(Cached::State(state)) = cached {
                self.value(&mut state.e_tag);
                self.time(&mut state.last_access);
                state.expires.take_if(|time| rfc3339::read(time).is_none());
                self.rest(&mut state.comment, &mut state.extra);
            }
        }
        self.rest(&mut cache.comment, &mut cache.extra);
        entry.server_ip_address.take_if(|address| address.parse::<std::net::IpAddr>().is_err());
        entry.connection.take_if(|id| id.len() > 20 || !id.bytes().all(|byte| byte.is_ascii_digit()));
        entry.extra.remove(MARK);
        self.rest(&mut entry.comment, &mut entry.extra);
        entry.extra.insert(MARK.to_owned(), Value::from(format!("hmac-sha256:{}", self.key.id())));
    }

    fn page(&self, page: &mut Page) {
        self.time(&mut page.started_date_time);
        self.value(&mut page.id);
        self.value(&mut page.title);
        let timings = &mut page.page_timings;
        self.rest(&mut timings.comment, &mut timings.extra);
        self.rest(&mut page.comment, &mut page.extra);
    }

    fn request(&self, request: &mut Request) {
        self.word(&mut request.method);
        self.word(&mut request.http_version);
        self.url(&mut request.url, &mut request.query_string);
        self.fields(MessageKind::Request, &mut request.headers, &mut request.cookies);
        if let Some(post_data) = &mut request.post_data {
            self.post_data(post_data, None);
        }
        self.rest(&mut request.comment, &mut request.extra);
    }

    fn response(&self, response: &mut Response) {
        self.word(&mut response.http_version);
        self.phrase(&mut response.status_text);
        self.redirect_url(&mut response.redirect_url);
        self.fields(MessageKind::Response, &mut response.headers, &mut response.cookies);
        self.content(&mut response.content, None);
        self.rest(&mut response.comment, &mut response.extra);
    }

    fn fields(&self, message: MessageKind, headers: &mut [NameValue], cookies: &mut [Cookie]) {
        for header in headers {
            self.field(message, header);
        }
        for cookie in cookies {
            self.cookie(message, cookie);
        }
    }

    /// Obfuscates a body that is available as a whole.
    fn whole(
        &self,
        side: &MessageExclusions,
        media_type: &str,
        bytes: &[u8],
        encodings: &mut Encodings,
        memo: Memory<'_>,
    ) -> String {
        let pseudonymizer = Pseudonymizer { key: &self.key, memo };
        match String::from_utf8(Body::obfuscate(pseudonymizer, side, media_type, bytes, encodings)) {
            Ok(text) => text,
            // A body that is excluded but is not text cannot be written as text.
            Err(_) => self.key.text(bytes).to_string(),
        }
    }

    fn param(&self, param: &mut Param, encodings: &Encodings) {
        let name = encodings.read(&param.name);
        let is_kept = self.exclusions.request.body.field(&String::from_utf8_lossy(&name));
        self.name(&mut param.name, &name, encodings.is_bare(&name) && !is_kept);
        if let Some(value) = param.value.as_mut().filter(|value| !is_kept && !value.is_empty()) {
            let media_type = param.content_type.as_deref().unwrap_or_default();
            let obfuscated = field_value(&self.key, media_type, &encodings.read(value));
            *value = String::from_utf8_lossy(&obfuscated).into_owned();
        }
        self.optional(&mut param.file_name);
        if let Some(media_type) = &mut param.content_type {
            *media_type = media_obfuscation::obfuscate(&self.key, media_type);
        }
        self.rest(&mut param.comment, &mut param.extra);
    }

    /// Obfuscates one parameter as it is written in the URL.
    pub(crate) fn url_parameter(&self, parameter: &str) -> String {
        let side = &self.exclusions.request;
        parameters::obfuscate(&self.key, parameter, |name| side.query(name), &mut Encodings::default())
    }

    /// Returns the pseudonym of a path segment by its position, or `None` if it is kept.
    pub(crate) fn segment(&self, index: usize, segment: &str) -> Option<Pseudonym> {
        url::obfuscate_segment(&self.key, &self.exclusions.request, index, segment)
    }

    /// Obfuscates a parameter from the list of those in a URL with these spellings.
    pub(crate) fn parameter(&self, parameter: &mut NameValue, encodings: &Encodings) {
        let name = encodings.read(&parameter.name);
        let is_kept = self.exclusions.request.query(&String::from_utf8_lossy(&name));
        self.name(
            &mut parameter.name,
            &name,
            encodings.is_bare(&name) && parameter.value.is_empty() && !is_kept,
        );
        if !is_kept && !parameter.value.is_empty() {
            parameter.value = self.key.text(&encodings.read(&parameter.value)).to_string();
        }
        self.rest(&mut parameter.comment, &mut parameter.extra);
    }

    /// Obfuscates the value of a header field. Fields with a known structure keep it.
    fn header(&self, side: &MessageExclusions, name: &str, value: &str) -> String {
        if value.is_empty() || side.header(name) {
            return value.to_owned();
        }
        match name.to_ascii_lowercase().as_str() {
            "cookie" => value.split(';').map(|pair| self.pair(side, pair)).collect::<Vec<_>>().join("; "),
            // Recorders join several fields with a line end.
            "set-cookie" => {
                value.split('\n').map(|line| self.set_cookie(side, line)).collect::<Vec<_>>().join("\n")
            }
            "authorization" | "proxy-authorization" => self.credentials(value),
            "location" | "content-location" | "referer" => {
                self.reference(&MessageExclusions::default(), value)
            }
            ":path" => self.reference(side, value),
            _ => self.key.text(value.as_bytes()).to_string(),
        }
    }

    fn reference(&self, side: &MessageExclusions, text: &str) -> String {
        url::obfuscate(&self.key, side, text, &mut Encodings::default())
    }

    fn credentials(&self, value: &str) -> String {
        match named::scheme(value) {
            Some((scheme, rest)) => format!("{scheme} {}", self.key.text(rest.as_bytes())),
            None => self.key.text(value.as_bytes()).to_string(),
        }
    }

    /// Obfuscates the `name=value` of a cookie (RFC 6265 §4.1.1).
    fn pair(&self, side: &MessageExclusions, pair: &str) -> String {
        match pair.trim().split_once('=') {
            None if pair.trim().is_empty() => String::new(),
            None => self.key.text(pair.trim().as_bytes()).to_string(),
            Some((name, value)) => {
                let mut obfuscated = name.to_owned();
                self.name(&mut obfuscated, name.as_bytes(), !media::is_token(name));
                format!("{obfuscated}={}", self.cookie_value(side, name, value))
            }
        }
    }

    /// Obfuscates the value of a cookie. Quotes are not part of it.
    fn cookie_value(&self, side: &MessageExclusions, name: &str, value: &str) -> String {
        let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        if inner.is_empty() || side.cookie(name) {
            return value.to_owned();
        }
        self.key.text(inner.as_bytes()).to_string()
    }

    fn set_cookie(&self, side: &MessageExclusions, line: &str) -> String {
        let mut parts = line.split(';');
        let pair = self.pair(side, parts.next().unwrap_or_default());
        let attributes = parts.map(|attribute| self.attribute(attribute.trim()));
        std::iter::once(pair).chain(attributes).collect::<Vec<_>>().join("; ")
    }

    fn attribute(&self, attribute: &str) -> String {
        let (name, value) = attribute.split_once('=').unwrap_or((attribute, ""));
        let lower = name.to_ascii_lowercase();
        let is_plain = match lower.as_str() {
            "secure" | "httponly" | "partitioned" => value.is_empty(),
            "max-age" => value.len() <= 20 && value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'),
            "expires" => is_cookie_date(value),
            "samesite" => is_same_site(value),
            "priority" => ["low", "medium", "high"].contains(&value.to_ascii_lowercase().as_str()),
            "domain" => url::is_host(value),
            "path" => return format!("{name}={}", self.cookie_path(value)),
            _ => attribute.is_empty(),
        };
        if is_plain { attribute.to_owned() } else { self.key.text(attribute.as_bytes()).to_string() }
    }

    /// Obfuscates a cookie path like the path of a URL, so it can still be matched with URLs.
    fn cookie_path(&self, path: &str) -> String {
        url::obfuscate_path(&self.key, &MessageExclusions::default(), path)
    }

    /// Obfuscates a name if `is_none` says that it is not one, or if it may reveal a value. `decoded` is the
    /// name without encoding.
    fn name(&self, name: &mut String, decoded: &[u8], is_none: bool) {
        if is_none || names::is_unusual_name(&String::from_utf8_lossy(decoded)) {
            *name = self.key.text(decoded).to_string();
        }
    }

    fn time(&self, time: &mut String) {
        if rfc3339::read(time).is_none() {
            self.value(time);
        }
    }

    fn optional(&self, value: &mut Option<String>) {
        if let Some(value) = value {
            self.value(value);
        }
    }

    /// Obfuscates the comment and custom fields that any HAR object may have.
    fn rest(&self, comment: &mut Option<String>, extra: &mut Extra) {
        self.optional(comment);
        self.extra(extra);
    }

    /// Obfuscates custom fields as JSON. Fields that cannot be rewritten, for example because of deep
    /// nesting, are removed.
    fn extra(&self, extra: &mut Extra) {
        if !extra.is_empty() {
            let rewritten = self.rewritten(extra).unwrap_or_default();
            *extra = rewritten.into_iter().map(|(name, value)| (own_name(name), value)).collect();
        }
    }

    fn rewritten(&self, extra: &Extra) -> Option<Map<String, Value>> {
        let side = MessageExclusions::default();
        let text = serde_json::to_vec(extra).ok()?;
        let mut rewriter = Rewriter::new(Pseudonymizer { key: &self.key, memo: None }, &side.body);
        let mut tokenizer = json::Tokenizer::new();
        tokenizer.push(&text, &mut rewriter).ok()?;
        tokenizer.finish(&mut rewriter).ok()?;
        serde_json::from_slice(&rewriter.out).ok()
    }

    pub(crate) fn side(&self, message: MessageKind) -> &MessageExclusions {
        match message {
            MessageKind::Request => &self.exclusions.request,
            MessageKind::Response => &self.exclusions.response,
        }
    }
}

impl Redact for Obfuscator {
    fn value(&self, value: &mut String) {
        if !value.is_empty() {
            *value = self.key.text(value.as_bytes()).to_string();
        }
    }

    fn word(&self, word: &mut String) {
        if word.len() > 20 || !word.split('/').all(|part| part.is_empty() || media::is_token(part)) {
            self.value(word);
        }
    }

    fn phrase(&self, phrase: &mut String) {
        if phrase.contains('|') || !PHRASES.contains(&format!("|{phrase}|")) {
            self.value(phrase);
        }
    }

    fn media_type(&self, media_type: &mut String) {
        *media_type = media_obfuscation::obfuscate(&self.key, media_type);
    }

    fn redirect_url(&self, url: &mut String) {
        if !self.exclusions.response.header("location") {
            *url = self.reference(&MessageExclusions::default(), url);
        }
    }

    fn url(&self, url: &mut String, parameters: &mut [NameValue]) {
        let mut encodings = Encodings::default();
        *url = url::obfuscate(&self.key, &self.exclusions.request, url, &mut encodings);
        for parameter in parameters {
            self.parameter(parameter, &encodings);
        }
    }

    fn field(&self, message: MessageKind, header: &mut NameValue) {
        header.value = self.header(self.side(message), &header.name, &header.value);
        let name = header.name.clone();
        // Recorders of HTTP/2 write pseudo-header fields such as `:authority`.
        let is_word = media::is_token(name.strip_prefix(':').unwrap_or(&name));
        self.name(&mut header.name, name.as_bytes(), !is_word);
        self.rest(&mut header.comment, &mut header.extra);
    }

    fn cookie(&self, message: MessageKind, cookie: &mut Cookie) {
        let (side, header) = match message {
            MessageKind::Request => (&self.exclusions.request, "cookie"),
            MessageKind::Response => (&self.exclusions.response, "set-cookie"),
        };
        if !side.header(header) {
            cookie.value = self.cookie_value(side, &cookie.name, &cookie.value);
            cookie.path = cookie.path.take().map(|path| self.cookie_path(&path));
        }
        let name = cookie.name.clone();
        self.name(&mut cookie.name, name.as_bytes(), !media::is_token(&name));
        if let Some(domain) = cookie.domain.as_mut().filter(|domain| !url::is_host(domain)) {
            self.value(domain);
        }
        cookie.expires.take_if(|time| rfc3339::read(time).is_none());
        let same_site =
            cookie.extra.shift_remove("sameSite").filter(|value| value.as_str().is_some_and(is_same_site));
        self.rest(&mut cookie.comment, &mut cookie.extra);
        cookie.extra.extend(same_site.map(|value| ("sameSite".to_owned(), value)));
    }

    fn post_data(&self, post_data: &mut PostData, memo: Memory<'_>) -> bool {
        let side = &self.exclusions.request;
        let mut encodings = Encodings::default();
        let extra = &mut post_data.extra;
        let declared = ["encoding", "_encoding"].map(|name| extra.shift_remove(name));
        let encoding = declared.iter().flatten().find_map(Value::as_str);
        if let Some(text) = &mut post_data.text {
            let bytes = decoded(text, encoding);
            *text = self.whole(side, &post_data.mime_type, &bytes, &mut encodings, memo);
        }
        for param in post_data.params.iter_mut().flatten() {
            self.param(param, &encodings);
        }
        post_data.mime_type = media_obfuscation::obfuscate(&self.key, &post_data.mime_type);
        self.rest(&mut post_data.comment, &mut post_data.extra);
        is_no_pseudonym(post_data.text.as_deref())
    }

    fn content(&self, content: &mut Content, memo: Memory<'_>) -> bool {
        let side = &self.exclusions.response;
        if let Some(text) = content.text.take() {
            let bytes = decoded(&text, content.encoding.take().as_deref());
            content.text =
                Some(self.whole(side, &content.mime_type, &bytes, &mut Encodings::default(), memo));
        }
        content.encoding = None;
        self.media_type(&mut content.mime_type);
        self.rest(&mut content.comment, &mut content.extra);
        is_no_pseudonym(content.text.as_deref())
    }

    fn as_obfuscator(&self) -> Option<&Obfuscator> {
        Some(self)
    }
}

/// Returns `true` if a body was valid JSON: others become a single pseudonym, and no JSON text begins like
/// one.
fn is_no_pseudonym(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.as_bytes().starts_with(PREFIX))
}

/// Prepends the underscore that names of custom fields have in HAR 1.2 if a pseudonym has replaced the name.
fn own_name(name: String) -> String {
    if is_pseudonym(name.as_bytes()) { format!("_{name}") } else { name }
}

/// Decodes a recorded text to bytes. A text that is not valid in the given encoding is taken as it is.
fn decoded<'a>(text: &'a str, encoding: Option<&str>) -> Cow<'a, [u8]> {
    let bytes = encoding.filter(|encoding| encoding.eq_ignore_ascii_case("base64"));
    match bytes.and_then(|_| base64::decode(text.as_bytes())) {
        Some(bytes) => Cow::Owned(bytes),
        None => Cow::Borrowed(text.as_bytes()),
    }
}

/// Returns `true` for the values of the attribute `SameSite`.
pub(crate) fn is_same_site(value: &str) -> bool {
    ["lax", "strict", "none"].contains(&value.to_ascii_lowercase().as_str())
}

/// Returns `true` if a text can be the date of a cookie (RFC 6265 §5.1.1): short numbers, and names of days,
/// months and zones.
fn is_cookie_date(text: &str) -> bool {
    const WORDS: &str = "|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun|gmt|utc|monday|tuesday\
|wednesday|thursday|friday|saturday|sunday|";
    let is_number = |part: &str| part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_word =
        |part: &str| !part.contains('|') && WORDS.contains(&format!("|{}|", part.to_ascii_lowercase()));
    text.len() <= 40 && text.split([' ', ',', ':', '-']).all(|part| is_number(part) || is_word(part))
}

#[cfg(test)]
mod tests;
