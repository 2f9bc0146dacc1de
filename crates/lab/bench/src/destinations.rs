//! The hosts that a run connects to: their addresses, tunnels and TLS settings.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::error::Error;
use crate::guard;
use crate::options::Options;
use crate::plan::Destination;
use crate::request::RequestParts;
use crate::tls_config;
use crate::url::{self, Url};

/// Maximum number of hosts that requests are sent to.
const HOSTS_MAX: usize = 64;

/// Timeout of a connection attempt when a host has several addresses.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The destinations of a run, each host once.
pub(crate) struct Destinations<'a> {
    options: &'a Options,
    /// The destinations so far.
    pub list: Vec<Destination>,
    known: BTreeMap<(bool, String, u16), usize>,
    tls: Option<Arc<ClientConfig>>,
    proxy: Option<SocketAddr>,
    /// The first host that is not near.
    pub far: Option<String>,
}

impl<'a> Destinations<'a> {
    /// Creates an empty list. Resolves the proxy, if there is one.
    pub fn new(options: &'a Options) -> Result<Self, Error> {
        let resolve = |text: &str| {
            let (host, port) =
                url::host_and_port(text).map_err(|error| Error::Url(text.to_owned(), error))?;
            reachable(&host, port.unwrap_or(80))
        };
        let proxy = options.proxy.as_deref().map(resolve).transpose()?;
        Ok(Self { options, list: Vec::new(), known: BTreeMap::new(), tls: None, proxy, far: None })
    }

    /// Returns the index of the destination for a URL.
    pub fn index_of(&mut self, url: &Url, parts: &RequestParts) -> Result<usize, Error> {
        let key = (url.secure, url.host.clone(), url.port);
        if let Some(index) = self.known.get(&key) {
            return Ok(*index);
        }
        if self.list.len() == HOSTS_MAX {
            return Err(Error::Usage(format!("at most {HOSTS_MAX} hosts are allowed")));
        }
        let address = if let Some(proxy) = self.proxy {
            self.judge(url, &url.resolve().unwrap_or_default());
            proxy
        } else {
            let address = reachable(&url.host, url.port)?;
            self.judge(url, &[address]);
            address
        };
        let tunnel = (self.proxy.is_some() && url.secure).then(|| parts.tunnel(url));
        let tls = if url.secure { Some((self.tls()?, server_name(url, parts)?)) } else { None };
        self.list.push(Destination { address, tunnel, tls });
        self.known.insert(key, self.list.len() - 1);
        Ok(self.list.len() - 1)
    }

    /// Records a host that is not near. A host is near if it has an address and all its addresses are near.
    fn judge(&mut self, url: &Url, addresses: &[SocketAddr]) {
        if addresses.is_empty() || addresses.iter().any(|address| !guard::is_near(address.ip())) {
            self.far.get_or_insert_with(|| url.host.clone());
        }
    }

    fn tls(&mut self) -> Result<Arc<ClientConfig>, Error> {
        if let Some(tls) = &self.tls {
            return Ok(Arc::clone(tls));
        }
        let tls = tls_config::compile(self.options)?;
        self.tls = Some(Arc::clone(&tls));
        Ok(tls)
    }
}

/// The name that the certificate must have. As with ab, it comes from a `Host` field line if there is one.
fn server_name(url: &Url, parts: &RequestParts) -> Result<ServerName<'static>, Error> {
    let set = parts.fields.iter().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim().to_owned())
    });
    let host = match &set {
        Some(host) => url::host_and_port(host).map_err(|error| Error::Url(host.clone(), error))?.0,
        None => url.host.clone(),
    };
    ServerName::try_from(host.clone())
        .map_err(|_| Error::Usage(format!("`{host}` is not a server name that a certificate can have")))
}

/// Returns an address of a host. If there are several, returns the first that accepts a connection.
fn reachable(host: &str, port: u16) -> Result<SocketAddr, Error> {
    let addresses = url::resolve(host, port).map_err(|error| Error::Resolve(host.to_owned(), error))?;
    if let [only] = addresses[..] {
        return Ok(only);
    }
    let mut last = std::io::Error::other("no addresses");
    for address in addresses {
        match TcpStream::connect_timeout(&address, PROBE_TIMEOUT) {
            Ok(_) => return Ok(address),
            Err(error) => last = error,
        }
    }
    Err(Error::Unreachable(host.to_owned(), last))
}
