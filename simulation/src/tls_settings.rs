//! The settings of TLS in a world.

use std::rc::Rc;
use std::sync::Arc;

use egret_kernel::outside::EndId;
use rustls::{ClientConfig, ServerConfig};

use crate::certificates::{Certificates, of_client};
use crate::link::Link;
use crate::scenario::{Dice, Scenario};
use crate::tls_plan::TlsPlan;

/// The settings of all peers. Sessions are resumed within a world.
#[derive(Default)]
pub struct TlsSettings {
    plan: TlsPlan,
    /// For clients of HTTP/1.1 and HTTP/2.
    clients: Option<[Arc<ClientConfig>; 2]>,
    providers: [Option<Arc<ServerConfig>>; 2],
}

impl TlsSettings {
    /// Creates the settings of a scenario, and puts the gateway's files on the disk.
    pub fn of(scenario: &Scenario) -> Result<Self, String> {
        let plan = scenario.tls;
        if plan.is_unused() {
            return Ok(Self::default());
        }
        let certificates: Rc<Certificates> = Certificates::get()?;
        certificates.write()?;
        let mut clients = None;
        if plan.clients {
            clients = Some([of_client(false, plan.is_old)?, of_client(true, plan.is_old)?]);
        }
        let mut providers = [None, None];
        for (number, provider) in
            providers.iter_mut().enumerate().filter(|(number, _)| plan.providers[*number])
        {
            let is_http2 = scenario.is_provider_http2[number];
            *provider = Some(certificates.of_provider(plan.expiry, is_http2, plan.is_old)?);
        }
        Ok(Self { plan, clients, providers })
    }

    /// The settings of a client.
    pub fn of_client(&self, is_http2: bool) -> Option<Arc<ClientConfig>> {
        self.clients.as_ref().map(|clients| Arc::clone(&clients[usize::from(is_http2)]))
    }

    /// Begins a connection to a provider.
    pub fn link(&self, provider: usize, end: EndId, dice: &mut Dice) -> Link {
        match &self.providers[provider] {
            None => Link::plain(end),
            Some(config) => {
                let link = Link::server(end, Arc::clone(config), self.plan.expires());
                link.troubled(dice, self.plan.trouble)
            }
        }
    }
}
