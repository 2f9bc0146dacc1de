//! The inventory of called endpoints, for the control API.

use std::collections::BTreeMap;

use serde::Serialize;

/// An inventory, for the control API.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Discovered {
    /// Name of the flow; empty for the inventory of all exchanges.
    pub flow: String,
    /// Number of exchanges that the list does not contain: their endpoints did not fit, or too many new paths
    /// came at once.
    pub unlisted: u64,
    /// The endpoints, by provider and path.
    pub endpoints: Vec<DiscoveredEndpoint>,
    /// The consumers, those with most calls first; only of the inventory of all exchanges.
    pub consumers: Vec<DiscoveredConsumer>,
    /// Number of exchanges of consumers that are not listed.
    pub other_consumers: u64,
}

/// A consumer that calls a provider.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiscoveredConsumer {
    /// Its name; empty for clients that give none.
    pub consumer: String,
    /// Name of the provider in the config; `-` if there is none.
    pub provider: String,
    /// Number of exchanges.
    pub count: u64,
    /// Number of exchanges by status code; `0` if the client received no response.
    pub statuses: BTreeMap<u16, u64>,
    /// Median time that it waited, in microseconds, at most an eighth too long.
    pub p50_us: u64,
    /// 99th percentile, likewise.
    pub p99_us: u64,
    /// Time of the first call (RFC 3339).
    pub first_seen: String,
    /// Time of the last call (RFC 3339).
    pub last_seen: String,
}

/// An endpoint that is called.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiscoveredEndpoint {
    /// Name of the provider in the config; `-` if there is none.
    pub provider: String,
    /// URL of the provider.
    pub url: String,
    /// Host of that URL.
    #[serde(skip)]
    pub host: String,
    /// Method.
    pub method: String,
    /// Path in the form of a match: `/users/{user_id}`.
    pub path: String,
    /// Number of exchanges.
    pub count: u64,
    /// Number of exchanges by status code; `0` if the client received no response.
    pub statuses: BTreeMap<u16, u64>,
    /// Median time that clients waited, in microseconds, at most an eighth too long.
    pub p50_us: u64,
    /// 90th percentile, likewise.
    pub p90_us: u64,
    /// 99th percentile, likewise.
    pub p99_us: u64,
    /// Time of the first call (RFC 3339).
    pub first_seen: String,
    /// Time of the last call (RFC 3339).
    pub last_seen: String,
    /// Number of exchanges by consumer.
    pub consumers: BTreeMap<String, u64>,
    /// Number of exchanges of consumers that are not listed.
    pub other_consumers: u64,
    /// Number of exchanges by client program, if the diagnosis has a `client_field`.
    pub clients: BTreeMap<String, u64>,
    /// Number of exchanges of clients that are not listed.
    pub other_clients: u64,
    /// Number of responses with `Retry-After`.
    pub retry_after: u64,
}
