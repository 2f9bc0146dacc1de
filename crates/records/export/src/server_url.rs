//! URLs of collectors and stores in the config.

use url::{ParseError, Url};

/// The reason why a text is not the URL of a server. It repeats nothing of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It is not a URL.
    #[error("not a URL: {0}")]
    Parse(ParseError),
    /// It has another scheme, or no host.
    #[error("expected an `http` or `https` URL")]
    Scheme,
    /// It contains a user or password.
    #[error("the URL must not contain a user or password: put secrets in their own keys")]
    User,
    /// It has a query or fragment.
    #[error("the URL must not have a query or fragment")]
    Query,
}

/// Parses and checks the URL of a server.
pub fn check_url(text: &str) -> Result<Url, UrlError> {
    let url = Url::parse(text).map_err(UrlError::Parse)?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(UrlError::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlError::User);
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(UrlError::Query);
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_could_hold_a_secret_or_is_none_is_refused() {
        assert!(check_url("http://127.0.0.1:8080/api").is_ok());
        for (url, why) in [
            ("collector:80", "expected an `http` or `https` URL"),
            ("ftp://a/", "expected an `http` or `https` URL"),
            ("http://u:hunter2@a/", "a user or password"),
            ("http://a/?key=hunter2", "a query"),
            ("a b", "not a URL"),
        ] {
            let error = check_url(url).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
