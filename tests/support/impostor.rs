//! Another user of the machine: listens where a gateway is expected and says that it is one, and owns files.

use std::net::SocketAddr;
use std::os::unix::fs::{chown, lchown};
use std::path::Path;

use serde_json::json;

use crate::pki::Authority;
use crate::provider::{Provider, Request};

/// A user that is neither root nor the one that runs the tests.
pub const OTHER_USER: u32 = 4321;

/// The proxy that an impostor wants calls to be sent to.
const PROXY: &str = "127.0.0.1:9";

/// A program that responds as a gateway does, as far as it can. It keeps every byte that it is sent.
#[derive(Debug)]
pub struct Impostor(Provider);

impl Impostor {
    /// Starts it on a free port.
    pub fn start() -> Self {
        let description = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "ready": true,
            "listeners": [{
                "address": PROXY, "tls": false, "provider": null, "redirect": false, "socks5": false,
                "asks_for_token": false,
            }],
            "providers": {},
            "interception": { "hosts": ["*"], "tunnel": [], "certificate": Authority::default().certificate() },
            "flows": [],
        });
        Self::responding(200, &description.to_string())
    }

    /// Starts one that says to every command that it must send its token.
    pub fn asking_for_a_token() -> Self {
        Self::responding(401, "{}")
    }

    fn responding(status: u16, content: &str) -> Self {
        let content = content.to_owned();
        let response = move |request: &Request| {
            let content = if request.line.starts_with("HEAD ") { "" } else { content.as_str() };
            let proof = format!("{}.{}", "0".repeat(32), "0".repeat(64));
            let length = content.len();
            format!(
                "HTTP/1.1 {status} OK\r\nx-egret-proof: {proof}\r\nContent-Length: {length}\r\n\r\n{content}"
            )
        };
        Self(Provider::scripted(move |peer| {
            while let Some(request) = peer.request() {
                peer.send(response(&request));
                if request.values("connection") == ["close"] {
                    return;
                }
            }
        }))
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Asserts that it was sent no token: neither one of these secrets, nor any other credential.
    pub fn assert_got_no_token(&self, what: &str, secrets: &[&str]) {
        let received = String::from_utf8_lossy(&self.0.received()).to_ascii_lowercase();
        for secret in secrets.iter().copied().chain(["authorization"]) {
            assert!(
                !received.contains(&secret.to_ascii_lowercase()),
                "{what}: the impostor received {received}"
            );
        }
    }

    /// Returns `true` if anything was sent to it.
    pub fn was_asked(&self) -> bool {
        !self.0.received().is_empty()
    }

    /// Returns `true` if a text, such as the environment of a command, leads to it.
    pub fn is_used_by(&self, text: &str) -> bool {
        text.contains(PROXY) || text.contains(&self.address().to_string())
    }
}

/// Gives a file, a directory or a symbolic link to the other user. `false` unless this is run by root, and
/// then the reason is printed once for each call.
pub fn give_away(path: &Path) -> bool {
    let given = lchown(path, Some(OTHER_USER), Some(OTHER_USER)).is_ok();
    if !given {
        println!("not run as root, so {} cannot belong to another user: not tried", path.display());
    }
    given
}

/// Gives a directory and all that is in it to a user. Only root can.
pub fn give_all(directory: &Path, user: u32) {
    chown(directory, Some(user), Some(user)).unwrap();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            give_all(&path, user);
        } else {
            lchown(&path, Some(user), Some(user)).unwrap();
        }
    }
}
