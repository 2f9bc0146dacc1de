//! Lunar's URLs: `api.example.com/v1/{id}`, `*.example.com/*`, without a scheme.

use crate::draft::Match;

/// A host and a path of a URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostAndPath {
    /// The host without its port; empty for every host.
    pub host: String,
    pub port: Option<u16>,
    /// The path; `None` for every path.
    pub path: Option<String>,
}

impl HostAndPath {
    pub fn parse(url: &str) -> Self {
        let url = url.trim();
        let url = url.split_once("://").map_or(url, |(_, rest)| rest);
        let url = url.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = url.split_once('/').map_or((url, None), |(host, path)| (host, Some(path)));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => (host, port.parse().ok()),
            _ => (authority, None),
        };
        let is_any = matches!(host, "" | "*" | ".*");
        let path = match path {
            Some("*" | ".*") => None,
            None if is_any => None,
            None => Some("/".to_owned()),
            Some(path) => Some(format!("/{}", path.trim_end_matches('/'))),
        };
        let host = if is_any { String::new() } else { host.to_ascii_lowercase() };
        Self { host, port, path }
    }

    /// The `host:port` of the only host that it stands for, if it does.
    pub fn authority(&self) -> Option<String> {
        let is_one = !self.host.is_empty() && !self.host.contains(['{', '*']);
        let port = self.port.map_or_else(String::new, |port| format!(":{port}"));
        is_one.then(|| format!("{}{port}", self.host))
    }

    /// Parents come before what lies below them: first hosts that are patterns, then shorter paths.
    pub fn depth(&self) -> (bool, usize, bool) {
        let is_pattern = self.host.is_empty() || self.host.contains(['{', '*']);
        let path = self.path.as_deref().unwrap_or("/*");
        let segments = path.split('/').filter(|segment| !segment.is_empty() && *segment != "*").count();
        (!is_pattern, segments, !path.ends_with("/*"))
    }

    /// The positions of the words among the segments of the path.
    pub fn literals(&self) -> Vec<usize> {
        let segments = self.path.as_deref().unwrap_or_default().split('/').skip(1).enumerate();
        let is_word = |segment: &str| !segment.is_empty() && !segment.contains(['{', '*']);
        segments.filter(|(_, segment)| is_word(segment)).map(|(position, _)| position).collect()
    }

    /// The position of a parameter among the segments of the path.
    pub fn parameter(&self, name: &str) -> Option<usize> {
        let path = self.path.as_deref()?;
        path.split('/').skip(1).position(|segment| segment == format!("{{{name}}}"))
    }
}

/// Groups URLs into matches of a host and its paths: a match with two hosts and two paths would be all four.
pub(super) fn matches(urls: &[HostAndPath]) -> Vec<Match> {
    let mut found: Vec<Match> = Vec::new();
    for target in urls {
        let host: Vec<String> =
            Some(target.host.clone()).filter(|host| !host.is_empty()).into_iter().collect();
        match found.iter_mut().find(|known| known.host == host) {
            Some(known) => match &target.path {
                None => known.path.clear(),
                Some(path) if !known.path.is_empty() && !known.path.contains(path) => {
                    known.path.push(path.clone());
                }
                Some(_) => {}
            },
            None => found.push(Match {
                host,
                path: target.path.clone().into_iter().collect(),
                ..Match::default()
            }),
        }
    }
    if found.is_empty() { vec![Match::default()] } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_host_and_a_path() {
        for (url, host, path) in [
            ("api.example.com", "api.example.com", Some("/")),
            ("https://API.example.com/", "api.example.com", Some("/")),
            ("api.example.com/*", "api.example.com", None),
            ("api.example.com:8443/v1/{id}", "api.example.com", Some("/v1/{id}")),
            ("{tenant}.example.com/v1/*", "{tenant}.example.com", Some("/v1/*")),
            ("*", "", None),
            ("*/v1", "", Some("/v1")),
        ] {
            let target = HostAndPath::parse(url);
            assert_eq!((target.host.as_str(), target.path.as_deref()), (host, path), "{url}");
        }
        assert_eq!(HostAndPath::parse("a.example:8443/x").authority().as_deref(), Some("a.example:8443"));
        assert_eq!(HostAndPath::parse("*.example/x").authority(), None);
        assert_eq!(HostAndPath::parse("a/v1/{id}/x").parameter("id"), Some(1));
        assert_eq!(HostAndPath::parse("a/v1/{id}/x/*").literals(), [0, 2]);
    }

    #[test]
    fn urls_of_one_host_share_a_match() {
        let urls = ["a.example/x", "b.example/*", "a.example/y", "b.example/z"].map(HostAndPath::parse);
        let found: Vec<(Vec<String>, Vec<String>)> =
            matches(&urls).into_iter().map(|each| (each.host, each.path)).collect();
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            found,
            [(texts(&["a.example"]), texts(&["/x", "/y"])), (texts(&["b.example"]), texts(&[]))]
        );
    }

    #[test]
    fn parents_come_first() {
        let mut urls = ["a.example/v1/{id}", "a.example/v1/*", "a.example/*", "*.example/*"]
            .map(|url| HostAndPath::parse(url).depth());
        urls.reverse();
        assert!(urls.is_sorted(), "{urls:?}");
    }
}
