//! Tests of TLS against a rustls server on its own thread, with certificates generated here.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::task::Poll;

use egret_config::Secret;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};

use super::error::CertificateProblem;
use super::*;
use crate::event_loop::{Socket, run, turn};
use crate::stream::Stream;

type Authority = CertifiedIssuer<'static, KeyPair>;
type Served = StreamOwned<ServerConnection, TcpStream>;

/// A file that is deleted on drop.
struct TempFile(PathBuf);

impl TempFile {
    fn new(contents: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("egret-tls-{}-{}.pem", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, contents).unwrap();
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn new_authority() -> Authority {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Authority::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

struct Leaf {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Leaf {
    fn new(authority: &Authority, name: &str, edit: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        edit(&mut params);
        let key = KeyPair::generate().unwrap();
        Self { certificate: params.signed_by(&key, authority).unwrap(), key }
    }

    /// Creates a self-signed certificate.
    fn own(name: &str, edit: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        edit(&mut params);
        let key = KeyPair::generate().unwrap();
        Self { certificate: params.self_signed(&key).unwrap(), key }
    }

    fn der(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (vec![self.certificate.der().clone()], PrivateKeyDer::try_from(self.key.serialize_der()).unwrap())
    }
}

fn server(leaf: &Leaf, versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
    let (chain, key) = leaf.der();
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions).unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// Passes every connection to `script` on a thread.
fn serve(config: ServerConfig, script: impl Fn(Served) + Send + 'static) -> SocketAddr {
    let config = Arc::new(config);
    serve_tcp(move |tcp| script(StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), tcp)))
}

fn serve_tcp(script: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((tcp, _)) = listener.accept() {
            script(tcp);
        }
    });
    address
}

fn echo(mut stream: Served) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

fn trusting(authority: &Authority, edit: impl FnOnce(&mut ProviderTlsConfig)) -> ClientTls {
    let ca = TempFile::new(&authority.pem());
    let mut config = ProviderTlsConfig { ca: Some(ca.0.clone()), ..ProviderTlsConfig::default() };
    edit(&mut config);
    ClientTls::compile(&config, "providers.x.tls").unwrap()
}

async fn open(address: SocketAddr, tls: &ClientTls, host: &str) -> Result<TlsStream, TlsError> {
    let tcp = TcpStream::connect(address).unwrap();
    tcp.set_nonblocking(true).unwrap();
    handshake(Socket::new(tcp).unwrap(), tls, &Host::parse(host.as_bytes()).unwrap()).await
}

async fn write_all(stream: &mut TlsStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let taken = poll_fn(|cx| stream.poll_write_vectored(cx, &[IoSlice::new(bytes)])).await.unwrap();
        bytes = &bytes[taken..];
    }
    poll_fn(|cx| stream.poll_flush(cx)).await.unwrap();
}

async fn read(stream: &mut TlsStream, length: usize) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match poll_fn(|cx| stream.poll_read(cx, &mut buffer[filled..])).await? {
            0 => break,
            read => filled += read,
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

async fn assert_echo(stream: &mut TlsStream) {
    write_all(stream, b"hello").await;
    assert_eq!(read(stream, 5).await.unwrap(), b"hello");
}

#[test]
fn an_extra_authority_is_trusted_in_both_versions_and_sessions_are_resumed() {
    run(async {
        let authority = new_authority();
        let leaf = Leaf::new(&authority, "localhost", |_| ());
        for version in [&TLS12, &TLS13] {
            let address = serve(server(&leaf, &[version]), echo);
            let tls = trusting(&authority, |_| ());
            let mut first = open(address, &tls, "localhost").await.unwrap();
            assert_echo(&mut first).await;
            assert_eq!(first.tls.protocol_version(), Some(version.version));
            assert_eq!(first.tls.alpn_protocol(), Some(&b"http/1.1"[..]));
            assert!(!first.is_resumed());
            drop(first);
            assert!(open(address, &tls, "localhost").await.unwrap().is_resumed());
            // A value compiled separately from the same config shares no sessions.
            assert!(!open(address, &trusting(&authority, |_| ()), "localhost").await.unwrap().is_resumed());
        }
    });
}

#[test]
fn each_certificate_problem_has_its_own_error() {
    run(async {
        use CertificateProblem::*;
        type Edit = fn(&mut CertificateParams);
        let authority = new_authority();
        let cases: [(&str, Edit, CertificateProblem); 5] = [
            ("localhost", |params| params.not_after = date_time_ymd(2020, 1, 1), Expired),
            ("localhost", |params| params.not_before = date_time_ymd(3000, 1, 1), NotYetValid),
            ("other.example", |_| (), WrongName),
            ("*.example", |_| (), WrongName),
            (
                "localhost",
                |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
                Purpose,
            ),
        ];
        for (name, edit, problem) in cases {
            let address = serve(server(&Leaf::new(&authority, name, edit), &[&TLS13, &TLS12]), echo);
            let error = open(address, &trusting(&authority, |_| ()), "localhost").await.unwrap_err();
            assert_eq!(error, TlsError::Certificate(problem));
            assert!(!error.to_string().contains("other.example"), "{error}");
        }
        let address = serve(server(&Leaf::new(&authority, "localhost", |_| ()), &[&TLS13]), echo);
        let system_only = ClientTls::compile(&ProviderTlsConfig::default(), "").unwrap();
        assert_eq!(
            open(address, &system_only, "localhost").await.unwrap_err(),
            TlsError::Certificate(UnknownIssuer)
        );
        let error = open(address, &trusting(&new_authority(), |_| ()), "localhost").await.unwrap_err();
        // Both authorities have the same name, so only the signature distinguishes them.
        assert!(matches!(error, TlsError::Certificate(UnknownIssuer | Signature)), "{error:?}");
    });
}

/// Returns a client that trusts the certificates in `pem`.
fn trusting_file(pem: &str) -> Result<ClientTls, Vec<Problem>> {
    let ca = TempFile::new(pem);
    let config = ProviderTlsConfig { ca: Some(ca.0.clone()), ..ProviderTlsConfig::default() };
    ClientTls::compile(&config, "providers.x.tls")
}

#[test]
fn a_configured_self_signed_certificate_is_trusted_within_limits() {
    run(async {
        let kinds = [IsCa::NoCa, IsCa::ExplicitNoCa, IsCa::Ca(BasicConstraints::Unconstrained)];
        for kind in kinds {
            let own = |edit: fn(&mut CertificateParams)| {
                Leaf::own("localhost", |params| {
                    params.is_ca = kind;
                    edit(params);
                })
            };
            let good = own(|_| ());
            let tls = trusting_file(&good.certificate.pem()).unwrap();
            for version in [&TLS12, &TLS13] {
                let address = serve(server(&good, &[version]), echo);
                assert_echo(&mut open(address, &tls, "localhost").await.unwrap()).await;
                let error = open(address, &tls, "other.example").await.unwrap_err();
                assert_eq!(error, TlsError::Certificate(CertificateProblem::WrongName));
            }
            let expired = own(|params| params.not_after = date_time_ymd(2020, 1, 1));
            let to_come = own(|params| params.not_before = date_time_ymd(3000, 1, 1));
            for (leaf, problem) in
                [(expired, CertificateProblem::Expired), (to_come, CertificateProblem::NotYetValid)]
            {
                let address = serve(server(&leaf, &[&TLS13]), echo);
                let tls = trusting_file(&leaf.certificate.pem()).unwrap();
                let error = open(address, &tls, "localhost").await.unwrap_err();
                assert_eq!(error, TlsError::Certificate(problem));
            }
            // A different certificate with the same names.
            let address = serve(server(&own(|_| ()), &[&TLS13]), echo);
            assert!(open(address, &tls, "localhost").await.is_err());
        }
    });
}

#[test]
fn only_an_authority_in_ca_signs_others() {
    run(async {
        let authority = BasicConstraints::Unconstrained;
        for (kind, is_believed) in
            [(IsCa::NoCa, false), (IsCa::ExplicitNoCa, false), (IsCa::Ca(authority), true)]
        {
            let mut params = CertificateParams::new(["other.example".to_owned()]).unwrap();
            params.is_ca = kind;
            let own = Authority::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            let mut named = CertificateParams::new(["localhost".to_owned()]).unwrap();
            // With the same name it would look self-signed.
            named.distinguished_name.push(rcgen::DnType::CommonName, "signed");
            let key = KeyPair::generate().unwrap();
            let leaf = Leaf { certificate: named.signed_by(&key, &own).unwrap(), key };
            let address = serve(server(&leaf, &[&TLS13]), echo);
            let opened = open(address, &trusting_file(&own.pem()).unwrap(), "localhost").await;
            assert_eq!(opened.is_ok(), is_believed);
        }
    });
}

/// A version 1 certificate of an authority, made by `openssl x509 -req -signkey`.
const VERSION_1: &str = "-----BEGIN CERTIFICATE-----\n\
MIIBNDCB2wIUJNu72kUFdER0M6b0pO6SLzCyHaQwCgYIKoZIzj0EAwIwHDEaMBgG\n\
A1UEAwwRUm9vdCBvZiB2ZXJzaW9uIDEwIBcNMjYxMTIzMDc0OTIxWhgPMjEyNjEw\n\
MzAwNzQ5MjFaMBwxGjAYBgNVBAMMEVJvb3Qgb2YgdmVyc2lvbiAxMFkwEwYHKoZI\n\
zj0CAQYIKoZIzj0DAQcDQgAEI6yVbqpOcbN4E2D+vIW61JGEjdj+T0eSf2LCM7Qf\n\
GR9yGlvVAcbdEVZntBZ6V4UieucxeV3juxmSslxoio0sYDAKBggqhkjOPQQDAgNI\n\
ADBFAiBTGdvv0obOh0Ufd1m41lUdWEtZmVpMqEDka5X+jxz3dAIhAJhYZsG0e8wG\n\
Oa4N13IMp98JV8fnXZEKub5/1j42EVuF\n\
-----END CERTIFICATE-----\n";

#[test]
fn an_authority_of_version_1_is_one_still() {
    assert!(trusting_file(VERSION_1).is_ok());
}

#[test]
fn a_file_without_an_authority_or_a_servers_own_certificate_is_refused() {
    let authority = new_authority();
    let named = |params: &mut CertificateParams| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "signed");
    };
    let leaf = Leaf::new(&authority, "localhost", named);
    let client = Leaf::own("localhost", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    for certificate in [&leaf.certificate, &client.certificate] {
        let problems = trusting_file(&certificate.pem()).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].path, "providers.x.tls.ca");
        assert!(problems[0].message.contains("neither an authority"), "{problems:?}");
    }
    // Beside its authority it does no harm.
    assert!(trusting_file(&(leaf.certificate.pem() + &authority.pem())).is_ok());
}

#[test]
fn the_name_asked_for_is_the_hosts_or_the_configured_one() {
    run(async {
        let authority = new_authority();
        let by_name = serve(server(&Leaf::new(&authority, "api.example", |_| ()), &[&TLS13]), echo);
        let tls = trusting(&authority, |config| config.server_name = Some("API.example.".to_owned()));
        assert_echo(&mut open(by_name, &tls, "localhost").await.unwrap()).await;
        let by_address = serve(server(&Leaf::new(&authority, "127.0.0.1", |_| ()), &[&TLS13]), echo);
        assert_echo(&mut open(by_address, &trusting(&authority, |_| ()), "127.0.0.1").await.unwrap()).await;
        let error = open(by_address, &trusting(&authority, |_| ()), "127.0.0.2").await.unwrap_err();
        assert_eq!(error, TlsError::Certificate(CertificateProblem::WrongName));
    });
}

#[test]
fn with_verification_off_anybody_is_believed() {
    run(async {
        let leaf = Leaf::new(&new_authority(), "other.example", |params| {
            params.not_after = date_time_ymd(2020, 1, 1);
        });
        let config = ProviderTlsConfig { verify: TlsVerify::DangerouslyOff, ..ProviderTlsConfig::default() };
        let tls = ClientTls::compile(&config, "providers.x.tls").unwrap();
        for version in [&TLS12, &TLS13] {
            let address = serve(server(&leaf, &[version]), echo);
            assert_echo(&mut open(address, &tls, "localhost").await.unwrap()).await;
        }
    });
}

#[test]
fn a_client_certificate_is_shown_where_one_is_wanted() {
    run(async {
        let authority = new_authority();
        let leaf = Leaf::new(&authority, "localhost", |_| ());
        let mut accepted = rustls::RootCertStore::empty();
        accepted.add(authority.der().clone()).unwrap();
        let client = Leaf::new(&authority, "client.example", |_| ());
        let (certificate, key) =
            (TempFile::new(&client.certificate.pem()), TempFile::new(&client.key.serialize_pem()));
        let with_identity = trusting(&authority, |config| {
            config.certificate = Some(certificate.0.clone());
            config.key = Some(Secret::resolve(&format!("${{file:{}}}", key.0.display())).unwrap());
        });
        for version in [&TLS12, &TLS13] {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(accepted.clone()), provider())
                    .build()
                    .unwrap();
            let (chain, key) = leaf.der();
            let builder =
                ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[version]).unwrap();
            let config = builder.with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
            let address = serve(config, echo);
            assert_echo(&mut open(address, &with_identity, "localhost").await.unwrap()).await;

            // In TLS 1.3 the provider's refusal arrives after the handshake.
            let error = match open(address, &trusting(&authority, |_| ()), "localhost").await {
                Ok(mut stream) => TlsError::from(read(&mut stream, 1).await.unwrap_err()),
                Err(error) => error,
            };
            assert!(matches!(error, TlsError::Alert(40 | 116)), "{error:?}");
            assert!(error.to_string().contains("client certificate"), "{error}");
        }
    });
}

#[test]
fn a_peer_without_tls_is_told_from_one_that_leaves() {
    run(async {
        let authority = new_authority();
        let tls = trusting(&authority, |_| ());
        let plain = serve_tcp(|mut tcp| {
            let _ = tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = tcp.read_to_end(&mut Vec::new());
        });
        assert_eq!(open(plain, &tls, "localhost").await.unwrap_err(), TlsError::NotTls);
        let leaving = serve_tcp(|mut tcp| {
            let _ = tcp.read(&mut [0; 4096]);
        });
        assert_eq!(open(leaving, &tls, "localhost").await.unwrap_err(), TlsError::Closed);
    });
}

#[test]
fn an_end_is_told_from_a_cut() {
    run(async {
        let authority = new_authority();
        let leaf = Leaf::new(&authority, "localhost", |_| ());
        let tls = trusting(&authority, |_| ());
        for (is_clean, version) in [(true, &TLS12), (true, &TLS13), (false, &TLS12), (false, &TLS13)] {
            let address = serve(server(&leaf, &[version]), move |mut stream| {
                stream.write_all(b"hello").unwrap();
                if is_clean {
                    stream.conn.send_close_notify();
                }
                stream.flush().unwrap();
            });
            let mut stream = open(address, &tls, "localhost").await.unwrap();
            assert_eq!(read(&mut stream, 5).await.unwrap(), b"hello");
            for _ in 0..2 {
                match read(&mut stream, 1).await {
                    Ok(end) => assert!(is_clean && end.is_empty()),
                    Err(error) => assert!(!is_clean && error.kind() == ErrorKind::UnexpectedEof, "{error}"),
                }
            }
        }
    });
}

#[test]
fn closing_says_so_to_the_provider() {
    run(async {
        let authority = new_authority();
        let (sender, ended) = mpsc::channel();
        let config = server(&Leaf::new(&authority, "localhost", |_| ()), &[&TLS13]);
        let address = serve(config, move |mut stream| {
            let mut read = Vec::new();
            sender.send(stream.read_to_end(&mut read).map(|_| read)).unwrap();
        });
        let mut stream = open(address, &trusting(&authority, |_| ()), "localhost").await.unwrap();
        write_all(&mut stream, b"bye").await;
        poll_fn(|cx| stream.poll_shutdown(cx)).await.unwrap();
        assert_eq!(ended.recv().unwrap().unwrap(), b"bye");
    });
}

#[test]
fn a_megabyte_goes_each_way_at_once_through_tiny_socket_buffers() {
    run(async {
        let authority = new_authority();
        let config = server(&Leaf::new(&authority, "localhost", |_| ()), &[&TLS13]);
        let address = serve(config, |stream| {
            stream.sock.set_nodelay(true).unwrap();
            socket2::SockRef::from(&stream.sock).set_send_buffer_size(24 << 10).unwrap();
            socket2::SockRef::from(&stream.sock).set_recv_buffer_size(24 << 10).unwrap();
            echo(stream);
        });
        let mut stream = open(address, &trusting(&authority, |_| ()), "localhost").await.unwrap();
        socket2::SockRef::from(stream.socket()).set_tcp_nodelay(true).unwrap();
        socket2::SockRef::from(stream.socket()).set_send_buffer_size(24 << 10).unwrap();
        socket2::SockRef::from(stream.socket()).set_recv_buffer_size(24 << 10).unwrap();

        let sent: Vec<u8> =
            (0..1_048_576_u32).map(|index| index.to_le_bytes()[0] ^ index.to_le_bytes()[1]).collect();
        let (mut taken, mut received) = (0, Vec::new());
        poll_fn(|cx| {
            while taken < sent.len() {
                let (head, tail) = sent[taken..].split_at((sent.len() - taken).min(100));
                match stream.poll_write_vectored(cx, &[IoSlice::new(head), IoSlice::new(tail)]) {
                    Poll::Ready(outcome) => taken += outcome.unwrap(),
                    Poll::Pending => break,
                }
            }
            if taken == sent.len() {
                let _ = stream.poll_flush(cx).map(Result::unwrap);
            }
            let mut buffer = [0; 5_000];
            while received.len() < sent.len() {
                match stream.poll_read(cx, &mut buffer) {
                    Poll::Ready(outcome) => received.extend_from_slice(&buffer[..outcome.unwrap()]),
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(())
        })
        .await;
        assert!(received == sent);
    });
}

#[test]
fn a_provider_that_does_not_read_stops_the_writer() {
    run(async {
        let authority = new_authority();
        let (go_on, wait) = mpsc::channel::<()>();
        let config = server(&Leaf::new(&authority, "localhost", |_| ()), &[&TLS13]);
        let address = serve(config, move |mut stream| {
            stream.conn.complete_io(&mut stream.sock).unwrap();
            let _ = wait.recv();
        });
        let mut stream = open(address, &trusting(&authority, |_| ()), "localhost").await.unwrap();
        let chunk = vec![0; 1 << 20];
        let mut taken = 0;
        poll_fn(|cx| {
            while taken < 1 << 30 {
                match stream.poll_write_vectored(cx, &[IoSlice::new(&chunk)]) {
                    Poll::Ready(outcome) => {
                        let count = outcome.unwrap();
                        assert!(count <= 64 << 10, "{count}");
                        taken += count;
                    }
                    Poll::Pending => break,
                }
            }
            Poll::Ready(())
        })
        .await;
        assert!(taken < 1 << 30, "the socket's buffers are finite");
        drop(go_on);
    });
}

#[test]
fn tls_holds_what_the_socket_does_not_accept_until_it_is_flushed() {
    run(async {
        let authority = new_authority();
        let leaf = Leaf::new(&authority, "localhost", |_| ());
        let (read_on, told) = mpsc::channel::<usize>();
        let address = serve(server(&leaf, &[&TLS13]), move |mut stream| {
            stream.write_all(b"x").unwrap();
            let mut received = vec![0; told.recv().unwrap()];
            stream.read_exact(&mut received).unwrap();
            stream.write_all(b"all").unwrap();
        });
        let mut stream = open(address, &trusting(&authority, |_| ()), "localhost").await.unwrap();
        assert_eq!(read(&mut stream, 1).await.unwrap(), b"x");
        socket2::SockRef::from(stream.socket()).set_send_buffer_size(16 << 10).unwrap();
        let (mut sink, piece) = (Stream::Tls(stream), [0; 1024]);
        let mut sent = 0;
        while !sink.is_holding() {
            let slices = [IoSlice::new(&piece)];
            sent += poll_fn(|cx| sink.poll_write(cx, &slices)).await.unwrap();
            turn().await;
        }
        read_on.send(sent).unwrap();
        poll_fn(|cx| sink.poll_flush(cx)).await.unwrap();
        assert!(!sink.is_holding());
        let Stream::Tls(mut stream) = sink else { unreachable!() };
        assert_eq!(read(&mut stream, 3).await.unwrap(), b"all");
    });
}

#[test]
fn an_idle_connection_is_good_until_something_unasked_for_comes() {
    run(async {
        let authority = new_authority();
        let leaf = Leaf::new(&authority, "localhost", |_| ());
        let tls = trusting(&authority, |_| ());
        let scripts: [fn(&mut Served); 4] = [
            |stream| stream.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").unwrap(),
            |stream| {
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            },
            |stream| stream.sock.shutdown(std::net::Shutdown::Both).unwrap(),
            |stream| stream.sock.write_all(b"this is not a record").unwrap(),
        ];
        for (index, script) in scripts.into_iter().enumerate() {
            let (go_on, wait) = mpsc::channel::<()>();
            let wait = std::sync::Mutex::new(wait);
            let address = serve(server(&leaf, &[&TLS13]), move |mut stream| {
                // Sends the session tickets, which the client processes while idle.
                stream.conn.complete_io(&mut stream.sock).unwrap();
                stream.flush().unwrap();
                let wait = wait.lock().unwrap();
                let _ = wait.recv();
                script(&mut stream);
                let _ = wait.recv();
            });
            let mut stream = open(address, &tls, "localhost").await.unwrap();
            poll_fn(|cx| stream.socket().poll_readable(cx)).await;
            assert!(stream.check_idle(), "session tickets do no harm");
            assert!(stream.check_idle());
            go_on.send(()).unwrap();
            while stream.check_idle() {
                poll_fn(|cx| stream.socket().poll_readable(cx)).await;
            }
            assert!(!stream.check_idle(), "script {index}");
            drop(go_on);
        }
    });
}

#[test]
fn a_connection_moves_from_one_event_loop_to_another() {
    let authority = new_authority();
    let address = serve(server(&Leaf::new(&authority, "localhost", |_| ()), &[&TLS13]), echo);
    let tls = trusting(&authority, |_| ());
    let detached = run(async {
        let mut stream = open(address, &tls, "localhost").await.unwrap();
        assert_echo(&mut stream).await;
        stream.into_std().unwrap()
    });
    std::thread::spawn(move || {
        run(async {
            let mut stream = TlsStream::from_std(detached).unwrap();
            assert!(stream.check_idle());
            assert_echo(&mut stream).await;
        });
    })
    .join()
    .unwrap();
}

#[test]
fn config_problems_are_reported_without_secrets() {
    let authority = new_authority();
    let leaf = Leaf::new(&authority, "x.example", |_| ());
    let certificate = TempFile::new(&leaf.certificate.pem());
    let other_key = TempFile::new(&KeyPair::generate().unwrap().serialize_pem());
    let text = TempFile::new("hunter2");
    let secret = |file: &TempFile| Some(Secret::resolve(&format!("${{file:{}}}", file.0.display())).unwrap());
    let problems = |config: ProviderTlsConfig| {
        let problems = ClientTls::compile(&config, "providers.x.tls").unwrap_err();
        problems.into_iter().map(|problem| (problem.path, problem.message)).collect::<Vec<_>>()
    };
    let default = ProviderTlsConfig::default;

    let found = problems(ProviderTlsConfig {
        ca: Some("/no/such.pem".into()),
        certificate: Some(text.0.clone()),
        key: secret(&text),
        server_name: Some("no name".to_owned()),
        ..default()
    });
    let paths: Vec<_> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        ["ca", "certificate", "key", "server_name"].map(|key| format!("providers.x.tls.{key}"))
    );
    assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");

    for (config, path, words) in [
        (ProviderTlsConfig { certificate: Some(certificate.0.clone()), ..default() }, "", "requires `key`"),
        (ProviderTlsConfig { key: secret(&other_key), ..default() }, "", "requires `certificate`"),
        (
            ProviderTlsConfig {
                certificate: Some(certificate.0.clone()),
                key: secret(&other_key),
                ..default()
            },
            ".key",
            "cannot be used with the certificate",
        ),
        (
            ProviderTlsConfig {
                ca: Some(certificate.0.clone()),
                verify: TlsVerify::DangerouslyOff,
                ..default()
            },
            ".ca",
            "accepts every certificate",
        ),
    ] {
        let found = problems(config);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, format!("providers.x.tls{path}"));
        assert!(found[0].1.contains(words), "{found:?}");
    }
}

#[test]
fn an_authority_of_ones_own_is_not_trusted_for_providers() {
    let (own, other) = (new_authority(), new_authority());
    let ca = |authorities: &[&Authority]| {
        let ca = TempFile::new(&authorities.iter().map(|authority| authority.pem()).collect::<String>());
        let config = ProviderTlsConfig { ca: Some(ca.0.clone()), ..ProviderTlsConfig::default() };
        ClientTls::compile(&config, "providers.x.tls").map(drop)
    };
    assert!(ca(&[&own, &other]).is_ok());
    distrust(own.der());
    distrust(own.der());
    let problems = ca(&[&other, &own]).unwrap_err();
    assert_eq!(problems[0].path, "providers.x.tls.ca");
    assert!(problems[0].message.contains("certificate 2"), "{}", problems[0].message);
    assert!(ca(&[&other]).is_ok());
}
