//! The parts that a config makes. A start and a reload put a config into effect by the same function.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use egret_cluster::{ClusterStartError, ClusterThread};
use egret_export::{ExporterContext, Exporters, OpenError};
use egret_gateway::{Gateway, StartError};
use egret_plan::config::{InterceptionParts, Parts};
use egret_quota::Stores;
use egret_settings::config::Config;
use egret_settings::failure::Failure;

use crate::alerts::{AlertDispatcher, AlertRoute};
use crate::cluster;
use crate::control_source::ControlSource;
use crate::durable::{DurableQuotas, Opening, QuotaFileError};
use crate::exports::{KeyFileError, PseudonymKey};
use crate::interception::{Certificates, CertificatesError};
use crate::issuer_keys::KeyFetcher;
use crate::start_failure::{self, Remedy};

/// The parts that a config makes. All are missing before the first config.
#[derive(Default)]
pub(super) struct ConfiguredParts {
    /// Opened by the first config that needs it.
    quotas: Option<DurableQuotas>,
    /// Joined by the first config that names a cluster.
    cluster: Option<ClusterThread>,
    /// The certificates for intercepted hosts, from the first config that intercepts any. Kept even if
    /// nothing is intercepted for a while: clients trust this authority.
    certificates: Option<Certificates>,
    exporters: Exporters,
    /// Started by the first config with a quota that raises alerts.
    alerts: Option<AlertDispatcher>,
    /// Started by the first config whose clients have tokens of an issuer.
    issuer_keys: Option<KeyFetcher>,
    key: PseudonymKey,
    gateway: Option<Arc<Gateway>>,
}

/// The parts of the process that outlive every config.
#[derive(Clone, Copy)]
pub(super) struct ProcessParts<'a> {
    /// Other ports of this process, which no exchange may connect to.
    pub own: &'a [SocketAddr],
    /// Sockets that the process was started with.
    pub inherited: &'a [TcpListener],
    /// `true` if the only client is an isolated command.
    pub is_isolated: bool,
    /// The view of the control port.
    pub source: &'a ControlSource,
}

/// The reason why a config was not put into effect.
#[derive(Debug, thiserror::Error)]
pub(super) enum SwitchError {
    #[error("{0}")]
    Quotas(QuotaFileError),
    #[error("the thread of alerts cannot start: {0}")]
    Alerts(io::Error),
    #[error("the thread of keys cannot start: {0}")]
    IssuerKeys(io::Error),
    #[error("{0}")]
    Exporters(OpenError),
    #[error("{0}")]
    Key(KeyFileError),
    #[error("{0}")]
    Cluster(ClusterStartError),
    #[error("{0}")]
    Certificates(CertificatesError),
    #[error("{0}")]
    Gateway(StartError),
}

impl ConfiguredParts {
    /// Creates the quotas of a config that are stored in the file of a process that still runs, if there are
    /// any. The file is opened later.
    pub fn prepare_quotas(&mut self, config: &Config) -> Result<Option<Opening>, SwitchError> {
        if !config.has_durable_quotas() {
            return Ok(None);
        }
        let (quotas, opening) = DurableQuotas::prepare(&config.data_dir).map_err(SwitchError::Quotas)?;
        self.quotas = Some(quotas);
        Ok(Some(opening))
    }

    /// Puts a config into effect: makes the parts that it is the first to need, and changes the others.
    /// Returns the gateway, which accepts clients once it is opened. After an error, the config before stays
    /// in effect.
    pub fn switch(&mut self, new: &Config, process: ProcessParts<'_>) -> Result<Arc<Gateway>, SwitchError> {
        if self.quotas.is_none() && new.has_durable_quotas() {
            self.quotas = Some(DurableQuotas::open(&new.data_dir).map_err(SwitchError::Quotas)?);
        }
        if self.alerts.is_none() && new.has_alerts() {
            self.alerts = Some(AlertDispatcher::start(&new.data_dir).map_err(SwitchError::Alerts)?);
        }
        if self.issuer_keys.is_none() && new.has_issuers() {
            self.issuer_keys = Some(KeyFetcher::start().map_err(SwitchError::IssuerKeys)?);
        }
        let alerts = self.alerts.as_ref().map(AlertDispatcher::sink);
        let upstream_proxy = new.gateway.upstream_proxy.as_ref();
        let version = env!("CARGO_PKG_VERSION");
        let context = ExporterContext { version, data_dir: &new.data_dir, upstream_proxy };
        let exporters = self.exporters.open(&new.exporters, context).map_err(SwitchError::Exporters)?;
        let exports = self.key.exports(new, &exporters).map_err(SwitchError::Key)?;
        let joined = match self.cluster {
            Some(_) => None,
            None => cluster::join(new).map_err(SwitchError::Cluster)?,
        };
        let certificates =
            Certificates::of(new, self.certificates.as_ref()).map_err(SwitchError::Certificates)?;
        let cluster = self.cluster.as_ref().or(joined.as_ref());
        let configs = certificates.as_ref().map(Certificates::configs);
        let parts = Parts {
            stores: Stores {
                ledger: self.quotas.as_ref().map(DurableQuotas::ledger),
                cluster: cluster.map(ClusterThread::sink),
                alerts: alerts.as_ref(),
            },
            shared: cluster.map(ClusterThread::shared).unwrap_or_default(),
            data_dir: Some(&*new.data_dir),
            interception: new.interception.as_ref().map(|config| InterceptionParts { config, configs }),
            inherited: process.inherited,
            isolated: process.is_isolated,
            ..new.gateway_parts(&exports)
        };
        // Before the gateway, whose first calls may raise alerts.
        let route = AlertRoute {
            exporter: new.alerts.export.as_ref().and_then(|name| exporters.sinks().remove(name)),
            claims: cluster.map(|cluster| cluster.claims().clone()),
        };
        let route_before = self.alerts.as_ref().map(|alerts| {
            alerts.count(&new.quotas);
            alerts.send_to(route)
        });
        let switched = match &self.gateway {
            Some(gateway) => gateway.reload(parts).map(|()| Arc::clone(gateway)),
            None => Gateway::prepare(parts, process.own),
        };
        let gateway = match switched {
            Ok(gateway) => gateway,
            Err(error) => {
                if let (Some(alerts), Some(before)) = (&self.alerts, route_before) {
                    alerts.send_to(before);
                }
                exporters.close_others(&self.exporters);
                // The next config may name another cluster.
                joined.into_iter().for_each(ClusterThread::leave);
                return Err(SwitchError::Gateway(error));
            }
        };
        self.cluster = self.cluster.take().or(joined);
        self.certificates = certificates.or(self.certificates.take());
        if let (Some(thread), Some(cluster)) = (&self.cluster, &new.cluster) {
            thread.reconfigure(cluster);
        }
        if let Some(keys) = &self.issuer_keys {
            let first = keys.fetch(gateway.issuers(), upstream_proxy);
            if self.gateway.is_none() {
                // Once the gateway accepts clients, it refuses tokens with keys that are not there.
                first.wait();
            }
        }
        self.change_exporters(exporters);
        self.gateway = Some(Arc::clone(&gateway));
        self.show(new, process.source);
        Ok(gateway)
    }

    /// Shows the parts at the control port.
    fn show(&self, config: &Config, source: &ControlSource) {
        source.set_config(config.clone());
        source.set_exporters(self.exporters.clone());
        source.set_certificates(self.certificates.clone());
        source.set_cluster(self.cluster.as_ref());
        source.set_alerts(self.alerts.as_ref().map(AlertDispatcher::counts));
        if let Some(gateway) = &self.gateway {
            source.set_gateway(Arc::clone(gateway));
        }
    }

    /// Switches to the new exporters. The old ones write their remaining data on a separate thread.
    fn change_exporters(&mut self, exporters: Exporters) {
        let old = std::mem::replace(&mut self.exporters, exporters.clone());
        if self.gateway.is_none() {
            // This is the first config.
            return;
        }
        let close = move || old.close_others(&exporters);
        if let Err(error) = std::thread::Builder::new().name("egret-close".into()).spawn(close) {
            tracing::error!("removed exporters are not closed: {error}");
        }
    }

    /// Returns the certificates for intercepted hosts.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Closes the quota file, if it is open.
    pub fn close_quota_file(&mut self) {
        if let Some(quotas) = self.quotas.take() {
            quotas.close();
        }
    }

    /// Writes unused loans back to the quotas. Call it after the drain, when nothing draws from them.
    pub fn close_quotas(&mut self) {
        if let (Some(_), Some(gateway)) = (&self.quotas, &self.gateway) {
            gateway.give_quotas_back();
        }
        self.close_quota_file();
        if let Some(cluster) = self.cluster.take() {
            cluster.leave();
        }
    }

    /// Tells the last alerts. Call it after the drain, while exporters and the cluster still work.
    pub fn close_alerts(&mut self) {
        if let Some(alerts) = self.alerts.take() {
            alerts.close();
        }
    }

    /// Closes the exporters, which write their remaining data.
    pub fn close_exporters(&self) {
        self.exporters.close();
    }
}

impl SwitchError {
    /// Returns the failure of a start, with what its user can do.
    pub fn of_start(self, remedy: Remedy) -> Failure {
        match self {
            Self::Gateway(error) => start_failure::of_gateway(&error, remedy),
            error => Failure::failed(error),
        }
    }
}
