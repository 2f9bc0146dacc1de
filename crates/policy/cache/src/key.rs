//! Cache keys: what a request asks for, and on whose behalf.
//!
//! A key is a keyed hash: the first 128 bits of SHA-256 over a secret and the parts of the request with their
//! lengths. Two requests cannot share a key by accident or by design, and a key reveals nothing about a
//! credential. Only fields that are forwarded to the provider count. A field whose name looks like a
//! credential or an identity is part of the key. With such a field, all others are too, except those known
//! not to identify the caller. Including too much costs misses; including too little would show one
//! customer's response to another.

use std::borrow::Cow;
use std::net::IpAddr;

use aws_lc_rs::digest::{SHA256, digest};
use egret_clock::planted;
use egret_items::opaque;
use egret_json::pointer::Pointers;
use egret_match::target::{normal_path, normal_query};
use egret_message::request_target::split_query;
use egret_message::{Fields, Request};

use super::config::{CacheConfig, KeyConfig, QueryKey};

/// The secret of the cache keys. Without it, keys reveal nothing.
pub struct KeySecret([u8; 32]);

opaque!(KeySecret);

impl KeySecret {
    /// Restores a stored secret, so keys stay the same.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(*secret)
    }

    #[inline]
    pub(super) fn digest(&self, domain: &[u8]) -> Digest {
        let mut digest = Digest { bytes: [0; Digest::BYTES], len: 0 };
        digest.push(&self.0);
        digest.part(domain);
        digest
    }
}

/// A keyed hash under construction, over a secret and parts.
///
/// Only half of the SHA-256 result is used, which prevents length extension; HMAC needs another hash for
/// that. Parts are buffered first, so one call hashes all of them.
pub(super) struct Digest {
    bytes: [u8; Self::BYTES],
    len: usize,
}

impl Digest {
    /// Size of the buffer. When it is full, its hash replaces its content. A secret or a part takes only a
    /// fraction of it.
    const BYTES: usize = 256;
    /// Replaces the length of a part longer than [`PART_MAX`](Self::PART_MAX); its hash follows.
    const LONG: u8 = 254;
    /// Replaces the length of a missing part.
    const MISSING: u8 = 255;
    /// Maximum length of a part that is buffered verbatim.
    const PART_MAX: usize = 64;

    /// Adds a part, delimited by its length.
    pub fn part(&mut self, part: &[u8]) {
        match u8::try_from(part.len()) {
            Ok(len) if part.len() <= Self::PART_MAX => {
                self.length_mark(len);
                self.push(part);
            }
            _ => {
                self.length_mark(Self::LONG);
                self.push(digest(&SHA256, part).as_ref());
            }
        }
    }

    /// Adds a case-insensitive name.
    fn name(&mut self, name: &[u8]) {
        let mut lower = [0; Self::PART_MAX];
        match lower.get_mut(..name.len()) {
            Some(lower) => {
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                self.part(lower);
            }
            None => self.part(&name.to_ascii_lowercase()),
        }
    }

    /// Adds a missing part, which differs from an empty one.
    pub fn missing(&mut self) {
        self.length_mark(Self::MISSING);
    }

    pub fn optional(&mut self, part: Option<&[u8]>) {
        match part {
            Some(part) => self.part(part),
            None => self.missing(),
        }
    }

    /// Adds a length, or one of its replacements.
    #[inline]
    fn length_mark(&mut self, mark: u8) {
        if self.len == Self::BYTES {
            self.fold();
        }
        self.bytes[self.len] = mark;
        self.len += 1;
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.len + bytes.len() > Self::BYTES {
            self.fold();
        }
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Replaces the content of the buffer with its hash.
    #[cold]
    fn fold(&mut self) {
        let hash = digest(&SHA256, &self.bytes[..self.len]);
        let hash = hash.as_ref();
        self.bytes[..hash.len()].copy_from_slice(hash);
        self.len = hash.len();
    }

    pub fn finish(&self) -> u128 {
        let hash = digest(&SHA256, &self.bytes[..self.len]);
        hash.as_ref().first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes))
    }
}

/// The key of a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// Identifies the request and the partition.
    pub id: u128,
    /// Identifies the URL without the query, in all partitions. A change of that URL invalidates the whole
    /// group.
    pub group: u128,
}

impl From<CacheKey> for egret_store::entries::EntryKey {
    fn from(CacheKey { id, group }: CacheKey) -> Self {
        Self { id, group }
    }
}

/// The cache partition of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partition {
    /// Shared by all clients.
    Shared,
    /// Shared by all requests without a credential.
    Anonymous,
    /// The partition of one credential.
    Credential,
}

/// The target of a request, and what the gateway adds to it.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyContext<'a> {
    /// The path of the provider's URL, which precedes the request's own: empty, or with a slash at its
    /// beginning and none at its end.
    pub base: &'a [u8],
    /// `true` if an empty path of the request is sent as `base` alone, without a trailing slash.
    pub has_bare_base: bool,
    /// Host (in lower case) and port that are sent to the provider, if they differ from its own.
    pub kept_host: Option<(&'a str, u16)>,
    /// The account whose credential the gateway adds.
    pub account: Option<&'a str>,
    /// A digest of that credential. With a new secret, an account may belong to another customer.
    pub credential: Option<&'a [u8; 32]>,
    /// The client's address that the gateway adds to `X-Forwarded-For`.
    pub client: Option<IpAddr>,
}

/// A URL, reduced to what the cache distinguishes.
#[derive(Debug, Clone)]
pub(super) struct Url<'a> {
    pub tls: bool,
    pub host: &'a str,
    pub port: u16,
    /// Host and port that are sent to the provider instead of `host` and `port`.
    pub kept_host: Option<(&'a str, u16)>,
    /// Normalized, in two pieces.
    pub path: [Cow<'a, [u8]>; 2],
    /// Normalized.
    pub query: Option<Cow<'a, [u8]>>,
}

impl<'a> Url<'a> {
    pub fn of(request: &Request<'a>, context: &KeyContext<'a>) -> Self {
        let Request { tls, host, port, path, query, .. } = *request;
        let is_bare = context.has_bare_base && path == b"/";
        let path = if is_bare { Cow::default() } else { normal_path(path) };
        let path = [Cow::Borrowed(context.base), path];
        Self { tls, host, port, kept_host: context.kept_host, path, query: query.map(normal_query) }
    }

    /// Returns the group of the URL, which covers all queries.
    pub fn group(&self, secret: &KeySecret) -> u128 {
        let mut digest = secret.digest(b"group");
        digest.part(&[u8::from(self.tls)]);
        digest.part(self.host.as_bytes());
        digest.part(&self.port.to_le_bytes());
        if let Some((host, port)) = self.kept_host {
            digest.part(host.as_bytes());
            digest.part(&port.to_le_bytes());
        }
        let [base, path] = &self.path;
        if base.is_empty() {
            digest.part(path);
        } else {
            digest.part(&self.path.concat());
        }
        digest.finish()
    }

    /// Serializes all that its group depends on.
    pub fn save(&self) -> Vec<u8> {
        let (kept_host, kept_port) = self.kept_host.unwrap_or(("", 0));
        let flags = u8::from(self.tls) | u8::from(self.kept_host.is_some()) << 1;
        let mut saved = vec![flags];
        saved.extend_from_slice(&self.port.to_le_bytes());
        saved.extend_from_slice(&kept_port.to_le_bytes());
        for host in [self.host, kept_host] {
            // A host has 255 bytes at most.
            saved.push(u8::try_from(host.len()).unwrap_or(u8::MAX));
            saved.extend_from_slice(host.as_bytes());
        }
        saved.extend_from_slice(&self.path.concat());
        saved
    }

    /// Deserializes the output of [`save`](Self::save); `None` if it is invalid.
    pub fn load(saved: &'a [u8]) -> Option<Self> {
        let (&[flags], rest) = saved.split_first_chunk()?;
        let (port, rest) = rest.split_first_chunk()?;
        let (kept_port, rest) = rest.split_first_chunk()?;
        let (host, rest) = saved_host(rest)?;
        let (kept_host, path) = saved_host(rest)?;
        let kept_host = (flags & 2 != 0).then_some((kept_host, u16::from_le_bytes(*kept_port)));
        let (tls, port, path) = (flags & 1 != 0, u16::from_le_bytes(*port), [Cow::default(), path.into()]);
        Some(Self { tls, host, port, kept_host, path, query: None })
    }

    /// Returns the URL as text, with the host sent to the provider: `https://host:443/path?query`.
    pub fn text(&self) -> Vec<u8> {
        let scheme = if self.tls { "https" } else { "http" };
        let (host, port) = self.kept_host.unwrap_or((self.host, self.port));
        let mut text = format!("{scheme}://{host}:{port}").into_bytes();
        text.extend_from_slice(&self.path.concat());
        if let Some(query) = &self.query {
            text.push(b'?');
            text.extend_from_slice(query);
        }
        text
    }
}

/// Splits a host off, after its length.
fn saved_host(saved: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = saved.split_first()?;
    let (host, rest) = rest.split_at_checked(usize::from(*length))?;
    Some((std::str::from_utf8(host).ok()?, rest))
}

/// Returns the label of the stored responses for `url`, or for URLs that begin with it. The port is added if
/// it is missing: `https://host/path`. Returns `None` if `url` is not a valid URL.
pub fn label_of(url: &str) -> Option<Vec<u8>> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let port = match scheme.as_str() {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority = authority.to_ascii_lowercase();
    let has_port = authority.rfind(':') > authority.rfind(']');
    if authority.is_empty() || authority.contains('@') {
        return None;
    }
    let port = if has_port { String::new() } else { format!(":{port}") };
    let mut label = format!("{scheme}://{authority}{port}").into_bytes();
    let (path, query) = split_query(path.as_bytes());
    label.extend_from_slice(&normal_path(path));
    if let Some(query) = query {
        label.push(b'?');
        label.extend_from_slice(&normal_query(query));
    }
    Some(label)
}

/// Computes keys as configured.
#[derive(Debug)]
pub(super) struct Keyer {
    /// The flow's name: flows do not share responses.
    space: Box<str>,
    shared: bool,
    config: KeyConfig,
    credentials: Vec<String>,
    body: Pointers,
}

impl Keyer {
    pub fn new(config: &CacheConfig, space: &str) -> Self {
        Self {
            space: space.into(),
            shared: config.shared,
            config: config.key.clone(),
            credentials: config.credentials.clone(),
            body: Pointers::new(config.key.body.iter().map(String::as_str)),
        }
    }

    /// Returns the key and partition of a request; `None` if its body is part of the key and is not buffered,
    /// or cannot be parsed.
    pub fn key(
        &self,
        secret: &KeySecret,
        request: &Request<'_>,
        context: &KeyContext<'_>,
    ) -> Option<(CacheKey, Partition)> {
        let url = Url::of(request, context);
        let group = if planted!(CacheMixed) { 0 } else { url.group(secret) };
        let query = url.query.as_deref();
        let request = &Request { query, ..*request };
        let mut digest = secret.digest(b"key");
        digest.part(self.space.as_bytes());
        digest.part(&group.to_le_bytes());
        // A stored response to GET also serves HEAD.
        let is_query = request.method != b"HEAD";
        digest.part(if is_query { request.method } else { b"GET" });
        self.query(request, &mut digest);
        for name in &self.config.headers {
            fields_of(request.fields, name, &mut digest);
        }
        digest.optional(self.config.consumer.then_some(request.consumer()).flatten());
        if request.method == b"POST" {
            self.body(request.body?, &mut digest)?;
            fields_of(request.fields, "content-type", &mut digest);
            fields_of(request.fields, "content-encoding", &mut digest);
        }
        let partition = self.partition(request, context, &mut digest);
        Some((CacheKey { id: digest.finish(), group }, partition))
    }

    fn query(&self, request: &Request<'_>, digest: &mut Digest) {
        let KeyConfig { query, parameters, .. } = &self.config;
        if *query == QueryKey::Exact && parameters.is_empty() {
            return digest.optional(request.query);
        }
        let is_named = |name: &[u8]| {
            let is_wanted = *query != QueryKey::Ignored
                && (parameters.is_empty() || parameters.iter().any(|wanted| wanted.as_bytes() == name));
            is_wanted || (!self.shared && is_credential_parameter(name))
        };
        let mut kept: Vec<_> = request.parameters().filter(|(name, _)| is_named(name)).collect();
        if *query == QueryKey::Sorted {
            // Parameters of the same name keep their order, which may matter.
            kept.sort_by_key(|(name, _)| *name);
        }
        for (name, value) in kept {
            digest.part(name);
            digest.part(value);
        }
        digest.missing();
    }

    fn body(&self, body: &[u8], digest: &mut Digest) -> Option<()> {
        if self.body.is_empty() {
            digest.part(body);
            return Some(());
        }
        for part in self.body.find(body)? {
            digest.optional(part);
        }
        Some(())
    }

    /// Adds the partition to the key, and returns its kind.
    fn partition(&self, request: &Request<'_>, context: &KeyContext<'_>, digest: &mut Digest) -> Partition {
        let mut shows_credential = context.account.is_some();
        if self.shared {
            digest.part(b"shared");
        } else {
            digest.part(b"isolated");
            digest.optional(context.account.map(str::as_bytes));
            digest.optional(context.credential.map(|credential| &credential[..]));
            for name in &self.credentials {
                shows_credential |= fields_of(request.fields, name, digest);
            }
        }
        let mut has_others = false;
        for (name, value) in request.fields.forwarded() {
            match Nature::of(name) {
                Nature::Harmless => continue,
                Nature::Target => {}
                Nature::Other | Nature::Credential if self.shared => continue,
                Nature::Credential => shows_credential = true,
                Nature::Other => {
                    has_others = true;
                    continue;
                }
            }
            digest.name(name);
            digest.part(value);
        }
        if self.shared {
            return Partition::Shared;
        }
        shows_credential |= request.parameters().any(|(name, _)| is_credential_parameter(name));
        if !shows_credential {
            return Partition::Anonymous;
        }
        if has_others || context.client.is_some() {
            digest.missing();
            for (name, value) in request.fields.forwarded() {
                if Nature::of(name) == Nature::Other {
                    digest.name(name);
                    digest.part(value);
                }
            }
            // As if the client had sent the field.
            if let Some(client) = context.client {
                digest.name(b"x-forwarded-for");
                digest.part(client.to_string().as_bytes());
            }
        }
        Partition::Credential
    }
}

/// Adds all values of a configured field, in order. Returns `true` if there is one.
fn fields_of(fields: Fields<'_>, name: &str, digest: &mut Digest) -> bool {
    let mut is_there = false;
    for value in fields.all_unless_withdrawn(name.as_bytes()) {
        digest.part(value);
        is_there = true;
    }
    digest.missing();
    is_there
}

/// The role of a request field in the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nature {
    /// Does not identify the caller or the target: never part of the key.
    Harmless,
    /// Changes the target: always part of the key.
    Target,
    /// Identifies the caller: part of the key, unless the cache is `shared`.
    Credential,
    /// Unknown: part of the key if the request also has a credential.
    Other,
}

impl Nature {
    #[inline]
    fn of(name: &[u8]) -> Self {
        if is_harmless(name) {
            Self::Harmless
        } else if is_target(name) {
            Self::Target
        } else if is_credential_field(name) {
            Self::Credential
        } else {
            Self::Other
        }
    }
}

/// Returns `true` for a field that never belongs to the key. The match on the length of the name excludes
/// most fields quickly. The target of the request is in the key already, `Vary` covers content negotiation,
/// the cache itself evaluates conditions, ranges and directives, and ids of requests and spans are only for
/// tracing.
#[inline]
fn is_harmless(name: &[u8]) -> bool {
    let names: &[&[u8]] = match name.len() {
        2 => &[b"b3"],
        4 => &[b"host", b"date"],
        5 => &[b"range"],
        6 => &[b"accept", b"expect", b"pragma"],
        8 => &[b"if-match", b"if-range", b"priority"],
        9 => &[b"x-span-id"],
        10 => &[b"user-agent", b"tracestate", b"request-id", b"x-trace-id"],
        11 => &[b"traceparent"],
        12 => &[b"x-request-id", b"x-user-agent", b"sentry-trace"],
        13 => &[b"cache-control", b"if-none-match", b"uber-trace-id"],
        14 => &[b"content-length", b"accept-charset", b"correlation-id"],
        15 => &[
            b"accept-encoding",
            b"accept-language",
            b"idempotency-key",
            b"x-amzn-trace-id",
            b"amz-sdk-request",
        ],
        16 => &[b"x-correlation-id"],
        17 => &[b"if-modified-since", b"x-idempotency-key", b"client-request-id"],
        18 => &[b"x-datadog-trace-id"],
        19 => &[b"if-unmodified-since", b"x-client-request-id", b"x-datadog-parent-id"],
        21 => &[b"x-cloud-trace-context", b"amz-sdk-invocation-id"],
        22 => &[b"x-ms-client-request-id"],
        23 => &[b"elastic-apm-traceparent"],
        25 => &[b"upgrade-insecure-requests"],
        27 => &[b"x-datadog-sampling-priority"],
        _ => &[],
    };
    let is_of = |prefix: &[u8]| starts_with(name, prefix);
    names.iter().any(|other| name.eq_ignore_ascii_case(other))
        || is_of(b"sec-ch-")
        || is_of(b"sec-fetch-")
        || is_of(b"x-b3-")
}

/// Prefixes of the fields with which frameworks and proxies override the URL of the request line.
const TARGET_PREFIXES: [&[u8]; 5] =
    [b"x-original-", b"x-rewrite-", b"x-override-", b"x-envoy-original-", b"x-forwarded-"];
/// Complete names of such fields.
const TARGETS: [&[u8]; 7] = [
    b"forwarded",
    b"x-host",
    b"x-http-host-override",
    b"x-scheme",
    b"x-url-scheme",
    b"x-script-name",
    b"front-end-https",
];

fn is_target(name: &[u8]) -> bool {
    // The address of the client is not part of the URL.
    TARGETS.iter().any(|target| name.eq_ignore_ascii_case(target))
        || (TARGET_PREFIXES.iter().any(|prefix| starts_with(name, prefix))
            && !name.eq_ignore_ascii_case(b"x-forwarded-for"))
}

/// Parts of the names of fields and parameters that identify the caller: credentials, and the party on whose
/// behalf a credential is used.
const WORDS: [&[u8]; 18] = [
    b"auth",
    b"token",
    b"key",
    b"secret",
    b"session",
    b"cookie",
    b"credential",
    b"passw",
    b"signature",
    b"jwt",
    b"account",
    b"tenant",
    b"organi",
    b"project",
    b"customer",
    b"user",
    b"on-behalf",
    b"client",
];
/// The same, for field names only: query parameters are part of the key anyway.
const FIELD_WORDS: [&[u8]; 16] = [
    b"org",
    b"scope",
    b"workspace",
    b"team",
    b"merchant",
    b"company",
    b"namespace",
    b"select-",
    b"login",
    b"dpop",
    b"role",
    b"impersonat",
    b"subject",
    b"principal",
    b"identity",
    b"sudo",
];
/// Names that contain one of these words and do not identify the caller.
const OTHERS: [&[u8]; 2] = [b"cache-key", b"sec-websocket-key"];

/// Returns `true` if a field identifies the caller, judged by its name.
pub fn is_credential_field(name: &[u8]) -> bool {
    let is_other = || OTHERS.iter().any(|other| name.eq_ignore_ascii_case(other)) || is_harmless(name);
    WORDS.iter().chain(&FIELD_WORDS).any(|word| contains(name, word)) && !is_other()
}

/// Names of query parameters that are credentials without containing one of the words.
const PARAMETERS: [&[u8]; 5] = [b"appid", b"app_id", b"sig", b"sid", b"apikey"];

/// Returns `true` if a query parameter identifies the caller, judged by its name.
pub fn is_credential_parameter(name: &[u8]) -> bool {
    WORDS.iter().any(|word| contains(name, word))
        || PARAMETERS.iter().any(|other| name.eq_ignore_ascii_case(other))
}

fn starts_with(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn contains(name: &[u8], word: &[u8]) -> bool {
    name.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use egret_fixture::with_request;

    fn key_with(
        config: serde_json::Value,
        space: &str,
        lines: &str,
        body: Option<&str>,
        context: &KeyContext<'_>,
    ) -> Option<(CacheKey, Partition)> {
        let config: CacheConfig = serde_json::from_value(config).unwrap();
        let keyer = Keyer::new(&config, space);
        with_request("one", lines, |request| {
            let request = Request { body: body.map(str::as_bytes), ..*request };
            keyer.key(&KeySecret::new(&[7; 32]), &request, context)
        })
    }

    fn key(config: serde_json::Value, lines: &str) -> CacheKey {
        key_with(config, "f", lines, None, &KeyContext::default()).unwrap().0
    }

    const POST: &str = "POST https://a.example/x\nContent-Type: application/json";

    #[test]
    fn parts_are_told_apart_by_their_lengths_short_long_and_missing() {
        let secret = KeySecret::new(&[7; 32]);
        let of = |parts: &[Option<&[u8]>]| {
            let mut digest = secret.digest(b"test");
            for part in parts {
                digest.optional(*part);
            }
            digest.finish()
        };
        let long = [b'a'; Digest::PART_MAX + 1];
        let hash_of_long = digest(&SHA256, &long);
        // More parts than the buffer holds.
        let many = [Some(&long[..60]); 9];
        let lists: [&[Option<&[u8]>]; 12] = [
            &[],
            &[None],
            &[Some(b"")],
            &[Some(b""), Some(b"")],
            &[Some(b"ab"), Some(b"c")],
            &[Some(b"a"), Some(b"bc")],
            &[Some(b"\x01c")],
            &[Some(&long[..Digest::PART_MAX])],
            &many,
            &many[..8],
            &[Some(&long)],
            &[Some(hash_of_long.as_ref())],
        ];
        let distinct: std::collections::HashSet<_> = lists.iter().map(|parts| of(parts)).collect();
        assert_eq!(distinct.len(), lists.len());
        let other = KeySecret::new(&[8; 32]).digest(b"test").finish();
        assert!(!distinct.contains(&other) && secret.digest(b"t").finish() != of(&[]));
    }

    #[test]
    fn different_requests_have_different_keys() {
        let urls = [
            "GET https://a.example/x",
            "GET http://a.example/x",
            "GET https://b.example/x",
            "GET https://a.example/X",
            "GET https://a.example/x/",
            "GET https://a.example/x?",
            "GET https://a.example/x?a=1",
            "GET https://a.example/x?a=1&b=2",
            "GET https://a.example/x?b=2&a=1",
            "POST https://a.example/x",
        ];
        let keys = urls.map(|url| key_with(json!({}), "f", url, Some(""), &KeyContext::default()).unwrap().0);
        for (at, one) in keys.iter().enumerate() {
            assert!(keys[..at].iter().all(|other| other.id != one.id), "{}", urls[at]);
        }
        assert_eq!(keys[5].group, keys[0].group, "a change applies to every query");
        assert_eq!(key(json!({}), "HEAD https://a.example/x"), keys[0]);
        let base = KeyContext { base: b"/v1", ..KeyContext::default() };
        let under = key_with(json!({}), "f", "GET https://a.example/x", None, &base).unwrap().0;
        assert_eq!(under.group, key(json!({}), "GET https://a.example/v1/x").group);
        assert_ne!(key_with(json!({}), "g", urls[0], None, &KeyContext::default()).unwrap().0.id, keys[0].id);
    }

    #[test]
    fn a_field_that_does_not_go_on_counts_nowhere() {
        let bare = "GET https://a.example/x";
        for config in
            [json!({}), json!({ "credentials": ["x-shade"] }), json!({ "key": { "headers": ["x-shade"] } })]
        {
            for field in ["X-Shade: a", "X-Tenant: a", "X-Original-Url: /b"] {
                let name = field.split(':').next().unwrap();
                let taken_back = format!("{bare}\n{field}\nConnection: close, {name}");
                let (own, partition) =
                    key_with(config.clone(), "f", &taken_back, None, &KeyContext::default()).unwrap();
                assert_eq!((own, partition), (key(config.clone(), bare), Partition::Anonymous), "{field}");
            }
        }
    }

    #[test]
    fn fields_that_change_the_resource_change_the_key() {
        let bare = "GET https://a.example/x";
        for field in [
            "X-Original-URL: /b",
            "x-rewrite-url: /b",
            "X-Forwarded-Host: b",
            "Forwarded: host=b",
            "X-Host: b",
        ] {
            for config in [json!({}), json!({ "shared": true })] {
                let other = key(config.clone(), &format!("{bare}\n{field}"));
                assert_ne!(other.id, key(config, bare).id, "{field}");
            }
        }
        assert_eq!(key(json!({}), &format!("{bare}\nX-Forwarded-For: 10.0.0.1")), key(json!({}), bare));
    }

    #[test]
    fn with_a_new_secret_an_account_has_a_new_part() {
        let of = |credential: Option<&[u8; 32]>| {
            let context = KeyContext { account: Some("one"), credential, ..KeyContext::default() };
            key_with(json!({}), "f", "GET https://a.example/x", None, &context).unwrap().0.id
        };
        assert_eq!(of(Some(&[1; 32])), of(Some(&[1; 32])));
        assert!(of(Some(&[1; 32])) != of(Some(&[2; 32])) && of(Some(&[1; 32])) != of(None));
    }

    #[test]
    fn an_address_that_is_added_counts_like_the_field_of_a_client() {
        let of = |config: serde_json::Value, account, client: Option<&str>| {
            let client = client.map(|client| client.parse().unwrap());
            let context = KeyContext { account, client, ..KeyContext::default() };
            key_with(config, "f", "GET https://a.example/x", None, &context).unwrap().0.id
        };
        let (one, two) = (Some("10.0.0.1"), Some("10.0.0.2"));
        let keyed = |client| of(json!({}), Some("shop"), client);
        assert_eq!(keyed(one), keyed(one));
        assert!(keyed(one) != keyed(two) && keyed(one) != keyed(None));
        assert_eq!(of(json!({}), None, one), of(json!({}), None, two), "nothing identifies the caller");
        let shared = |client| of(json!({ "shared": true }), Some("shop"), client);
        assert_eq!(shared(one), shared(two));
    }

    proptest! {
        #[test]
        fn requests_with_a_credential_share_only_with_equal_fields(
            name in "[a-zA-Z0-9-]{1,30}",
            (one, other) in ("[a-z]{0,3}", "[a-z]{0,3}"),
            credential in prop::sample::select(vec!["Authorization: Bearer a", "X-Api-Key: a", "Cookie: a=b"]),
        ) {
            let lower = name.to_ascii_lowercase();
            let known = egret_http1::KnownField::of(lower.as_bytes());
            prop_assume!(!is_harmless(lower.as_bytes()) && !known.is_hop_by_hop() && one != other);
            // Fields that frame a message cannot be arbitrary.
            prop_assume!(!matches!(&*lower, "transfer-encoding" | "content-length" | "upgrade" | "connection"));
            let of = |value: &str| key(json!({}), &format!("GET https://a.example/x\n{credential}\n{name}: {value}")).id;
            prop_assert_ne!(of(&one), of(&other));
            prop_assert_ne!(of(&one), key(json!({}), &format!("GET https://a.example/x\n{credential}")).id);
        }
    }

    #[test]
    fn a_url_is_labelled_as_it_is_stored() {
        for (url, label) in [
            ("https://h.example/v1", Some("https://h.example:443/v1")),
            ("HTTP://H.example", Some("http://h.example:80/")),
            ("http://h:8080/a?b", Some("http://h:8080/a?b")),
            ("http://[::1]/a", Some("http://[::1]:80/a")),
            ("http://[::1]:81?q", Some("http://[::1]:81/?q")),
            ("h.example/v1", None),
            ("ftp://h.example/", None),
            ("https:///x", None),
            ("https://u@h.example/", None),
        ] {
            assert_eq!(label_of(url).as_deref(), label.map(str::as_bytes), "{url}");
        }
        let path = [Cow::Borrowed(&b"/v1"[..]), Cow::Borrowed(&b"/a"[..])];
        let query = Some(Cow::Borrowed(&b"q"[..]));
        let stored = Url { tls: true, host: "h.example", port: 443, kept_host: None, path, query };
        for url in ["https://h.example/v1/a?q", "https://h.example:443/v1/./%61?%71"] {
            assert_eq!(Some(stored.text()), label_of(url));
        }
        let kept = Url { kept_host: Some(("other.example", 81)), ..stored.clone() };
        assert_eq!(Some(kept.text()), label_of("https://other.example:81/v1/a?q"));
        let secret = KeySecret::new(&[7; 32]);
        assert_ne!(kept.group(&secret), stored.group(&secret));
    }

    #[test]
    fn each_credential_has_its_own_entries_unless_shared() {
        let bare = "GET https://a.example/x";
        for field in [
            "Authorization: Bearer a",
            "authorization: Bearer b",
            "Cookie: a=b",
            "X-Api-Key: a",
            "X-Goog-Api-Key: a",
            "Private-Token: a",
            "X-Amz-Security-Token: a",
            "Ocp-Apim-Subscription-Key: a",
            "Stripe-Account: a",
            "OpenAI-Organization: a",
            "X-Tenant-Id: a",
            "X-Custom: a",
        ] {
            let with = format!("{bare}\n{field}");
            let isolated = json!({ "credentials": ["x-custom"] });
            let (own, partition) =
                key_with(isolated.clone(), "f", &with, None, &KeyContext::default()).unwrap();
            assert_ne!(own.id, key(isolated, bare).id, "{field}");
            assert_eq!(
                (own.group, partition),
                (key(json!({}), bare).group, Partition::Credential),
                "{field}"
            );
            let shared = json!({ "shared": true });
            assert_eq!(key(shared.clone(), &with), key(shared, bare), "{field}");
        }
        for field in [
            "User-Agent: a",
            "Idempotency-Key: a",
            "Accept: a",
            "traceparent: a",
            "Sec-CH-UA-Client: a",
            "X-Ms-Client-Request-Id: a",
            "X-B3-TraceId: a",
            "Priority: u=1",
        ] {
            for credential in ["", "\nAuthorization: Bearer a"] {
                let bare = format!("{bare}{credential}");
                assert_eq!(key(json!({}), &format!("{bare}\n{field}")), key(json!({}), &bare), "{field}");
            }
        }
        for field in ["X-Custom: a", "Baggage: user=1", "Prefer: wait=5", "Origin: https://b.example"] {
            let anonymous = key(json!({}), &format!("{bare}\n{field}"));
            assert_eq!(anonymous, key(json!({}), bare), "{field}");
        }
        for field in ["X-Scope-OrgID: a", "DPoP: a", "X-Team: a", "Dropbox-API-Select-Admin: a", "X-Role: a"]
        {
            assert_ne!(key(json!({}), &format!("{bare}\n{field}")).id, key(json!({}), bare).id, "{field}");
        }
        let account = KeyContext { account: Some("one"), ..KeyContext::default() };
        assert_ne!(key_with(json!({}), "f", bare, None, &account).unwrap().0.id, key(json!({}), bare).id);
        assert_ne!(key(json!({ "shared": true }), bare).id, key(json!({}), bare).id);
        let swapped = ["X-Key: a\nX-Token: b", "X-Key: b\nX-Token: a"]
            .map(|fields| key(json!({}), &format!("{bare}\n{fields}")).id);
        assert_ne!(swapped[0], swapped[1]);
    }

    #[test]
    fn the_query_counts_as_configured_and_credentials_always() {
        let of = |config: serde_json::Value, query: &str| {
            key(config, &format!("GET https://a.example/x?{query}")).id
        };
        let sorted = json!({ "key": { "query": "sorted" } });
        assert_eq!(of(sorted.clone(), "a=1&b=2"), of(sorted.clone(), "b=2&a=1"));
        assert_ne!(of(sorted.clone(), "a=1&a=2"), of(sorted, "a=2&a=1"));
        let some = json!({ "key": { "parameters": ["a"] } });
        assert_eq!(of(some.clone(), "a=1&t=7"), of(some.clone(), "t=8&a=1"));
        assert_ne!(of(some.clone(), "a=1"), of(some.clone(), "a=2"));
        assert_ne!(of(some.clone(), "a=1&api_key=7"), of(some, "a=1&api_key=8"));
        let none = json!({ "key": { "query": "ignored" } });
        assert_eq!(of(none.clone(), "a=1"), of(none.clone(), "a=2"));
        assert_ne!(of(none.clone(), "access_token=1"), of(none, "access_token=2"));
        let shared = json!({ "shared": true, "key": { "query": "ignored" } });
        assert_eq!(of(shared.clone(), "access_token=1"), of(shared, "access_token=2"));
    }

    #[test]
    fn named_fields_consumer_and_body_members_count() {
        let bare = "GET https://a.example/x";
        let config = json!({ "key": { "headers": ["Accept"], "consumer": true } });
        for field in ["Accept: a", "X-Egret-Consumer: a"] {
            assert_ne!(
                key(config.clone(), &format!("{bare}\n{field}")).id,
                key(config.clone(), bare).id,
                "{field}"
            );
            assert_eq!(key(json!({}), &format!("{bare}\n{field}")).id, key(json!({}), bare).id, "{field}");
        }
        let of = |config: serde_json::Value, body| {
            key_with(config, "f", POST, body, &KeyContext::default()).map(|(key, _)| key.id)
        };
        assert_ne!(of(json!({}), Some("{}")), of(json!({}), Some("{ }")));
        assert_eq!(of(json!({}), None), None, "a body that is not buffered");
        let members = json!({ "key": { "body": ["/model", "/n"] } });
        let whole = of(members.clone(), Some(r#"{"model":"a","n":1,"user":"x"}"#));
        assert_eq!(whole, of(members.clone(), Some(r#"{"user":"y", "n":1, "model":"a"}"#)));
        assert_ne!(whole, of(members.clone(), Some(r#"{"model":"a","n":2}"#)));
        assert_ne!(of(members.clone(), Some(r#"{"model":null}"#)), of(members.clone(), Some("{}")));
        assert_eq!(of(members.clone(), Some(r#"{"model":"a","model":"b"}"#)), None);
        assert_eq!(of(members, Some("no json")), None);
    }

    proptest! {
        #[test]
        fn requests_share_a_key_only_if_all_inputs_match(
            requests in prop::collection::vec(("/[ab]{0,2}", "[ab&=]{0,3}", "[ab]{0,2}", "[ab]{0,2}", prop::option::of("[ab]{0,2}")), 2..40),
        ) {
            let mut seen: HashMap<u128, BTreeMap<&str, String>> = HashMap::new();
            for (path, query, key_field, token, account) in &requests {
                let lines = format!("GET https://a.example{path}?{query}\nX-Key: {key_field}\nX-Token: {token}");
                let context = KeyContext { account: account.as_deref(), ..KeyContext::default() };
                let id = key_with(json!({}), "f", &lines, None, &context).unwrap().0.id;
                let what = BTreeMap::from([("all", lines), ("account", format!("{account:?}"))]);
                let before = seen.entry(id).or_insert_with(|| what.clone());
                prop_assert_eq!(&*before, &what);
            }
            let distinct: std::collections::HashSet<_> = requests.iter().collect();
            prop_assert_eq!(seen.len(), distinct.len());
        }
    }
}
