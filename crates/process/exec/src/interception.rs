//! The interception that a command asks for.

use egret_ca::InterceptionConfig;
use egret_control::InterceptionInfo;
use egret_message::authority::Host;
use egret_message::host_pattern::HostPattern;
use egret_settings::authority::configured;
use egret_settings::config::Config;

/// The hosts that a command wants to be intercepted, besides those of the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    hosts: Vec<(String, HostPattern)>,
}

/// A wish that cannot be fulfilled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WantedError {
    /// There is no host.
    #[error(
        "there is no host to intercept: name it, as in `--intercept=api.example.com`, or name a config with `providers` or `interception.hosts` by `--config`"
    )]
    Nothing,
    /// The text is not a host; the message says why.
    #[error("--intercept: `{0}` is not a host name, `*.name`, `*` or address: {1}")]
    Host(String, String),
    /// The config never intercepts the host.
    #[error("--intercept: `{0}` is in `interception.tunnel` of the config, which takes precedence")]
    Tunnelled(String),
}

impl Wanted {
    /// Parses the value of `--intercept`. `None` without the option.
    pub fn new(texts: Option<&[String]>, config: &Config) -> Result<Option<Self>, WantedError> {
        let Some(texts) = texts else { return Ok(None) };
        let mut hosts = Vec::new();
        for text in texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()) {
            let pattern = HostPattern::parse(text)
                .map_err(|error| WantedError::Host(text.to_owned(), error.to_string()))?;
            if tunnels(config, &pattern) {
                return Err(WantedError::Tunnelled(text.to_owned()));
            }
            hosts.push((pattern.to_string(), pattern));
        }
        if hosts.is_empty() && configured(config).is_empty() {
            return Err(WantedError::Nothing);
        }
        Ok(Some(Self { hosts }))
    }

    /// The named hosts as texts, for another process.
    pub fn hosts(&self) -> Vec<String> {
        self.hosts.iter().map(|(text, _)| text.clone()).collect()
    }

    /// The named hosts, each name standing for those below it as well.
    pub fn names(&self) -> impl Iterator<Item = Host> {
        self.hosts.iter().filter_map(|(_, pattern)| match pattern {
            HostPattern::Any => None,
            HostPattern::Below(name) => Some(Host::Name(name.clone())),
            HostPattern::Host(host) => Some(host.clone()),
        })
    }

    /// Returns a host that a gateway with this interception does not intercept.
    pub fn missing(&self, interception: Option<&InterceptionInfo>) -> Option<String> {
        let Some(info) = interception else {
            let first = self.hosts.first().map(|(text, _)| text.clone());
            return Some(first.unwrap_or_else(|| "any host".to_owned()));
        };
        let config = InterceptionConfig {
            hosts: info.hosts.clone(),
            tunnel: info.tunnel.clone(),
            ..InterceptionConfig::default()
        };
        let rules = config.compile("").unwrap_or_default();
        let is_missing = |pattern: &HostPattern| match pattern {
            HostPattern::Host(host) => !rules.intercepts(host),
            other => !rules.hosts().iter().any(|known| known == other || *known == HostPattern::Any),
        };
        self.hosts.iter().find(|(_, pattern)| is_missing(pattern)).map(|(text, _)| text.clone())
    }
}

/// Returns `true` if the config never intercepts the host.
fn tunnels(config: &Config, pattern: &HostPattern) -> bool {
    let rules = config.interception.as_ref().and_then(|key| key.compile("").ok()).unwrap_or_default();
    match pattern {
        HostPattern::Host(host) => rules.tunnels(host),
        HostPattern::Any | HostPattern::Below(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(texts: &[&str], yaml: &str) -> Result<Wanted, WantedError> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let config = Config::parse("egret.yaml", yaml).unwrap();
        Wanted::new(Some(&texts), &config).map(Option::unwrap)
    }

    #[test]
    fn without_hosts_the_config_must_have_some() {
        assert_eq!(wanted(&[""], ""), Err(WantedError::Nothing));
        assert!(WantedError::Nothing.to_string().contains("--intercept=api.example.com"));
        for yaml in ["providers: { a: { url: 'https://a.example' } }", "interception: { hosts: [a.example] }"]
        {
            assert_eq!(wanted(&[""], yaml).unwrap().hosts(), Vec::<String>::new());
        }
        assert_eq!(Wanted::new(None, &Config::default()), Ok(None));
    }

    #[test]
    fn hosts_are_checked() {
        assert_eq!(
            wanted(&["API.example", " *.b.example "], "").unwrap().hosts(),
            ["api.example", "*.b.example"]
        );
        assert!(matches!(wanted(&["https://a.example"], ""), Err(WantedError::Host(..))));
        let yaml = "interception: { tunnel: [a.example] }";
        assert_eq!(wanted(&["a.example"], yaml), Err(WantedError::Tunnelled("a.example".to_owned())));
    }

    #[test]
    fn a_gateway_must_intercept_every_host() {
        let info = |hosts: &[&str], tunnel: &[&str]| InterceptionInfo {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            tunnel: tunnel.iter().map(|host| (*host).to_owned()).collect(),
            certificate: String::new(),
        };
        let missing = |texts: &[&str], info: Option<&InterceptionInfo>| {
            wanted(texts, "providers: { a: { url: 'https://a.example' } }").unwrap().missing(info)
        };
        assert_eq!(missing(&[], None).unwrap(), "any host");
        assert_eq!(missing(&[], Some(&info(&["a.example"], &[]))), None);
        assert_eq!(missing(&["x.example"], None).unwrap(), "x.example");
        let below = info(&["*.example"], &["t.example"]);
        assert_eq!(missing(&["x.example", "*.example"], Some(&below)), None);
        assert_eq!(missing(&["t.example"], Some(&below)).unwrap(), "t.example");
        assert_eq!(missing(&["*.other"], Some(&below)).unwrap(), "*.other");
        assert_eq!(missing(&["*.other", "x.net"], Some(&info(&["*"], &[]))), None);
    }
}
