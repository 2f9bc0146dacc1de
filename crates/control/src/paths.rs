//! The rules for single paths, which the router and the guard share.

use axum::http::Method;

/// The path that purges stored responses.
pub(crate) const PURGE_PATH: &str = "/api/v1/cache/purge";

/// The paths that read and change the config's files.
pub(crate) const VALIDATE_PATH: &str = "/api/v1/config/validate";
pub(crate) const FILES_PATH: &str = "/api/v1/config/files";
pub(crate) const FILE_PATH: &str = "/api/v1/config/files/{name}";
pub(crate) const VERSIONS_PATH: &str = "/api/v1/config/versions";
pub(crate) const VERSION_PATH: &str = "/api/v1/config/versions/{number}";
pub(crate) const ROLLBACK_PATH: &str = "/api/v1/config/rollback";
pub(crate) const RELOAD_PATH: &str = "/api/v1/config/reload";

/// The path of the flows and what they have decided.
pub(crate) const FLOWS_PATH: &str = "/api/v1/flows";

/// The path of the last hour's figures.
pub(crate) const HISTORY_PATH: &str = "/api/v1/history";

/// The path of what is wrong now.
pub(crate) const FINDINGS_PATH: &str = "/api/v1/findings";

/// The paths of failed exchanges.
pub(crate) const FAILURES_PATH: &str = "/api/v1/failures";
pub(crate) const FAILURE_DETAILS_PATH: &str = "/api/v1/failures/{id}";

/// The paths of live traffic.
pub(crate) const TRAFFIC_PATH: &str = "/api/v1/traffic";
pub(crate) const TRAFFIC_STREAM_PATH: &str = "/api/v1/traffic/stream";
pub(crate) const TRAFFIC_DETAILS_PATH: &str = "/api/v1/traffic/{id}";
pub(crate) const RESEND_PATH: &str = "/api/v1/traffic/{id}/resend";

/// The paths of faults.
pub(crate) const FAULTS_PATH: &str = "/api/v1/faults";
pub(crate) const FAULTS_ON_PATH: &str = "/api/v1/faults/on";
pub(crate) const FAULTS_OFF_PATH: &str = "/api/v1/faults/off";

/// The access that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// None: the probes, which reveal only yes or no, and the page's own files, which contain no data (the
    /// page asks for the token and fetches the data with it).
    Public,
    /// A token, if the config has one.
    Token,
    /// A token in any case: everything about the config's files, live traffic, and the switches of faults.
    /// Also requests that only read must not come from another site's page.
    Private,
}

impl Access {
    /// Returns the access that a path needs.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "/healthz" | "/readyz" | "/" | "/page.css" | "/page.js" | "/editor.js" => Self::Public,
            FAULTS_ON_PATH | FAULTS_OFF_PATH => Self::Private,
            _ if path.starts_with("/api/v1/config/") => Self::Private,
            _ if path == FAILURES_PATH || path.starts_with("/api/v1/failures/") => Self::Private,
            _ if path == TRAFFIC_PATH || path.starts_with("/api/v1/traffic/") => Self::Private,
            _ => Self::Token,
        }
    }
}

/// Returns the methods that a path accepts, as the value of `Allow`.
pub(crate) fn methods(path: &str) -> &'static str {
    match path {
        FAULTS_ON_PATH | FAULTS_OFF_PATH | PURGE_PATH | VALIDATE_PATH | ROLLBACK_PATH | RELOAD_PATH => "POST",
        _ if path.starts_with("/api/v1/traffic/") && path.ends_with("/resend") => "POST",
        _ if is_file(path) => "GET, HEAD, PUT",
        _ => "GET, HEAD",
    }
}

/// Returns `true` if the path accepts the method.
pub(crate) fn accepts(path: &str, method: &Method) -> bool {
    methods(path).split(", ").any(|accepted| accepted == method.as_str())
}

/// Returns `true` if a request with the method only reads, so those who may change nothing may send it. A
/// check of a config is not among them: with `control.config_changes: all`, it reads each file that the text
/// names.
pub(crate) fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Returns `true` if a request would change something. A check of a config is none.
pub(crate) fn changes(path: &str, method: &Method) -> bool {
    !reads(method) && path != VALIDATE_PATH
}

/// Returns `true` if a request has content: the text of a config.
pub(crate) fn has_content(path: &str, method: &Method) -> bool {
    path == VALIDATE_PATH || (is_file(path) && method == Method::PUT)
}

fn is_file(path: &str) -> bool {
    path.strip_prefix(FILES_PATH).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_needs_the_token_and_files_of_the_config_always_do() {
        for path in ["/metrics", "/api/v1/config", "/healthz/", PURGE_PATH, FAULTS_PATH] {
            assert_eq!(Access::of(path), Access::Token, "{path}");
        }
        let of_config =
            [VALIDATE_PATH, FILES_PATH, FILE_PATH, VERSIONS_PATH, VERSION_PATH, ROLLBACK_PATH, RELOAD_PATH];
        let of_traffic = [TRAFFIC_PATH, TRAFFIC_STREAM_PATH, TRAFFIC_DETAILS_PATH, RESEND_PATH];
        let of_faults = [FAULTS_ON_PATH, FAULTS_OFF_PATH];
        for path in of_config.into_iter().chain(of_traffic).chain(of_faults) {
            assert_eq!(Access::of(path), Access::Private, "{path}");
        }
        for path in ["/healthz", "/page.js", "/editor.js"] {
            assert_eq!(Access::of(path), Access::Public, "{path}");
        }
    }

    #[test]
    fn changes_have_methods_of_their_own_and_only_configs_are_content() {
        assert!(accepts(PURGE_PATH, &Method::POST) && !accepts(PURGE_PATH, &Method::GET));
        assert!(accepts(RESEND_PATH, &Method::POST) && !accepts(RESEND_PATH, &Method::GET));
        assert!(!accepts(TRAFFIC_DETAILS_PATH, &Method::POST) && !has_content(RESEND_PATH, &Method::POST));
        assert!(accepts("/api/v1/cache", &Method::HEAD) && !accepts("/api/v1/cache", &Method::POST));
        assert!(accepts(FILE_PATH, &Method::PUT) && accepts(FILE_PATH, &Method::GET));
        assert!(!accepts(FILES_PATH, &Method::PUT) && !accepts(FILE_PATH, &Method::DELETE));
        assert!(has_content(FILE_PATH, &Method::PUT) && has_content(VALIDATE_PATH, &Method::POST));
        assert!(!has_content(FILE_PATH, &Method::GET) && !has_content(ROLLBACK_PATH, &Method::POST));
    }
}
