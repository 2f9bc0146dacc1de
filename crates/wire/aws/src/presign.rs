//! The signature in the query of a URL, which is then valid for a limited time.

use std::time::Duration;

use egret_clock::Timestamp;
use url::Url;

use crate::UNSIGNED_PAYLOAD;
use crate::canonical::{CanonicalFields, CanonicalRequest};
use crate::percent::percent_encode;
use crate::scope::SigningTime;
use crate::signer::{ALGORITHM, Signer};

impl Signer {
    /// Signs a request to `url` in its query, which is replaced. The path of `url` is signed as it is, so it
    /// must be encoded as that of [`Bucket::object_url`](crate::Bucket::object_url). The signature covers
    /// `Host`, but not the body. S3 accepts at most 7 days for `valid_for`.
    pub fn presign(&self, at: Timestamp, method: &str, mut url: Url, valid_for: Duration) -> Url {
        let time = SigningTime::new(at);
        let credential = format!("{}/{}", self.key_id(), self.scope(&time));
        let seconds = valid_for.as_secs().to_string();
        let token = self.session_token().filter(|token| !token.is_empty());
        // Sorted by name, as the canonical form requires.
        let parameters = [
            ("X-Amz-Algorithm", Some(ALGORITHM)),
            ("X-Amz-Credential", Some(credential.as_str())),
            ("X-Amz-Date", Some(time.time.as_str())),
            ("X-Amz-Expires", Some(seconds.as_str())),
            ("X-Amz-Security-Token", token),
            ("X-Amz-SignedHeaders", Some("host")),
        ];
        let mut query = Vec::new();
        for (name, value) in parameters.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            if !query.is_empty() {
                query.push(b'&');
            }
            query.extend_from_slice(name.as_bytes());
            query.push(b'=');
            percent_encode(value.as_bytes(), &mut query);
        }
        let canonical = CanonicalRequest {
            method: method.as_bytes(),
            path: url.path().as_bytes().to_vec(),
            query,
            fields: CanonicalFields::from([(b"host".to_vec(), host(&url).into_bytes())]),
            payload: UNSIGNED_PAYLOAD.as_bytes(),
        };
        let signature = self.signature(&time, &canonical);
        let query = String::from_utf8_lossy(&canonical.query);
        url.set_query(Some(&format!("{query}&X-Amz-Signature={signature}")));
        url
    }
}

/// Returns the value of `Host` for `url`. It has a port unless that is the default of the scheme.
fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use egret_config::Secret;

    use super::*;
    use crate::{AccessKey, Addressing, Bucket};

    fn secret(value: &str) -> Secret {
        Secret::from_value("${env:TEST}", value.to_owned())
    }

    /// Returns the signer of the examples in the S3 documentation.
    fn signer(session_token: Option<&str>) -> Signer {
        let key = AccessKey {
            id: secret("AKIAIOSFODNN7EXAMPLE"),
            secret: secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            session_token: session_token.map(secret),
        };
        Signer::new(key, "us-east-1", "s3")
    }

    /// Signs a request for a day, at the time of those examples: 24 May 2013, midnight.
    fn presigned(session_token: Option<&str>, method: &str, url: &str) -> String {
        let at = Timestamp::from_secs(1_369_353_600);
        let day = Duration::from_hours(24);
        signer(session_token).presign(at, method, url.parse().unwrap(), day).into()
    }

    const URL: &str = "https://examplebucket.s3.amazonaws.com/test.txt";

    #[test]
    fn a_url_is_signed_as_the_documentation_of_s3_has_it() {
        let expected = "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
                        &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
                        &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
                        &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        assert_eq!(presigned(None, "GET", URL), expected);
        // Its own query and an empty token change nothing.
        assert_eq!(presigned(Some(""), "GET", &format!("{URL}?a=b")), expected);
    }

    /// The signatures are those of `rusty-s3` 0.11, an independent signer.
    #[test]
    fn another_signer_signs_the_same() {
        let signature = |token, method, url: &str| {
            presigned(token, method, url).rsplit_once("&X-Amz-Signature=").unwrap().1.to_owned()
        };
        let token = Some("oej5cie4uctureturdtuc5dctd");
        assert_eq!(
            signature(token, "GET", URL),
            "bf77b83a7135594046c90a7e7e10cf1a4c8f8ecc1d541d0f42bea6b7670870c7"
        );
        assert_eq!(
            signature(None, "PUT", URL),
            "f4db56459304dafaa603a99a23c6bea8821890259a65c18ff503a4a72a80efd9"
        );
    }

    #[test]
    fn a_port_is_signed_unless_it_is_the_default() {
        for (url, expected) in [
            ("http://s3.example:7070/", "s3.example:7070"),
            ("https://s3.example:443/", "s3.example"),
            ("http://[::1]:80/", "[::1]"),
        ] {
            assert_eq!(host(&url.parse().unwrap()), expected);
        }
    }

    #[test]
    fn an_objects_url_keeps_its_path() {
        let bucket = Bucket::new("http://s3.example:7070".parse().unwrap(), Addressing::Path, "b").unwrap();
        let url = presigned(None, "PUT", bucket.object_url("é a/b").as_str());
        assert!(url.starts_with("http://s3.example:7070/b/%C3%A9%20a/b?X-Amz-Algorithm="), "{url}");
    }
}
