//! The header fields by which a client names a provider.

use std::cmp::Reverse;

use egret_http1::{Field, KnownField, Span};

use crate::named_fields::{Named, NamedFields};

/// The routing fields of a request.
#[derive(Debug, Default)]
pub struct RoutingFields {
    host: Option<(Rank, Span)>,
    scheme: Option<(Rank, Span)>,
}

/// The precedence of the names of a routing field. The highest one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// By its position in `gateway.scheme_fields`.
    Configured(Reverse<usize>),
    Mashape,
    Lunar,
    Egret,
}

impl RoutingFields {
    /// Returns the host that they name.
    pub fn host(&self) -> Option<Span> {
        self.host.map(|(_, host)| host)
    }

    /// Returns the scheme that they name.
    pub fn scheme(&self) -> Option<Span> {
        self.scheme.map(|(_, scheme)| scheme)
    }

    /// Notes `field` and returns `true` if it is a routing field or is meant for flows. Such fields are not
    /// forwarded.
    pub fn note(&mut self, field: &Field, bytes: &[u8]) -> bool {
        if field.known != KnownField::Other {
            return false;
        }
        let name = field.name.of(bytes);
        if is_for_flows(name) {
            return true;
        }
        // The length rules out nearly all other fields without comparing them.
        let (slot, rank) = match name.len() {
            12 if name.eq_ignore_ascii_case(b"x-egret-host") => (&mut self.host, Rank::Egret),
            12 if name.eq_ignore_ascii_case(b"x-lunar-host") => (&mut self.host, Rank::Lunar),
            14 if name.eq_ignore_ascii_case(b"x-egret-scheme") => (&mut self.scheme, Rank::Egret),
            14 if name.eq_ignore_ascii_case(b"x-lunar-scheme") => (&mut self.scheme, Rank::Lunar),
            21 if name.eq_ignore_ascii_case(b"mashape-host-override") => (&mut self.host, Rank::Mashape),
            25 if name.eq_ignore_ascii_case(b"mashape-upstream-protocol") => {
                (&mut self.scheme, Rank::Mashape)
            }
            _ => return false,
        };
        if slot.is_none_or(|(known, _)| known < rank) {
            *slot = Some((rank, field.value));
        }
        true
    }

    /// Notes `field` and returns `true` if the config reserves it for the gateway. Such fields are not
    /// forwarded.
    pub fn note_named(&mut self, field: &Field, bytes: &[u8], named: &NamedFields) -> bool {
        let number = match named.find(field.name.of(bytes)) {
            Some(Named::Scheme(number)) => number,
            Some(Named::Private) => return true,
            None => return false,
        };
        // If several proxies appended values, the first is from the proxy nearest to the client.
        let value = field.value.of(bytes);
        let first = value.split(|byte| *byte == b',').next().unwrap_or_default().trim_ascii_end();
        let start = field.value.range().start;
        let scheme = Span::new(start, start + first.len());
        let rank = Rank::Configured(Reverse(number));
        if !first.is_empty() && self.scheme.is_none_or(|(known, _)| known < rank) {
            self.scheme = Some((rank, scheme));
        }
        true
    }
}

/// Returns `true` for fields meant for the gateway's flows: the name of the consumer, and the request for a
/// trace.
fn is_for_flows(name: &[u8]) -> bool {
    match name.len() {
        13 => name.eq_ignore_ascii_case(b"x-egret-trace"),
        16 => name.eq_ignore_ascii_case(b"x-egret-consumer"),
        20 => name.eq_ignore_ascii_case(b"x-lunar-consumer-tag"),
        _ => false,
    }
}
