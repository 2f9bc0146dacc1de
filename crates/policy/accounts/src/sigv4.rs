//! AWS Signature Version 4: converts a request to a canonical form, and signs it with a key for one day,
//! region and service.
//!
//! Only the header fields that AWS requires are signed, so a change to any other field on the way does not
//! invalidate the signature.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::{digest, hmac};
use egret_config::{Secret, Size};
use egret_http1::is_field_value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::credential::percent_encode;
use super::{Applied, Outgoing};
use egret_match::matching::decode;
use egret_message::BODY_BYTES_MAX;
use egret_message::Fault;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Header fields of the signature; those that the client sent are removed.
const OWN_FIELDS: [&[u8]; 4] = [b"authorization", b"x-amz-date", b"x-amz-security-token", DIGEST_FIELD];
const DIGEST_FIELD: &[u8] = b"x-amz-content-sha256";

/// Replaces the digest of a body that is not signed. S3 accepts it over TLS.
const UNSIGNED: &[u8] = b"UNSIGNED-PAYLOAD";
/// The same for a body in AWS's own chunks with trailing checksums.
const UNSIGNED_CHUNKS: &[u8] = b"STREAMING-UNSIGNED-PAYLOAD-TRAILER";
/// Prefix of the digest field of every body in AWS's own chunks.
const CHUNKS: &[u8] = b"STREAMING-";

const SECONDS_OF_DAY: u64 = 86_400;

/// An access key of AWS, or of a service with the same protocol. Requests are signed with it (Signature
/// Version 4).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sigv4Config {
    /// Id of the key. It is visible in requests.
    pub access_key_id: Secret,
    /// The secret key.
    pub secret_access_key: Secret,
    /// Session token of a temporary key. It is visible in requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<Secret>,
    /// The region of the provider: `eu-central-1`.
    pub region: String,
    /// The service to call, by its name in AWS signatures: `s3`, `execute-api`, `bedrock`.
    pub service: String,
    /// Sends the digest of the body in the header field `x-amz-content-sha256`. Requests to S3 always have
    /// it.
    #[serde(default)]
    pub content_sha256: bool,
    /// Maximum size of a body that is buffered to be signed, up to `16MiB`. A larger body is sent unsigned to
    /// S3 over TLS; any other call with one fails.
    #[serde(default = "body_default")]
    pub body: Size,
}

fn body_default() -> Size {
    Size::from_kib(1024)
}

/// Signs requests with one access key.
pub struct Signer {
    access_key_id: Secret,
    secret_access_key: Secret,
    session_token: Option<Secret>,
    region: String,
    service: String,
    /// `true` for S3, which uses paths without normalization, and requires the digest of each body.
    is_s3: bool,
    tells_digest: bool,
    body_bytes_max: usize,
    /// The signing key of the last day used, and that day. Cached, because it takes four HMACs.
    key_of_day: RwLock<Option<(u64, Arc<hmac::Key>)>>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({}, {})", self.region, self.service)
    }
}

impl Signer {
    /// Compiles `config`. An error holds the wrong key of the config, and the reason.
    pub fn compile(config: &Sigv4Config) -> Result<Self, (&'static str, String)> {
        let Sigv4Config { access_key_id, secret_access_key, session_token, region, service, .. } = config;
        let in_scope = |text: &str| !text.is_empty() && text.bytes().all(is_scope_byte);
        if !in_scope(access_key_id.expose()) {
            let message = "must consist of letters, digits, `-`, `_`, `.`, `:` and `@`";
            return Err(("access_key_id", message.to_owned()));
        }
        for (key, text) in [("region", region), ("service", service)] {
            if !in_scope(text) {
                return Err((
                    key,
                    format!(
                        "`{text}` is not a valid {key}: expected letters, digits and `-`, as AWS writes it"
                    ),
                ));
            }
        }
        let is_text = |secret: &Secret| is_field_value(secret.expose().as_bytes());
        if !is_text(secret_access_key) {
            return Err(("secret_access_key", CONTROL.to_owned()));
        }
        if session_token.as_ref().is_some_and(|token| !is_text(token)) {
            return Err(("session_token", CONTROL.to_owned()));
        }
        if config.body.bytes() > BODY_BYTES_MAX {
            return Err((
                "body",
                "at most `16MiB`: the body is buffered in memory for each exchange".to_owned(),
            ));
        }
        let is_s3 = service.starts_with("s3");
        Ok(Self {
            access_key_id: access_key_id.clone(),
            secret_access_key: secret_access_key.clone(),
            session_token: session_token.clone(),
            region: region.clone(),
            service: service.clone(),
            is_s3,
            tells_digest: is_s3 || config.content_sha256,
            body_bytes_max: usize::try_from(config.body.bytes()).unwrap_or(usize::MAX),
            key_of_day: RwLock::new(None),
        })
    }

    /// Maximum size of a body to sign, in bytes.
    pub fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }

    /// Signs a request. Fails if its body must be signed and cannot be.
    pub fn sign(&self, outgoing: &Outgoing<'_>, applied: &mut Applied) -> Result<(), Fault> {
        let signed = self.signed(outgoing, is_signed)?;
        if self.is_s3
            && let Some(body) = outgoing.body
            && outgoing.fields.get(b"transfer-encoding").is_some()
        {
            // S3 requires a body of known length.
            applied.body = Some(body.to_vec());
        }
        for name in OWN_FIELDS {
            applied.fields.remove(name);
        }
        applied.fields.set(b"x-amz-date", signed.time.as_bytes());
        if let Some(token) = &self.session_token {
            applied.fields.set(b"x-amz-security-token", token.expose().as_bytes());
        }
        if self.tells_digest {
            applied.fields.set(DIGEST_FIELD, &signed.digest);
        }
        applied.fields.set(b"authorization", signed.authorization.as_bytes());
        Ok(())
    }

    /// Computes the signature of a request, including the header fields for which `covered` returns `true`.
    fn signed(&self, outgoing: &Outgoing<'_>, covered: impl Fn(&[u8]) -> bool) -> Result<Signed, Fault> {
        let time = time_of(outgoing.now.as_secs());
        let digest = self.digest(outgoing)?;
        let fields = self.covered_fields(outgoing, &time, &digest, covered);
        let names = fields.keys().map(Vec::as_slice).collect::<Vec<_>>().join(&b';');
        let canonical = self.canonical(outgoing, &fields, &names, &digest);
        let day = &time[..8];
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let canonical = hex(digest::digest(&digest::SHA256, &canonical).as_ref());
        let to_sign = format!("{ALGORITHM}\n{time}\n{scope}\n{canonical}");
        let key = self.key(outgoing.now.as_secs() / SECONDS_OF_DAY, day);
        let signature = hex(hmac::sign(&key, to_sign.as_bytes()).as_ref());
        let (id, names) = (self.access_key_id.expose(), String::from_utf8_lossy(&names));
        let authorization =
            format!("{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}");
        Ok(Signed { time, digest, authorization })
    }

    /// Returns the digest of the body, or the marker that replaces it.
    fn digest(&self, outgoing: &Outgoing<'_>) -> Result<Vec<u8>, Fault> {
        if let Some(told) = outgoing.fields.get(DIGEST_FIELD).filter(|told| told.starts_with(CHUNKS)) {
            // S3 depends on this value to decode the body: under another digest it would store the chunk
            // framing too.
            return if self.is_s3 && told == UNSIGNED_CHUNKS {
                Ok(told.to_vec())
            } else {
                Err(Fault(
                    "streaming-signature bodies (`STREAMING-...`) cannot be re-signed: make the client send the body \
                     unsigned"
                        .into(),
                ))
            };
        }
        match outgoing.body {
            Some(body) => Ok(hex(digest::digest(&digest::SHA256, body).as_ref()).into_bytes()),
            None if self.is_s3 && outgoing.tls => Ok(UNSIGNED.to_vec()),
            None => Err(Fault(
                "the body exceeds the maximum size for signing: raise `sigv4.body` of the account".into(),
            )),
        }
    }

    /// Returns the signed header fields by their names in lower case, in order. Fields of the same name are
    /// joined.
    fn covered_fields(
        &self,
        outgoing: &Outgoing<'_>,
        time: &str,
        digest: &[u8],
        covered: impl Fn(&[u8]) -> bool,
    ) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut fields = BTreeMap::<Vec<u8>, Vec<u8>>::new();
        for (name, value) in outgoing.fields.forwarded() {
            let name = name.to_ascii_lowercase();
            if name == b"host" || OWN_FIELDS.contains(&&*name) || !covered(&name) {
                continue;
            }
            let joined = fields.entry(name).or_default();
            if !joined.is_empty() {
                joined.push(b',');
            }
            write_value(value, joined);
        }
        let mut own = |name: &[u8], value: &[u8]| fields.insert(name.to_vec(), value.to_vec());
        own(b"host", outgoing.host.trim_ascii());
        own(b"x-amz-date", time.as_bytes());
        if let Some(token) = &self.session_token {
            own(b"x-amz-security-token", token.expose().trim().as_bytes());
        }
        if self.tells_digest {
            own(DIGEST_FIELD, digest);
        }
        fields
    }

    /// Returns the request in its canonical form.
    fn canonical(
        &self,
        outgoing: &Outgoing<'_>,
        fields: &BTreeMap<Vec<u8>, Vec<u8>>,
        names: &[u8],
        digest: &[u8],
    ) -> Vec<u8> {
        let mut text = outgoing.method.to_vec();
        text.push(b'\n');
        self.write_path(outgoing, &mut text);
        text.push(b'\n');
        write_query(outgoing.query.unwrap_or_default(), &mut text);
        text.push(b'\n');
        for (name, value) in fields {
            for part in [name.as_slice(), b":", value, b"\n"] {
                text.extend_from_slice(part);
            }
        }
        for part in [&b"\n"[..], names, b"\n", digest] {
            text.extend_from_slice(part);
        }
        text
    }

    /// Appends the canonical path. S3 takes the path as the name of an object and encodes it once. All other
    /// services encode the encoded path again, after removing empty and relative segments.
    fn write_path(&self, outgoing: &Outgoing<'_>, out: &mut Vec<u8>) {
        // A base path that the client calls without a trailing slash is sent without one.
        let is_bare = outgoing.path.is_empty() && !outgoing.base.is_empty();
        let slash: &[u8] = if is_bare || outgoing.path.starts_with(b"/") { b"" } else { b"/" };
        let path = [outgoing.base, slash, outgoing.path].concat();
        if self.is_s3 {
            let mut decoded = Vec::with_capacity(path.len());
            decode(&path, |bytes| decoded.extend_from_slice(bytes));
            write_segments(decoded.split(|byte| *byte == b'/'), out);
        } else {
            write_segments(normalized(&path).into_iter(), out);
        }
    }

    /// Returns the signing key of that day. The first request of a day derives it.
    fn key(&self, day: u64, day_text: &str) -> Arc<hmac::Key> {
        let known = self.key_of_day.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, key)) = known.as_ref().filter(|(known, _)| *known == day) {
            return Arc::clone(key);
        }
        drop(known);
        let secret = Zeroizing::new(["AWS4", self.secret_access_key.expose()].concat());
        let mut key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        for part in [day_text, &self.region, &self.service, "aws4_request"] {
            key = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part.as_bytes()).as_ref());
        }
        let key = Arc::new(key);
        *self.key_of_day.write().unwrap_or_else(PoisonError::into_inner) = Some((day, Arc::clone(&key)));
        key
    }
}

/// A signature, with its date and the digest of the body.
struct Signed {
    /// `20150830T123600Z`
    time: String,
    digest: Vec<u8>,
    authorization: String,
}

const CONTROL: &str =
    "contains a control character, perhaps a line end, which is not allowed in a header field";

/// Returns `true` if the field `name`, in lower case, is signed: the fields that AWS requires, and its own.
fn is_signed(name: &[u8]) -> bool {
    name == b"content-type" || name.starts_with(b"x-amz-")
}

/// Returns `true` for a character that is allowed in the scope of a signature; slashes and commas separate
/// its parts.
fn is_scope_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte)
}

/// Formats a time as `20150830T123600Z`.
fn time_of(seconds: u64) -> String {
    let moment = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    moment.unwrap_or(jiff::Timestamp::MAX).strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Appends a field value without surrounding spaces, and with each inner run of spaces reduced to one.
fn write_value(value: &[u8], out: &mut Vec<u8>) {
    let words = value.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    for (number, word) in words.enumerate() {
        if number > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word);
    }
}

/// Returns the segments of a path without empty and relative ones. The last one is empty if the path ends
/// with a slash.
fn normalized(path: &[u8]) -> Vec<&[u8]> {
    let mut segments: Vec<&[u8]> = vec![b""];
    for segment in path.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => segments.truncate(segments.len().saturating_sub(1).max(1)),
            _ => segments.push(segment),
        }
    }
    let is_directory = path.ends_with(b"/") || segments.len() == 1;
    if is_directory {
        segments.push(b"");
    }
    segments
}

fn write_segments<'a>(segments: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    for (number, segment) in segments.enumerate() {
        if number > 0 {
            out.push(b'/');
        }
        percent_encode(segment, out);
    }
}

/// Appends the parameters sorted by their encoded names and values. A plus means a space, as in forms.
fn write_query(query: &[u8], out: &mut Vec<u8>) {
    let encoded = |part: &[u8]| {
        let spaced: Vec<u8> = part.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        let (mut decoded, mut encoded) = (Vec::new(), Vec::new());
        decode(&spaced, |bytes| decoded.extend_from_slice(bytes));
        percent_encode(&decoded, &mut encoded);
        encoded
    };
    let pairs = query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<_> = pairs
        .map(|pair| {
            let at = memchr::memchr(b'=', pair).unwrap_or(pair.len());
            (encoded(&pair[..at]), encoded(pair.get(at + 1..).unwrap_or_default()))
        })
        .collect();
    pairs.sort();
    for (number, (name, value)) in pairs.iter().enumerate() {
        if number > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(name);
        out.push(b'=');
        out.extend_from_slice(value);
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = vec![0; 2 * bytes.len()];
    egret_message::trace_context::hex(bytes, &mut text);
    text.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use egret_clock::Timestamp;
    use egret_http1::{HeadLimits, Progress, RequestHead};

    use super::*;
    use egret_message::{Changes, Fields};

    fn secret(value: &str) -> Secret {
        Secret::from_value("${env:TEST}", value.to_owned())
    }

    fn config(service: &str) -> Sigv4Config {
        Sigv4Config {
            access_key_id: secret("AKIDEXAMPLE"),
            secret_access_key: secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session_token: None,
            region: "us-east-1".to_owned(),
            service: service.to_owned(),
            content_sha256: false,
            body: body_default(),
        }
    }

    fn signer() -> Signer {
        Signer::compile(&config("service")).unwrap()
    }

    /// A request to sign: its method and target, its header lines, its body.
    struct Asked<'a> {
        line: (&'a str, &'a str),
        lines: &'a str,
        body: Option<&'a [u8]>,
        tls: bool,
        now: Timestamp,
        base: &'a str,
    }

    impl<'a> Asked<'a> {
        /// Dated as in the published examples: 30 August 2015, 12:36.
        fn new(method: &'a str, target: &'a str) -> Self {
            let now = Timestamp::from_secs(1_440_938_160);
            Self { line: (method, target), lines: "", body: Some(b""), tls: true, now, base: "" }
        }

        fn with<T>(&self, act: impl FnOnce(&Outgoing<'_>) -> T) -> T {
            let Self { line: (method, target), lines, body, tls, now, base } = self;
            let bytes = format!("{method} / HTTP/1.1\r\nHost: received.test\r\n{lines}\r\n").into_bytes();
            let mut head = RequestHead::new();
            assert_eq!(head.parse(&bytes, &HeadLimits::default()).unwrap(), Progress::Complete);
            let (path, query) = egret_message::request_target::split_target(target.as_bytes());
            let host: &[u8] =
                if base.is_empty() { b"example.amazonaws.com" } else { b"examplebucket.s3.amazonaws.com" };
            act(&Outgoing {
                now: *now,
                tls: *tls,
                method: method.as_bytes(),
                host,
                base: base.strip_suffix('/').unwrap_or(base).as_bytes(),
                path,
                query,
                fields: Fields::received(&head.fields, &bytes),
                body: *body,
            })
        }

        /// Signs it with all its fields; returns their names and the signature.
        fn signed_whole(&self, signer: &Signer) -> (String, String) {
            let signed = self.with(|outgoing| signer.signed(outgoing, |_| true)).unwrap();
            parts(&signed.authorization)
        }

        /// Returns the header fields that `signer` sets.
        fn signed(&self, signer: &Signer) -> Result<BTreeMap<String, String>, Fault> {
            let mut applied = Applied::default();
            self.with(|outgoing| signer.sign(outgoing, &mut applied))?;
            assert!(OWN_FIELDS.iter().all(|name| applied.fields.removes(name)));
            assert!(applied.target.is_none() && applied.body.is_none());
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            Ok(applied.fields.added().map(|(name, value)| (text(name), text(value))).collect())
        }

        fn signature(&self, signer: &Signer) -> String {
            parts(&self.signed(signer).unwrap()["authorization"]).1
        }
    }

    /// Returns the names of the signed fields, and the signature.
    fn parts(authorization: &str) -> (String, String) {
        let (_, rest) = authorization.split_once("SignedHeaders=").unwrap();
        let (names, signature) = rest.split_once(", Signature=").unwrap();
        (names.to_owned(), signature.to_owned())
    }

    const VANILLA: &str = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";

    #[test]
    fn paths_and_queries_are_signed_as_the_published_suite_has_it() {
        for (target, signature) in [
            ("/", VANILLA),
            (
                "/?Param2=value2&Param1=value1",
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            ("/?Param1=value1", "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"),
            (
                "/?Param-3=Value3&Param=Value2&%E1%88%B4=Value1",
                "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac",
            ),
            ("/?ሴ=bar", "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"),
            ("/ሴ", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
            ("/example space/", "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"),
            (
                "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
                "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
            ),
            ("/example/..", VANILLA),
            ("/example1/example2/../..", VANILLA),
            ("/./", VANILLA),
            ("//", VANILLA),
            ("/./example", "ef75d96142cf21edca26f06005da7988e4f8dc83a165a80865db7089db637ec5"),
            ("//example//", "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84"),
        ] {
            assert_eq!(Asked::new("GET", target).signature(&signer()), signature, "{target}");
        }
        let post = Asked::new("POST", "/").signature(&signer());
        assert_eq!(post, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
    }

    #[test]
    fn fields_are_signed_as_the_published_suite_has_it() {
        for (method, lines, names, signature) in [
            (
                "GET",
                "My-Header1: value2\r\nMy-Header1: value2\r\nMy-Header1: value1\r\n",
                "host;my-header1;x-amz-date",
                "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
            ),
            (
                "GET",
                "My-Header1:   value1\r\nMy-Header2: \"a   b   c\"\r\n",
                "host;my-header1;my-header2;x-amz-date",
                "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
            ),
            (
                "POST",
                "My-Header1: value1\r\n",
                "host;my-header1;x-amz-date",
                "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
            ),
        ] {
            let asked = Asked { lines, ..Asked::new(method, "/") };
            assert_eq!(asked.signed_whole(&signer()), (names.to_owned(), signature.to_owned()));
        }
    }

    #[test]
    fn forms_are_signed_as_the_published_suite_has_it() {
        for (media_type, signature) in [
            (
                "application/x-www-form-urlencoded",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            (
                "application/x-www-form-urlencoded; charset=utf8",
                "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe",
            ),
        ] {
            let lines = format!("Content-Type: {media_type}\r\nContent-Length: 13\r\nAccept: */*\r\n");
            let asked = Asked { lines: &lines, body: Some(b"Param1=value1"), ..Asked::new("POST", "/") };
            let signed = asked.signed(&signer()).unwrap();
            assert_eq!(
                parts(&signed["authorization"]),
                ("content-type;host;x-amz-date".to_owned(), signature.to_owned())
            );
            assert_eq!(
                signed.keys().map(String::as_str).collect::<Vec<_>>(),
                ["authorization", "x-amz-date"]
            );
        }
    }

    #[test]
    fn a_sessions_token_is_signed_and_shown() {
        let token = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
        let config = Sigv4Config { session_token: Some(secret(token)), ..config("service") };
        let lines =
            "X-Amz-Security-Token: the-clients\r\nX-Amz-Date: 19700101T000000Z\r\nAuthorization: none\r\n";
        let signed =
            Asked { lines, ..Asked::new("GET", "/") }.signed(&Signer::compile(&config).unwrap()).unwrap();
        assert_eq!((&*signed["x-amz-security-token"], &*signed["x-amz-date"]), (token, "20150830T123600Z"));
        assert_eq!(
            signed["authorization"],
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date;x-amz-security-token, \
             Signature=07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"
        );
    }

    /// Returns the signer of the examples in the S3 documentation.
    fn s3() -> Signer {
        Signer::compile(&Sigv4Config {
            access_key_id: secret("AKIAIOSFODNN7EXAMPLE"),
            secret_access_key: secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            ..config("s3")
        })
        .unwrap()
    }

    /// Returns a request of those examples: 24 May 2013, midnight.
    fn to_s3<'a>(method: &'a str, target: &'a str) -> Asked<'a> {
        Asked { now: Timestamp::from_secs(1_369_353_600), base: "/", ..Asked::new(method, target) }
    }

    #[test]
    fn requests_to_s3_are_signed_as_its_documentation_has_it() {
        let get = Asked { lines: "Range: bytes=0-9\r\n", ..to_s3("GET", "/test.txt") };
        let names = "host;range;x-amz-content-sha256;x-amz-date".to_owned();
        let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41".to_owned();
        assert_eq!(get.signed_whole(&s3()), (names, signature));
        // A dollar sign is signed encoded, even if it is sent unencoded.
        for target in ["/test$file.text", "/test%24file.text"] {
            let put = Asked {
                lines: "Date: Fri, 24 May 2013 00:00:00 GMT\r\nx-amz-storage-class: REDUCED_REDUNDANCY\r\n",
                body: Some(b"Welcome to Amazon S3."),
                ..to_s3("PUT", target)
            };
            let signature = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
            assert_eq!(put.signed_whole(&s3()).1, signature, "{target}");
        }
        for (target, signature) in [
            ("/?lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            ("/?prefix=J&max-keys=2", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ] {
            assert_eq!(to_s3("GET", target).signature(&s3()), signature, "{target}");
        }
    }

    #[test]
    fn the_providers_own_path_comes_first_and_objects_may_be_called_anything() {
        let path = |signer: &Signer, base, target| {
            let asked = Asked { base, ..Asked::new("GET", target) };
            let mut out = Vec::new();
            asked.with(|outgoing| signer.write_path(outgoing, &mut out));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(path(&s3(), "/bucket/", "/a//b/../c%20d+e/"), "/bucket/a//b/../c%20d%2Be/");
        assert_eq!(path(&signer(), "/v1/", "/a//b/../c%20d+e/"), "/v1/a/c%2520d%2Be/");
        assert_eq!(path(&signer(), "", "*"), "/%2A");
        assert_eq!(path(&signer(), "", "/../../a/.."), "/");
    }

    #[test]
    fn a_plus_in_a_query_is_a_space() {
        let query = |query: &str| {
            let mut out = Vec::new();
            write_query(query.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(query("b=1+2&a=%2B&&=x&c"), "=x&a=%2B&b=1%202&c=");
    }

    #[test]
    fn a_body_that_is_not_here_goes_to_s3_unsigned_over_tls_and_nowhere_else() {
        let asked = Asked { body: None, ..to_s3("PUT", "/a") };
        assert_eq!(asked.signed(&s3()).unwrap()["x-amz-content-sha256"], "UNSIGNED-PAYLOAD");
        for (signer, tls) in [(s3(), false), (signer(), true)] {
            let fault = Asked { body: None, tls, ..Asked::new("PUT", "/a") }.signed(&signer).unwrap_err();
            assert!(fault.0.contains("raise `sigv4.body`"), "{fault:?}");
        }
    }

    #[test]
    fn chunks_that_a_client_frames_for_s3_are_not_taken_for_a_body() {
        let chunked = |kind: &str, signer: &Signer| {
            let lines = format!("X-Amz-Content-SHA256: {kind}\r\n");
            Asked { lines: &lines, body: Some(b"2\r\nhi\r\n0\r\n\r\n"), ..to_s3("PUT", "/a") }.signed(signer)
        };
        let told = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
        assert_eq!(chunked(told, &s3()).unwrap()["x-amz-content-sha256"], told);
        assert!(chunked(told, &signer()).is_err());
        let fault = chunked("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", &s3()).unwrap_err();
        assert!(fault.0.contains("cannot be re-signed"), "{fault:?}");
        let digest = chunked("UNSIGNED-PAYLOAD", &s3()).unwrap()["x-amz-content-sha256"].clone();
        assert_eq!((digest.len(), digest.bytes().all(|byte| byte.is_ascii_hexdigit())), (64, true));
    }

    #[test]
    fn s3_is_told_the_length_of_a_body_that_came_without() {
        let lines = "Transfer-Encoding: chunked\r\n";
        let body_of = |signer: &Signer| {
            let mut applied = Applied::default();
            let asked = Asked { lines, body: Some(b"hi"), ..to_s3("PUT", "/a") };
            asked.with(|outgoing| signer.sign(outgoing, &mut applied)).unwrap();
            applied.body
        };
        assert_eq!((body_of(&s3()), body_of(&signer())), (Some(b"hi".to_vec()), None));
    }

    #[test]
    fn services_that_want_the_digest_are_told_it() {
        let config = Sigv4Config { content_sha256: true, ..config("aoss") };
        let signed = Asked::new("GET", "/").signed(&Signer::compile(&config).unwrap()).unwrap();
        assert_eq!(parts(&signed["authorization"]).0, "host;x-amz-content-sha256;x-amz-date");
        assert_eq!(signed["x-amz-content-sha256"].len(), 64);
    }

    #[test]
    fn what_does_not_go_on_is_not_signed_and_what_remedies_add_is() {
        let lines = "Connection: x-amz-gone\r\nX-Amz-Gone: 1\r\nX-Amz-Removed: 1\r\nX-Amz-Meta-A: 1\r\n";
        let asked = Asked { lines, ..Asked::new("GET", "/") };
        let names = asked.with(|outgoing| {
            let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n").into_bytes();
            let mut head = RequestHead::new();
            head.parse(&bytes, &HeadLimits::default()).unwrap();
            let mut changes = Changes::default();
            changes.remove(b"x-amz-removed");
            changes.add(b"X-Amz-Meta-B", b"2");
            let outgoing = Outgoing { fields: Fields::new(&head.fields, &bytes, &changes), ..*outgoing };
            parts(&signer().signed(&outgoing, is_signed).unwrap().authorization).0
        });
        assert_eq!(names, "host;x-amz-date;x-amz-meta-a;x-amz-meta-b");
    }

    #[test]
    fn many_threads_sign_over_midnight_with_the_key_of_each_day() {
        const DAYS: u64 = 3;
        let (shared, now) = (signer(), Timestamp::from_secs(1_440_938_160));
        let at = |day: u64| Asked {
            now: now + std::time::Duration::from_secs(day * SECONDS_OF_DAY),
            ..Asked::new("GET", "/")
        };
        // Each with a new signer, whose key cache is empty.
        let expected: Vec<String> = (0..DAYS).map(|day| at(day).signature(&signer())).collect();
        assert_eq!(expected[0], VANILLA);
        std::thread::scope(|scope| {
            for first in 0..4 {
                let (shared, expected) = (&shared, &expected);
                scope.spawn(move || {
                    for day in (0..60).map(|number| (first + number) % DAYS) {
                        assert_eq!(at(day).signature(shared), expected[usize::try_from(day).unwrap()]);
                    }
                });
            }
        });
    }

    #[test]
    fn configs_that_could_not_be_signed_with_are_refused() {
        let wrong = |change: &dyn Fn(&mut Sigv4Config)| {
            let mut config = config("service");
            change(&mut config);
            Signer::compile(&config).unwrap_err().0
        };
        assert_eq!(wrong(&|config| config.access_key_id = secret("a/b")), "access_key_id");
        assert_eq!(wrong(&|config| config.secret_access_key = secret("a\nb")), "secret_access_key");
        assert_eq!(wrong(&|config| config.session_token = Some(secret("a\r\nb"))), "session_token");
        assert_eq!(wrong(&|config| config.region = String::new()), "region");
        assert_eq!(wrong(&|config| config.service = "s3, x".to_owned()), "service");
        assert_eq!(wrong(&|config| config.body = Size::from_kib(16 << 11)), "body");
    }

    #[test]
    fn nothing_of_it_is_shown() {
        let shown = format!("{:?} {:?}", s3(), config("s3"));
        assert!(!shown.contains("wJalr") && !shown.contains("AKID"), "{shown}");
    }
}
