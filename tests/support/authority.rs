//! The authority of `egret ca` in a directory of its own, and a thief of its key.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::clock::Clock;
use crate::egret::egret;
use crate::process::{Directory, run, run_checked};

/// A config that intercepts two providers and some hosts.
const CONFIG: &str = "data_dir: data\n\
    providers:\n\
    \x20 one: { url: 'https://api.one.example/v1' }\n\
    \x20 bank: { url: 'https://bank.example' }\n\
    interception: { hosts: ['*.two.example', 10.0.0.1], tunnel: [bank.example] }\n";

/// A working directory with a config.
#[derive(Debug)]
pub struct Place {
    /// The directory.
    pub directory: Directory,
    /// The clock that the commands see.
    pub clock: Option<Clock>,
}

impl Default for Place {
    fn default() -> Self {
        let directory = Directory::default();
        directory.write("egret.yaml", CONFIG);
        Self { directory, clock: None }
    }
}

impl Place {
    /// A command of `egret ca` for the config.
    pub fn command<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = egret(["ca"]);
        command.args(arguments).args(["--config", "egret.yaml"]).current_dir(self.directory.path());
        command.env_remove("SSL_CERT_FILE").env("USER", "tester");
        if let Some(clock) = &self.clock {
            clock.govern(&mut command);
        }
        command
    }

    /// Runs a command, and returns its output.
    pub fn printed<const N: usize>(&self, arguments: [&str; N]) -> String {
        run_checked(&mut self.command(arguments))
    }

    /// Runs a command that must fail with this exit code, and returns its message.
    pub fn refused<const N: usize>(&self, code: i32, arguments: [&str; N]) -> String {
        let Output { status, stdout, stderr } = run(&mut self.command(arguments));
        let message = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), stdout.len()), (Some(code), 0), "{message}");
        message
    }

    /// Returns the path of a file of the authority.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join("data/ca").join(name)
    }

    /// Returns the permissions of such a file.
    pub fn mode(&self, name: &str) -> u32 {
        self.file(name).metadata().unwrap().mode() & 0o7777
    }

    /// Changes them.
    pub fn set_mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.file(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Runs `openssl` in the directory.
    pub fn openssl(&self, arguments: &[&str]) -> Output {
        run(Command::new("openssl").args(arguments).current_dir(self.directory.path()))
    }

    /// Signs a certificate for a name with the stolen key, as OpenSSL does, and has OpenSSL verify it as
    /// strictly as Python does.
    pub fn forged(&self, name: &str) -> Output {
        let kind = if name.parse::<std::net::IpAddr>().is_ok() { "IP" } else { "DNS" };
        self.directory.write(
            "leaf.ext",
            format!(
                "subjectAltName={kind}:{name}\nextendedKeyUsage=serverAuth\nkeyUsage=critical,digitalSignature\n\
                 authorityKeyIdentifier=keyid\n"
            ),
        );
        let made = [
            self.openssl(&[
                "req",
                "-new",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-subj",
                "/O=thief",
                "-keyout",
                "leaf.key",
                "-out",
                "leaf.csr",
            ]),
            self.openssl(&[
                "x509",
                "-req",
                "-in",
                "leaf.csr",
                "-CA",
                "data/ca/chain.pem",
                "-CAkey",
                "data/ca/ca.key",
                "-days",
                "1",
                "-extfile",
                "leaf.ext",
                "-out",
                "leaf.pem",
            ]),
        ];
        for output in made {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let check = if kind == "IP" { "-verify_ip" } else { "-verify_hostname" };
        self.openssl(&[
            "verify",
            "-x509_strict",
            "-purpose",
            "sslserver",
            check,
            name,
            "-CAfile",
            "data/ca/ca.pem",
            "-untrusted",
            "data/ca/chain.pem",
            "leaf.pem",
        ])
    }
}
