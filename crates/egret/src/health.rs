//! `egret health`: tells a container's runtime whether the gateway is ready.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use egret_config::Secret;
use egret_control::ControlConfig;

use crate::control_client::ControlClient;
use crate::failure::Failure;
use crate::{config::Config, config_file, config_path, control_token};

/// The gateway to ask.
#[derive(Debug, Args)]
pub struct Gateway {
    /// Address of its control port. Default: that of the config, else `127.0.0.1:8001`.
    #[arg(long, value_name = "ADDRESS")]
    pub control: Option<SocketAddr>,
    /// Its config file, for the address and the token of its control port. Default: `egret.yaml` in the
    /// working directory, unless `--control` is given.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl Gateway {
    /// Returns the config file to read.
    pub fn file(&self) -> Option<PathBuf> {
        if self.control.is_some() {
            self.config.clone()
        } else {
            config_path::named_or_found(self.config.clone())
        }
    }

    /// Reads the config, if there is one.
    pub fn read_config(&self) -> Result<Option<Config>, Failure> {
        let Some(file) = self.file() else { return Ok(None) };
        config_file::load(&file).map(|loaded| Some(loaded.config))
    }

    /// Returns a client with the token that some paths always need: that of the config, or else the one that
    /// the gateway has created in its data directory.
    pub fn private_client(&self, config: Option<&Config>) -> ControlClient {
        let client = self.client(config);
        if client.token.is_some() {
            return client;
        }
        let data_dir = config.map_or_else(|| Config::default().data_dir, |config| config.data_dir.clone());
        // The gateway may run in the directory of its config.
        let beside = self.config.as_deref().and_then(Path::parent).map(|directory| directory.join(&data_dir));
        let read =
            |directory: PathBuf| std::fs::read_to_string(directory.join(control_token::FILE_NAME)).ok();
        let token = std::iter::once(data_dir).chain(beside).find_map(read);
        let token =
            token.map(|text| Secret::from_value("the token created at start", text.trim_end().to_owned()));
        ControlClient { token, ..client }
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
