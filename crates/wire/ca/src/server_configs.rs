//! The TLS configuration by which Egret answers as a host.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use egret_clock::{Clock, Moment, Timestamp};
use egret_message::authority::Host;
use egret_net::tls::{provider, served_protocols};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};

use crate::authority::Authority;
use crate::generations::Generations;
use crate::mint::{Leaf, LeafName, Mint, MintError};
use egret_message::host_pattern::HostPatterns;

/// Maximum number of certificates that are kept, each of about 3 KiB.
const CERTIFICATES_MAX: usize = 1024;

/// The configurations of all hosts that an authority speaks for. Clones share everything.
#[derive(Clone)]
pub struct ServerConfigs {
    shared: Arc<SharedConfigs>,
}

struct SharedConfigs {
    mint: Mint,
    /// The part that all configurations have in common.
    base: ServerConfig,
    clock: Clock,
    kept: RwLock<Generations<LeafName, KeptConfig>>,
    /// Held while a certificate is made, so that the connections that wait for one host make it once. Those
    /// to other hosts do not wait for it.
    minting: Mutex<()>,
}

#[derive(Clone)]
struct KeptConfig {
    config: Arc<ServerConfig>,
    renew_at: Timestamp,
}

impl fmt::Debug for ServerConfigs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfigs").field("mint", &self.shared.mint).finish_non_exhaustive()
    }
}

impl ServerConfigs {
    /// Creates the configurations for an authority.
    ///
    /// TLS 1.2 and 1.3 are enabled, and HTTP/1.1 or, if `http2`, HTTP/2 is negotiated (RFC 7301). Sessions
    /// are resumed by tickets only, without early data. Hosts that `patterns` names only by a common parent
    /// share a certificate.
    pub fn new(authority: Arc<Authority>, patterns: HostPatterns, http2: bool) -> Result<Self, MintError> {
        let mint = Mint::new(authority, patterns)?;
        let base = base(http2).map_err(MintError::Tls)?;
        let kept = RwLock::new(Generations::new(CERTIFICATES_MAX));
        let shared = SharedConfigs { mint, base, clock: Clock::new(), kept, minting: Mutex::new(()) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The authority that signs.
    pub fn authority(&self) -> &Arc<Authority> {
        self.shared.mint.authority()
    }

    /// Returns the configuration for a connection to the host. A certificate is made for the first one, and
    /// again after half of its validity.
    pub fn get(&self, host: &Host) -> Result<Arc<ServerConfig>, MintError> {
        self.get_at(host, self.shared.clock.timestamp(Moment::now()))
    }

    fn get_at(&self, host: &Host, now: Timestamp) -> Result<Arc<ServerConfig>, MintError> {
        let shared = &self.shared;
        let name = shared.mint.leaf_name(host);
        if let Some(config) = shared.kept(&name, now) {
            return Ok(config);
        }
        let _minting = shared.minting.lock().unwrap_or_else(PoisonError::into_inner);
        // Another connection may have made it meanwhile.
        if let Some(config) = shared.kept(&name, now) {
            return Ok(config);
        }
        let kept = match shared.take_old(&name, now) {
            Some(kept) => kept,
            None => shared.make(&name, now)?,
        };
        let config = Arc::clone(&kept.config);
        shared.kept.write().unwrap_or_else(PoisonError::into_inner).insert(name, kept);
        Ok(config)
    }
}

impl SharedConfigs {
    fn kept(&self, name: &LeafName, now: Timestamp) -> Option<Arc<ServerConfig>> {
        let all = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        all.young(name).filter(|kept| now < kept.renew_at).map(|kept| Arc::clone(&kept.config))
    }

    fn take_old(&self, name: &LeafName, now: Timestamp) -> Option<KeptConfig> {
        let mut all = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        all.take_old(name).filter(|kept| now < kept.renew_at)
    }

    fn make(&self, name: &LeafName, now: Timestamp) -> Result<KeptConfig, MintError> {
        let Leaf { certified, renew_at } = self.mint.mint(name, now)?;
        let mut config = self.base.clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        Ok(KeptConfig { config: Arc::new(config), renew_at })
    }
}

fn base(http2: bool) -> Result<ServerConfig, rustls::Error> {
    let builder =
        ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13, &TLS12])?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(NoCertificate));
    config.alpn_protocols = served_protocols(http2);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = ticketer()?;
    config.max_early_data_size = 0;
    Ok(config)
}

/// Returns the process's only maker of tickets, so that sessions survive a reload. A ticket names the host
/// that it was made for, and is not accepted for another one.
fn ticketer() -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    static TICKETER: OnceLock<Arc<dyn ProducesTickets>> = OnceLock::new();
    if let Some(ticketer) = TICKETER.get() {
        return Ok(Arc::clone(ticketer));
    }
    let made = Ticketer::new()?;
    Ok(Arc::clone(TICKETER.get_or_init(|| made)))
}

/// Stands in for the certificate in the common part.
#[derive(Debug)]
struct NoCertificate;

impl rustls::server::ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }
}

#[cfg(test)]
mod tests;
