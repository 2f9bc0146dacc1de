//! The banner of a gateway that has started: the page, the config, the providers, and the ways in.

use std::fmt::Write;
use std::net::SocketAddr;

use egret_message::ListenAddress;
use egret_plan::config::ListenConfig;
use egret_settings::config::Config;

use super::reachable;

/// Number of providers that are shown.
const PROVIDERS_MAX: usize = 8;

/// The running gateway.
#[derive(Debug, Clone, Copy)]
pub struct Banner<'a> {
    /// Name of the config file; `None` if every key has its default.
    pub file: Option<&'a str>,
    /// The config in effect.
    pub config: &'a Config,
    /// The addresses of its listeners, in the order of the config.
    pub listening: &'a [ListenAddress],
    /// The address of the control port.
    pub control: SocketAddr,
}

impl Banner<'_> {
    /// Returns the lines for a terminal. `page` is the address of the page, maybe with a token.
    pub fn text(&self, page: &str) -> String {
        let config = match self.file {
            Some(file) => file,
            None if self.config.providers.is_empty() => {
                "none, every key has its default; `egret init` writes one"
            }
            None => "none, only that of the demo",
        };
        let mut text = format!(
            "Egret {} runs. Ctrl-C stops it.\n  config     {config}: {}, {}\n  page       {page}\n",
            env!("CARGO_PKG_VERSION"),
            count(self.config.providers.len(), "provider"),
            count(self.config.flows.len(), "flow"),
        );
        let mut label = "base URL";
        if let Some(gateway) = self.general() {
            for (name, provider) in self.config.providers.iter().take(PROVIDERS_MAX) {
                let _ = writeln!(text, "  {label:<10} {gateway}/{name} -> {}", provider.base_url());
                label = "";
            }
            let rest = self.config.providers.len().saturating_sub(PROVIDERS_MAX);
            if rest > 0 {
                let _ = writeln!(text, "  {label:<10} and {rest} more, see the page");
            }
            let _ = writeln!(text, "  {:<10} export http_proxy={gateway} https_proxy={gateway}", "proxy");
        }
        for (_, address) in self.listeners().filter(|(listener, _)| listener.socks5) {
            let _ = writeln!(text, "  {:<10} export all_proxy=socks5h://{}", "proxy", reachable(address));
        }
        for (address, provider) in self.dedicated() {
            let _ = writeln!(text, "  {:<10} {address} -> {provider}", "listener");
        }
        for path in self.listening.iter().filter_map(|address| address.unix()) {
            let _ = writeln!(text, "  {:<10} curl --unix-socket {path} http://localhost/", "socket");
        }
        text
    }

    /// Logs the same, for readers of the log.
    pub fn log(&self) {
        let names: Vec<&str> = self.config.providers.keys().take(PROVIDERS_MAX).map(String::as_str).collect();
        tracing::info!(
            config = self.file.unwrap_or("none"),
            page = %format_args!("http://{}/", reachable(self.control)),
            providers = self.config.providers.len(),
            named = names.join(","),
            flows = self.config.flows.len(),
            "egret runs"
        );
        let Some(gateway) = self.general() else { return };
        let base_url = self.config.providers.keys().next().map(|name| format!("{gateway}/{name}"));
        tracing::info!(
            base_url = base_url.unwrap_or_default(),
            http_proxy = gateway,
            https_proxy = gateway,
            "ways to send traffic"
        );
    }

    /// The URL of the first listener for any provider.
    fn general(&self) -> Option<String> {
        self.listeners()
            .find(|(listener, _)| listener.provider.is_none() && !listener.redirect && !listener.socks5)
            .map(|(listener, address)| url(listener, address))
    }

    /// The URLs of listeners for one provider, and its name.
    fn dedicated(&self) -> impl Iterator<Item = (String, &str)> {
        self.listeners()
            .filter_map(|(listener, address)| Some((url(listener, address), listener.provider.as_deref()?)))
            .take(PROVIDERS_MAX)
    }

    /// The listeners with an address of the Internet.
    fn listeners(&self) -> impl Iterator<Item = (&ListenConfig, SocketAddr)> {
        let listening = self.config.gateway.listen.iter().zip(self.listening);
        listening.filter_map(|(listener, address)| Some((listener, address.internet()?)))
    }
}

fn url(listener: &ListenConfig, address: SocketAddr) -> String {
    let scheme = if listener.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{}", reachable(address))
}

fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_page_config_providers_and_ways_in() {
        let text = "gateway: { listen: ['0.0.0.0:8000', { address: '127.0.0.1:8002', provider: shop }, \
                    { address: '0.0.0.0:1080', socks5: true }, 'unix:/run/egret.sock'] }\n\
                    providers: { shop: { url: 'https://shop.example/v1' }, bank: { url: 'https://bank.example' } }\n\
                    flows: [{ name: a }]\n";
        let config = Config::parse("egret.yaml", text).unwrap();
        let listening = ["0.0.0.0:8000", "127.0.0.1:8002", "0.0.0.0:1080", "unix:/run/egret.sock"]
            .map(|address| address.parse().unwrap());
        let control = "127.0.0.1:8001".parse().unwrap();
        let banner = Banner { file: Some("egret.yaml"), config: &config, listening: &listening, control };
        let expected = format!(
            "Egret {} runs. Ctrl-C stops it.\n\
             \x20 config     egret.yaml: 2 providers, 1 flow\n\
             \x20 page       http://127.0.0.1:8001/\n\
             \x20 base URL   http://127.0.0.1:8000/bank -> https://bank.example\n\
             \x20            http://127.0.0.1:8000/shop -> https://shop.example/v1\n\
             \x20 proxy      export http_proxy=http://127.0.0.1:8000 https_proxy=http://127.0.0.1:8000\n\
             \x20 proxy      export all_proxy=socks5h://127.0.0.1:1080\n\
             \x20 listener   http://127.0.0.1:8002 -> shop\n\
             \x20 socket     curl --unix-socket /run/egret.sock http://localhost/\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(banner.text("http://127.0.0.1:8001/"), expected);
    }

    #[test]
    fn without_a_file_it_names_the_command_that_writes_one() {
        let config = Config::default();
        let control = "127.0.0.1:8001".parse().unwrap();
        let banner = Banner { file: None, config: &config, listening: &[], control };
        let text = banner.text("http://127.0.0.1:8001/");
        assert!(
            text.contains("config     none, every key has its default; `egret init` writes one: 0 providers"),
            "{text}"
        );
        let demo = Config::parse("demo", "providers: { demo: { url: 'http://127.0.0.1:9000' } }").unwrap();
        let text = Banner { config: &demo, ..banner }.text("http://127.0.0.1:8001/");
        assert!(text.contains("config     none, only that of the demo: 1 provider, 0 flows"), "{text}");
    }
}
