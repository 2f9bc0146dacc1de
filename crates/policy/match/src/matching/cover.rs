//! Finds out if every exchange that one match selects is selected by another one too.

use std::collections::BTreeMap;

use super::{AnyOf, GrpcMatchConfig, MatchConfig};
use crate::matching::path::{PathPattern, PathSegments, SegmentPattern};

impl MatchConfig {
    /// Returns `true` if this match surely selects every exchange that `other` does. It may be `false` for
    /// matches that are written in different ways.
    pub fn covers(&self, other: &Self) -> bool {
        let Self { provider, host, path, method, grpc, query, header, consumer, sample, when } = self;
        let any = |own: &AnyOf, other: &AnyOf| own.is_empty() || is_within(other, own, |a, b| a == b);
        any(provider, &other.provider)
            && any(host, &other.host)
            && (path.is_empty() || is_within(&other.path, path, covers_path))
            && any(method, &other.method)
            && grpc.as_ref().is_none_or(|grpc| covers_grpc(grpc, other.grpc.as_ref()))
            && has_all(query, &other.query, |a, b| a == b)
            && has_all(header, &other.header, str::eq_ignore_ascii_case)
            && any(consumer, &other.consumer)
            && sample.is_all()
            && when.as_ref().is_none_or(|when| other.when.as_ref() == Some(when))
    }
}

fn covers_grpc(wide: &GrpcMatchConfig, narrow: Option<&GrpcMatchConfig>) -> bool {
    let covers = |wide: &AnyOf, narrow: &AnyOf| wide.is_empty() || is_within(narrow, wide, |a, b| a == b);
    narrow
        .is_some_and(|narrow| covers(&wide.service, &narrow.service) && covers(&wide.method, &narrow.method))
}

/// Returns `true` if each of `narrow`, of which there is at least one, is covered by one of `wide`.
fn is_within(narrow: &AnyOf, wide: &AnyOf, covers: impl Fn(&str, &str) -> bool) -> bool {
    !narrow.is_empty() && narrow.iter().all(|narrow| wide.iter().any(|wide| covers(wide, narrow)))
}

/// Returns `true` if each name of `wide` is in `narrow`, with no further values.
fn has_all(
    wide: &BTreeMap<String, AnyOf>,
    narrow: &BTreeMap<String, AnyOf>,
    is_same: impl Fn(&str, &str) -> bool,
) -> bool {
    wide.iter().all(|(name, values)| {
        let mut same = narrow.iter().filter(|(other, _)| is_same(name, other));
        same.any(|(_, narrow)| is_within(narrow, values, |a, b| a == b))
    })
}

/// Returns `true` if every path that `narrow` matches is matched by `wide`.
fn covers_path(wide: &str, narrow: &str) -> bool {
    if wide == narrow {
        return true;
    }
    let patterns = (PathPattern::parse(wide), PathPattern::parse(narrow));
    let (Ok(PathPattern::Segments(wide)), Ok(PathPattern::Segments(narrow))) = patterns else { return false };
    covers_segments(&wide, &narrow)
}

fn covers_segments(wide: &PathSegments, narrow: &PathSegments) -> bool {
    let is_long_enough = if wide.is_open {
        wide.segments.len() <= narrow.segments.len()
    } else {
        wide.segments.len() == narrow.segments.len() && !narrow.is_open
    };
    let covers = |(wide, narrow): (&SegmentPattern, &SegmentPattern)| match (wide, narrow) {
        (SegmentPattern::Any | SegmentPattern::Parameter(_), _) => true,
        (SegmentPattern::Literal(wide), SegmentPattern::Literal(narrow)) => wide == narrow,
        (SegmentPattern::Literal(_), _) => false,
    };
    is_long_enough && wide.segments.iter().zip(&narrow.segments).all(covers)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn covers(wide: &Value, narrow: &Value) -> bool {
        let [wide, narrow] = [wide, narrow].map(|value| serde_json::from_value(value.clone()).unwrap());
        MatchConfig::covers(&wide, &narrow)
    }

    #[test]
    fn a_match_covers_those_that_ask_for_more() {
        let narrow = json!({
            "grpc": { "service": "a.B", "method": ["C", "D"] }, "provider": "a", "host": "a.example", "path": ["/v1/x/{id}", "/v1/y"], "method": ["GET", "POST"],
            "query": { "page": "1" }, "header": { "X-Tier": ["gold", "silver"] }, "consumer": "me",
            "sample": 10, "when": "now > 5",
        });
        let mut unsampled = narrow.clone();
        unsampled.as_object_mut().unwrap().remove("sample");
        for wide in [
            json!({}),
            unsampled,
            json!({ "provider": ["a", "b"], "path": "/v1/*" }),
            json!({ "path": ["/{version}/x/*", "/v1/{name}"] }),
            json!({ "header": { "x-tier": ["silver", "gold", "lead"] }, "when": "now > 5" }),
            json!({ "grpc": {} }),
            json!({ "grpc": { "service": ["a.B", "c.D"] } }),
        ] {
            assert!(covers(&wide, &narrow), "{wide}");
        }
        for wide in [
            json!({ "provider": "b" }),
            json!({ "host": "*.example" }),
            json!({ "path": "/v1/x/*" }),
            json!({ "path": "/v1/{name}" }),
            json!({ "path": "/v1/x/7" }),
            json!({ "path": "regex:/v1/.*" }),
            json!({ "method": "GET" }),
            json!({ "query": { "page": "1", "size": "2" } }),
            json!({ "grpc": { "method": "C" } }),
            json!({ "grpc": { "service": "c.D" } }),
            json!({ "header": { "x-tier": "gold" } }),
            json!({ "consumer": "you" }),
            json!({ "sample": 50 }),
            json!({ "when": "now > 6" }),
        ] {
            assert!(!covers(&wide, &narrow), "{wide}");
            assert!(!covers(&wide, &json!({})), "{wide}");
        }
        assert!(!covers(&json!({ "path": "/a/b" }), &json!({ "path": "/a/*" })));
        assert!(covers(&json!({ "path": "/a/*" }), &json!({ "path": "/a" })));
    }
}
