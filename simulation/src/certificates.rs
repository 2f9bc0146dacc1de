//! The certificates of the worlds: a small authority, and those that it has signed. They are made once, with
//! new keys: nothing but their lengths shows in a trace, and these are always the same.

use std::cell::OnceCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use egret_kernel::disk::outside as disk;
use egret_net::tls::{self, Verification};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ED25519, SerialNumber,
    date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};

use crate::scenario::PROVIDERS;

/// The authority's certificate on the disk of a world.
pub const AUTHORITY_FILE: &str = "/tls/authority.pem";
/// The gateway's certificate.
pub const CERTIFICATE_FILE: &str = "/tls/gateway.pem";
/// The key of the gateway's certificate.
pub const KEY_FILE: &str = "/tls/gateway.key";
/// Times after the beginning of a world at which certificates of providers expire, in seconds.
pub const EXPIRIES_S: [u64; 3] = [2, 3_600, 1_000_000];

thread_local! {
    static MADE: OnceCell<Rc<Certificates>> = const { OnceCell::new() };
}

/// The certificates.
#[derive(Debug)]
pub struct Certificates {
    key: PrivatePkcs8KeyDer<'static>,
    key_pem: String,
    authority_pem: String,
    gateway_pem: String,
    /// By the time of their expiry, of both providers.
    providers: [CertificateDer<'static>; EXPIRIES_S.len()],
}

fn fails(error: impl ToString) -> String {
    error.to_string()
}

impl Certificates {
    /// Returns the certificates of this thread's worlds.
    pub fn get() -> Result<Rc<Self>, String> {
        MADE.with(|made| match made.get() {
            Some(known) => Ok(Rc::clone(known)),
            None => {
                let new = Rc::new(Self::make().map_err(fails)?);
                Ok(Rc::clone(made.get_or_init(|| new)))
            }
        })
    }

    fn make() -> Result<Self, rcgen::Error> {
        let beginning = date_time_ymd(2026, 1, 1);
        let params = |name: &str, number: u64| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.not_before = beginning - Duration::from_hours(24 * 365);
            params.not_after = beginning + Duration::from_hours(24 * 365);
            params.serial_number = Some(SerialNumber::from(number));
            params
        };
        let mut authority = params("A simulated authority", 1);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate_for(&PKCS_ED25519)?)?;
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let sign = |names: Vec<String>, number, expires_s: Option<u64>| {
            let mut params = params("A simulated server", number);
            params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
            if let Some(seconds) = expires_s {
                params.not_after = beginning + Duration::from_secs(seconds);
            }
            params.signed_by(&key, &authority)
        };
        let gateway = sign(vec!["127.0.0.1".to_owned()], 2, None)?;
        let names: Vec<String> = PROVIDERS.iter().map(|name| format!("{name}.example")).collect();
        let [first, second, third] = EXPIRIES_S
            .map(|seconds| sign(names.clone(), 3, Some(seconds)).map(|signed| signed.der().clone()));
        Ok(Self {
            key: PrivatePkcs8KeyDer::from(key.serialize_der()),
            key_pem: key.serialize_pem(),
            authority_pem: authority.pem(),
            gateway_pem: gateway.pem(),
            providers: [first?, second?, third?],
        })
    }

    /// Puts the files that the gateway's config names on the disk of a world.
    pub fn write(&self) -> Result<(), String> {
        let files = [
            (AUTHORITY_FILE, &self.authority_pem),
            (CERTIFICATE_FILE, &self.gateway_pem),
            (KEY_FILE, &self.key_pem),
        ];
        files
            .into_iter()
            .try_for_each(|(path, text)| disk::put(Path::new(path), text.as_bytes()).map_err(fails))
    }

    /// The settings of providers whose certificate expires at this of [`EXPIRIES_S`].
    pub fn of_provider(
        &self,
        expiry: usize,
        is_http2: bool,
        is_old: bool,
    ) -> Result<Arc<ServerConfig>, String> {
        let key = PrivateKeyDer::Pkcs8(self.key.clone_key());
        let mut config = ServerConfig::builder_with_details(tls::provider(), tls::time())
            .with_protocol_versions(&versions(is_old))
            .map_err(fails)?
            .with_no_client_auth()
            .with_single_cert(vec![self.providers[expiry].clone()], key)
            .map_err(fails)?;
        config.alpn_protocols = protocols(is_http2);
        Ok(Arc::new(config))
    }
}

/// The settings of clients.
pub fn of_client(is_http2: bool, is_old: bool) -> Result<Arc<ClientConfig>, String> {
    let verification = Verification::SignatureOnly;
    let mut config =
        tls::client_config(tls::provider(), &versions(is_old), verification, None).map_err(fails)?;
    config.alpn_protocols = protocols(is_http2);
    Ok(Arc::new(config))
}

fn protocols(is_http2: bool) -> Vec<Vec<u8>> {
    vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }]
}

fn versions(is_old: bool) -> Vec<&'static SupportedProtocolVersion> {
    if is_old { vec![&TLS12] } else { vec![&TLS13, &TLS12] }
}
