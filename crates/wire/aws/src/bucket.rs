//! URLs of an S3 bucket and its objects.

use url::{ParseError, Url};

use crate::percent::percent_encode;

/// Position of a bucket's name in URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressing {
    /// In the path: `https://s3.example/bucket/key`.
    Path,
    /// In the host name: `https://bucket.s3.example/key`.
    VirtualHost,
}

/// The URL of a bucket, without a query, and with a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    url: Url,
}

/// The reason why a bucket has no URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BucketError {
    /// The scheme of the endpoint is not `http` or `https`.
    #[error("unsupported Url scheme")]
    Scheme,
    /// The endpoint has no host.
    #[error("Url is missing the `host`")]
    NoHost,
    /// The name of the bucket cannot be a part of the host name.
    #[error("{0}")]
    Host(ParseError),
}

impl Bucket {
    /// Returns the bucket `name` of the store at `endpoint`. The path of `endpoint` precedes that of the
    /// bucket; its query, its fragment and its user are dropped.
    pub fn new(mut endpoint: Url, addressing: Addressing, name: &str) -> Result<Self, BucketError> {
        let Some(host) = endpoint.host_str().map(str::to_owned) else { return Err(BucketError::NoHost) };
        if !matches!(endpoint.scheme(), "http" | "https") {
            return Err(BucketError::Scheme);
        }
        endpoint.set_query(None);
        endpoint.set_fragment(None);
        // Fails only for a URL without a host.
        let _ = endpoint.set_username("");
        let _ = endpoint.set_password(None);
        let mut path = endpoint.path().to_owned();
        if !path.ends_with('/') {
            path.push('/');
        }
        match addressing {
            Addressing::Path => {
                // A slash is encoded too, so that the name stays one segment.
                path.push_str(&encoded(name.as_bytes()));
                path.push('/');
            }
            Addressing::VirtualHost => {
                let host = format!("{name}.{host}");
                endpoint.set_host(Some(&host)).map_err(BucketError::Host)?;
                // A host is converted to lower case and ends at a colon: it would be that of another bucket.
                if endpoint.host_str() != Some(&host) {
                    return Err(BucketError::Host(ParseError::InvalidDomainCharacter));
                }
            }
        }
        endpoint.set_path(&path);
        Ok(Self { url: endpoint })
    }

    /// Returns the URL of the bucket.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the URL of the object `key`, whose slashes separate segments of the path. `.` and `..` in
    /// `key` are resolved as in any URL.
    pub fn object_url(&self, key: &str) -> Url {
        let mut url = self.url.clone();
        let key: Vec<String> = key.split('/').map(|segment| encoded(segment.as_bytes())).collect();
        url.set_path(&format!("{}{}", url.path(), key.join("/")));
        url
    }
}

fn encoded(bytes: &[u8]) -> String {
    let mut encoded = Vec::with_capacity(bytes.len());
    percent_encode(bytes, &mut encoded);
    encoded.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(endpoint: &str, addressing: Addressing, name: &str) -> Result<Bucket, BucketError> {
        Bucket::new(endpoint.parse().unwrap(), addressing, name)
    }

    #[test]
    fn a_buckets_name_is_in_the_path_or_in_the_host_name() {
        for (endpoint, addressing, name, expected) in [
            ("https://s3.example", Addressing::Path, "b", "https://s3.example/b/"),
            ("http://127.0.0.1:7070/store", Addressing::Path, "b", "http://127.0.0.1:7070/store/b/"),
            ("https://u:p@s3.example/?q#f", Addressing::Path, "b", "https://s3.example/b/"),
            ("https://s3.example", Addressing::Path, "//c:d?", "https://s3.example/%2F%2Fc%3Ad%3F/"),
            ("https://s3.example", Addressing::VirtualHost, "b", "https://b.s3.example/"),
            ("https://s3.example:444/store", Addressing::VirtualHost, "b", "https://b.s3.example:444/store/"),
        ] {
            assert_eq!(bucket(endpoint, addressing, name).unwrap().url().as_str(), expected);
        }
    }

    #[test]
    fn a_key_is_encoded_in_its_segments() {
        let bucket = bucket("https://s3.example", Addressing::Path, "b").unwrap();
        for (key, expected) in [
            ("har/2026/11/a-b.har.gz", "https://s3.example/b/har/2026/11/a-b.har.gz"),
            ("é a+b*/%2F?#", "https://s3.example/b/%C3%A9%20a%2Bb%2A/%252F%3F%23"),
            ("//other.example/", "https://s3.example/b///other.example/"),
            ("a/../c", "https://s3.example/b/c"),
            ("", "https://s3.example/b/"),
        ] {
            assert_eq!(bucket.object_url(key).as_str(), expected);
        }
    }

    #[test]
    fn a_name_that_a_host_cannot_hold_is_refused() {
        let host = Addressing::VirtualHost;
        for name in ["ADMIN", "other.example:", "admin\u{3002}evil", "a b"] {
            assert!(matches!(bucket("https://s3.example", host, name), Err(BucketError::Host(_))), "{name}");
        }
        assert!(matches!(bucket("https://127.0.0.1", host, "b"), Err(BucketError::Host(_))));
        assert_eq!(bucket("ftp://s3.example", host, "b"), Err(BucketError::Scheme));
        assert_eq!(bucket("file:///tmp", host, "b"), Err(BucketError::NoHost));
    }
}
