//! The header fields by which a client names a provider, itself, and the request.

use std::cmp::Reverse;

use egret_http1::{Field, KnownField, Span};

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
    /// forwarded.
    pub fn note(&mut self, field: &Field, bytes: &[u8]) -> bool {
        if field.known != KnownField::Other {
            return false;
        }
        let name = field.name.of(bytes);
        // The length rules out nearly all other fields without comparing them.
        let (slot, rank) = match name.len() {
            13 if is_for_egret(name) => return true,
            16 if name.eq_ignore_ascii_case(b"x-egret-consumer") => (&mut self.consumer, Rank::Egret),
            20 if name.eq_ignore_ascii_case(b"x-lunar-consumer-tag") => (&mut self.consumer, Rank::Lunar),
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

    /// Notes `field` if the config gives it a meaning, and returns `true` if the field is not forwarded.
    pub fn note_named(&mut self, field: &Field, bytes: &[u8], named: &NamedFields) -> bool {
        let name = field.name.of(bytes);
        if let Some(position) = named.request_id_position(name) {
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
