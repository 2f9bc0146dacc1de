//! Where recorded exchanges go.

use std::fmt::Debug;
use std::net::IpAddr;

/// What sinks are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Entries of HAR: each one object of JSON on one line.
    Entries,
    /// Lines of text, without their ends.
    Lines,
    /// Spans and metrics, each as [`otlp`](crate::otlp) writes it, behind the byte that says which it is.
    Telemetry,
}

/// An exchange on its way out, ready to be written.
#[derive(Debug, Clone, Copy)]
pub struct Exported<'a> {
    /// What is told of it, obfuscated if it is to be: an entry of HAR, or whatever else the sink [takes](Sink::takes).
    pub entry: &'a [u8],
    /// The client's address, as far as it may be told.
    pub client: Option<IpAddr>,
    /// Whose exchange it is, for collectors that ask for a token; where it is empty the exporter's own is used.
    pub service_token: &'a str,
    /// The environment that the client has named; where it is empty the exporter's own is used.
    pub environment: &'a str,
}

/// Where recorded exchanges go. Called by one thread of low priority, never by a worker.
pub trait Sink: Debug + Send + Sync {
    /// Whether it can do anything with that.
    fn takes(&self, content: Content) -> bool {
        content == Content::Entries
    }

    /// Takes an exchange, or loses it and counts that. Does not wait for a network; may wait for a disk.
    fn put(&self, exchange: Exported<'_>);

    /// Called a few times each second, and at the end: what waits for company goes out, what is due is rotated.
    fn tick(&self);
}
