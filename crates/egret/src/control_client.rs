//! A client of the control port of another Egret process.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use egret_config::Secret;

/// Timeout for connecting, sending and each read.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a response.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;

/// Maximum length of the head of a response, and of a problem document.
const HEAD_BYTES_MAX: u64 = 64 << 10;

/// The control port of a gateway.
pub struct ControlClient {
    /// Its address.
    pub address: SocketAddr,
    /// Its token, if it has one.
    pub token: Option<Secret>,
}

/// The reason why there is no response.
#[derive(Debug)]
pub enum ControlClientError {
    /// Nothing listens, or the connection failed.
    Io(io::Error),
    /// The response is not that of a control port.
    NoResponse,
    /// The response has this status.
    Status(u16),
    /// The response has this status, and a problem document with this detail.
    Refused {
        /// The status.
        status: u16,
        /// The reason, in the words of the control port.
        detail: String,
    },
}

impl fmt::Display for ControlClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                f.write_str("there is no response in time")
            }
            Self::Io(error) => write!(f, "cannot connect: {error}"),
            Self::NoResponse => f.write_str("the response is not that of a control port"),
            Self::Status(401) => {
                f.write_str("the token is missing or wrong: name the gateway's config with --config")
            }
            Self::Status(status) => write!(f, "the response has status {status}"),
            Self::Refused { status: 401, .. } => Self::Status(401).fmt(f),
            Self::Refused { status, detail } => write!(f, "{detail} (status {status})"),
        }
    }
}

impl std::error::Error for ControlClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ControlClientError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
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
        let stream = self.request(path, "HTTP/1.1", timeout)?;
        let mut response = Vec::new();
        stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response)?;
        content(&response)
    }

    /// Returns a reader of the content of a path, which may never end. A read fails if nothing arrives for
    /// too long.
    ///
    /// # Errors
    ///
    /// Fails if nothing listens, and if the status is not 200.
    pub fn stream(&self, path: &str) -> Result<BufReader<TcpStream>, ControlClientError> {
        // To a client of this version, content is sent without chunks.
        let mut reader = BufReader::new(self.request(path, "HTTP/1.0", TIMEOUT)?);
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
                let problem: serde_json::Value = serde_json::from_slice(&problem).unwrap_or_default();
                let detail = problem["detail"].as_str().unwrap_or("the control port refuses it").to_owned();
                Err(ControlClientError::Refused { status, detail })
            }
            None => Err(ControlClientError::NoResponse),
        }
    }

    /// Sends a request for a path.
    fn request(&self, path: &str, version: &str, timeout: Duration) -> Result<TcpStream, ControlClientError> {
        let mut stream = TcpStream::connect_timeout(&self.address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let mut request = format!("GET {path} {version}\r\nHost: {}\r\nConnection: close\r\n", self.address);
        if let Some(token) = &self.token {
            request.extend(["Authorization: Bearer ", token.expose(), "\r\n"]);
        }
        request += "\r\n";
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }
}

/// Returns the status of a response.
fn status_of(response: &[u8]) -> Option<u16> {
    let rest = response.strip_prefix(b"HTTP/1.1 ").or_else(|| response.strip_prefix(b"HTTP/1.0 "))?;
    std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok()
}

/// Returns the content of a response that ends with its connection.
fn content(response: &[u8]) -> Result<Vec<u8>, ControlClientError> {
    const END: &[u8] = b"\r\n\r\n";
    let status = status_of(response);
    let end = response.windows(END.len()).position(|window| window == END);
    match (status, end) {
        (Some(200), Some(end)) => Ok(response[end + END.len()..].to_vec()),
        (Some(status), Some(_)) => Err(ControlClientError::Status(status)),
        _ => Err(ControlClientError::NoResponse),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
