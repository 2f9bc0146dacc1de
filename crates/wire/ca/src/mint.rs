//! Certificates of hosts, signed by the authority.

use std::sync::Arc;
use std::time::Duration;

use egret_clock::Timestamp;
use egret_items::opaque;
use egret_message::authority::Host;
use egret_net::tls::provider;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SigningKey};

use crate::authority::{Authority, AuthorityError, BACKDATED, Validity, params};
use egret_message::host_pattern::{HostPatterns, canonical};

/// Validity of a host's certificate, far below what any client refuses. It is renewed after half of it.
const VALIDITY: Duration = Duration::from_hours(30 * 24);

/// Maximum length of a common name (`ub-common-name`, RFC 5280 appendix A.1).
const COMMON_NAME_BYTES_MAX: usize = 64;

/// Makes the certificates of hosts. All have the same key, which lives as long as this value.
pub struct Mint {
    authority: Arc<Authority>,
    patterns: HostPatterns,
    key: KeyPair,
    signing_key: Arc<dyn SigningKey>,
}

opaque!(Mint { authority });

/// The reason why there is no certificate for a host.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// The authority may not speak for the host. `egret ca init --force` makes one that may.
    #[error("the certificate authority was not made for this host: run `egret ca init --force`")]
    OutsideConstraints,
    /// The authority is not valid at this time.
    #[error("{0}: run `egret ca init --force` if it has files, and restart Egret")]
    Authority(AuthorityError),
    /// The certificate could not be signed.
    #[error("cannot sign a certificate: {0}")]
    Signing(rcgen::Error),
    /// The key or the certificate cannot be used for TLS.
    #[error("TLS is not available: {0}")]
    Tls(rustls::Error),
}

/// A name that one certificate is made for. Several hosts may share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum LeafName {
    /// `*.example.com`: every name directly below `example.com`.
    Wildcard(Box<str>),
    /// The host alone.
    Host(Host),
}

/// A host's certificate with its chain, and the time for the next one.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub certified: CertifiedKey,
    pub renew_at: Timestamp,
}

impl Mint {
    /// Creates a mint, with a new key. Hosts that `patterns` names only by a common parent share a
    /// certificate.
    pub fn new(authority: Arc<Authority>, patterns: HostPatterns) -> Result<Self, MintError> {
        let key = KeyPair::generate().map_err(MintError::Signing)?;
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signing_key = provider().key_provider.load_private_key(der).map_err(MintError::Tls)?;
        Ok(Self { authority, patterns, key, signing_key })
    }

    /// The authority that signs.
    pub fn authority(&self) -> &Arc<Authority> {
        &self.authority
    }

    /// Returns the name of the certificate for a host. For a pattern `*.example.com` that is the pattern, so
    /// that invented names cannot make a certificate each. A wildcard stands for one label only (RFC 9525
    /// §6.3), and clients refuse one directly below a top-level domain.
    pub(crate) fn leaf_name(&self, host: &Host) -> LeafName {
        let host = canonical(host.clone());
        if let Host::Name(name) = &host
            && let Some((_, parent)) = name.split_once('.')
            && parent.contains('.')
            && self.patterns.has_ancestor_of(name)
            && !self.patterns.names(&host)
            && !self.authority.constraints().excludes_below(parent)
        {
            return LeafName::Wildcard(parent.into());
        }
        LeafName::Host(host)
    }

    /// Makes a certificate, unless the authority may not speak for the name.
    pub(crate) fn mint(&self, name: &LeafName, now: Timestamp) -> Result<Leaf, MintError> {
        let is_covered = match name {
            LeafName::Wildcard(parent) => self.authority.constraints().covers(&Host::Name(parent.clone())),
            LeafName::Host(host) => self.authority.constraints().covers(host),
        };
        if !is_covered {
            return Err(MintError::OutsideConstraints);
        }
        self.authority.check_validity(now).map_err(MintError::Authority)?;
        let validity = Validity {
            not_before: (now - BACKDATED).max(self.authority.not_before()),
            not_after: (now + VALIDITY).min(self.authority.not_after()),
        };
        // With the authority's own end there is nothing to renew.
        let is_last = validity.not_after == self.authority.not_after();
        let renew_at = if is_last { validity.not_after } else { now + VALIDITY / 2 };
        let params = leaf_params(name, validity)?;
        let leaf = self.authority.sign(&params, &self.key).map_err(MintError::Signing)?;
        let chain = vec![leaf.into(), self.authority.issuing().clone()];
        Ok(Leaf { certified: CertifiedKey::new(chain, Arc::clone(&self.signing_key)), renew_at })
    }
}

/// The subject of an address is empty: OpenSSL takes a common name with dots for a DNS name, which the
/// constraints may exclude.
fn leaf_params(name: &LeafName, validity: Validity) -> Result<CertificateParams, MintError> {
    let mut params = params(validity).map_err(MintError::Authority)?;
    let dns_name = match name {
        LeafName::Wildcard(parent) => Some(format!("*.{parent}")),
        LeafName::Host(Host::Name(name)) => Some(name.to_string()),
        LeafName::Host(Host::Ip(ip)) => {
            params.subject_alt_names = vec![SanType::IpAddress(*ip)];
            None
        }
    };
    if let Some(dns_name) = dns_name {
        if dns_name.len() <= COMMON_NAME_BYTES_MAX {
            params.distinguished_name.push(DnType::CommonName, dns_name.as_str());
        }
        let dns_name = dns_name.try_into().map_err(MintError::Signing)?;
        params.subject_alt_names = vec![SanType::DnsName(dns_name)];
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}
