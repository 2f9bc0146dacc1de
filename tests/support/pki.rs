//! A certificate authority for one test, and servers that use its certificates.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// An authority that no client trusts by default.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Debug)]
pub struct Leaf {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Authority of the tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }
}

impl Authority {
    /// Creates a self-signed certificate for these names and addresses; if `is_authority`, it is marked as an
    /// authority.
    pub fn self_signed(names: &[&str], is_authority: bool) -> Self {
        let names = names.iter().copied().map(str::to_owned).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        params.distinguished_name.push(DnType::CommonName, format!("Server {}", names.concat()));
        params.is_ca =
            if is_authority { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::ExplicitNoCa };
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// The authority's own certificate and key, as if it were a server.
    pub fn own(&self) -> Leaf {
        Leaf { certificate: self.certificate(), key: self.issuer.key().serialize_pem() }
    }

    /// The authority's certificate, in PEM.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// Issues a certificate for these names and addresses, valid for servers and clients.
    pub fn leaf(&self, names: &[&str]) -> Leaf {
        self.leaf_with(names, |_| {})
    }

    /// Does the same with a change to the certificate.
    pub fn leaf_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let mut params =
            CertificateParams::new(names.iter().copied().map(str::to_owned).collect::<Vec<_>>()).unwrap();
        // Without a name it would look self-signed.
        params.distinguished_name.push(DnType::CommonName, names.first().copied().unwrap_or("nobody"));
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Leaf {
    /// Starts a server with this certificate, which responds to one request per connection with `text`. It
    /// ends with the test.
    pub fn serve(&self, text: &'static str) -> SocketAddr {
        self.serve_on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), text)
    }

    /// Does the same on this address.
    pub fn serve_on(&self, address: SocketAddr, text: &'static str) -> SocketAddr {
        let server = self.server();
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that rejects the certificate leaves; the next one may accept it.
                let _ = respond_once(&server, stream, text);
            }
        });
        address
    }

    /// A client that shows this certificate, and perhaps the chain behind it, to a server called `localhost`
    /// whose authority is `trusted`.
    pub fn client(
        &self,
        trusted: &Authority,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> rustls::ClientConnection {
        connection(&self.client_config(trusted, version))
    }

    /// The settings of such a client. Its connections share their sessions.
    pub fn client_config(
        &self,
        trusted: &Authority,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> Arc<rustls::ClientConfig> {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let builder = client(trusted, version);
        Arc::new(builder.with_client_auth_cert(chain, key).unwrap())
    }

    /// The server configuration that presents it.
    pub fn server(&self) -> Arc<rustls::ServerConfig> {
        let chain = vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
    }
}

/// A client that shows no certificate to a server called `localhost` whose authority is `trusted`.
pub fn anonymous(
    trusted: &Authority,
    version: &'static rustls::SupportedProtocolVersion,
) -> rustls::ClientConnection {
    connection(&Arc::new(client(trusted, version).with_no_client_auth()))
}

fn client(
    trusted: &Authority,
    version: &'static rustls::SupportedProtocolVersion,
) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.certificate().as_bytes()).unwrap()).unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]);
    builder.unwrap().with_root_certificates(roots)
}

/// A connection to a server called `localhost`.
pub fn connection(config: &Arc<rustls::ClientConfig>) -> rustls::ClientConnection {
    rustls::ClientConnection::new(Arc::clone(config), "localhost".try_into().unwrap()).unwrap()
}

fn respond_once(server: &Arc<rustls::ServerConfig>, stream: TcpStream, text: &str) -> std::io::Result<()> {
    let connection = rustls::ServerConnection::new(Arc::clone(server)).map_err(std::io::Error::other)?;
    let mut tls = rustls::StreamOwned::new(connection, stream);
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tls.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    write!(tls, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}", text.len())?;
    tls.conn.send_close_notify();
    tls.flush()
}

/// Performs a TLS handshake as the server on `stream`, reads until `request_end`, sends `response`, and drops
/// the connection without the closing alert.
pub fn respond_without_close_notify(
    server: &Arc<rustls::ServerConfig>,
    stream: TcpStream,
    request_end: &[u8],
    response: &[u8],
) {
    let connection = rustls::ServerConnection::new(Arc::clone(server)).unwrap();
    let mut tls = rustls::StreamOwned::new(connection, stream);
    let mut request = Vec::new();
    while !request.ends_with(request_end) {
        let mut byte = [0];
        tls.read_exact(&mut byte).unwrap();
        request.push(byte[0]);
    }
    tls.write_all(response).unwrap();
    tls.flush().unwrap();
}
