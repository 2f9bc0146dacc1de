//! The canonical form of a request, which a signature covers.

use std::collections::BTreeMap;

use crate::digest::sha256;
use crate::percent::{percent_decode, percent_encode};

/// Header fields of a canonical request: names in lower case, in order, with normalized values.
pub(crate) type CanonicalFields = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns `true` for S3 and its relatives, such as `s3-object-lambda`: their paths are names of objects, and
/// they require the digest of each body. `service` is the name in AWS signatures.
pub fn is_s3(service: &str) -> bool {
    service.starts_with("s3")
}

/// The form of the path of a canonical request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CanonicalPath {
    /// The name of an object in S3, encoded once.
    Object,
    /// The path of any other service: without empty and relative segments, and encoded again.
    Normalized,
}

impl CanonicalPath {
    /// Returns the form that `service` requires.
    pub fn of_service(service: &str) -> Self {
        if is_s3(service) { Self::Object } else { Self::Normalized }
    }

    /// Returns `path`, as it is sent, in canonical form.
    pub fn of(self, path: &[u8]) -> Vec<u8> {
        let mut canonical = Vec::with_capacity(path.len());
        match self {
            Self::Object => {
                let decoded = percent_decode(path);
                write_segments(decoded.split(|byte| *byte == b'/'), &mut canonical);
            }
            Self::Normalized => write_segments(normalized(path).into_iter(), &mut canonical),
        }
        canonical
    }
}

/// A request in canonical form.
pub(crate) struct CanonicalRequest<'a> {
    pub method: &'a [u8],
    pub path: Vec<u8>,
    pub query: Vec<u8>,
    pub fields: CanonicalFields,
    /// The digest of the body, or the marker that replaces it.
    pub payload: &'a [u8],
}

impl CanonicalRequest<'_> {
    /// The names of the covered fields, separated by semicolons.
    pub fn field_names(&self) -> String {
        let names = self.fields.keys().map(|name| String::from_utf8_lossy(name));
        names.collect::<Vec<_>>().join(";")
    }

    /// The digest of the request, as hexadecimal digits.
    pub fn digest(&self) -> String {
        let mut text = Vec::new();
        for part in [self.method, &self.path, &self.query] {
            text.extend_from_slice(part);
            text.push(b'\n');
        }
        for (name, value) in &self.fields {
            for part in [name.as_slice(), b":", value, b"\n"] {
                text.extend_from_slice(part);
            }
        }
        let names = self.fields.keys().map(Vec::as_slice).collect::<Vec<_>>().join(&b';');
        for part in [b"\n", names.as_slice(), b"\n", self.payload] {
            text.extend_from_slice(part);
        }
        sha256(&text)
    }
}

/// Appends a field value without surrounding spaces, and with each inner run of spaces reduced to one.
pub(crate) fn write_value(value: &[u8], out: &mut Vec<u8>) {
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

/// Returns the parameters of `query` sorted by their encoded names and values. A plus means a space, as in
/// forms.
pub(crate) fn canonical_query(query: &[u8]) -> Vec<u8> {
    let encoded = |part: &[u8]| {
        let spaced: Vec<u8> = part.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        let mut encoded = Vec::new();
        percent_encode(&percent_decode(&spaced), &mut encoded);
        encoded
    };
    let pairs = query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<_> = pairs
        .map(|pair| {
            let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            (encoded(&pair[..at]), encoded(pair.get(at + 1..).unwrap_or_default()))
        })
        .collect();
    pairs.sort();
    let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| [name, value].join(&b'=')).collect();
    pairs.join(&b'&')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_may_be_called_anything_and_other_paths_are_normalized() {
        let path = |form: CanonicalPath, path: &str| String::from_utf8(form.of(path.as_bytes())).unwrap();
        assert_eq!(path(CanonicalPath::Object, "/bucket/a//b/../c%20d+e/"), "/bucket/a//b/../c%20d%2Be/");
        assert_eq!(path(CanonicalPath::Normalized, "/v1/a//b/../c%20d+e/"), "/v1/a/c%2520d%2Be/");
        assert_eq!(path(CanonicalPath::Normalized, "/*"), "/%2A");
        assert_eq!(path(CanonicalPath::Normalized, "/../../a/.."), "/");
    }

    #[test]
    fn only_s3_and_its_relatives_have_objects() {
        for (service, form) in [
            ("s3", CanonicalPath::Object),
            ("s3-object-lambda", CanonicalPath::Object),
            ("execute-api", CanonicalPath::Normalized),
        ] {
            assert_eq!(CanonicalPath::of_service(service), form, "{service}");
        }
    }

    #[test]
    fn a_plus_in_a_query_is_a_space() {
        assert_eq!(canonical_query(b"b=1+2&a=%2B&&=x&c"), b"=x&a=%2B&b=1%202&c=");
        assert_eq!(canonical_query(b""), b"");
    }
}
