//! The interface of exporters: sinks for recorded exchanges.

use std::fmt::Debug;
use std::net::IpAddr;

/// Kind of data that a sink receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// HAR entries, each one JSON object on one line.
    Entries,
    /// Lines of text, without line ends.
    Lines,
    /// Spans and metrics, each a message of OTLP after a byte that names its kind.
    Telemetry,
    /// Alerts, each one JSON object with an `id`.
    Alerts,
}

/// A recorded exchange, ready to be written.
#[derive(Debug, Clone, Copy)]
pub struct Exported<'a> {
    /// The record, obfuscated if configured: a HAR entry, or other content that the sink
    /// [accepts](Sink::takes).
    pub entry: &'a [u8],
    /// Address of the client, if it may be shown.
    pub client: Option<IpAddr>,
    /// Token for collectors that require one. If empty, the exporter's own token is used.
    pub service_token: &'a str,
    /// Environment named by the client. If empty, the exporter's own is used.
    pub environment: &'a str,
}

/// A destination of recorded exchanges. It is called by one thread of low priority, never by a worker.
pub trait Sink: Debug + Send + Sync {
    /// Returns `true` if the sink accepts this kind of content.
    fn takes(&self, content: Content) -> bool {
        content == Content::Entries
    }

    /// Takes an exchange, or drops and counts it. It may wait for a disk, but never for a network.
    fn put(&self, exchange: Exported<'_>);

    /// Sends batches and rotates files that are due. Called a few times per second, and at the end.
    fn tick(&self);
}
