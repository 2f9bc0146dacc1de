//! Configs of Lunar, imported and run, with their hosts on this machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::egret::{Config, Egret, egret};
use crate::http::{Client, Response};
use crate::process::run;
use crate::provider::{Provider, ok};

/// The secrets of the fixtures.
const SECRETS: [(&str, &str); 4] = [
    ("LUNAR_FIRST_AUTHORIZATION", "token-of-the-first"),
    ("MAIL_SECOND", "token-of-the-second"),
    ("MAIL_PASSWORD", "password-of-the-reader"),
    ("MAPS_KEY", "key-of-the-maps"),
];

/// The directory of a config of Lunar.
pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/lunar")).join(name)
}

/// Sets the secrets of the fixtures.
pub fn with_secrets(command: &mut Command) -> &mut Command {
    command.envs(SECRETS)
}

/// Imports a fixture: the config, and the report.
pub fn import(name: &str) -> (String, String) {
    let Output { status, stdout, stderr } = run(with_secrets(egret(["import", "lunar"]).arg(fixture(name))));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (config, report) = (text(stdout), text(stderr));
    assert!(status.success(), "{report}");
    (config, report)
}

/// Starts a provider that does not respond to calls which [`Imported::hold`] makes.
pub fn holding() -> Provider {
    Provider::scripted(|peer| {
        while let Some(request) = peer.request() {
            if request.values("x-hold").is_empty() {
                peer.send(ok("done"));
            } else {
                peer.stall();
            }
        }
    })
}

/// An imported config that runs, and the provider in the place of one of its hosts.
#[derive(Debug)]
pub struct Imported {
    /// The gateway.
    pub egret: Egret,
    provider: SocketAddr,
}

impl Imported {
    /// Imports a fixture, and starts Egret with `provider` in the place of `host`.
    pub fn start(name: &str, host: &str, provider: SocketAddr) -> Self {
        let (config, _) = import(name);
        let config = config
            .replace("127.0.0.1:8000", "127.0.0.1:0")
            .replace(&format!("https://{host}"), &format!("http://{provider}"))
            .replace(host, &provider.ip().to_string());
        let tail = "\ncontrol: { listen: 127.0.0.1:0 }\nlog: { format: json, level: debug }\n";
        let egret = Egret::start_with(&Config::written(config + tail), |command| {
            with_secrets(command);
        });
        Self { egret, provider }
    }

    /// Sends a request as Lunar's clients do, with more field lines and a body.
    pub fn send(&self, method: &str, path: &str, fields: &str, body: &str) -> Response {
        let mut client = Client::connect(self.egret.address());
        client.send(self.request(method, path, fields, body)).response_to(method)
    }

    fn request(&self, method: &str, path: &str, fields: &str, body: &str) -> String {
        let Self { egret, provider } = self;
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nx-lunar-host: {provider}\r\n{fields}{length}\r\n{body}",
            egret.address()
        )
    }

    /// Sends a GET that a [`holding`] provider keeps until the client is reset.
    pub fn hold(&self, path: &str) -> Client {
        let mut client = Client::connect(self.egret.address());
        client.send(self.request("GET", path, "x-hold: 1\r\n", ""));
        client
    }

    /// Sends a GET.
    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, "", "")
    }

    /// Sends the same request several times, one after the other: the statuses.
    pub fn statuses(&self, count: usize, path: &str, fields: &str) -> Vec<u16> {
        (0..count).map(|_| self.send("GET", path, fields, "").status).collect()
    }
}
