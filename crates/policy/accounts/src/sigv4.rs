//! Signs requests with an account's access key, by AWS Signature Version 4.
//!
//! Only the header fields that AWS requires are signed, so a change to any other field on the way does not
//! invalidate the signature.

use std::fmt;
use std::sync::Arc;

use egret_aws::{
    AccessKey, DIGEST_FIELD, HeaderSignature, OWN_FIELDS, SignableRequest, Signer, UNSIGNED_PAYLOAD, is_s3,
    is_scope_part, sha256,
};
use egret_clock::Timestamp;
use egret_config::{Secret, Size};
use egret_http1::is_field_value;
use egret_message::{FLOW_BODY_BYTES_MAX, Fault};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::token::{AwsIdentityConfig, AwsKeys, OAuth2Config, TemporaryKeys, Token};
use super::{Applied, Outgoing, Unusable};

/// Replaces the digest of a body in AWS's own chunks with trailing checksums, which is not signed.
const UNSIGNED_CHUNKS: &[u8] = b"STREAMING-UNSIGNED-PAYLOAD-TRAILER";
/// Prefix of the digest field of every body in AWS's own chunks.
const CHUNKS: &[u8] = b"STREAMING-";

/// An access key of AWS, or of a service with the same protocol. Requests are signed with it (Signature
/// Version 4). Set either `access_key_id` and `secret_access_key`, or an `identity` that gives keys.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sigv4Config {
    /// Id of the key. It is visible in requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key_id: Option<Secret>,
    /// The secret key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_access_key: Option<Secret>,
    /// Session token of a temporary key. It is visible in requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<Secret>,
    /// Identity that temporary keys are fetched for: of a workload, a machine, a container or a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<AwsIdentityConfig>,
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

/// Signs the requests of one account.
pub struct RequestSigner {
    keys: SigningKeys,
    /// `true` for S3, which requires the digest and the length of each body.
    is_s3: bool,
    sends_digest: bool,
    body_bytes_max: usize,
}

/// The keys that requests are signed with.
enum SigningKeys {
    /// The keys of the config.
    Own(Arc<Signer>),
    /// Keys that a program has printed.
    Printed(Arc<Signer>, TemporaryKeys),
    /// The latest ones that were fetched.
    Fetched(Arc<Token>),
}

impl fmt::Debug for RequestSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.keys {
            SigningKeys::Own(signer) | SigningKeys::Printed(signer, _) => signer.fmt(f),
            SigningKeys::Fetched(token) => token.fmt(f),
        }
    }
}

impl Sigv4Config {
    /// Returns the account's own keys, if it has any. An error holds the wrong key of the config, and the
    /// reason.
    fn own_keys(&self) -> Result<Option<AccessKey>, KeyMistake> {
        let (id, secret) = match (&self.access_key_id, &self.secret_access_key) {
            (Some(id), Some(secret)) => (id.clone(), secret.clone()),
            (None, None) if self.identity.is_some() && self.session_token.is_none() => return Ok(None),
            (Some(_), None) => return Err(("secret_access_key", "required with `access_key_id`".to_owned())),
            (None, _) => {
                let message = "required together with `secret_access_key`, unless `identity` gives keys";
                return Err(("access_key_id", message.to_owned()));
            }
        };
        if !is_scope_part(id.expose()) {
            let message = "must consist of letters, digits, `-`, `_`, `.`, `:` and `@`";
            return Err(("access_key_id", message.to_owned()));
        }
        let session_token = self.session_token.clone();
        let is_text = |secret: &Secret| is_field_value(secret.expose().as_bytes());
        if !is_text(&secret) {
            return Err(("secret_access_key", CONTROL.to_owned()));
        }
        if session_token.as_ref().is_some_and(|token| !is_text(token)) {
            return Err(("session_token", CONTROL.to_owned()));
        }
        Ok(Some(AccessKey { id, secret, session_token }))
    }
}

impl RequestSigner {
    /// Compiles `config`. An identity whose keys are fetched is compiled by `fetched`; if that has no result,
    /// there is none here. An error holds the wrong key of the config, and the reason.
    pub fn compile(
        config: &Sigv4Config,
        fetched: impl FnOnce(&OAuth2Config) -> Option<Arc<Token>>,
    ) -> Result<Option<Self>, KeyMistake> {
        let Sigv4Config { region, service, identity, .. } = config;
        let own = config.own_keys()?;
        for (key, text) in [("region", region), ("service", service)] {
            if !is_scope_part(text) {
                return Err((
                    key,
                    format!(
                        "`{text}` is not a valid {key}: expected letters, digits and `-`, as AWS writes it"
                    ),
                ));
            }
        }
        if config.body.bytes() > FLOW_BODY_BYTES_MAX {
            return Err((
                "body",
                "at most `16MiB`: the body is buffered in memory for each exchange".to_owned(),
            ));
        }
        let signer = |key| Arc::new(Signer::new(key, region, service));
        let keys = match (identity, own) {
            (None, own) => own.map(|key| SigningKeys::Own(signer(key))),
            (Some(identity), own) => {
                let variables =
                    |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
                let keys = identity.keys(own, region, service, &variables);
                match keys.map_err(|(key, error)| (key, error.to_string()))? {
                    AwsKeys::Printed(keys) => Some(SigningKeys::Printed(signer(keys.key.clone()), keys)),
                    AwsKeys::Fetched(request) => fetched(&request).map(SigningKeys::Fetched),
                }
            }
        };
        let is_s3 = is_s3(service);
        Ok(keys.map(|keys| Self {
            keys,
            is_s3,
            sends_digest: is_s3 || config.content_sha256,
            body_bytes_max: usize::try_from(config.body.bytes()).unwrap_or(usize::MAX),
        }))
    }

    /// The keys that are fetched, if they are.
    pub fn token(&self) -> Option<&Arc<Token>> {
        match &self.keys {
            SigningKeys::Fetched(token) => Some(token),
            SigningKeys::Own(_) | SigningKeys::Printed(..) => None,
        }
    }

    /// The secrets that a program has printed.
    pub fn printed_secrets(&self) -> impl Iterator<Item = &Secret> {
        let key = match &self.keys {
            SigningKeys::Printed(_, keys) => Some(&keys.key),
            SigningKeys::Own(_) | SigningKeys::Fetched(_) => None,
        };
        key.into_iter().flat_map(|key| [Some(&key.secret), key.session_token.as_ref()]).flatten()
    }

    /// Returns the signer with the keys that are valid at `now`.
    pub fn signer(&self, now: Timestamp) -> Result<Arc<Signer>, Fault> {
        match &self.keys {
            SigningKeys::Own(signer) => Ok(Arc::clone(signer)),
            SigningKeys::Printed(signer, keys) => match keys.expires_at {
                Some(expires_at) if expires_at <= now => Err(Fault(EXPIRED.into())),
                _ => Ok(Arc::clone(signer)),
            },
            SigningKeys::Fetched(token) => token.signer().ok_or(Fault("there are no keys yet".into())),
        }
    }

    /// Maximum size of a body to sign, in bytes.
    pub fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }

    /// Signs a request. Fails if its body must be signed and cannot be.
    pub fn sign(&self, outgoing: &Outgoing<'_>, applied: &mut Applied) -> Result<(), Unusable> {
        let payload = self.payload(outgoing)?;
        let signer = self.signer(outgoing.now)?;
        let signature = self.signature(&signer, outgoing, &payload);
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
        applied.fields.set(b"x-amz-date", signature.date.as_bytes());
        if let Some(token) = signer.session_token() {
            applied.fields.set(b"x-amz-security-token", token.as_bytes());
        }
        if self.sends_digest {
            applied.fields.set(DIGEST_FIELD, &payload);
        }
        applied.fields.set(b"authorization", signature.authorization.as_bytes());
        Ok(())
    }

    /// Computes the signature of a request with this digest, or this marker, in place of its body.
    fn signature(&self, signer: &Signer, outgoing: &Outgoing<'_>, payload: &[u8]) -> HeaderSignature {
        let fields: Vec<_> = outgoing.fields.forwarded().filter(|(name, _)| is_signed(name)).collect();
        let request = SignableRequest {
            method: outgoing.method,
            host: outgoing.host,
            path: &whole_path(outgoing),
            query: outgoing.query.unwrap_or_default(),
            fields: &fields,
            payload,
            sends_payload: self.sends_digest,
        };
        signer.sign(outgoing.now, &request)
    }

    /// Returns the digest of the body, or the marker that replaces it.
    fn payload(&self, outgoing: &Outgoing<'_>) -> Result<Vec<u8>, Unusable> {
        if let Some(received) = outgoing.fields.get(DIGEST_FIELD).filter(|value| value.starts_with(CHUNKS)) {
            // S3 depends on this value to decode the body: under another digest it would store the chunk
            // framing too.
            return if self.is_s3 && received == UNSIGNED_CHUNKS {
                Ok(received.to_vec())
            } else {
                let fault = "streaming-signature bodies (`STREAMING-...`) cannot be re-signed: make the client send the \
                     body unsigned";
                Err(Fault(fault.into()).into())
            };
        }
        match outgoing.body {
            Some(body) => Ok(sha256(body).into_bytes()),
            None if self.is_s3 && outgoing.tls => Ok(UNSIGNED_PAYLOAD.into()),
            None => Err(Unusable::BodyTooLarge(self.body_bytes_max)),
        }
    }
}

/// A config key, and the problem with its value.
type KeyMistake = (&'static str, String);

const EXPIRED: &str = "the keys that the program of `sigv4.identity.process` has printed have expired: give its command in \
                       `secrets.commands` a shorter `lifetime`";
const CONTROL: &str =
    "contains a control character, perhaps a line end, which is not allowed in a header field";

/// Returns `true` if the field `name` is signed: the fields that AWS requires, and its own.
fn is_signed(name: &[u8]) -> bool {
    const PREFIX: &[u8] = b"x-amz-";
    name.eq_ignore_ascii_case(b"content-type")
        || name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// Returns the path as it is sent, including that of the provider's URL.
fn whole_path(outgoing: &Outgoing<'_>) -> Vec<u8> {
    // A base path that the client calls without a trailing slash is sent without one.
    let is_bare = outgoing.path.is_empty() && !outgoing.base.is_empty();
    let slash: &[u8] = if is_bare || outgoing.path.starts_with(b"/") { b"" } else { b"/" };
    [outgoing.base, slash, outgoing.path].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use egret_clock::Timestamp;
    use egret_http1::{HeadLimits, Progress, RequestHead};

    use super::*;
    use egret_message::{Changes, Fields};

    fn secret(value: &str) -> Secret {
        Secret::from_value("${env:TEST}", value.to_owned())
    }

    fn config(service: &str) -> Sigv4Config {
        Sigv4Config {
            access_key_id: Some(secret("AKIDEXAMPLE")),
            secret_access_key: Some(secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")),
            session_token: None,
            identity: None,
            region: "us-east-1".to_owned(),
            service: service.to_owned(),
            content_sha256: false,
            body: body_default(),
        }
    }

    fn compiled(config: &Sigv4Config) -> Result<RequestSigner, KeyMistake> {
        RequestSigner::compile(config, |_| None).map(|signer| signer.unwrap())
    }

    fn signer() -> RequestSigner {
        compiled(&config("service")).unwrap()
    }

    /// A request to sign: its method and target, its header lines, its body.
    struct Example<'a> {
        method: &'a str,
        target: &'a str,
        lines: &'a str,
        body: Option<&'a [u8]>,
        tls: bool,
        now: Timestamp,
        base: &'a str,
    }

    impl<'a> Example<'a> {
        /// Dated as in the published examples: 30 August 2015, 12:36.
        fn new(method: &'a str, target: &'a str) -> Self {
            let now = Timestamp::from_secs(1_440_938_160);
            Self { method, target, lines: "", body: Some(b""), tls: true, now, base: "" }
        }

        fn with<T>(&self, act: impl FnOnce(&Outgoing<'_>) -> T) -> T {
            let Self { method, target, lines, body, tls, now, base } = self;
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

        /// Returns the header fields that `signer` sets.
        fn signed(&self, signer: &RequestSigner) -> Result<BTreeMap<String, String>, Unusable> {
            let mut applied = Applied::default();
            self.with(|outgoing| signer.sign(outgoing, &mut applied))?;
            assert!(OWN_FIELDS.iter().all(|name| applied.fields.removes(name)));
            assert!(applied.target.is_none() && applied.body.is_none());
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            Ok(applied.fields.added().map(|(name, value)| (text(name), text(value))).collect())
        }
    }

    /// Returns the names of the signed fields, and the signature.
    fn parts(authorization: &str) -> (String, String) {
        let (_, rest) = authorization.split_once("SignedHeaders=").unwrap();
        let (names, signature) = rest.split_once(", Signature=").unwrap();
        (names.to_owned(), signature.to_owned())
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
            let example =
                Example { lines: &lines, body: Some(b"Param1=value1"), ..Example::new("POST", "/") };
            let signed = example.signed(&signer()).unwrap();
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
            Example { lines, ..Example::new("GET", "/") }.signed(&compiled(&config).unwrap()).unwrap();
        assert_eq!((&*signed["x-amz-security-token"], &*signed["x-amz-date"]), (token, "20150830T123600Z"));
        assert_eq!(
            signed["authorization"],
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date;x-amz-security-token, \
             Signature=07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"
        );
    }

    /// Returns the signer of the examples in the S3 documentation.
    fn s3() -> RequestSigner {
        compiled(&Sigv4Config {
            access_key_id: Some(secret("AKIAIOSFODNN7EXAMPLE")),
            secret_access_key: Some(secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")),
            ..config("s3")
        })
        .unwrap()
    }

    /// Returns a request of those examples: 24 May 2013, midnight.
    fn to_s3<'a>(method: &'a str, target: &'a str) -> Example<'a> {
        Example { now: Timestamp::from_secs(1_369_353_600), base: "/", ..Example::new(method, target) }
    }

    #[test]
    fn the_providers_own_path_comes_first() {
        let path = |base, target| {
            let example = Example { base, ..Example::new("GET", target) };
            String::from_utf8(example.with(whole_path)).unwrap()
        };
        let bare = Example { base: "/v1/", ..Example::new("GET", "/") };
        assert_eq!(bare.with(|outgoing| whole_path(&Outgoing { path: b"", ..*outgoing })), b"/v1");
        assert_eq!(path("/bucket/", "/a//b/../c%20d+e/"), "/bucket/a//b/../c%20d+e/");
        assert_eq!(path("", "*"), "/*");
    }

    /// The signature is that of the S3 documentation.
    #[test]
    fn a_request_to_s3_is_signed_with_its_query_and_its_digest() {
        let signed = to_s3("GET", "/?prefix=J&max-keys=2").signed(&s3()).unwrap();
        let signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7".to_owned();
        let names = "host;x-amz-content-sha256;x-amz-date".to_owned();
        assert_eq!(parts(&signed["authorization"]), (names, signature));
    }

    #[test]
    fn an_ungathered_body_goes_unsigned_only_to_s3() {
        let example = Example { body: None, ..to_s3("PUT", "/a") };
        assert_eq!(example.signed(&s3()).unwrap()["x-amz-content-sha256"], "UNSIGNED-PAYLOAD");
        for (signer, tls) in [(s3(), false), (signer(), true)] {
            let why = Example { body: None, tls, ..Example::new("PUT", "/a") }.signed(&signer).unwrap_err();
            assert_eq!(why, Unusable::BodyTooLarge(1 << 20));
            assert!(why.to_string().contains("raise `sigv4.body`"), "{why}");
        }
    }

    #[test]
    fn aws_chunked_content_is_not_taken_for_a_body() {
        let chunked = |kind: &str, signer: &RequestSigner| {
            let lines = format!("X-Amz-Content-SHA256: {kind}\r\n");
            Example { lines: &lines, body: Some(b"2\r\nhi\r\n0\r\n\r\n"), ..to_s3("PUT", "/a") }
                .signed(signer)
        };
        let trailing = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
        assert_eq!(chunked(trailing, &s3()).unwrap()["x-amz-content-sha256"], trailing);
        assert!(chunked(trailing, &signer()).is_err());
        let fault = chunked("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", &s3()).unwrap_err();
        assert!(fault.to_string().contains("cannot be re-signed"), "{fault:?}");
        let digest = chunked("UNSIGNED-PAYLOAD", &s3()).unwrap()["x-amz-content-sha256"].clone();
        assert_eq!((digest.len(), digest.bytes().all(|byte| byte.is_ascii_hexdigit())), (64, true));
    }

    #[test]
    fn s3_is_told_the_length_of_a_body_that_came_without() {
        let lines = "Transfer-Encoding: chunked\r\n";
        let body_of = |signer: &RequestSigner| {
            let mut applied = Applied::default();
            let example = Example { lines, body: Some(b"hi"), ..to_s3("PUT", "/a") };
            example.with(|outgoing| signer.sign(outgoing, &mut applied)).unwrap();
            applied.body
        };
        assert_eq!((body_of(&s3()), body_of(&signer())), (Some(b"hi".to_vec()), None));
    }

    #[test]
    fn services_that_want_the_digest_are_told_it() {
        let config = Sigv4Config { content_sha256: true, ..config("aoss") };
        let signed = Example::new("GET", "/").signed(&compiled(&config).unwrap()).unwrap();
        assert_eq!(parts(&signed["authorization"]).0, "host;x-amz-content-sha256;x-amz-date");
        assert_eq!(signed["x-amz-content-sha256"].len(), 64);
    }

    #[test]
    fn only_fields_that_are_sent_are_signed() {
        let lines = "Connection: x-amz-gone\r\nX-Amz-Gone: 1\r\nX-Amz-Removed: 1\r\nX-Amz-Meta-A: 1\r\n";
        let example = Example { lines, ..Example::new("GET", "/") };
        let names = example.with(|outgoing| {
            let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n").into_bytes();
            let mut head = RequestHead::new();
            head.parse(&bytes, &HeadLimits::default()).unwrap();
            let mut changes = Changes::default();
            changes.remove(b"x-amz-removed");
            changes.add(b"X-Amz-Meta-B", b"2");
            let outgoing = Outgoing { fields: Fields::new(&head.fields, &bytes, &changes), ..*outgoing };
            let payload = signer().payload(&outgoing).unwrap();
            let keys = signer().signer(outgoing.now).unwrap();
            parts(&signer().signature(&keys, &outgoing, &payload).authorization).0
        });
        assert_eq!(names, "host;x-amz-date;x-amz-meta-a;x-amz-meta-b");
    }

    #[test]
    fn configs_that_could_not_be_signed_with_are_refused() {
        let wrong = |change: &dyn Fn(&mut Sigv4Config)| {
            let mut config = config("service");
            change(&mut config);
            compiled(&config).unwrap_err().0
        };
        assert_eq!(wrong(&|config| config.access_key_id = Some(secret("a/b"))), "access_key_id");
        assert_eq!(wrong(&|config| config.secret_access_key = Some(secret("a\nb"))), "secret_access_key");
        assert_eq!(wrong(&|config| config.session_token = Some(secret("a\r\nb"))), "session_token");
        assert_eq!(wrong(&|config| config.access_key_id = None), "access_key_id");
        assert_eq!(wrong(&|config| config.secret_access_key = None), "secret_access_key");
        assert_eq!(wrong(&|config| config.region = String::new()), "region");
        assert_eq!(wrong(&|config| config.service = "s3, x".to_owned()), "service");
        assert_eq!(wrong(&|config| config.body = Size::from_kib(16 << 11)), "body");
    }

    #[test]
    fn debug_output_shows_no_key() {
        let shown = format!("{:?} {:?}", s3(), config("s3"));
        assert!(!shown.contains("wJalr") && !shown.contains("AKID"), "{shown}");
    }
}
