//! TLS with a certificate and an authority made at start. Their keys stay in memory.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// Name of HTTP/2 in ALPN (RFC 9113 §3.1). A client that offers it gets it.
pub(crate) const HTTP2: &[u8] = b"h2";

/// Makes an authority and writes its certificate to the file. The server's certificate covers `localhost`,
/// the loopback addresses and the address listened on.
pub(crate) fn acceptor(address: IpAddr, authority_file: &Path) -> io::Result<TlsAcceptor> {
    let (config, authority) = made(address).map_err(io::Error::other)?;
    if let Some(directory) = authority_file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::write(authority_file, authority)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn made(address: IpAddr) -> Result<(ServerConfig, String), Box<dyn std::error::Error + Send + Sync>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Authority of Egret's provider");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !address.is_loopback() && !address.is_unspecified() {
        names.push(address.to_string());
    }
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "Egret's provider");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority)?;

    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok((config, authority.pem()))
}
