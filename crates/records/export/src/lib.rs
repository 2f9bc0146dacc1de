//! Exporters: the destinations of recordings, logs, spans and metrics; the gateway's own access log; and the
//! requests of Egret's own with the client of exporters.
//!
//! Each exporter is a [`Sink`](egret_har::sink::Sink). One thread of low priority calls it, and it takes each
//! record or drops and counts it. Network access and compression run on the exporter's own threads. This
//! crate knows neither the gateway nor flows.

pub mod access_log;
mod alf;
mod background;
mod collector;
mod config;
mod counters;
mod disk;
mod exporter;
mod exporters;
pub mod fetch;
mod files;
mod header_fields;
mod http;
mod open_error;
pub mod otlp;
mod otlp_exporter;
mod s3;
mod server_url;
mod ship;
mod spool;
mod stdout;
mod tunnel;
mod webhook;
mod zmtp;

pub use alf::{AlfConfig, AlfMode, AlfTransportConfig};
pub use config::{ExporterConfig, ExporterConfigs, StdoutConfig, advise, problems};
pub use counters::{DropReason, ExporterSnapshot};
pub use exporter::ExporterContext;
pub use exporters::Exporters;
pub use files::config::FilesConfig;
pub use open_error::{OpenCause, OpenError};
pub use otlp_exporter::OtlpConfig;
pub use s3::{S3Addressing, S3Config, S3Format};
pub use server_url::{UrlError, check_url};
pub use webhook::WebhookConfig;
