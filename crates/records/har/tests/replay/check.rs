//! Invariants of the HAR reader for arbitrary bytes.

use egret_har::replay::{self, ENTRIES_MAX, FIELDS_MAX, REPLAYED_BODY_BYTES_MAX};

/// Parses the bytes and returns `true` if they are accepted. Panics if an accepted file breaks a rule.
pub fn check(bytes: &[u8]) -> bool {
    let Ok(entries) = replay::parse(bytes) else { return false };
    assert!(entries.len() <= ENTRIES_MAX);
    assert!(entries.is_sorted_by_key(|entry| entry.started), "not in the order of their start");
    for entry in &entries {
        for (fields, body) in
            [(&entry.request_fields, &entry.request_body), (&entry.response_fields, &entry.response_body)]
        {
            assert!(fields.len() <= FIELDS_MAX && body.len() <= REPLAYED_BODY_BYTES_MAX);
            assert!(fields.iter().all(|(name, _)| !name.starts_with(':')), "a pseudo field");
        }
    }
    let mut marked = b"\xef\xbb\xbf".to_vec();
    marked.extend_from_slice(bytes);
    if !bytes.starts_with(b"\xef\xbb\xbf") {
        assert_eq!(
            replay::parse(&marked).ok().as_ref(),
            Some(&entries),
            "a byte order mark changes something"
        );
    }
    true
}
