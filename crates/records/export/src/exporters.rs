//! Opens the exporters of a config, and updates them when the config changes.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_har::sink::Sink;

use crate::alf::AlfExporter;
use crate::config::{ExporterConfig, ExporterConfigs};
use crate::counters::{Counters, ExporterSnapshot};
use crate::disk::System;
use crate::files::{FileExporter, Format, Layout};
use crate::otlp_exporter::OtlpExporter;
use crate::s3::S3Exporter;
use crate::stdout::StdoutExporter;

/// Time limit for closing exporters, in which they write and send the waiting records. It applies to all of
/// them together.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// An exporter as its owner sees it.
pub trait Exporter: Sink {
    /// Writes, sends or spools the waiting records, until `deadline` at most.
    fn close(&self, deadline: Instant);

    /// Returns the counters.
    fn snapshot(&self) -> ExporterSnapshot;
}

/// Settings shared by all exporters.
#[derive(Debug, Clone, Copy)]
pub struct ExporterContext<'a> {
    /// Egret's version, which is written to files.
    pub version: &'a str,
    /// Directory of the spools.
    pub data_dir: &'a Path,
}

/// The open exporters of a config. Clones share the same exporters.
#[derive(Debug, Clone, Default)]
pub struct Exporters {
    by_name: BTreeMap<String, Open>,
}

#[derive(Debug, Clone)]
struct Open {
    config: ExporterConfig,
    exporter: Arc<dyn Exporter>,
}

impl Exporters {
    /// Opens the exporters of `configs`. Open ones whose config is unchanged are reused. The error names the
    /// exporter and the reason.
    pub fn open(&self, configs: &ExporterConfigs, site: ExporterContext<'_>) -> Result<Self, String> {
        let mut by_name = BTreeMap::new();
        for (name, config) in configs {
            let same = self.by_name.get(name).filter(|open| open.config == *config).cloned();
            let open = match same {
                Some(open) => open,
                None => Open { config: config.clone(), exporter: open(name, config, site)? },
            };
            by_name.insert(name.clone(), open);
        }
        Ok(Self { by_name })
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

fn open(name: &str, config: &ExporterConfig, site: ExporterContext<'_>) -> Result<Arc<dyn Exporter>, String> {
    let counters = Counters::new(name, config.kind());
    let failed = |error| format!("exporters.{name}: {error}");
    Ok(match config {
        ExporterConfig::Har(files) => {
            let layout = Layout::new(name, files, Format::har(site.version));
            Arc::new(FileExporter::open(layout, counters, Box::new(System)))
        }
        ExporterConfig::Ndjson(files) => {
            let layout = Layout::new(name, files, Format::ndjson());
            Arc::new(FileExporter::open(layout, counters, Box::new(System)))
        }
        ExporterConfig::Lines(files) => {
            let layout = Layout::new(name, files, Format::lines());
            Arc::new(FileExporter::open(layout, counters, Box::new(System)))
        }
        ExporterConfig::Stdout(_) => {
            let opened = StdoutExporter::open(counters, std::io::stdout());
            Arc::new(opened.map_err(|error| failed(error.to_string()))?)
        }
        ExporterConfig::Otlp(otlp) => {
            Arc::new(OtlpExporter::open(name, otlp, counters, site).map_err(failed)?)
        }
        ExporterConfig::Alf(alf) => Arc::new(AlfExporter::open(name, alf, counters, site).map_err(failed)?),
        ExporterConfig::S3(s3) => Arc::new(S3Exporter::open(name, s3, counters, site).map_err(failed)?),
    })
}
