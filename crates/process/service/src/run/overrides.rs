//! Options of `egret run` that take precedence over the config, also over one that is reloaded.

use std::error::Error;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};

use clap::Args;
use egret_message::ListenAddress;
use egret_plan::config::ListenConfig;
use egret_settings::config::{Config, LogLevel};

/// Values instead of those of the config.
#[derive(Debug, Clone, Default, Args)]
pub struct Overrides {
    /// Listen on this address, or on the Unix socket `unix:PATH`, instead of those in `gateway.listen`; may
    /// be repeated. Listeners that set `provider`, `tls` or another key are kept. Port 0 selects a free port.
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    listen: Vec<ListenAddress>,
    /// Address of the control port, instead of `control.listen`.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    control: Option<SocketAddr>,
    /// The lowest level that is logged, instead of `log.level`.
    #[arg(long, value_name = "LEVEL", value_enum)]
    log_level: Option<LogLevel>,
    /// Addresses that other programs use, each replaced by a free port.
    #[arg(skip)]
    taken: Vec<SocketAddr>,
    /// Addresses of the process before this one, used for those of the config whose port may be any.
    #[arg(skip)]
    handed: HandedAddresses,
}

/// The addresses on which the process before this one listened.
#[derive(Debug, Clone, Default)]
pub struct HandedAddresses {
    /// The addresses of the gateway.
    pub gateway: Vec<SocketAddr>,
    /// The address of the control port.
    pub control: Option<SocketAddr>,
}

impl Overrides {
    /// Returns the config with these values.
    pub fn apply(&self, mut config: Config) -> Config {
        let listen = &mut config.gateway.listen;
        if !self.listen.is_empty() {
            listen.retain(|listener| !is_plain(listener));
            listen.splice(0..0, self.listen.iter().copied().map(ListenConfig::from));
        }
        if let Some(control) = self.control {
            config.control.listen = control;
        }
        if let Some(level) = self.log_level {
            config.log.level = level;
        }
        let addresses = config.gateway.listen.iter_mut().filter_map(|listener| match &mut listener.address {
            ListenAddress::Internet(address) => Some(address),
            ListenAddress::Unix(_) => None,
        });
        for address in addresses.chain([&mut config.control.listen]) {
            if self.taken.contains(address) {
                address.set_port(0);
            }
        }
        self.use_handed(&mut config);
        config
    }

    /// Replaces port 0 by the ports of the process before this one.
    fn use_handed(&self, config: &mut Config) {
        let named: Vec<_> = config.gateway.listen.iter().map(|listener| listener.address).collect();
        let is_free = |handed: &&SocketAddr| !named.contains(&ListenAddress::from(**handed));
        let mut free = self.handed.gateway.iter().filter(is_free).collect::<Vec<_>>();
        for listener in &mut config.gateway.listen {
            let any = listener.address.internet().filter(|address| address.port() == 0);
            let at = any.and_then(|any| free.iter().position(|handed| handed.ip() == any.ip()));
            if let Some(at) = at {
                listener.address = (*free.remove(at)).into();
            }
        }
        let listen = &mut config.control.listen;
        let handed = self.handed.control.filter(|handed| listen.port() == 0 && handed.ip() == listen.ip());
        *listen = handed.unwrap_or(*listen);
    }

    /// Uses these addresses of the process before this one for those of the config whose port may be any.
    pub fn take_over(&mut self, handed: HandedAddresses) {
        self.handed = handed;
    }

    /// Replaces addresses of the config that other programs use by free ports, except those that an option
    /// names. Returns the taken ones.
    pub fn avoid_taken(&mut self, config: &Config) -> &[SocketAddr] {
        let listen = config.gateway.listen.iter().filter_map(|listener| listener.address.internet());
        let is_named =
            |address: &SocketAddr| self.listen.contains(&(*address).into()) || self.control == Some(*address);
        let taken =
            listen.chain([config.control.listen]).filter(|address| !is_named(address) && is_taken(*address));
        self.taken = taken.collect();
        &self.taken
    }
}

/// Parses the address of a listener, or proposes one that is probably meant.
fn listen_address(text: &str) -> Result<ListenAddress, Box<dyn Error + Send + Sync>> {
    if text.starts_with("unix:") { Ok(text.parse()?) } else { Ok(address(text)?.into()) }
}

/// Parses an address of the Internet, or proposes one that is probably meant.
///
/// # Errors
///
/// Fails without an IP address or without a port.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let meant = text.strip_prefix(':').unwrap_or(text);
        let meant = meant.strip_prefix("localhost:").unwrap_or(meant);
        match (meant.parse::<u16>(), text.parse::<IpAddr>()) {
            (Ok(port), _) => format!("write the address as well: `127.0.0.1:{port}`"),
            (_, Ok(ip)) => format!("write the port as well, as in `{}`", SocketAddr::new(ip, 8000)),
            _ => "expected an IP address and a port, such as `127.0.0.1:8000`".to_owned(),
        }
    })
}

/// Returns `true` for a listener that has an address alone.
fn is_plain(listener: &ListenConfig) -> bool {
    *listener == ListenConfig::from(listener.address)
}

/// Returns `true` if another program uses the address.
pub fn is_taken(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse("egret.yaml", text).unwrap()
    }

    fn listeners(config: &Config) -> Vec<String> {
        config.gateway.listen.iter().map(|listener| listener.address.to_string()).collect()
    }

    #[test]
    fn an_address_that_lacks_a_part_gets_a_proposal() {
        assert_eq!(address("[::1]:80"), Ok("[::1]:80".parse().unwrap()));
        for text in ["8100", ":8100", "localhost:8100"] {
            assert!(address(text).unwrap_err().contains("`127.0.0.1:8100`"), "{text}");
        }
        assert!(address("::1").unwrap_err().contains("`[::1]:8000`"));
        assert_eq!(listen_address("unix:/run/s").unwrap().to_string(), "unix:/run/s");
        assert!(listen_address("unix:s").unwrap_err().to_string().contains("absolute"));
        assert!(address("here").unwrap_err().contains("such as `127.0.0.1:8000`"));
    }

    #[test]
    fn options_replace_the_values_of_the_config() {
        let overrides = Overrides {
            listen: vec!["127.0.0.1:7000".parse().unwrap()],
            control: Some("127.0.0.1:7001".parse().unwrap()),
            log_level: Some(LogLevel::Debug),
            ..Overrides::default()
        };
        let text = "gateway:\n  listen:\n    - 127.0.0.1:9100\n    - { address: '127.0.0.1:9102', provider: a }\n\
                    providers: { a: { url: 'http://127.0.0.1:1' } }\n";
        let changed = overrides.apply(config(text));
        assert_eq!(listeners(&changed), ["127.0.0.1:7000", "127.0.0.1:9102"]);
        assert_eq!(changed.control.listen.to_string(), "127.0.0.1:7001");
        assert_eq!(changed.log.level, LogLevel::Debug);
        assert_eq!(Overrides::default().apply(config(text)), config(text));
    }

    #[test]
    fn a_taken_address_becomes_a_free_port_unless_an_option_names_it() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let config =
            config(&format!("gateway: {{ listen: ['{address}'] }}\ncontrol: {{ listen: '127.0.0.1:0' }}\n"));
        let mut overrides = Overrides::default();
        assert_eq!(overrides.avoid_taken(&config), [address]);
        assert_eq!(listeners(&overrides.apply(config.clone())), ["127.0.0.1:0"]);
        let mut named = Overrides { listen: vec![address.into()], ..Overrides::default() };
        assert!(named.avoid_taken(&config).is_empty());
    }

    #[test]
    fn port_0_stays_the_port_of_the_process_before() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mut overrides = Overrides::default();
        overrides.take_over(HandedAddresses {
            gateway: ["127.0.0.1:7001", "127.0.0.1:7002", "[::1]:7003"].map(address).to_vec(),
            control: Some(address("127.0.0.1:7004")),
        });
        let text = "gateway: { listen: ['[::1]:0', '127.0.0.1:7001', '127.0.0.1:0', '127.0.0.1:0'] }\n\
                    control: { listen: '127.0.0.1:0' }\n";
        let applied = overrides.apply(config(text));
        assert_eq!(listeners(&applied), ["[::1]:7003", "127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:0"]);
        assert_eq!(applied.control.listen, address("127.0.0.1:7004"));
        assert_eq!(overrides.apply(config("control: { listen: '127.0.0.1:9' }")).control.listen.port(), 9);
    }
}
