//! The gateway as a program must know it to send its calls through it.

use std::collections::BTreeMap;

use egret_message::ListenAddress;
use serde::{Deserialize, Serialize};

/// The addresses, providers and authority of a gateway. `egret exec` reads it from another process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayInfo {
    /// Version of the program.
    pub version: String,
    /// `true` if new exchanges are accepted.
    pub ready: bool,
    /// The listeners, in the order of the config.
    pub listeners: Vec<ListenerInfo>,
    /// The configured providers, by name.
    pub providers: BTreeMap<String, ProviderInfo>,
    /// The interception of HTTPS, unless every tunnel passes through unread.
    pub interception: Option<InterceptionInfo>,
}

/// A listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub struct ListenerInfo {
    /// The listening address, with the real port.
    pub address: ListenAddress,
    /// `true` if clients must use TLS.
    pub tls: bool,
    /// The provider that every request is sent to. Without one, the listener is a forward proxy.
    pub provider: Option<String>,
    /// `true` if it is for connections that the system redirects.
    pub redirect: bool,
    /// `true` if clients must speak SOCKS 5. A gateway of an earlier version does not tell.
    #[serde(default)]
    pub socks5: bool,
    /// `true` if clients must send a token with each request.
    pub asks_for_token: bool,
}

/// A configured provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderInfo {
    /// Its URL.
    pub url: String,
    /// `true` if the gateway signs its requests with AWS Signature Version 4.
    pub signs: bool,
}

/// The interception of HTTPS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterceptionInfo {
    /// The intercepted hosts, those of providers included, as in the config: names, addresses,
    /// `*.example.com`, `*`.
    pub hosts: Vec<String>,
    /// The hosts never to intercept, which take precedence.
    pub tunnel: Vec<String>,
    /// The root certificate that clients must trust, in PEM. Never a key.
    pub certificate: String,
}
