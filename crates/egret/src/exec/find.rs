//! A gateway that runs already.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use egret_control::{GatewayInfo, ListenerInfo};

use super::client::ClientProof;
use super::interception::Wanted;
use crate::config::Config;
use crate::control_client::{ControlClient, ControlClientError};
use crate::run::reachable;

/// Time for the control port to respond. It does in a few milliseconds; another program may never do.
const TIMEOUT: Duration = Duration::from_secs(1);

const PATH: &str = "/api/v1/gateway";

/// A gateway that the command can use.
#[derive(Debug)]
pub struct Gateway {
    /// The address of its forward proxy.
    pub proxy: SocketAddr,
    /// The address of its control port.
    pub control: SocketAddr,
    /// Its description.
    pub info: GatewayInfo,
    /// `true` if the proxy serves only clients that send a token.
    pub asks_for_token: bool,
    /// The token to send.
    pub proof: Option<ClientProof>,
}

impl Gateway {
    /// Chooses the listener to use: one that speaks plain HTTP, as every client can, and forwards to every
    /// host; if possible, without a token. `None` if there is none.
    pub fn new(info: GatewayInfo, control: SocketAddr) -> Option<Self> {
        let is_usable =
            |listener: &&ListenerInfo| !listener.tls && !listener.redirect && listener.provider.is_none();
        let usable = || info.listeners.iter().filter(is_usable);
        let chosen = usable().find(|listener| !listener.asks_for_token).or_else(|| usable().next())?;
        let (proxy, asks_for_token) = (reachable(chosen.address), chosen.asks_for_token);
        Some(Self { proxy, control: reachable(control), info, asks_for_token, proof: None })
    }

    /// Returns the URL of its forward proxy, with the client's name and token if it asks for one.
    pub fn proxy_url(&self) -> String {
        let userinfo = self.proof.as_ref().map(ClientProof::userinfo).unwrap_or_default();
        format!("http://{userinfo}{}", self.proxy)
    }
}

/// The reason why a gateway is not used.
#[derive(Debug)]
pub enum Unusable {
    /// The config chooses a free port at each start.
    NoPort,
    /// Nothing responds, or not as a control port does.
    Client(ControlClientError),
    /// The response is not a description of a gateway.
    Response,
    /// Another user listens there.
    OtherUser,
    /// It is another version.
    Version(String),
    /// It does not accept new exchanges.
    NotReady,
    /// It has no listener that every client can use.
    NoListener,
    /// It does not intercept this host.
    NotIntercepted(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPort => f.write_str("the config names no port"),
            Self::Client(error) => error.fmt(f),
            Self::Response => f.write_str("the response does not describe a gateway"),
            Self::OtherUser => f.write_str(
                "another user of this machine listens there; name the config with --config to use that gateway",
            ),
            Self::Version(version) => {
                write!(f, "its version is {version}, this program's is {}", env!("CARGO_PKG_VERSION"))
            }
            Self::NotReady => f.write_str("it does not accept new exchanges"),
            Self::NoListener => f.write_str("it has no listener without TLS and without a provider"),
            Self::NotIntercepted(host) => write!(f, "it does not intercept {host}"),
        }
    }
}

/// The gateway to search for.
pub struct Search<'a> {
    /// The config.
    pub config: &'a Config,
    /// `true` if the user has named the config.
    pub is_named: bool,
    /// The interception that the user asks for.
    pub wanted: Option<&'a Wanted>,
}

impl Search<'_> {
    /// Asks the gateway whose control port has this address. `is_outer` is true for that of an outer `egret
    /// exec`.
    pub fn at(&self, control: SocketAddr, is_outer: bool) -> Result<Gateway, Unusable> {
        if control.port() == 0 {
            return Err(Unusable::NoPort);
        }
        // Everybody may listen on the default port, and would see all calls.
        if !self.is_named && !is_outer && !listens_for_us(control) {
            return Err(Unusable::OtherUser);
        }
        let response = ask(control, self.config).map_err(Unusable::Client)?;
        let info: GatewayInfo = serde_json::from_slice(&response).map_err(|_| Unusable::Response)?;
        if info.version != env!("CARGO_PKG_VERSION") {
            return Err(Unusable::Version(info.version));
        }
        if !info.ready {
            return Err(Unusable::NotReady);
        }
        if let Some(missing) = self.wanted.and_then(|wanted| wanted.missing(info.interception.as_ref())) {
            return Err(Unusable::NotIntercepted(missing));
        }
        Gateway::new(info, control).ok_or(Unusable::NoListener)
    }
}

fn ask(control: SocketAddr, config: &Config) -> Result<Vec<u8>, ControlClientError> {
    let client = ControlClient { address: reachable(control), token: config.control.token.clone() };
    client.get_within(PATH, TIMEOUT)
}

/// Returns `true` if the control port responds, but not without another token.
pub fn requires_token(control: SocketAddr, config: &Config) -> bool {
    matches!(ask(control, config), Err(ControlClientError::Status(401)))
}

/// Returns `true` if only this user and root listen on the port, or nobody.
#[cfg(target_os = "linux")]
fn listens_for_us(address: SocketAddr) -> bool {
    let own = rustix::process::getuid().as_raw();
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let mut owners = tables.iter().flat_map(|table| owners(table, address.port()));
    owners.all(|owner| owner == own || owner == 0)
}

/// The system does not tell.
#[cfg(not(target_os = "linux"))]
fn listens_for_us(_: SocketAddr) -> bool {
    true
}

/// Returns the users that listen on a port, as a table of the system (`proc_net_tcp(5)`) has them.
#[cfg(target_os = "linux")]
fn owners(table: &str, port: u16) -> impl Iterator<Item = u32> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).filter_map(move |row| {
        let columns: Vec<&str> = row.split_ascii_whitespace().collect();
        let (_, local_port) = columns.get(1)?.rsplit_once(':')?;
        let is_it = columns.get(3) == Some(&LISTEN)
            && u16::from_str_radix(local_port, 16).is_ok_and(|its| its == port);
        if is_it { columns.get(7)?.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn listener(at: &str, tls: bool, provider: Option<&str>) -> ListenerInfo {
        let provider = provider.map(str::to_owned);
        ListenerInfo { address: address(at), tls, provider, redirect: false, asks_for_token: false }
    }

    #[test]
    fn a_plain_listener_for_every_host_is_chosen() {
        let info = |listeners| GatewayInfo { listeners, ..GatewayInfo::default() };
        let listeners = vec![
            listener("127.0.0.1:1", true, None),
            listener("127.0.0.1:2", false, Some("stripe")),
            ListenerInfo { redirect: true, ..listener("127.0.0.1:6", false, None) },
            listener("0.0.0.0:3", false, None),
            listener("127.0.0.1:4", false, None),
        ];
        let gateway = Gateway::new(info(listeners.clone()), address("[::]:5")).unwrap();
        assert_eq!((gateway.proxy, gateway.control), (address("127.0.0.1:3"), address("[::1]:5")));
        assert!(Gateway::new(info(listeners[..3].to_vec()), address("127.0.0.1:5")).is_none());
    }

    #[test]
    fn a_listener_that_asks_for_a_token_is_the_last_choice() {
        let asking = ListenerInfo { asks_for_token: true, ..listener("127.0.0.1:1", false, None) };
        let info = |listeners| GatewayInfo { listeners, ..GatewayInfo::default() };
        let open = listener("127.0.0.1:2", false, None);
        let gateway = Gateway::new(info(vec![asking.clone(), open]), address("127.0.0.1:5")).unwrap();
        assert_eq!((gateway.proxy.port(), gateway.asks_for_token), (2, false));
        let gateway = Gateway::new(info(vec![asking]), address("127.0.0.1:5")).unwrap();
        assert_eq!((gateway.proxy.port(), gateway.asks_for_token), (1, true));
        assert_eq!(gateway.proxy_url(), "http://127.0.0.1:1");
    }

    #[test]
    fn a_control_port_must_be_one_of_a_ready_gateway_of_this_version() {
        let config = Config::default();
        let search = Search { config: &config, is_named: true, wanted: None };
        assert!(matches!(search.at(address("127.0.0.1:0"), false), Err(Unusable::NoPort)));
        let good = GatewayInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ready: true,
            listeners: vec![listener("127.0.0.1:9", false, None)],
            providers: BTreeMap::new(),
            interception: None,
        };
        let search = |info: String| {
            let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let at = server.local_addr().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    use std::io::{Read, Write};
                    let (mut peer, _) = server.accept().unwrap();
                    let _ = peer.read(&mut [0; 1024]);
                    write!(peer, "HTTP/1.1 200 OK\r\n\r\n{info}").unwrap();
                });
                search.at(at, false)
            })
        };
        let text = |info: &GatewayInfo| serde_json::to_string(info).unwrap();
        assert_eq!(search(text(&good)).unwrap().proxy, address("127.0.0.1:9"));
        assert!(matches!(search("ok".to_owned()), Err(Unusable::Response)));
        let other = GatewayInfo { version: "0.0.0".to_owned(), ..good.clone() };
        assert!(search(text(&other)).unwrap_err().to_string().contains("0.0.0"));
        let draining = GatewayInfo { ready: false, ..good.clone() };
        assert!(matches!(search(text(&draining)), Err(Unusable::NotReady)));
        let deaf = GatewayInfo { listeners: Vec::new(), ..good };
        assert!(matches!(search(text(&deaf)), Err(Unusable::NoListener)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_owners_of_a_port_are_those_that_listen_on_it() {
        let table =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1
   1: 0100007F:1F41 0100007F:9000 01 00000000:00000000 00:00000000 00000000  1001        0 2
   2: 0100007F:1F42 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1002        0 3
";
        assert_eq!(owners(table, 8001).collect::<Vec<_>>(), [1000]);
        let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listens_for_us(own.local_addr().unwrap()));
    }
}
