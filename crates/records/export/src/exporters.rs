//! Opens the exporters of a config, and updates them when the config changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_har::sink::Sink;
use egret_net::config::ProxyConfig;

use crate::config::{ExporterConfig, ExporterConfigs};
use crate::counters::{Counters, ExporterSnapshot};
use crate::disk::System;
use crate::exporter::{Exporter, ExporterContext};
use crate::files::{FileExporter, FileFormat, Layout};
use crate::open_error::{OpenCause, OpenError};
use crate::s3::S3Exporter;
use crate::stdout::StdoutExporter;

/// Time limit for closing exporters, in which they write and send the waiting records. It applies to all of
/// them together.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// The open exporters of a config. Clones share the same exporters.
#[derive(Debug, Clone, Default)]
pub struct Exporters {
    by_name: BTreeMap<String, Open>,
    upstream_proxy: Option<ProxyConfig>,
}

#[derive(Debug, Clone)]
struct Open {
    config: ExporterConfig,
    exporter: Arc<dyn Exporter>,
}

impl Exporters {
    /// Opens the exporters of `configs`. Open ones whose config is unchanged are reused. The error names the
    /// exporter and the reason.
    pub fn open(&self, configs: &ExporterConfigs, context: ExporterContext<'_>) -> Result<Self, OpenError> {
        let mut by_name = BTreeMap::new();
        let has_same_proxy = self.upstream_proxy.as_ref() == context.upstream_proxy;
        for (name, config) in configs {
            let same = self.by_name.get(name).filter(|open| open.config == *config);
            let same = same.filter(|_| has_same_proxy || !config.calls_server()).cloned();
            let open = if let Some(open) = same {
                open
            } else {
                let exporter = open(name, config, context)
                    .map_err(|cause| OpenError { exporter: name.clone(), cause })?;
                Open { config: config.clone(), exporter }
            };
            by_name.insert(name.clone(), open);
        }
        Ok(Self { by_name, upstream_proxy: context.upstream_proxy.cloned() })
    }

    /// Returns the sinks of diagnoses, by name.
    pub fn sinks(&self) -> HashMap<String, Arc<dyn Sink>> {
        let sink = |open: &Open| -> Arc<dyn Sink> { open.exporter.clone() };
        self.by_name.iter().map(|(name, open)| (name.clone(), sink(open))).collect()
    }

    /// Returns the counters of all exporters.
    pub fn snapshot(&self) -> Vec<ExporterSnapshot> {
        self.by_name.values().map(|open| open.exporter.snapshot()).collect()
    }

    /// Closes the exporters that are not in `kept`.
    pub fn close_others(&self, kept: &Self) {
        let deadline = Instant::now() + CLOSE_MAX;
        for (name, open) in &self.by_name {
            let is_kept =
                kept.by_name.get(name).is_some_and(|kept| Arc::ptr_eq(&kept.exporter, &open.exporter));
            if !is_kept {
                open.exporter.close(deadline);
            }
        }
    }

    /// Closes all exporters.
    pub fn close(&self) {
        self.close_others(&Self::default());
    }
}

fn open(
    name: &str,
    config: &ExporterConfig,
    context: ExporterContext<'_>,
) -> Result<Arc<dyn Exporter>, OpenCause> {
    let counters = Counters::new(name, config.kind());
    let files = |config, format, counters| {
        FileExporter::open(Layout::new(name, config, format), counters, Box::new(System))
    };
    Ok(match config {
        ExporterConfig::Har(config) => Arc::new(files(config, FileFormat::har(context.version), counters)),
        ExporterConfig::Ndjson(config) => Arc::new(files(config, FileFormat::ndjson(), counters)),
        ExporterConfig::Lines(config) => Arc::new(files(config, FileFormat::lines(), counters)),
        ExporterConfig::Stdout(_) => Arc::new(StdoutExporter::open(counters, std::io::stdout())?),
        ExporterConfig::Otlp(config) => Arc::new(config.open(name, counters, context)?),
        ExporterConfig::Alf(config) => Arc::new(config.open(name, counters, context)?),
        ExporterConfig::S3(config) => Arc::new(S3Exporter::open(name, config, counters, context)?),
        ExporterConfig::Webhook(config) => Arc::new(config.open(name, counters, context)?),
    })
}
