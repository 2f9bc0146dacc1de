//! A provider of HTTP/2 by Node, with or without TLS.

use std::process::Stdio;

use crate::peers::node_script;
use crate::pki::Authority;
use crate::process::{Directory, Process};

/// A running provider.
#[derive(Debug)]
pub struct NodeProvider {
    _process: Process,
    directory: Directory,
    url: String,
}

impl NodeProvider {
    /// Starts it without TLS: it speaks HTTP/2 alone.
    pub fn plain() -> Self {
        Self::start(Directory::default(), "http://127.0.0.1", &[])
    }

    /// Starts it with TLS. It also speaks HTTP/1.1 if it `speaks_both`.
    pub fn secure(speaks_both: bool) -> Self {
        let (directory, [key, certificate]) = certified();
        let arguments = [&key[..], &certificate, "both"];
        let arguments = &arguments[..if speaks_both { 3 } else { 2 }];
        Self::start(directory, "https://localhost", arguments)
    }

    /// Starts one that echoes the bytes of WebSockets, without TLS: it speaks HTTP/2 alone.
    pub fn of_websockets() -> Self {
        Self::run("websocket_provider.mjs", Directory::default(), "http://127.0.0.1", &[])
    }

    /// Does the same with TLS, and with HTTP/1.1 for upgrades. Its settings announce WebSockets in streams if
    /// it `announces` them.
    pub fn of_secure_websockets(announces: bool) -> Self {
        let (directory, [key, certificate]) = certified();
        let arguments = [&key[..], &certificate, "both", "silent"];
        let arguments = &arguments[..if announces { 3 } else { 4 }];
        Self::run("websocket_provider.mjs", directory, "https://localhost", arguments)
    }

    fn start(directory: Directory, base: &str, arguments: &[&str]) -> Self {
        Self::run("http2_provider.mjs", directory, base, arguments)
    }

    fn run(script: &str, directory: Directory, base: &str, arguments: &[&str]) -> Self {
        let mut command = node_script(script);
        let process = Process::printing(command.args(arguments).stdin(Stdio::null()));
        let port: u16 = process.until_printed("Node listens", |lines| lines.first()?.parse().ok());
        Self { _process: process, directory, url: format!("{base}:{port}") }
    }

    /// Its URL, without a trailing slash.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The keys of a provider's config that trust its certificate, before others.
    pub fn trusted(&self) -> String {
        format!("tls: {{ ca: {} }}", self.directory.join("ca.pem").display())
    }
}

/// Makes a certificate in a directory, with the authority that signed it. Returns the files of its key and of
/// itself.
fn certified() -> (Directory, [String; 2]) {
    let (directory, authority) = (Directory::default(), Authority::default());
    let leaf = authority.leaf(&["localhost", "127.0.0.1"]);
    let key = directory.write_secret("key.pem", leaf.key).display().to_string();
    let certificate = directory.write("chain.pem", leaf.certificate).display().to_string();
    directory.write("ca.pem", authority.certificate());
    (directory, [key, certificate])
}
