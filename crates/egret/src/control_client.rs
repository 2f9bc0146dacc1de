//! A client of the control port of another Egret process.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use egret_config::Secret;

/// Timeout for connecting, sending and each read.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a response.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;

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
        let mut stream = TcpStream::connect_timeout(&self.address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let mut request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        if let Some(token) = &self.token {
            request.extend(["Authorization: Bearer ", token.expose(), "\r\n"]);
        }
        request += "\r\n";
        stream.write_all(request.as_bytes())?;
        let mut response = Vec::new();
        stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response)?;
        content(&response)
    }
}

/// Returns the content of a response that ends with its connection.
fn content(response: &[u8]) -> Result<Vec<u8>, ControlClientError> {
    const END: &[u8] = b"\r\n\r\n";
    let status = response.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let status = status.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
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
