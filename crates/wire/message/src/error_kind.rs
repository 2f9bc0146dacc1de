//! The errors with which Egret ends an exchange in place of the provider, one row each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::FailureKind;

/// Defines the errors. Each row has the slug, the status code, the error type of RFC 9209 §2.3, and the kind
/// of failure that remedies see.
macro_rules! errors {
    ($($(#[$meta:meta])* $kind:ident => $slug:literal, $status:literal, $proxy_error:literal, $failure:ident;)*) => {
        /// An error with which Egret itself ends an exchange. Those that remedies refuse with are also words
        /// of the config.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
        pub enum ErrorKind {
            $($(#[$meta])* #[serde(rename = $slug)] $kind,)*
        }

        impl ErrorKind {
            /// Every kind, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Returns the short name of the error: the value of `x-egret-error`.
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$kind => $slug,)* }
            }

            /// Returns the status code of the error's response.
            pub const fn status(self) -> u16 {
                match self { $(Self::$kind => $status,)* }
            }

            /// Returns the error type for `Proxy-Status`.
            pub const fn proxy_error(self) -> &'static str {
                match self { $(Self::$kind => $proxy_error,)* }
            }

            /// Returns the kind of failure that the error is for remedies.
            pub const fn failure(self) -> FailureKind {
                match self { $(Self::$kind => FailureKind::$failure,)* }
            }
        }
    };
}

errors! {
    /// The request breaks a rule of HTTP/1.1, can be read in two ways, or names an invalid host.
    #[serde(skip)] BadRequest => "bad-request", 400, "http_request_error", Refused;
    /// The request line is too long.
    #[serde(skip)] UriTooLong => "uri-too-long", 414, "http_request_error", Refused;
    /// The request head is too long, or has too many fields.
    #[serde(skip)] HeadTooLarge => "head-too-large", 431, "http_request_error", Refused;
    /// The request has a transfer coding other than `chunked`.
    #[serde(skip)] NotImplemented => "not-implemented", 501, "http_request_error", Refused;
    /// The request is neither HTTP/1.0 nor HTTP/1.1.
    #[serde(skip)] VersionNotSupported => "version-not-supported", 505, "http_request_error", Refused;
    /// The client sends its request too slowly.
    #[serde(skip)] RequestTimeout => "request-timeout", 408, "http_request_error", Refused;
    /// The request is for the gateway itself, and names no configured provider.
    #[serde(skip)] UnknownProvider => "unknown-provider", 404, "destination_not_found", Refused;
    /// CONNECT on a listener of one provider, inside a tunnel, or over HTTP/2 for a tunnel to intercept.
    #[serde(skip)] ConnectNotAllowed => "connect-not-allowed", 405, "http_request_denied", Refused;
    /// A request inside an intercepted tunnel names another host than the tunnel.
    #[serde(skip)] Misdirected => "misdirected", 421, "http_request_denied", Refused;
    /// The request must not be forwarded any further.
    #[serde(skip)] NoForwardsLeft => "no-forwards-left", 405, "http_request_denied", Refused;
    /// The request has already passed through this gateway.
    #[serde(skip)] LoopDetected => "loop-detected", 508, "proxy_loop_detected", Refused;
    /// The egress policy forbids the connection.
    #[serde(skip)] EgressDenied => "egress-denied", 403, "destination_ip_prohibited", Refused;
    /// The host has no address.
    #[serde(skip)] DnsFailed => "dns-failed", 502, "dns_error", Connect;
    /// No name server responded in time.
    #[serde(skip)] DnsTimeout => "dns-timeout", 504, "dns_timeout", Timeout;
    /// The connection was refused, or the address cannot be reached.
    #[serde(skip)] ConnectFailed => "connect-failed", 502, "connection_refused", Connect;
    /// The connection took too long to open.
    #[serde(skip)] ConnectTimeout => "connect-timeout", 504, "connection_timeout", Timeout;
    /// The TLS handshake failed.
    #[serde(skip)] TlsFailed => "tls-failed", 502, "tls_protocol_error", Connect;
    /// The TLS handshake took too long.
    #[serde(skip)] TlsTimeout => "tls-timeout", 504, "connection_timeout", Timeout;
    /// The proxy in front of the provider cannot be connected to, or its own TLS is wrong.
    #[serde(skip)] ProxyUnreachable => "proxy-unreachable", 502, "connection_refused", Connect;
    /// The proxy in front of the provider took too long to open a tunnel.
    #[serde(skip)] ProxyTimeout => "proxy-timeout", 504, "connection_timeout", Timeout;
    /// The proxy in front of the provider asks for other credentials.
    #[serde(skip)] ProxyCredentials => "proxy-credentials", 502, "proxy_configuration_error", Connect;
    /// The proxy in front of the provider refused to open a tunnel.
    #[serde(skip)] ProxyRefused => "proxy-refused", 502, "destination_unavailable", Connect;
    /// The proxy in front of the provider closed the connection before the tunnel was open.
    #[serde(skip)] ProxyClosed => "proxy-closed", 502, "connection_terminated", Connect;
    /// The proxy in front of the provider speaks neither HTTP nor SOCKS, as configured.
    #[serde(skip)] ProxyBadResponse => "proxy-bad-response", 502, "http_protocol_error", Connect;
    /// The provider has sent an invalid response.
    #[serde(skip)] BadResponse => "bad-response", 502, "http_protocol_error", BadResponse;
    /// The provider closed the connection before the end of its response.
    #[serde(skip)] ProviderClosed => "provider-closed", 502, "connection_terminated", Reset;
    /// The provider took too long to begin its response.
    #[serde(skip)] FirstByteTimeout => "first-byte-timeout", 504, "http_response_timeout", Timeout;
    /// The provider stopped sending or receiving.
    #[serde(skip)] IdleTimeout => "idle-timeout", 504, "connection_write_timeout", Timeout;
    /// The exchange took too long as a whole.
    #[serde(skip)] TotalTimeout => "total-timeout", 504, "http_response_timeout", Refused;
    /// The provider's maximum number of connections is in use.
    #[serde(skip)] PoolFull => "pool-full", 503, "connection_limit_reached", Refused;
    /// The maximum number of client connections is open.
    #[serde(skip)] TooManyConnections => "too-many-connections", 503, "connection_limit_reached", Refused;
    /// A quota is used up.
    QuotaExceeded => "quota-exceeded", 429, "http_request_denied", Refused;
    /// A budget is spent, or the call cannot be paid from one.
    BudgetExceeded => "budget-exceeded", 402, "http_request_denied", Refused;
    /// The store of a quota does not respond.
    StoreUnavailable => "store-unavailable", 503, "proxy_internal_error", Refused;
    /// The maximum number of exchanges is in flight.
    TooManyInFlight => "too-many-in-flight", 429, "http_request_denied", Refused;
    /// The queue is full.
    QueueFull => "queue-full", 429, "http_request_denied", Refused;
    /// The quota has no allowance within the maximum wait.
    QueueTimeout => "queue-timeout", 429, "http_request_denied", Refused;
    /// The provider has asked for a pause.
    ProviderThrottled => "provider-throttled", 429, "http_request_denied", Refused;
    /// The provider has failed too often recently.
    CircuitOpen => "circuit-open", 503, "destination_unavailable", Refused;
    /// A remedy that is configured to fail closed has failed.
    RemedyFailed => "remedy-failed", 503, "proxy_internal_error", Refused;
    /// The client accepts only a stored response, and there is none.
    NotCached => "not-cached", 504, "http_request_denied", Refused;
    /// There is no usable credential: the token endpoint fails, or every account is cooling down.
    AccountUnavailable => "account-unavailable", 503, "http_request_denied", Refused;
    /// The account signs bodies, and this one is too long to be kept.
    #[serde(skip)] BodyTooLargeToSign => "body-too-large-to-sign", 413, "http_request_denied", Refused;
    /// A response must be searched for secrets, but its content coding is unknown.
    #[serde(skip)] EchoUnreadable => "echo-unreadable", 502, "http_response_content_coding", BadResponse;
    /// The memory for bodies that flows need is used up.
    #[serde(skip)] BodiesFull => "bodies-full", 503, "proxy_internal_error", Refused;
    /// A script has refused the exchange.
    ScriptRefused => "script-refused", 403, "http_request_denied", Refused;
    /// The client has not proven who it is, on a listener that asks for it.
    #[serde(skip)] ClientUnproven => "client-unproven", 407, "http_request_denied", Refused;
    /// The remedy `fault` has aborted the call, or cut its response, to test the application.
    #[serde(skip)] FaultInjected => "fault-injected", 503, "http_request_denied", Refused;
    /// The remedy `fault` has reset the call to test the application.
    #[serde(skip)] FaultReset => "fault-reset", 502, "connection_terminated", Reset;
    /// A recorded request that is sent again would leave the provider of the recorded call.
    #[serde(skip)] ResendElsewhere => "resend-elsewhere", 403, "http_request_denied", Refused;
}

impl ErrorKind {
    /// Returns `true` if there was no connection, so the provider has seen nothing of the call.
    pub const fn is_before_sending(self) -> bool {
        let is_late =
            matches!(self, Self::DnsTimeout | Self::ConnectTimeout | Self::TlsTimeout | Self::ProxyTimeout);
        is_late || matches!(self.failure(), FailureKind::Connect)
    }

    /// Returns `true` if the provider failed; `false` if the gateway or the client did.
    pub const fn is_of_provider(self) -> bool {
        // Remedies see the end of the total time as a refusal, because no time is left for another call.
        matches!(self, Self::TotalTimeout)
            || !matches!((self, self.failure()), (Self::FaultReset, _) | (_, FailureKind::Refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_unique() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::ALL.iter().filter(|other| other.slug() == kind.slug()).count(), 1);
        }
    }

    #[test]
    fn the_page_of_errors_has_a_row_for_each() {
        let page = include_str!("../../../../docs/reference/errors.md");
        for kind in ErrorKind::ALL {
            let row = format!("| `{}` | {} | `{}` |", kind.slug(), kind.status(), kind.proxy_error());
            assert!(page.contains(&row), "docs/reference/errors.md has no row that starts with {row}");
        }
    }
}
