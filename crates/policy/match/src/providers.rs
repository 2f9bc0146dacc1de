//! The configured providers: which of them a name, an origin or a request target belongs to.
//!
//! Several providers may share an origin. Then a target belongs to the one with the longest base path that
//! holds it.

use std::cmp::Reverse;
use std::collections::HashMap;

use egret_message::Origin;
use egret_message::authority::{Authority, AuthorityError, Host};

use crate::target::{BasePath, TargetError, leads_above};

/// The URL of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderUrl {
    /// Its scheme, host and port.
    pub origin: Origin,
    /// Its path, without a slash at its end: the base path of every request.
    pub path: Box<[u8]>,
}

/// The reason why the URL of a provider is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderUrlError {
    /// It starts with neither `http://` nor `https://`. The URL is the one that was probably meant.
    #[error("a provider's URL must start with `http://` or `https://`, as in `{0}`")]
    Scheme(String),
    /// The authority, as written, is invalid.
    #[error("`{0}` is not a host with an optional port: {1}")]
    Authority(String, AuthorityError),
    /// The path has characters that a base path cannot have.
    #[error("the path of a provider's URL must not contain a query, fragment, space or quote")]
    Path,
}

impl ProviderUrl {
    /// Parses the URL of a provider.
    pub fn parse(url: &str) -> Result<Self, ProviderUrlError> {
        let (tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(ProviderUrlError::Scheme(with_scheme(url))),
        };
        let split = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        let origin = Origin::parse(tls, authority.as_bytes())
            .map_err(|error| ProviderUrlError::Authority(authority.to_owned(), error))?;
        let path = path.trim_end_matches('/');
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}?#".contains(&byte);
        if !path.bytes().all(plain) {
            return Err(ProviderUrlError::Path);
        }
        Ok(Self { origin, path: BasePath::new(path.as_bytes()).text().into() })
    }
}

/// Returns the URL with the scheme that is missing, or an example if that makes no URL of it.
fn with_scheme(url: &str) -> String {
    let is_near = ["localhost", "127.", "[::1]"].iter().any(|start| url.starts_with(start));
    let meant = format!("{}://{url}", if is_near { "http" } else { "https" });
    if ProviderUrl::parse(&meant).is_ok() { meant } else { "https://api.example.com".to_owned() }
}

/// A configured provider.
#[derive(Debug)]
pub struct NamedProvider {
    /// The name in the config.
    pub name: Box<str>,
    /// The URL in the config.
    pub url: ProviderUrl,
    /// The URLs of its other endpoints.
    pub endpoints: Box<[ProviderUrl]>,
}

/// The configured providers, in the order of the config. The position of a provider is its number.
#[derive(Debug, Default)]
pub struct ProviderTable {
    providers: Vec<NamedProvider>,
    by_name: HashMap<Box<[u8]>, usize>,
    /// The providers of each origin.
    origins: Vec<Owners>,
    by_origin: HashMap<Origin, usize>,
    /// The number of the origin of each provider.
    origin_of: Vec<usize>,
}

/// The providers at one origin. A target belongs to the one with the longest matching base path.
#[derive(Debug, Default)]
pub struct Owners {
    /// Ordered by the length of the base path, longest first. Equal ones keep the order of the config.
    list: Vec<Owner>,
}

/// A provider at an origin.
#[derive(Debug)]
struct Owner {
    provider: usize,
    base: BasePath,
    /// `true` if another provider at the origin has a base path below this one's.
    has_deeper: bool,
}

/// The provider that a target belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Belongs {
    /// The provider's number.
    pub provider: usize,
    /// Length of the base path at the start of the target. The rest is relative to the provider's URL.
    pub base_len: usize,
}

impl ProviderTable {
    /// Creates the table of these providers.
    pub fn new(providers: Vec<NamedProvider>) -> Self {
        let mut table = Self::default();
        for (number, NamedProvider { name, url, .. }) in providers.iter().enumerate() {
            table.by_name.insert(name.as_bytes().into(), number);
            let origin = *table.by_origin.entry(url.origin.clone()).or_insert(table.origins.len());
            if origin == table.origins.len() {
                table.origins.push(Owners::default());
            }
            let owner = Owner { provider: number, base: BasePath::new(&url.path), has_deeper: false };
            table.origins[origin].list.push(owner);
            table.origin_of.push(origin);
        }
        table.origins.iter_mut().for_each(Owners::sort);
        Self { providers, ..table }
    }

    /// Returns the provider with that number.
    pub fn provider(&self, number: usize) -> &NamedProvider {
        &self.providers[number]
    }

    /// Returns the number of the provider of that name.
    pub fn by_name(&self, name: &[u8]) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Returns the number of the provider at `authority`, whatever its scheme.
    pub fn by_authority(&self, authority: &Authority) -> Option<usize> {
        self.providers.iter().position(|provider| provider.url.origin.authority == *authority)
    }

    /// Returns the number of an origin that has providers.
    pub fn origin_number(&self, origin: &Origin) -> Option<usize> {
        self.by_origin.get(origin).copied()
    }

    /// Returns the providers of the origin with that number.
    pub fn owners(&self, origin: usize) -> &Owners {
        &self.origins[origin]
    }

    /// Returns the providers of the origin that the provider with that number is at.
    pub fn owners_beside(&self, provider: usize) -> &Owners {
        &self.origins[self.origin_of[provider]]
    }

    /// Returns `true` if the first provider with that host uses TLS, or `None` if there is no such provider.
    pub fn is_tls_host(&self, host: &Host) -> Option<bool> {
        let mut origins = self.providers.iter().map(|provider| &provider.url.origin);
        origins.find(|origin| origin.authority.host == *host).map(|origin| origin.tls)
    }
}

impl Owners {
    /// Notes which base paths have others below them, and puts the deepest first.
    fn sort(&mut self) {
        let list = &mut self.list;
        // In this order, a base path is followed by those below it.
        let mut order: Vec<usize> = (0..list.len()).collect();
        order.sort_by(|one, other| list[*one].base.compare(&list[*other].base));
        for pair in order.windows(2).rev() {
            let [owner, next] = [pair[0], pair[1]];
            let is_same = list[owner].base.compare(&list[next].base).is_eq();
            list[owner].has_deeper =
                if is_same { list[next].has_deeper } else { list[next].base.is_below(&list[owner].base) };
        }
        list.sort_by_key(|owner| Reverse(owner.base.depth()));
    }

    /// Returns the only provider, if it has the whole origin. Then the target need not be inspected.
    pub fn sole(&self) -> Option<usize> {
        match &self.list[..] {
            [owner] if owner.base.is_root() => Some(owner.provider),
            _ => None,
        }
    }

    /// Returns the length of that provider's base path at the start of `path`, if the provider is here and
    /// the path is below it.
    pub fn below(&self, provider: usize, path: &[u8]) -> Option<usize> {
        let owner = self.list.iter().find(|owner| owner.provider == provider)?;
        owner.base.holds(path).ok().flatten()
    }

    /// Returns the provider with the shortest base path. Used if there is no path to decide by.
    pub fn widest(&self) -> Option<usize> {
        self.list.last().map(|owner| owner.provider)
    }

    /// Returns the provider that a target with this path, given without its query, belongs to. Returns `None`
    /// if it is outside all of their base paths.
    pub fn of(&self, path: &[u8]) -> Result<Option<Belongs>, TargetError> {
        for Owner { provider, base, .. } in &self.list {
            if let Some(base_len) = base.holds(path)? {
                return Ok(Some(Belongs { provider: *provider, base_len }));
            }
        }
        Ok(None)
    }

    /// Returns the provider that `path`, which follows the base path of `named`, belongs to: `named`, unless
    /// the path is below the longer base path of another. If several providers have the same base path, the
    /// named one is returned. `base_len` is the length of the additional part at the start of `path`.
    pub fn of_named(&self, named: usize, path: &[u8]) -> Result<Belongs, TargetError> {
        let itself = Belongs { provider: named, base_len: 0 };
        let Some(own) = self.list.iter().find(|owner| owner.provider == named) else { return Ok(itself) };
        if !own.base.is_root() && leads_above(path) {
            return Err(TargetError::Above);
        }
        if !own.has_deeper {
            return Ok(itself);
        }
        let own_len = own.base.text().len();
        let whole = [own.base.text(), path].concat();
        for Owner { provider, base, .. } in self.list.iter().filter(|owner| owner.base.is_below(&own.base)) {
            if let Some(len) = base.holds(&whole)? {
                return Ok(Belongs { provider: *provider, base_len: len.saturating_sub(own_len) });
            }
        }
        Ok(itself)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(providers: &[(&str, &str)]) -> ProviderTable {
        let named = |(name, url): &(&str, &str)| NamedProvider {
            name: (*name).into(),
            url: ProviderUrl::parse(url).unwrap(),
            endpoints: Box::default(),
        };
        ProviderTable::new(providers.iter().map(named).collect())
    }

    #[test]
    fn a_provider_url_consists_of_origin_and_base_path() {
        for (url, path) in [
            ("https://api.example", ""),
            ("https://api.example/", ""),
            ("http://api.example:8080/v1/", "/v1"),
            ("http://[::1]/v1/a%20b", "/v1/a%20b"),
        ] {
            let parsed = ProviderUrl::parse(url).unwrap();
            assert_eq!(String::from_utf8_lossy(&parsed.path), path, "{url}");
            assert_eq!(parsed.origin.tls, url.starts_with("https"), "{url}");
        }
        let error = |url: &str| ProviderUrl::parse(url).unwrap_err();
        for (url, meant) in [
            ("bank.example/v1", "https://bank.example/v1"),
            ("localhost:9000", "http://localhost:9000"),
            ("ftp://bank.example", "https://api.example.com"),
        ] {
            assert_eq!(error(url), ProviderUrlError::Scheme(meant.to_owned()));
        }
        assert!(matches!(error("https://:80/"), ProviderUrlError::Authority(..)));
        for url in ["https://api.example/a?b", "https://api.example/a#b", "https://api.example/a b"] {
            assert_eq!(error(url), ProviderUrlError::Path, "{url}");
        }
    }

    #[test]
    fn a_target_belongs_to_the_longest_base_path_that_holds_it() {
        let table = table(&[
            ("all", "https://api.example"),
            ("v1", "https://api.example/v1"),
            ("files", "https://api.example/v1/files"),
            ("plain", "http://api.example/v1"),
        ]);
        let owners = table.owners_beside(0);
        for (path, provider, base_len) in [
            ("/", 0, 0),
            ("/v2/files", 0, 0),
            ("/v10", 0, 0),
            ("/v1", 1, 3),
            ("/v1/users", 1, 3),
            ("/v1/files/7", 2, 9),
        ] {
            let belongs = owners.of(path.as_bytes()).unwrap();
            assert_eq!(belongs, Some(Belongs { provider, base_len }), "{path}");
        }
        let other = table.owners_beside(3);
        assert_eq!(other.of(b"/v2"), Ok(None), "another scheme is another origin");
        assert_eq!(other.sole(), None, "part of the origin has no provider");
    }

    #[test]
    fn a_named_provider_keeps_what_no_deeper_one_has() {
        let table = table(&[("v1", "https://api.example/v1"), ("files", "https://api.example/v1/files")]);
        let owners = table.owners_beside(0);
        let belongs = |named, path: &str| owners.of_named(named, path.as_bytes());
        assert_eq!(belongs(0, "/users"), Ok(Belongs { provider: 0, base_len: 0 }));
        assert_eq!(belongs(0, "/files/7"), Ok(Belongs { provider: 1, base_len: 6 }));
        assert_eq!(belongs(1, "/files/7"), Ok(Belongs { provider: 1, base_len: 0 }));
        assert_eq!(belongs(0, "/../admin"), Err(TargetError::Above), "it would leave the base path");
    }

    #[test]
    fn providers_are_found_by_name_authority_and_host() {
        let table = table(&[("a", "https://one.example"), ("b", "http://two.example:8080/v1")]);
        assert_eq!((table.by_name(b"b"), table.by_name(b"c")), (Some(1), None));
        assert_eq!(&*table.provider(1).name, "b");
        let two = &table.provider(1).url.origin;
        assert_eq!(table.by_authority(&two.authority), Some(1));
        assert_eq!(table.origin_number(two), Some(1));
        assert_eq!(table.is_tls_host(&two.authority.host), Some(false));
        assert_eq!(table.owners(0).sole(), Some(0));
        assert_eq!(table.owners(1).widest(), Some(1));
    }
}
