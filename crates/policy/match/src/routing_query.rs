//! The query parameters by which a client names a provider, on listeners that allow it.
//!
//! Each parameter stands for a routing field. The head is rewritten as if the client had sent the fields, so
//! everything behind this module sees one way of routing, and nothing sees the parameters. Fields of other
//! products that the config does not let the gateway read are removed from the head in the same step.

use std::fmt;

use egret_http1::{RequestHead, Span};
use egret_items::words;

use crate::compat::{Compat, OtherProduct};
use crate::form::{decode_form, with_decoded};
use crate::routing_fields::{RoutingFields, is_excluded};

/// Maximum number of bytes by which a rewritten head is longer than the received one.
pub const ADDED_BYTES_MAX: usize = 64;

/// Maximum number of fields that are added.
pub const ADDED_FIELDS_MAX: usize = 3;

words! {
    /// The meaning of a routing parameter, and the field that it stands for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RoutingParameter: field {
        /// The host, and the port if it is not the scheme's.
        Host => "x-egret-host",
        /// The scheme.
        Scheme => "x-egret-scheme",
        /// The name of the consumer.
        Consumer => "x-egret-consumer",
    }
}

impl RoutingParameter {
    /// Returns the meaning of the parameter with that name. Names are compared after decoding, and case
    /// matters. Those of a product that `compat` excludes have none.
    fn of(encoded: &[u8], compat: Compat) -> Option<Self> {
        let reads_lunar = || compat.reads(OtherProduct::Lunar);
        with_decoded(encoded, |name| match name {
            b"egret_host" => Some(Self::Host),
            b"egret_scheme" => Some(Self::Scheme),
            b"egret_consumer" => Some(Self::Consumer),
            b"lunar_original_host" if reads_lunar() => Some(Self::Host),
            b"lunar_original_scheme" if reads_lunar() => Some(Self::Scheme),
            b"lunar_consumer_tag" if reads_lunar() => Some(Self::Consumer),
            _ => None,
        })
    }
}

impl fmt::Display for RoutingParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Scheme => "scheme",
            Self::Consumer => "consumer",
        })
    }
}

/// The reason that a request with routing parameters is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RoutingQueryError {
    /// Several parameters name this part.
    #[error("the query names the {0} more than once")]
    Twice(RoutingParameter),
    /// The parameter that names this part is empty.
    #[error("the query parameter that names the {0} is empty")]
    Empty(RoutingParameter),
    /// The parameter that names this part has bytes that a header field must not have.
    #[error("the query parameter that names the {0} contains spaces or control characters")]
    Bytes(RoutingParameter),
    /// A header field names another one.
    #[error("the query and a header field name different values for the {0}")]
    Disagrees(RoutingParameter),
}

/// A head without the routing parameters of its target, and without fields that are not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// The whole head, with a routing field for each parameter unless there is an error.
    pub head: Vec<u8>,
    /// The error for which the request is refused.
    pub outcome: Result<(), RoutingQueryError>,
}

/// Removes the routing fields of products that `compat` excludes from a request, whose head is at the start
/// of `bytes`, and if `by_query` replaces its routing parameters by fields. The rest of head and query stays
/// as it is, parameters of excluded products included. Returns `None` if nothing changes.
pub fn rewrite(request: &RequestHead, bytes: &[u8], compat: Compat, by_query: bool) -> Option<Rewritten> {
    let target = request.target.of(bytes);
    let (path, query) = match memchr::memchr(b'?', target) {
        Some(at) if by_query => (&target[..at], Some(&target[at + 1..])),
        _ => (target, None),
    };
    let is_routing = |pair: &&[u8]| RoutingParameter::of(pair_of(pair).0, compat).is_some();
    let has_parameters = query.is_some_and(|query| pairs(query).any(|pair| is_routing(&pair)));
    if !has_parameters && !request.fields.iter().any(|field| is_excluded(field, bytes, compat)) {
        return None;
    }
    let target_range = request.target.range();
    let mut head = Vec::with_capacity(request.len + ADDED_BYTES_MAX);
    head.extend_from_slice(&bytes[..target_range.start]);
    head.extend_from_slice(path);
    let kept: Vec<&[u8]> = query.into_iter().flat_map(pairs).filter(|pair| !is_routing(pair)).collect();
    if !kept.is_empty() {
        head.push(b'?');
        head.extend_from_slice(&kept.join(&b'&'));
    }
    // The empty line that ends the head follows the added fields.
    let end = request.len.saturating_sub(b"\r\n".len()).max(target_range.end);
    let mut from = target_range.end;
    for (index, field) in request.fields.iter().enumerate() {
        if is_excluded(field, bytes, compat) {
            head.extend_from_slice(&bytes[from..field.name.range().start]);
            from = request.fields.get(index + 1).map_or(end, |next| next.name.range().start);
        }
    }
    head.extend_from_slice(&bytes[from..end]);
    let values = RoutingValues::of(query.unwrap_or_default(), compat);
    let named = values.and_then(|named| named.without_known(request, bytes, compat));
    let outcome = named.map(|named| named.write(&mut head));
    head.extend_from_slice(b"\r\n");
    Some(Rewritten { head, outcome })
}

/// Splits a query into its parameters.
fn pairs(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    query.split(|byte| *byte == b'&')
}

/// Splits a parameter into its name and its value, both encoded.
fn pair_of(pair: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'=', pair) {
        Some(at) => (&pair[..at], &pair[at + 1..]),
        None => (pair, b""),
    }
}

/// The decoded values of the routing parameters, in the order of [`RoutingParameter::ALL`].
#[derive(Debug, Default)]
struct RoutingValues([Option<Vec<u8>>; 3]);

impl RoutingValues {
    fn of(query: &[u8], compat: Compat) -> Result<Self, RoutingQueryError> {
        let mut named = Self::default();
        let mut seen = [false; 3];
        for pair in pairs(query) {
            let (name, value) = pair_of(pair);
            let Some(part) = RoutingParameter::of(name, compat) else { continue };
            if std::mem::replace(&mut seen[part as usize], true) {
                return Err(RoutingQueryError::Twice(part));
            }
            let value = decode_form(value);
            let value = value.trim_ascii();
            let is_wrong = |byte: &u8| match part {
                RoutingParameter::Host | RoutingParameter::Scheme => !byte.is_ascii_graphic(),
                RoutingParameter::Consumer => byte.is_ascii_control(),
            };
            if value.iter().any(is_wrong) {
                return Err(RoutingQueryError::Bytes(part));
            }
            match (part, value) {
                // Clients write the name of the consumer even if they have none.
                (RoutingParameter::Consumer, b"") => {}
                (_, b"") => return Err(RoutingQueryError::Empty(part)),
                _ => named.0[part as usize] = Some(value.to_vec()),
            }
        }
        Ok(named)
    }

    /// Removes what a header field names too. Fails if a field names something else.
    fn without_known(
        mut self,
        request: &RequestHead,
        bytes: &[u8],
        compat: Compat,
    ) -> Result<Self, RoutingQueryError> {
        let mut fields = RoutingFields::default();
        for field in &request.fields {
            fields.note(field, bytes, compat);
        }
        let text = |span: Span| span.of(bytes);
        let known = [fields.host(), fields.scheme(), fields.consumer()].map(|span| span.map(text));
        for (part, known) in RoutingParameter::ALL.into_iter().zip(known) {
            let (Some(known), Some(value)) = (known, &self.0[part as usize]) else { continue };
            let is_same = match part {
                RoutingParameter::Host | RoutingParameter::Scheme => known.eq_ignore_ascii_case(value),
                RoutingParameter::Consumer => known == value,
            };
            if !is_same {
                return Err(RoutingQueryError::Disagrees(part));
            }
            self.0[part as usize] = None;
        }
        Ok(self)
    }

    fn write(&self, head: &mut Vec<u8>) {
        for (part, value) in RoutingParameter::ALL.into_iter().zip(&self.0) {
            if let Some(value) = value {
                head.extend_from_slice(part.field().as_bytes());
                head.extend_from_slice(b": ");
                head.extend_from_slice(value);
                head.extend_from_slice(b"\r\n");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use egret_http1::{HeadLimits, Progress};
    use proptest::prelude::*;

    use super::*;

    fn parse(bytes: &[u8]) -> RequestHead {
        let mut request = RequestHead::new();
        assert_eq!(request.parse(bytes, &HeadLimits::default()), Ok(Progress::Complete));
        request
    }

    /// Returns the rewritten target and the added fields of a request, `None` if it stays as it is.
    fn rewritten(target: &str, fields: &str) -> Option<Result<(String, String), RoutingQueryError>> {
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\nbody").into_bytes();
        let Rewritten { head, outcome } = rewrite(&parse(&bytes), &bytes, Compat::Missing, true)?;
        let text = String::from_utf8(head.clone()).unwrap();
        assert!(head.len() <= bytes.len() + ADDED_BYTES_MAX && !text.contains("body"), "{text}");
        let request = parse(&head);
        let rest = text.split_once(&format!("Host: h\r\n{fields}")).unwrap().1;
        let target = String::from_utf8(request.target.of(&head).to_vec()).unwrap();
        Some(outcome.map(|()| (target, rest.trim_end().replace("\r\n", "\n"))))
    }

    #[test]
    fn parameters_become_fields_and_the_rest_stays_byte_for_byte() {
        for (target, kept, fields) in [
            ("/a?lunar_original_host=api.example", "/a", "x-egret-host: api.example"),
            ("/?egret_host=h%3A81&egret_scheme=https", "/", "x-egret-host: h:81\nx-egret-scheme: https"),
            ("/a?b=%2f&egret%5Fhost=h&c=+&&d", "/a?b=%2f&c=+&&d", "x-egret-host: h"),
            ("/a?%65gret_host=h&", "/a?", "x-egret-host: h"),
            ("/a?egret_host=h?x=1&b", "/a?b", "x-egret-host: h?x=1"),
            ("/a?lunar_consumer_tag=team+a%C3%A9&b", "/a?b", "x-egret-consumer: team aé"),
            ("/a?lunar_consumer_tag=&b", "/a?b", ""),
            ("http://x/a?b&lunar_original_scheme=http", "http://x/a?b", "x-egret-scheme: http"),
        ] {
            let expected = Some(Ok((kept.to_owned(), fields.to_owned())));
            assert_eq!(rewritten(target, ""), expected, "{target}");
        }
        for target in
            ["/a", "/a?b", "/egret_host=h", "/a?EGRET_HOST=h", "/a?xegret_host=h", "/a?egret%255Fhost=h"]
        {
            assert_eq!(rewritten(target, ""), None, "{target}");
        }
    }

    #[test]
    fn repeated_or_invalid_parameters_are_refused() {
        use RoutingQueryError::{Bytes, Disagrees, Empty, Twice};
        for (target, fields, error) in [
            ("/?egret_host=a&egret_host=a", "", Twice(RoutingParameter::Host)),
            ("/?egret_host=a&lunar_original_host=a", "", Twice(RoutingParameter::Host)),
            ("/?egret_consumer=&egret_consumer=a", "", Twice(RoutingParameter::Consumer)),
            ("/?egret_host", "", Empty(RoutingParameter::Host)),
            ("/?egret_scheme=", "", Empty(RoutingParameter::Scheme)),
            ("/?egret_host=a%0D%0Ax:y", "", Bytes(RoutingParameter::Host)),
            ("/?egret_host=a+b", "", Bytes(RoutingParameter::Host)),
            ("/?egret_consumer=a%00", "", Bytes(RoutingParameter::Consumer)),
            ("/?egret_host=a", "x-egret-host: b\r\n", Disagrees(RoutingParameter::Host)),
            ("/?egret_host=a", "Mashape-Host-Override: b\r\n", Disagrees(RoutingParameter::Host)),
            ("/?egret_scheme=http", "x-lunar-scheme: https\r\n", Disagrees(RoutingParameter::Scheme)),
            ("/?egret_consumer=a", "x-lunar-consumer-tag: A\r\n", Disagrees(RoutingParameter::Consumer)),
        ] {
            assert_eq!(rewritten(target, fields), Some(Err(error)), "{target}");
        }
        let agreeing = "x-lunar-host: API.example\r\nx-egret-consumer: a\r\n";
        let kept = rewritten("/?egret_host=api.example&egret_consumer=a&b", agreeing);
        assert_eq!(kept, Some(Ok(("/?b".to_owned(), String::new()))));
    }

    #[test]
    fn a_refused_target_shows_no_parameters_either() {
        let bytes = b"GET /a?egret_host=a&b&egret_host=b HTTP/1.1\r\nHost: h\r\n\r\n";
        let Rewritten { head, outcome } = rewrite(&parse(bytes), bytes, Compat::Missing, true).unwrap();
        assert_eq!(head, b"GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(outcome, Err(RoutingQueryError::Twice(RoutingParameter::Host)));
    }

    #[test]
    fn parameters_of_an_unlisted_product_are_ordinary_ones() {
        for target in ["/a?lunar_original_host=a", "/?lunar%5Foriginal_scheme=b&x", "/?lunar_consumer_tag=c"]
        {
            let bytes = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes();
            let compat = Compat::new(Some(&[OtherProduct::Harchiver]));
            assert_eq!(rewrite(&parse(&bytes), &bytes, compat, true), None, "{target}");
        }
    }

    #[test]
    fn routing_fields_of_an_unlisted_product_are_removed() {
        let bytes = b"GET /?lunar_original_host=a HTTP/1.1\r\nx-lunar-host: b\r\nX-Lunar-Scheme:\r\nHost: h\r\n\
                      x-lunar-req-id: 1\r\nX-LUNAR-consumer-tag:  c \r\nMashape-Host-Override: d\r\nA: 1\r\n\r\nbody";
        for (listed, by_query, expected) in [
            (
                OtherProduct::Harchiver,
                true,
                "Host: h\r\nx-lunar-req-id: 1\r\nMashape-Host-Override: d\r\nA: 1\r\n",
            ),
            (
                OtherProduct::Lunar,
                false,
                "x-lunar-host: b\r\nX-Lunar-Scheme:\r\nHost: h\r\nx-lunar-req-id: 1\r\n\
                 X-LUNAR-consumer-tag:  c \r\nA: 1\r\n",
            ),
        ] {
            let compat = Compat::new(Some(&[listed]));
            let Rewritten { head, outcome } = rewrite(&parse(bytes), bytes, compat, by_query).unwrap();
            let expected = format!("GET /?lunar_original_host=a HTTP/1.1\r\n{expected}\r\n");
            assert_eq!((String::from_utf8(head).unwrap(), outcome), (expected, Ok(())));
        }
        assert_eq!(rewrite(&parse(bytes), bytes, Compat::Missing, false), None);
        // Neither the parameter nor the field of that product takes part in a comparison.
        let compat = Compat::new(Some(&[]));
        let bytes =
            b"GET /?lunar_original_host=b&egret_host=a HTTP/1.1\r\nHost: h\r\nx-lunar-host: c\r\n\r\n";
        let Rewritten { head, outcome } = rewrite(&parse(bytes), bytes, compat, true).unwrap();
        assert_eq!(head, b"GET /?lunar_original_host=b HTTP/1.1\r\nHost: h\r\nx-egret-host: a\r\n\r\n");
        assert_eq!(outcome, Ok(()));
    }

    proptest! {
        #[test]
        fn a_rewritten_head_is_a_head_with_no_parameters_left(
            query in "((egret_host|egret%5fscheme|lunar_consumer_tag|a|)(=[a%0D&=+é ]{0,6})?&?){0,6}",
            fields in "((x-lunar-host|Mashape-Upstream-Protocol|x-a): ?a?\r\n){0,4}",
            is_listed in any::<bool>(),
        ) {
            let compat = if is_listed { Compat::new(Some(&[])) } else { Compat::Missing };
            let query = query.replace(' ', "%20").replace('é', "%C3%A9");
            let bytes = format!("GET /?{query} HTTP/1.1\r\n{fields}Host: h\r\n\r\n").into_bytes();
            let Some(Rewritten { head, .. }) = rewrite(&parse(&bytes), &bytes, compat, true) else { return Ok(()) };
            let again = parse(&head);
            prop_assert_eq!(again.len, head.len());
            prop_assert!(again.fields.len() <= 1 + fields.lines().count() + ADDED_FIELDS_MAX);
            prop_assert_eq!(rewrite(&again, &head, compat, true), None);
        }
    }
}
