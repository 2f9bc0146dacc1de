//! A gateway that runs already.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use egret_control::{GatewayInfo, ListenerInfo};
use egret_service::control_client::{Belief, ControlClient, ControlClientError};
use egret_service::run::reachable;
use egret_settings::control_key;

use super::client::ClientProof;
use super::interception::Wanted;

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
    /// Its data directory.
    pub data_dir: PathBuf,
}

impl Gateway {
    /// Chooses the listener to use: one that speaks plain HTTP, as every client can, and forwards to every
    /// host; if possible, without a token. `None` if there is none.
    pub fn new(info: GatewayInfo, control: SocketAddr) -> Option<Self> {
        let is_usable = |listener: &&ListenerInfo| {
            !listener.tls && !listener.redirect && !listener.socks5 && listener.provider.is_none()
        };
        let found = info.listeners.iter().filter(is_usable);
        let found =
            found.filter_map(|listener| Some((listener.address.internet()?, listener.asks_for_token)));
        // The first of those that ask for the least.
        let (address, asks_for_token) = found.min_by_key(|(_, asks)| *asks)?;
        let proxy = reachable(address);
        let data_dir = PathBuf::new();
        Some(Self { proxy, control: reachable(control), info, asks_for_token, proof: None, data_dir })
    }

    /// Returns the URL of its forward proxy, with the client's name and token if it asks for one.
    pub fn proxy_url(&self) -> String {
        let userinfo = self.proof.as_ref().map(ClientProof::userinfo).unwrap_or_default();
        format!("http://{userinfo}{}", self.proxy)
    }
}

/// The reason why a gateway is not used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The config chooses a free port at each start.
    #[error("the config names no port")]
    NoPort,
    /// Nothing responds, or not as a control port does.
    #[error("{0}")]
    Client(ControlClientError),
    /// The response is not a description of a gateway.
    #[error("the response does not describe a gateway")]
    Response,
    /// The key by which it could prove itself cannot be used, for this reason.
    #[error("{0}")]
    Key(String),
    /// There is no such key.
    #[error("no gateway has run with this data directory: {0} is missing")]
    NoKey(PathBuf),
    /// It is another version.
    #[error("its version is {0}, this program's is {own}", own = env!("CARGO_PKG_VERSION"))]
    Version(String),
    /// It does not accept new exchanges.
    #[error("it does not accept new exchanges")]
    NotReady,
    /// It has no listener that every client can use.
    #[error("it has no listener without TLS and without a provider")]
    NoListener,
    /// It does not intercept this host.
    #[error("it does not intercept {0}")]
    NotIntercepted(String),
}

/// Asks the gateway whose control port has this address, and which has to prove that it can read the key in
/// the data directory.
pub fn at(control: SocketAddr, data_dir: &Path, wanted: Option<&Wanted>) -> Result<Gateway, Unusable> {
    if control.port() == 0 {
        return Err(Unusable::NoPort);
    }
    let key = control_key::load(data_dir).map_err(|failure| Unusable::Key(failure.to_string()))?;
    let key = key.ok_or_else(|| Unusable::NoKey(data_dir.join(control_key::FILE_NAME)))?;
    let client = ControlClient { address: reachable(control), belief: Belief::Proof(vec![key]) };
    usable(&client.get_within(PATH, TIMEOUT).map_err(Unusable::Client)?, control, wanted)
}

/// Reads the description of a gateway, and decides if the command can use it.
fn usable(description: &[u8], control: SocketAddr, wanted: Option<&Wanted>) -> Result<Gateway, Unusable> {
    let info: GatewayInfo = serde_json::from_slice(description).map_err(|_| Unusable::Response)?;
    if info.version != env!("CARGO_PKG_VERSION") {
        return Err(Unusable::Version(info.version));
    }
    if !info.ready {
        return Err(Unusable::NotReady);
    }
    if let Some(missing) = wanted.and_then(|wanted| wanted.missing(info.interception.as_ref())) {
        return Err(Unusable::NotIntercepted(missing));
    }
    Gateway::new(info, control).ok_or(Unusable::NoListener)
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
        ListenerInfo {
            address: address(at).into(),
            tls,
            provider,
            redirect: false,
            socks5: false,
            asks_for_token: false,
        }
    }

    #[test]
    fn a_plain_listener_for_every_host_is_chosen() {
        let info = |listeners| GatewayInfo { listeners, ..GatewayInfo::default() };
        let listeners = vec![
            listener("127.0.0.1:1", true, None),
            listener("127.0.0.1:2", false, Some("stripe")),
            ListenerInfo { redirect: true, ..listener("127.0.0.1:6", false, None) },
            ListenerInfo { socks5: true, ..listener("127.0.0.1:7", false, None) },
            listener("0.0.0.0:3", false, None),
            listener("127.0.0.1:4", false, None),
        ];
        let gateway = Gateway::new(info(listeners.clone()), address("[::]:5")).unwrap();
        assert_eq!((gateway.proxy, gateway.control), (address("127.0.0.1:3"), address("[::1]:5")));
        assert!(Gateway::new(info(listeners[..4].to_vec()), address("127.0.0.1:5")).is_none());
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
    fn a_control_port_must_belong_to_a_ready_matching_gateway() {
        let good = GatewayInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ready: true,
            listeners: vec![listener("127.0.0.1:9", false, None)],
            providers: BTreeMap::new(),
            interception: None,
        };
        let usable = |text: &str| usable(text.as_bytes(), address("127.0.0.1:5"), None);
        let text = |info: &GatewayInfo| serde_json::to_string(info).unwrap();
        assert_eq!(usable(&text(&good)).unwrap().proxy, address("127.0.0.1:9"));
        assert!(matches!(usable("ok"), Err(Unusable::Response)));
        let other = GatewayInfo { version: "0.0.0".to_owned(), ..good.clone() };
        assert!(usable(&text(&other)).unwrap_err().to_string().contains("0.0.0"));
        let draining = GatewayInfo { ready: false, ..good.clone() };
        assert!(matches!(usable(&text(&draining)), Err(Unusable::NotReady)));
        let deaf = GatewayInfo { listeners: Vec::new(), ..good };
        assert!(matches!(usable(&text(&deaf)), Err(Unusable::NoListener)));
    }

    #[test]
    fn a_port_is_asked_only_with_a_key_to_recognize_its_gateway() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path();
        assert!(matches!(at(address("127.0.0.1:0"), data_dir, None), Err(Unusable::NoPort)));
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        server.set_nonblocking(true).unwrap();
        let asked = || at(server.local_addr().unwrap(), data_dir, None);
        assert!(matches!(asked(), Err(Unusable::NoKey(_))));
        std::fs::write(data_dir.join(control_key::FILE_NAME), "short").unwrap();
        assert!(matches!(asked(), Err(Unusable::Key(_))));
        assert!(server.accept().is_err(), "nothing has connected");
    }
}
