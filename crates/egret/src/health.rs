//! `egret health`: tells a container's runtime whether the gateway is ready.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use egret_control::ControlConfig;

use crate::control_client::ControlClient;
use crate::failure::Failure;
use crate::{config::Config, config_file};

/// The gateway to ask.
#[derive(Debug, Args)]
pub struct Gateway {
    /// Address of its control port. Default: that of the config, else `127.0.0.1:8001`.
    #[arg(long, value_name = "ADDRESS")]
    pub control: Option<SocketAddr>,
    /// Its config file, for the address and the token of its control port.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl Gateway {
    /// Reads the config, if one is named.
    pub fn read_config(&self) -> Result<Option<Config>, Failure> {
        let Some(file) = &self.config else { return Ok(None) };
        let text = config_file::read(file).map_err(Failure::misused)?;
        Config::parse(&file.display().to_string(), &text).map(Some).map_err(Failure::misused)
    }

    /// Returns a client of the control port, as this config has it.
    pub fn client(&self, config: Option<&Config>) -> ControlClient {
        let control = config.map(|config| config.control.clone()).unwrap_or_default();
        let ControlConfig { listen, token, .. } = control;
        ControlClient { address: crate::run::reachable(self.control.unwrap_or(listen)), token }
    }
}

/// Succeeds if the gateway accepts new exchanges.
pub fn run(gateway: &Gateway) -> Result<(), Failure> {
    let client = gateway.client(gateway.read_config()?.as_ref());
    let not_ready =
        |error| Failure::Failed(format!("the gateway at {} is not ready: {error}", client.address));
    client.get("/readyz").map(drop).map_err(not_ready)
}
