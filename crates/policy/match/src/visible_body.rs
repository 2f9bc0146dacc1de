//! Reads a response's body once all of it has passed.

use std::borrow::Cow;

use egret_har::observed::Captured;
use egret_har::recorder::whole_body;
use egret_message::Fields;

use crate::expression::EXPRESSION_BODY_BYTES_MAX;

/// Returns a whole body without its content codings, as expressions see it. Returns `None` if it is too long,
/// or if a content coding is unknown or invalid.
pub fn seen_at_end<'a>(fields: Fields<'_>, body: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    if !fields.is_encoded() {
        return Some(Cow::Borrowed(body));
    }
    let codings: Vec<&[u8]> = fields.all(b"content-encoding").collect();
    let body = Captured { bytes: body, is_whole: true, is_wanted: true };
    let decoded = whole_body(&body, &codings.join(&b","[..]), EXPRESSION_BODY_BYTES_MAX)?;
    Some(Cow::Owned(decoded.into_owned()))
}

#[cfg(test)]
mod tests {
    use egret_tests::coded::coded;
    use proptest::prelude::*;

    use super::*;
    use egret_message::Changes;

    /// Returns the visible part of `body` for a response with these fields.
    fn seen(fields: &[(&str, &str)], body: &[u8]) -> Option<Vec<u8>> {
        let mut changes = Changes::default();
        for (name, value) in fields {
            changes.add(name.as_bytes(), value.as_bytes());
        }
        seen_at_end(Fields::new(&[], b"", &changes), body).map(Cow::into_owned)
    }

    const JSON: (&str, &str) = ("Content-Type", "application/json");

    #[test]
    fn codings_are_taken_off() {
        let body = br#"{"usage":{"total_tokens":60}}"#.as_slice();
        for (codings, bytes) in [
            ("gzip", coded("gzip", body)),
            ("X-GZIP", coded("gzip", body)),
            ("deflate", coded("deflate", body)),
            ("deflate, gzip", coded("gzip", &coded("deflate", body))),
            ("identity", body.to_vec()),
        ] {
            assert_eq!(seen(&[JSON, ("Content-Encoding", codings)], &bytes).unwrap(), body, "{codings}");
        }
        let twice = [JSON, ("Content-Encoding", "deflate"), ("Content-Encoding", "gzip")];
        assert_eq!(seen(&twice, &coded("gzip", &coded("deflate", body))).unwrap(), body);
        assert_eq!(seen(&[JSON, ("Content-Encoding", "gzip")], body), None);
        assert_eq!(seen(&[JSON, ("Content-Encoding", "rot13")], body), None);
    }

    #[test]
    fn no_more_is_read_than_expressions_may_see() {
        let fits = coded("gzip", &vec![b'1'; EXPRESSION_BODY_BYTES_MAX]);
        assert_eq!(
            seen(&[JSON, ("Content-Encoding", "gzip")], &fits).unwrap().len(),
            EXPRESSION_BODY_BYTES_MAX
        );
        let bomb = coded("gzip", &vec![b'1'; EXPRESSION_BODY_BYTES_MAX + 1]);
        assert_eq!(seen(&[JSON, ("Content-Encoding", "gzip")], &bomb), None);
    }

    proptest! {
        #[test]
        fn whatever_a_provider_sends_is_read_no_further(
            body in prop::collection::vec(any::<u8>(), 0..2_000),
            codings in "(gzip|deflate|br|zstd|identity|x)(, (gzip|deflate|br|zstd))?",
        ) {
            let seen = seen(&[JSON, ("Content-Encoding", &codings)], &body);
            prop_assert!(seen.is_none_or(|seen| seen.len() <= EXPRESSION_BODY_BYTES_MAX));
        }
    }
}
