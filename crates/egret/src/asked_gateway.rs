//! The gateway that a command asks, and the reason to believe it.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use egret_config::Secret;
use egret_control::ControlKey;
use egret_measure::streams::say;
use egret_service::control_client::{Belief, ControlClient};
use egret_service::exec_directory::ExecDirectory;
use egret_settings::failure::Failure;
use egret_settings::location::Location;
use egret_settings::{config_path, control_key};

/// Time for a connection on this machine.
const CONNECT: Duration = Duration::from_secs(1);

/// The gateway to ask.
#[derive(Debug, Args)]
pub struct GatewayArguments {
    /// Address of its control port, also as a name or a URL. Default: that of the config, else
    /// `127.0.0.1:8001`.
    #[arg(long, value_name = "ADDRESS", value_parser = control_address)]
    pub control: Option<SocketAddr>,
    /// Its config file, for the address of its control port and for its data directory; nothing else in it is
    /// read. Default: `egret.yaml` in the working directory, unless `--control` is given.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The gateway to ask, and the token for one that cannot prove itself.
#[derive(Debug, Args)]
pub struct AskedGateway {
    #[command(flatten)]
    pub gateway: GatewayArguments,
    /// The token for a gateway whose data directory is not on this machine, as `${env:NAME}` or
    /// `${file:PATH}`. It is sent to whatever listens at `--control`.
    #[arg(long, value_name = "REFERENCE", requires = "control", value_parser = Secret::resolve)]
    token: Option<Secret>,
}

impl GatewayArguments {
    /// Returns the config file to read.
    pub fn file(&self) -> Result<Option<PathBuf>, Failure> {
        match self.control {
            Some(_) => Ok(self.config.clone()),
            None => config_path::named_or_found(self.config.clone()),
        }
    }

    /// Returns a client for what needs no trust. It asks for the proof if it can, unless the user names the
    /// address alone.
    pub fn probe(&self) -> Result<ControlClient, Failure> {
        let file = self.file()?;
        let location = Location::read(file.as_deref())?;
        // Probes often run as another user.
        let keys = if file.is_none() && self.control.is_some() { None } else { keys(&location).ok() };
        let keys = keys.filter(|keys| !keys.is_empty());
        Ok(self.client(&location, keys.map_or(Belief::Named(None), Belief::Proof)))
    }

    fn client(&self, location: &Location, belief: Belief) -> ControlClient {
        let address = egret_service::run::reachable(self.control.unwrap_or(location.control()));
        ControlClient { address, belief }
    }
}

impl AskedGateway {
    /// Returns a client that believes the gateway only if it proves that it can read the key in the data
    /// directory. If there is no key, the user must have named the address, and nothing secret is sent but
    /// the token that the user names for it.
    pub fn client(&self) -> Result<ControlClient, Failure> {
        let Self { gateway, token } = self;
        let location = Location::read(gateway.file()?.as_deref())?;
        let belief = match token {
            Some(token) => Belief::Named(Some(token.clone())),
            None => match keys(&location)? {
                keys if !keys.is_empty() => Belief::Proof(keys),
                _ if gateway.control.is_some() => Belief::Named(None),
                _ => return Err(without_key(&location)),
            },
        };
        let client = gateway.client(&location, belief);
        match (gateway.control, &client.belief) {
            (None, Belief::Proof(_)) => Ok(beside_exec(client, &location)),
            _ => Ok(client),
        }
    }
}

/// Returns a client of the gateway that `egret exec` has started last, if it runs and none does at the
/// address of the config. It must prove itself like any other.
fn beside_exec(client: ControlClient, location: &Location) -> ControlClient {
    let directories =
        location.data_dirs().into_iter().filter_map(|data_dir| ExecDirectory::of(&data_dir).ok());
    let started: Vec<SocketAddr> = directories.flat_map(|directory| directory.gateways()).collect();
    if started.is_empty() || listens(client.address) {
        return client;
    }
    let Some(address) = started.into_iter().find(|address| listens(*address)) else { return client };
    say(format_args!("the gateway at {address}, which `egret exec` has started, is asked"));
    ControlClient { address, ..client }
}

/// Parses `127.0.0.1:8001`, `localhost:8001` or `http://localhost:8001/`.
fn control_address(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let found: Vec<SocketAddr> =
        bare.to_socket_addrs().map_err(|error| format!("{error}; write it as `127.0.0.1:8001`"))?.collect();
    // The control port listens on 127.0.0.1 by default, and a name may also have an address of IPv6.
    let best = found.iter().find(|address| address.is_ipv4()).or(found.first());
    best.copied().ok_or_else(|| "the name has no address".to_owned())
}

fn listens(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, CONNECT).is_ok()
}

/// Reads the keys in the data directories that the gateway may have.
fn keys(location: &Location) -> Result<Vec<ControlKey>, Failure> {
    let keys = location.data_dirs().into_iter().map(|data_dir| control_key::load(&data_dir));
    keys.filter_map(Result::transpose).collect()
}

fn without_key(location: &Location) -> Failure {
    let file = location.data_dir.join(control_key::FILE_NAME);
    Failure::Failed(format!(
        "{}: no such file, so no gateway at {} can prove that it is yours: run this in the gateway's directory, or name its config \
         with --config; is `egret run` running?",
        file.display(),
        location.control()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_port_is_named_by_address_name_or_url() {
        let expected = "127.0.0.1:8001".parse().unwrap();
        for text in ["127.0.0.1:8001", "localhost:8001", "http://127.0.0.1:8001", "http://localhost:8001/"] {
            assert_eq!(control_address(text), Ok(expected), "{text}");
        }
        assert!(control_address("8001").unwrap_err().contains("127.0.0.1:8001"));
    }
}
