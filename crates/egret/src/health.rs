//! `egret health`: tells a container's runtime whether the gateway is ready.

use egret_settings::failure::Failure;

use crate::asked_gateway::GatewayArguments;

/// Succeeds if the gateway accepts new exchanges. No token is sent.
pub fn run(gateway: &GatewayArguments) -> Result<(), Failure> {
    let client = gateway.probe()?;
    let not_ready =
        |error| Failure::Failed(format!("the gateway at {} is not ready: {error}", client.address));
    client.get("/readyz").map(drop).map_err(not_ready)
}
