//! Exporters: where diagnoses send what they made.
//!
//! Each is a [`Sink`](egret_har::sink::Sink) that is called by one thread of low priority, and takes what it is given or counts that it
//! could not. What has to wait for a network or to be compressed has threads of its own. The room knows neither the gateway nor flows.

mod alf;
mod background;
mod config;
mod counters;
mod disk;
mod exporters;
mod files;
mod http;
mod otlp;
mod s3;
mod ship;
mod spool;
mod stdout;
mod zmtp;

pub use alf::{AlfConfig, AlfMode, AlfTransportConfig, AlfVersion};
pub use config::{ExporterConfig, ExporterConfigs, FilesConfig, StdoutConfig, problems};
pub use counters::{DropReason, ExporterSnapshot};
pub use exporters::{Exporters, Site};
pub use otlp::OtlpConfig;
pub use s3::{S3Addressing, S3Config};
