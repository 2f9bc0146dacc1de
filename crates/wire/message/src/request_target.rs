//! Splits request targets into path and query.

/// Splits a target into path and query. The path may be empty.
pub fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    }
}

/// Splits a target in origin-form into path and query. An empty path becomes `/`.
pub fn split_target(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (path, query) = split_query(target);
    (if path.is_empty() { b"/" } else { path }, query)
}
