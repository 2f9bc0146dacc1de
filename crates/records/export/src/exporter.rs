//! An exporter as its owner sees it.

use std::path::Path;
use std::time::Instant;

use egret_har::sink::Sink;
use egret_net::config::ProxyConfig;

use crate::counters::ExporterSnapshot;

/// A sink that can be closed, and that counts what it does.
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
    /// The proxy through which servers are reached, if there is one.
    pub upstream_proxy: Option<&'a ProxyConfig>,
}
