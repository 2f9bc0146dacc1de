//! The header fields by which a client names a provider, itself, and the request.

use std::cmp::Reverse;

use egret_http1::{Field, KnownField, Span};

use crate::compat::{Compat, OtherProduct};
use crate::named_fields::NamedFields;

/// The routing fields of a request.
#[derive(Debug, Default)]
pub struct RoutingFields {
    host: Option<(Rank, Span)>,
    scheme: Option<(Rank, Span)>,
    consumer: Option<(Rank, Span)>,
    request_id: Option<(usize, Span)>,
}

/// Maximum length of a request id that is taken from a client.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Returns `true` for the request for a trace, which is meant for flows, and for a client's token, which must
/// not reach a provider even if the listener asks for none.
fn is_for_egret(name: &[u8]) -> bool {
    // The first letter rules out `cache-control` and others.
    name.first().is_some_and(|first| first.eq_ignore_ascii_case(&b'x'))
        && (name.eq_ignore_ascii_case(b"x-egret-trace") || name.eq_ignore_ascii_case(b"x-egret-token"))
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

impl Rank {
    /// Returns the product whose name it is, if it is not Egret's own and not one of the config.
    const fn product(self) -> Option<OtherProduct> {
        match self {
            Self::Lunar => Some(OtherProduct::Lunar),
            Self::Mashape => Some(OtherProduct::Harchiver),
            Self::Configured(_) | Self::Egret => None,
        }
    }
}

/// The part of a call that a routing field names.
#[derive(Debug, Clone, Copy)]
enum RoutingPart {
    Host,
    Scheme,
    Consumer,
}

/// Returns the part that the header field `name` names, if it is a routing field.
#[inline]
fn meaning(name: &[u8]) -> Option<(RoutingPart, Rank)> {
    // The length rules out nearly all other fields without comparing them.
    Some(match name.len() {
        16 if name.eq_ignore_ascii_case(b"x-egret-consumer") => (RoutingPart::Consumer, Rank::Egret),
        20 if name.eq_ignore_ascii_case(b"x-lunar-consumer-tag") => (RoutingPart::Consumer, Rank::Lunar),
        12 if name.eq_ignore_ascii_case(b"x-egret-host") => (RoutingPart::Host, Rank::Egret),
        12 if name.eq_ignore_ascii_case(b"x-lunar-host") => (RoutingPart::Host, Rank::Lunar),
        14 if name.eq_ignore_ascii_case(b"x-egret-scheme") => (RoutingPart::Scheme, Rank::Egret),
        14 if name.eq_ignore_ascii_case(b"x-lunar-scheme") => (RoutingPart::Scheme, Rank::Lunar),
        21 if name.eq_ignore_ascii_case(b"mashape-host-override") => (RoutingPart::Host, Rank::Mashape),
        25 if name.eq_ignore_ascii_case(b"mashape-upstream-protocol") => (RoutingPart::Scheme, Rank::Mashape),
        _ => return None,
    })
}

/// Returns `true` for a routing field of a product that `compat` excludes.
pub(crate) fn is_excluded(field: &Field, bytes: &[u8], compat: Compat) -> bool {
    let product = meaning(field.name.of(bytes)).and_then(|(_, rank)| rank.product());
    product.is_some_and(|product| compat.excludes(product))
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

    /// Returns the name that the client gives itself.
    pub fn consumer(&self) -> Option<Span> {
        self.consumer.map(|(_, consumer)| consumer)
    }

    /// Returns the request id that the client sent.
    pub fn request_id(&self) -> Option<Span> {
        self.request_id.map(|(_, id)| id)
    }

    /// Notes `field` and returns `true` if it is a routing field or is meant for flows. Such fields are not
    /// forwarded. Those of a product that `compat` excludes are not noted.
    pub fn note(&mut self, field: &Field, bytes: &[u8], compat: Compat) -> bool {
        if field.known != KnownField::Other {
            return false;
        }
        let name = field.name.of(bytes);
        if name.len() == 13 && is_for_egret(name) {
            return true;
        }
        let Some((part, rank)) = meaning(name) else { return false };
        let slot = match part {
            RoutingPart::Host => &mut self.host,
            RoutingPart::Scheme => &mut self.scheme,
            RoutingPart::Consumer => &mut self.consumer,
        };
        let is_read = rank.product().is_none_or(|product| compat.reads(product));
        if is_read && slot.is_none_or(|(known, _)| known < rank) {
            *slot = Some((rank, field.value));
        }
        true
    }

    /// Notes `field` if the config gives it a meaning, and returns `true` if the field is not forwarded.
    pub fn note_named(&mut self, field: &Field, bytes: &[u8], named: &NamedFields) -> bool {
        let name = field.name.of(bytes);
        let is_read =
            || OtherProduct::of_request_id(name).is_none_or(|product| named.compat().reads(product));
        if let Some(position) = named.request_id_position(name).filter(|_| is_read()) {
            self.note_request_id(position, field.value, bytes);
        }
        if let Some(position) = named.scheme_position(name) {
            self.note_scheme(position, field.value, bytes);
            return true;
        }
        named.is_private(name)
    }

    /// Notes an id if it is usable and comes from the first field of the config so far.
    fn note_request_id(&mut self, position: usize, value: Span, bytes: &[u8]) {
        let id = value.of(bytes);
        let is_usable = (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic);
        if is_usable && self.request_id.is_none_or(|(known, _)| position < known) {
            self.request_id = Some((position, value));
        }
    }

    fn note_scheme(&mut self, position: usize, value: Span, bytes: &[u8]) {
        // If several proxies appended values, the first is from the proxy nearest to the client.
        let first = value.of(bytes).split(|byte| *byte == b',').next().unwrap_or_default().trim_ascii_end();
        let start = value.range().start;
        let scheme = Span::new(start, start + first.len());
        let rank = Rank::Configured(Reverse(position));
        if !first.is_empty() && self.scheme.is_none_or(|(known, _)| known < rank) {
            self.scheme = Some((rank, scheme));
        }
    }
}
