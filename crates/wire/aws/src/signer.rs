//! The signer, and the signature in the header field `Authorization`.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::hmac;
use data_encoding::HEXLOWER;
use egret_clock::Timestamp;
use egret_config::Secret;
use zeroize::Zeroizing;

use crate::DIGEST_FIELD;
use crate::canonical::{CanonicalFields, CanonicalPath, CanonicalRequest, canonical_query, write_value};
use crate::scope::SigningTime;

/// Name of the algorithm in signatures.
pub(crate) const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Header fields of a signature. Those of the request to sign must be removed from it.
pub const OWN_FIELDS: [&[u8]; 4] = [b"authorization", b"x-amz-date", b"x-amz-security-token", DIGEST_FIELD];

/// An access key of AWS, or of a service with the same protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// Id of the key. It is visible in requests.
    pub id: Secret,
    /// The secret key.
    pub secret: Secret,
    /// Session token of a temporary key. It is visible in requests.
    pub session_token: Option<Secret>,
}

/// Signs requests to one service in one region with one access key.
pub struct Signer {
    key: AccessKey,
    region: String,
    service: String,
    /// The signing key of the last day used, and the number of that day. Cached, because it takes four HMACs.
    key_of_day: RwLock<Option<(u64, Arc<hmac::Key>)>>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({}, {})", self.region, self.service)
    }
}

/// A request to sign in its header fields.
#[derive(Debug, Clone, Copy)]
pub struct SignableRequest<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The value of `Host`.
    pub host: &'a [u8],
    /// The whole path, as it is sent.
    pub path: &'a [u8],
    /// The query, as it is sent; empty if there is none.
    pub query: &'a [u8],
    /// The other header fields to cover, by names in any case. `Host` and those of [`OWN_FIELDS`] are
    /// ignored.
    pub fields: &'a [(&'a [u8], &'a [u8])],
    /// The digest of the body, or the marker that replaces it.
    pub payload: &'a [u8],
    /// `true` if `payload` is sent too, in the field [`DIGEST_FIELD`].
    pub sends_payload: bool,
}

/// A signature for the header of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderSignature {
    /// Value of the field `x-amz-date`: `20150830T123600Z`.
    pub date: String,
    /// Value of the field `Authorization`.
    pub authorization: String,
}

impl Signer {
    /// Creates a signer. `region` and `service` are written as in AWS signatures: `eu-central-1`, `s3`.
    pub fn new(key: AccessKey, region: impl Into<String>, service: impl Into<String>) -> Self {
        Self { key, region: region.into(), service: service.into(), key_of_day: RwLock::new(None) }
    }

    /// Session token of the key, to be sent in the field `x-amz-security-token`.
    pub fn session_token(&self) -> Option<&str> {
        self.key.session_token.as_ref().map(Secret::expose)
    }

    /// Id of the access key.
    pub(crate) fn key_id(&self) -> &str {
        self.key.id.expose()
    }

    /// Signs a request in its header fields.
    pub fn sign(&self, at: Timestamp, request: &SignableRequest<'_>) -> HeaderSignature {
        let time = SigningTime::new(at);
        let canonical = CanonicalRequest {
            method: request.method,
            path: CanonicalPath::of_service(&self.service).of(request.path),
            query: canonical_query(request.query),
            fields: self.covered_fields(request, &time),
            payload: request.payload,
        };
        let (scope, signature) = (self.scope(&time), self.signature(&time, &canonical));
        let (id, names) = (self.key_id(), canonical.field_names());
        let authorization =
            format!("{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}");
        HeaderSignature { date: time.time, authorization }
    }

    /// Returns the covered header fields. Fields of the same name are joined.
    fn covered_fields(&self, request: &SignableRequest<'_>, time: &SigningTime) -> CanonicalFields {
        let mut fields = CanonicalFields::new();
        for (name, value) in request.fields {
            let name = name.to_ascii_lowercase();
            if name == b"host" || OWN_FIELDS.contains(&&*name) {
                continue;
            }
            let joined = fields.entry(name).or_default();
            if !joined.is_empty() {
                joined.push(b',');
            }
            write_value(value, joined);
        }
        let mut own = |name: &[u8], value: &[u8]| fields.insert(name.to_vec(), value.to_vec());
        own(b"host", request.host.trim_ascii());
        own(b"x-amz-date", time.time.as_bytes());
        if let Some(token) = self.session_token() {
            own(b"x-amz-security-token", token.trim().as_bytes());
        }
        if request.sends_payload {
            own(DIGEST_FIELD, request.payload);
        }
        fields
    }

    /// Returns the scope of a signature: `20150830/us-east-1/service/aws4_request`.
    pub(crate) fn scope(&self, time: &SigningTime) -> String {
        format!("{}/{}/{}/aws4_request", time.date, self.region, self.service)
    }

    /// Returns the signature of a canonical request, as hexadecimal digits.
    pub(crate) fn signature(&self, time: &SigningTime, request: &CanonicalRequest<'_>) -> String {
        let (scope, digest) = (self.scope(time), request.digest());
        let to_sign = format!("{ALGORITHM}\n{}\n{scope}\n{digest}", time.time);
        HEXLOWER.encode(hmac::sign(&self.key_of(time), to_sign.as_bytes()).as_ref())
    }

    /// Returns the signing key of that day. The first request of a day derives it.
    fn key_of(&self, time: &SigningTime) -> Arc<hmac::Key> {
        let known = self.key_of_day.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, key)) = known.as_ref().filter(|(day, _)| *day == time.day) {
            return Arc::clone(key);
        }
        drop(known);
        let secret = Zeroizing::new(["AWS4", self.key.secret.expose()].concat());
        let mut key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        for part in [time.date.as_str(), &self.region, &self.service, "aws4_request"] {
            key = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part.as_bytes()).as_ref());
        }
        let key = Arc::new(key);
        *self.key_of_day.write().unwrap_or_else(PoisonError::into_inner) = Some((time.day, Arc::clone(&key)));
        key
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::digest::sha256;

    fn secret(value: &str) -> Secret {
        Secret::from_value("${env:TEST}", value.to_owned())
    }

    fn signer_of(session_token: Option<&str>) -> Signer {
        let key = AccessKey {
            id: secret("AKIDEXAMPLE"),
            secret: secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session_token: session_token.map(secret),
        };
        Signer::new(key, "us-east-1", "service")
    }

    fn signer() -> Signer {
        signer_of(None)
    }

    /// A request of the published examples.
    struct Example<'a> {
        method: &'a str,
        target: &'a str,
        host: &'a str,
        fields: &'a [(&'a str, &'a str)],
        body: &'a [u8],
        sends_payload: bool,
        at: Timestamp,
    }

    impl<'a> Example<'a> {
        /// A request of the suite for signers: 30 August 2015, 12:36.
        fn new(method: &'a str, target: &'a str) -> Self {
            let (host, at) = ("example.amazonaws.com", Timestamp::from_secs(1_440_938_160));
            Self { method, target, host, fields: &[], body: b"", sends_payload: false, at }
        }

        /// A request of the examples in the S3 documentation: 24 May 2013, midnight.
        fn to_s3(method: &'a str, target: &'a str) -> Self {
            let (host, at) = ("examplebucket.s3.amazonaws.com", Timestamp::from_secs(1_369_353_600));
            Self { host, at, sends_payload: true, ..Self::new(method, target) }
        }

        fn signed(&self, signer: &Signer) -> HeaderSignature {
            let (path, query) = self.target.split_once('?').unwrap_or((self.target, ""));
            let fields: Vec<_> =
                self.fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
            signer.sign(
                self.at,
                &SignableRequest {
                    method: self.method.as_bytes(),
                    host: self.host.as_bytes(),
                    path: path.as_bytes(),
                    query: query.as_bytes(),
                    fields: &fields,
                    payload: sha256(self.body).as_bytes(),
                    sends_payload: self.sends_payload,
                },
            )
        }

        fn signature(&self, signer: &Signer) -> String {
            parts(&self.signed(signer).authorization).1
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
            assert_eq!(Example::new("GET", target).signature(&signer()), signature, "{target}");
        }
        let post = Example::new("POST", "/").signature(&signer());
        assert_eq!(post, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
    }

    #[test]
    fn fields_are_signed_as_the_published_suite_has_it() {
        for (method, fields, names, signature) in [
            (
                "GET",
                &[("My-Header1", "value2"), ("My-Header1", "value2"), ("My-Header1", "value1")][..],
                "host;my-header1;x-amz-date",
                "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
            ),
            (
                "GET",
                &[("My-Header1", "  value1"), ("My-Header2", "\"a   b   c\"")],
                "host;my-header1;my-header2;x-amz-date",
                "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
            ),
            (
                "POST",
                &[("My-Header1", "value1")],
                "host;my-header1;x-amz-date",
                "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
            ),
        ] {
            let example = Example { fields, ..Example::new(method, "/") };
            let expected = (names.to_owned(), signature.to_owned());
            assert_eq!(parts(&example.signed(&signer()).authorization), expected);
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
            let fields = &[("Content-Type", media_type)];
            let example = Example { fields, body: b"Param1=value1", ..Example::new("POST", "/") };
            let expected = ("content-type;host;x-amz-date".to_owned(), signature.to_owned());
            assert_eq!(parts(&example.signed(&signer()).authorization), expected);
        }
    }

    #[test]
    fn a_sessions_token_is_signed_and_the_requests_own_signature_is_not() {
        let token = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
        let fields = &[
            ("X-Amz-Security-Token", "the-clients"),
            ("X-Amz-Date", "19700101T000000Z"),
            ("Authorization", "none"),
            ("Host", "other.example"),
        ];
        let signed = Example { fields, ..Example::new("GET", "/") }.signed(&signer_of(Some(token)));
        assert_eq!(signed.date, "20150830T123600Z");
        assert_eq!(
            signed.authorization,
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date;x-amz-security-token, \
             Signature=07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"
        );
    }

    #[test]
    fn requests_to_s3_are_signed_as_its_documentation_has_it() {
        let key = AccessKey {
            id: secret("AKIAIOSFODNN7EXAMPLE"),
            secret: secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            session_token: None,
        };
        let s3 = Signer::new(key, "us-east-1", "s3");
        let get = Example { fields: &[("Range", "bytes=0-9")], ..Example::to_s3("GET", "/test.txt") };
        let names = "host;range;x-amz-content-sha256;x-amz-date".to_owned();
        let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41".to_owned();
        assert_eq!(parts(&get.signed(&s3).authorization), (names, signature));
        // A dollar sign is signed encoded, even if it is sent unencoded.
        for target in ["/test$file.text", "/test%24file.text"] {
            let put = Example {
                fields: &[
                    ("Date", "Fri, 24 May 2013 00:00:00 GMT"),
                    ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                ],
                body: b"Welcome to Amazon S3.",
                ..Example::to_s3("PUT", target)
            };
            let signature = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
            assert_eq!(put.signature(&s3), signature, "{target}");
        }
        for (target, signature) in [
            ("/?lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            ("/?prefix=J&max-keys=2", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ] {
            assert_eq!(Example::to_s3("GET", target).signature(&s3), signature, "{target}");
        }
    }

    #[test]
    fn many_threads_sign_over_midnight_with_the_key_of_each_day() {
        const DAYS: u64 = 3;
        let (shared, first) = (signer(), Example::new("GET", "/").at);
        let on =
            |day: u64| Example { at: first + Duration::from_hours(24 * day), ..Example::new("GET", "/") };
        // Each with a new signer, whose key cache is empty.
        let expected: Vec<String> = (0..DAYS).map(|day| on(day).signature(&signer())).collect();
        assert_eq!(expected[0], VANILLA);
        std::thread::scope(|scope| {
            for first in 0..4 {
                let (shared, expected) = (&shared, &expected);
                scope.spawn(move || {
                    for day in (0..60).map(|number| (first + number) % DAYS) {
                        assert_eq!(on(day).signature(shared), expected[usize::try_from(day).unwrap()]);
                    }
                });
            }
        });
    }

    #[test]
    fn debug_output_shows_no_key() {
        let shown = format!("{:?} {:?}", signer(), signer().key);
        assert!(!shown.contains("wJalr") && !shown.contains("AKID"), "{shown}");
    }
}
