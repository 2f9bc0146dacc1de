//! The settings of a load client: the program, the amount of work, and how it sends it.

use std::time::Duration;

use egret_items::words;
use serde::{Deserialize, Serialize};

words! {
    /// A load client.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ClientKind: Display {
        /// `egret bench`: has the features of the others, and an open model.
        #[default]
        Bench => "bench",
        /// Apache's ab: HTTP/1.0, one thread, percentiles.
        Ab => "ab",
        /// siege: one thread per connection, no percentiles, times in hundredths of a second.
        Siege => "siege",
        /// wrk: persistent connections only, for a fixed duration.
        Wrk => "wrk",
        /// oha: prints the times of all requests, from which percentiles are computed here.
        Oha => "oha",
        /// h2load: HTTP/2 and gRPC only. It logs the times of all requests, from which percentiles are
        /// computed here.
        H2load => "h2load",
    }
}

/// The protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1, or 1.0 with ab.
    #[default]
    Http1,
    /// HTTP/2: by ALPN to https URLs, by prior knowledge to others.
    Http2,
    /// Unary calls of gRPC over HTTP/2 to the echo service of `egret provider`, with a payload of `body`.
    Grpc,
}

impl ClientKind {
    /// Name of the program; `None` for Egret's own client.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Self::Bench => None,
            Self::Ab => Some("ab"),
            Self::Siege => Some("siege"),
            Self::Wrk => Some("wrk"),
            Self::Oha => Some("oha"),
            Self::H2load => Some("h2load"),
        }
    }
}

/// The settings of a client with defaults applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientSettings {
    /// The program.
    pub kind: ClientKind,
    /// The amount of work.
    pub amount: Amount,
    /// Number of concurrent connections.
    pub concurrency: u32,
    /// The protocol.
    pub protocol: Protocol,
    /// Number of streams on each connection.
    pub streams: u32,
    /// Keeps connections open between requests.
    pub keep_alive: bool,
    /// Requests per second, in the open model.
    pub requests_per_second: Option<u32>,
    /// Number of requests before the measured ones.
    pub warm_up_requests: u64,
    /// Size of the body of each request, or of the payload of a call; 0 for GET.
    pub body_bytes: u64,
    /// JSON that is the body of each request instead.
    pub json: Option<String>,
    /// Measures the delays of the events of streams.
    pub events: bool,
    /// Number of threads.
    pub threads: u32,
    /// Resumes TLS sessions on new connections.
    pub resume: bool,
    /// Time after which the client is stopped.
    pub deadline: Duration,
}

/// The amount of work of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Amount {
    /// A number of requests.
    Requests(u64),
    /// As many requests as complete in this duration.
    For(Duration),
}
