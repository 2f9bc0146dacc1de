//! The config of a world, in the structs of the gateway.

use egret_accounts::AccountConfigs;
use egret_diagnosis::TrafficConfig;
use egret_flow::config::FlowConfig;
use egret_net::os::kernel::TcpListener;
use egret_plan::config::{GatewayConfig, Parts, Providers};
use egret_prices::PricesConfig;
use egret_quota::QuotaConfigs;
use egret_store::SharedState;

use crate::disks::Disks;
use crate::scenario::Scenario;

/// The config of a world.
pub struct Config {
    /// Its section `gateway`.
    pub gateway: GatewayConfig,
    providers: Providers,
    quotas: QuotaConfigs,
    flows: Vec<FlowConfig>,
    accounts: AccountConfigs,
    prices: PricesConfig,
    traffic: TrafficConfig,
}

impl Config {
    /// Reads the config of a scenario.
    pub fn of(scenario: &Scenario) -> Result<Self, serde_json::Error> {
        Ok(Self {
            gateway: serde_json::from_value(scenario.gateway())?,
            providers: serde_json::from_value(scenario.providers())?,
            quotas: serde_json::from_value(scenario.quotas())?,
            flows: serde_json::from_value(scenario.flows())?,
            accounts: AccountConfigs::default(),
            prices: PricesConfig::default(),
            traffic: TrafficConfig::default(),
        })
    }

    /// All of it, for a process that has these disks, and has inherited these listening sockets.
    pub fn parts<'a>(&'a self, disks: &'a Disks, inherited: &'a [TcpListener]) -> Parts<'a> {
        Parts {
            gateway: &self.gateway,
            providers: &self.providers,
            quotas: &self.quotas,
            accounts: &self.accounts,
            prices: &self.prices,
            flows: &self.flows,
            stores: disks.stores(),
            shared: SharedState::default(),
            data_dir: disks.data_dir(),
            exports: disks.exports(),
            interception: None,
            inherited,
            traffic: &self.traffic,
            isolated: false,
        }
    }
}
