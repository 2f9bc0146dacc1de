//! The rules for single paths, which the router and the guard share.

/// The path that purges stored responses.
pub(crate) const PURGE_PATH: &str = "/api/v1/cache/purge";

/// Returns `true` if the path requires POST because it changes something; all others are read with GET.
pub(crate) fn requires_post(path: &str) -> bool {
    path == PURGE_PATH
}

/// Returns `true` if a path needs no token: the probes, which reveal only yes or no, and the page's own
/// files, which contain no data (the page asks for the token and fetches the data with it).
pub(crate) fn is_public(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/" | "/page.css" | "/page.js")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_changes_need_the_token_and_only_a_purge_is_posted() {
        for path in ["/metrics", "/api/v1/config", "/healthz/", PURGE_PATH] {
            assert!(!is_public(path), "{path}");
        }
        assert!(is_public("/healthz") && is_public("/page.js"));
        assert!(requires_post(PURGE_PATH) && !requires_post("/api/v1/cache"));
    }
}
