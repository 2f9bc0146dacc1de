//! A client of the control port of another Egret process. It sends no token before it knows who is there.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use egret_config::{Secret, reason};
use egret_control::{ControlKey, Ends, NONCE_FIELD, PROOF_FIELD};

/// Timeout for connecting, sending and each read.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a response.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;

/// The empty line that ends a head.
const END: &[u8] = b"\r\n\r\n";

/// Maximum length of the head of a response, and of a problem document.
const HEAD_BYTES_MAX: u64 = 64 << 10;

/// The control port of a gateway.
pub struct ControlClient {
    /// Its address.
    pub address: SocketAddr,
    /// The reason to believe what answers there.
    pub belief: Belief,
}

/// The reason to believe what answers at an address.
pub enum Belief {
    /// It proves, on each connection, that it can read one of these keys. The token follows from the key.
    Proof(Vec<ControlKey>),
    /// The user has named the address, and perhaps the token to send there.
    Named(Option<Secret>),
}

/// The reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum ControlClientError {
    /// Nothing listens, or the connection failed.
    #[error("{}", of_io(.0))]
    Io(#[from] io::Error),
    /// The response is not that of a control port.
    #[error("the response is not that of a control port")]
    NoResponse,
    /// The program that answers cannot read the key in the data directory.
    #[error(
        "what listens there is not the gateway of this data directory: it may be another user's program; name the config of the gateway that you mean with --config"
    )]
    Unproven,
    /// The response has this status.
    #[error("{}", of_status(*.0, None))]
    Status(u16),
    /// The response has this status, and a problem document with this detail.
    #[error("{}", of_status(*.status, Some(.detail)))]
    Refused {
        /// The status.
        status: u16,
        /// The reason, in the words of the control port.
        detail: String,
    },
}

fn of_io(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "there is no response in time".to_owned(),
        ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
        _ => format!("cannot connect: {}", reason(error)),
    }
}

fn of_status(status: u16, detail: Option<&str>) -> String {
    match (status, detail) {
        (401, _) => {
            "the token is missing or wrong: name the gateway's config with --config, or its token with --token"
                .to_owned()
        }
        (_, Some(detail)) => format!("{detail} (status {status})"),
        (_, None) => format!("the response has status {status}"),
    }
}

impl ControlClient {
    /// Returns the content of a path.
    ///
    /// # Errors
    ///
    /// Fails if nothing listens, and if the status is not 200.
    pub fn get(&self, path: &str) -> Result<Vec<u8>, ControlClientError> {
        self.get_within(path, TIMEOUT)
    }

    /// Does the same with this timeout for connecting, sending and each read.
    pub fn get_within(&self, path: &str, timeout: Duration) -> Result<Vec<u8>, ControlClientError> {
        content(&self.call(&format!("GET {path} HTTP/1.1"), timeout)?)
    }

    /// Posts to a path, without content, with this timeout for connecting, sending and each read. Returns the
    /// content of the response.
    pub fn post_within(&self, path: &str, timeout: Duration) -> Result<Vec<u8>, ControlClientError> {
        let response = self.call(&format!("POST {path} HTTP/1.1\r\nContent-Length: 0"), timeout)?;
        content(&response).map_err(|error| match (error, head_end(&response)) {
            (ControlClientError::Status(status), Some(end)) => refusal(status, &response[end + END.len()..]),
            (error, _) => error,
        })
    }

    /// Sends a request, and returns the whole response.
    fn call(&self, head: &str, timeout: Duration) -> Result<Vec<u8>, ControlClientError> {
        let stream = self.request(head, timeout)?;
        let mut response = Vec::new();
        stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response)?;
        Ok(response)
    }

    /// Returns a reader of the content of a path, which may never end. A read fails if nothing arrives for
    /// too long.
    ///
    /// # Errors
    ///
    /// Fails if nothing listens, and if the status is not 200.
    pub fn stream(&self, path: &str) -> Result<BufReader<TcpStream>, ControlClientError> {
        // To a client of this version, content is sent without chunks.
        let mut reader = BufReader::new(self.request(&format!("GET {path} HTTP/1.0"), TIMEOUT)?);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut line = Vec::new();
            (&mut reader).take(HEAD_BYTES_MAX).read_until(b'\n', &mut line)?;
            head.extend_from_slice(&line);
            if line.is_empty() || head.len() as u64 > HEAD_BYTES_MAX {
                return Err(ControlClientError::NoResponse);
            }
        }
        match status_of(&head) {
            Some(200) => Ok(reader),
            Some(status) => {
                let mut problem = Vec::new();
                reader.take(HEAD_BYTES_MAX).read_to_end(&mut problem)?;
                Err(refusal(status, &problem))
            }
            None => Err(ControlClientError::NoResponse),
        }
    }

    /// Sends a request with these first lines of its head.
    fn request(&self, first: &str, timeout: Duration) -> Result<TcpStream, ControlClientError> {
        let mut stream = TcpStream::connect_timeout(&self.address, timeout)?;
        stream.set_write_timeout(Some(timeout))?;
        let token = match &self.belief {
            Belief::Proof(keys) => Some(self.ask_for_proof(&mut stream, keys, Instant::now() + timeout)?),
            Belief::Named(token) => token.clone(),
        };
        stream.set_read_timeout(Some(timeout))?;
        let mut request = format!("{first}\r\nHost: {}\r\nConnection: close\r\n", self.address);
        if let Some(token) = &token {
            request.extend(["Authorization: Bearer ", token.expose(), "\r\n"]);
        }
        request += "\r\n";
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }

    /// Asks what is at the other end for the proof, with a request that tells it nothing. Returns the token
    /// for the requests that follow on this connection.
    fn ask_for_proof(
        &self,
        stream: &mut TcpStream,
        keys: &[ControlKey],
        deadline: Instant,
    ) -> Result<Secret, ControlClientError> {
        let nonce = ControlKey::nonce().ok_or(ControlClientError::Unproven)?;
        let request =
            format!("HEAD /healthz HTTP/1.1\r\nHost: {}\r\n{NONCE_FIELD}: {nonce}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes())?;
        let head = read_head(stream, deadline)?;
        if status_of(&head).is_none() {
            return Err(ControlClientError::NoResponse);
        }
        let ends = Ends { gateway: stream.peer_addr()?, client: stream.local_addr()? };
        let proof = field(&head, PROOF_FIELD).ok_or(ControlClientError::Unproven)?;
        let token = keys.iter().find_map(|key| key.verify(&nonce, ends, proof));
        token.ok_or(ControlClientError::Unproven)
    }
}

/// Reads the head of a response without content. It must be there by the deadline, however slowly it comes.
fn read_head(stream: &mut TcpStream, deadline: Instant) -> Result<Vec<u8>, ControlClientError> {
    let (mut head, mut bytes) = (Vec::new(), [0; 4096]);
    while head_end(&head).is_none() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(ErrorKind::TimedOut).into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut bytes)?;
        head.extend_from_slice(bytes.get(..count).unwrap_or_default());
        if count == 0 || head.len() as u64 > HEAD_BYTES_MAX {
            return Err(ControlClientError::NoResponse);
        }
    }
    // What follows was not asked for.
    if head.ends_with(END) { Ok(head) } else { Err(ControlClientError::Unproven) }
}

/// Returns the position of the empty line that ends a head.
fn head_end(head: &[u8]) -> Option<usize> {
    head.windows(END.len()).position(|window| window == END)
}

/// Returns the value of a field, whose name is in small letters.
fn field<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let mut lines = std::str::from_utf8(head).ok()?.lines();
    lines.find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Returns the status of a response.
fn status_of(response: &[u8]) -> Option<u16> {
    let rest = response.strip_prefix(b"HTTP/1.1 ").or_else(|| response.strip_prefix(b"HTTP/1.0 "))?;
    std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok()
}

/// Returns the error of a response with this status, whose content is a problem document.
fn refusal(status: u16, problem: &[u8]) -> ControlClientError {
    let problem: serde_json::Value = serde_json::from_slice(problem).unwrap_or_default();
    let detail = problem["detail"].as_str().unwrap_or("the control port refuses it").to_owned();
    ControlClientError::Refused { status, detail }
}

/// Returns the content of a response that ends with its connection.
fn content(response: &[u8]) -> Result<Vec<u8>, ControlClientError> {
    match (status_of(response), head_end(response)) {
        (Some(200), Some(end)) => Ok(response[end + END.len()..].to_vec()),
        (Some(status), Some(_)) => Err(ControlClientError::Status(status)),
        _ => Err(ControlClientError::NoResponse),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Longer than a busy machine delays a response.
    const PATIENCE: Duration = Duration::from_mins(4);

    /// Asks a server that answers each request head with this text, and returns all that it received.
    fn ask(answer: &str, timeout: Duration) -> (Result<Vec<u8>, ControlClientError>, String) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let client = ControlClient { address, belief: Belief::Proof(vec![ControlKey::new(&[1; 32])]) };
        std::thread::scope(|scope| {
            let received = scope.spawn(move || {
                let (mut peer, _) = server.accept().unwrap();
                let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
                while let Ok(count @ 1..) = peer.read(&mut bytes) {
                    all.extend_from_slice(&bytes[..count]);
                    let _ = peer.write_all(answer.as_bytes());
                }
                String::from_utf8(all).unwrap()
            });
            let asked = client.get_within("/api/v1/stats", timeout);
            (asked, received.join().unwrap())
        })
    }

    #[test]
    fn an_unproven_port_is_sent_a_nonce_alone() {
        let forged =
            format!("HTTP/1.1 200 OK\r\nx-egret-proof: {}.{}\r\n\r\n", "0".repeat(32), "0".repeat(64));
        for answer in ["HTTP/1.1 200 OK\r\n\r\n", &forged] {
            let (asked, received) = ask(answer, PATIENCE);
            assert!(matches!(asked, Err(ControlClientError::Unproven)), "{answer}");
            assert!(received.starts_with("HEAD /healthz ") && received.matches("\r\n\r\n").count() == 1);
            assert!(!received.contains("uthorization"), "{received}");
        }
        assert!(matches!(ask("SSH-2.0\r\n\r\n", PATIENCE).0, Err(ControlClientError::NoResponse)));
        let (endless, _) = ask("HTTP/1.1 200 OK\r\n", Duration::from_millis(500));
        assert!(matches!(endless, Err(ControlClientError::Io(_))), "it never ends");
    }

    #[test]
    fn fields_are_found_by_name() {
        let head = b"HTTP/1.1 200 OK\r\nA: b: c \r\nX-Egret-Proof: p\r\n\r\n";
        assert_eq!(
            (field(head, "a"), field(head, "x-egret-proof"), field(head, "p")),
            (Some("b: c"), Some("p"), None)
        );
    }

    #[test]
    fn only_a_response_with_status_200_has_content() {
        let read = |response: &str| content(response.as_bytes());
        assert_eq!(read("HTTP/1.1 200 OK\r\na: b\r\n\r\nready\n").unwrap(), b"ready\n");
        assert!(matches!(read("HTTP/1.1 503 No\r\n\r\n"), Err(ControlClientError::Status(503))));
        for response in ["", "SSH-2.0", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 xxx\r\n\r\n"] {
            assert!(matches!(read(response), Err(ControlClientError::NoResponse)), "{response}");
        }
    }
}
