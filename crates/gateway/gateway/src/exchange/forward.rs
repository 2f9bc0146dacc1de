//! Edits the messages that the gateway forwards. It changes no more than RFC 9110 requires of an
//! intermediary.

use std::borrow::Cow;
use std::net::IpAddr;

use egret_clock::http_date;
use egret_http1::{Edits, Field, KnownField, Method, RequestHead, ResponseFraming, ResponseHead, Version};
use egret_leg::{Framing, Reply};
use egret_match::named_fields::NamedFields;
use egret_match::routing_fields::RoutingFields;
use egret_message::{Changes, OWN_REQUEST_ID, REQUEST_ID, RequestId, Via};
use egret_observe::failure::{ErrorKind, Failure};

use crate::state::changes::{Inbound, Outbound};
use egret_upstream::{CallTarget, EmptyPath};

/// Inspects every field of a request once: notes the fields that name the provider, marks the fields that
/// must not be forwarded, and rejects a request that has passed through this instance before.
pub(crate) fn survey(
    request: &mut RequestHead,
    bytes: &[u8],
    via: &Via,
    named: &NamedFields,
) -> Result<RoutingFields, Failure> {
    let mut routing = RoutingFields::default();
    for field in &mut request.fields {
        if named.may_be(field.name.len()) {
            field.hop_by_hop |= routing.note_named(field, bytes, named);
        }
        match field.known {
            KnownField::Other => field.hop_by_hop |= routing.note(field, bytes, named.compat()),
            KnownField::Via if via.is_in(field.value.of(bytes)) => {
                let detail =
                    "the request has passed through this gateway before: its destination sends it back";
                return Err(Failure::new(ErrorKind::LoopDetected, detail));
            }
            KnownField::MaxForwards if counts_forwards(request.method) => {
                forwards_left(field.value.of(bytes))?;
            }
            _ => {}
        }
    }
    Ok(routing)
}

/// Returns `true` for the two methods that count intermediaries (RFC 9110 §7.6.2).
fn counts_forwards(method: Method) -> bool {
    matches!(method, Method::Options | Method::Trace)
}

/// Returns `Max-Forwards` minus one. Fails if this intermediary must respond itself.
fn forwards_left(value: &[u8]) -> Result<u32, Failure> {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u32>().ok());
    number
        .and_then(|number| number.checked_sub(1))
        .ok_or_else(|| Failure::new(ErrorKind::NoForwardsLeft, "Max-Forwards is 0 or not a number"))
}

/// Facts about a request that the gateway discloses to the provider, if the config says so.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Disclosed<'a> {
    /// The client's address, added to `X-Forwarded-For`.
    pub client: Option<IpAddr>,
    /// The id that the gateway made, added as `x-request-id`.
    pub request_id: Option<&'a [u8]>,
    /// `true` if the client sent it in HTTP/2, which `Via` says.
    pub is_http2: bool,
}

/// Collects the changes to a request that [`survey`] has inspected and that is sent to `forward.upstream`.
pub(crate) fn edit_request(
    request: &RequestHead,
    bytes: &[u8],
    forward: &CallTarget,
    via: &Via,
    disclosed: Disclosed<'_>,
    outbound: Option<&Outbound>,
    edits: &mut Edits,
) {
    edits.clear();
    let plan = &forward.upstream.plan;
    let host = forward.host_field(bytes);
    let (mut has_host, mut forwarded_for, mut upgrades) = (false, None, false);
    for (index, field) in request.fields.iter().enumerate() {
        match field.known {
            KnownField::Host => {
                has_host = true;
                if let Some(host) = host {
                    edits.replace_value(index, host);
                }
            }
            KnownField::MaxForwards if counts_forwards(request.method) => {
                // The survey has rejected values that are not numbers.
                let left = forwards_left(field.value.of(bytes)).unwrap_or_default();
                edits.replace_value(index, left.to_string().as_bytes());
            }
            // Forwarded unchanged, because the body is sent with the same framing.
            KnownField::TransferEncoding => {}
            KnownField::Upgrade if request.upgrade => match plan.upgrades.left_of(field.value.of(bytes)) {
                Some(Cow::Borrowed(_)) => upgrades = true,
                Some(Cow::Owned(left)) => {
                    upgrades = true;
                    edits.replace_value(index, &left);
                }
                None => edits.remove(index),
            },
            _ if field.hop_by_hop => edits.remove(index),
            KnownField::XForwardedFor => forwarded_for = Some((index, field.value)),
            _ => {}
        }
    }
    if !has_host {
        edits.insert("Host", host.unwrap_or(&plan.host_field));
    }
    if let Some(client) = disclosed.client {
        let client = client.to_canonical().to_string();
        match forwarded_for.filter(|(_, before)| !before.is_empty()) {
            // Appended to the last field, because some servers read no other.
            Some((index, before)) => {
                edits.replace_value(index, &[before.of(bytes), b", ", client.as_bytes()].concat());
            }
            None => edits.insert("X-Forwarded-For", client.as_bytes()),
        }
    }
    let target = outbound.and_then(Outbound::target);
    if forward.new_target || request.version == Version::Http10 || target.is_some() {
        let path = target.unwrap_or_else(|| forward.target.of(bytes));
        let is_empty = matches!(path.first(), None | Some(b'?'));
        // `OPTIONS http://host` is a request about the server as a whole (RFC 9112 §3.2.4).
        let is_asterisk = path == b"*" || (path.is_empty() && forward.empty_path == EmptyPath::Asterisk);
        let (prefix, slash, path): (&[u8], &[u8], &[u8]) = if is_asterisk {
            (b"", b"", b"*")
        } else if is_empty && forward.empty_path != EmptyPath::Bare {
            (forward.base(), b"/", path)
        } else {
            (forward.base(), b"", path)
        };
        edits.start_line(&[request.method_text.of(bytes), b" ", prefix, slash, path, b" HTTP/1.1"]);
    }
    if upgrades {
        edits.insert("Connection", b"upgrade");
    } else if request.te_trailers {
        edits.insert("TE", b"trailers");
        edits.insert("Connection", b"TE");
    }
    edits.insert_lines(via.line(request.version, disclosed.is_http2));
    if let Some(id) = disclosed.request_id {
        edits.insert(REQUEST_ID, id);
    }
    if let Some(outbound) = outbound {
        edit_fields(&request.fields, bytes, &outbound.fields, outbound.credential_fields(), edits);
        if let Some(body) = outbound.body() {
            edit_length(&request.fields, body.len(), edits);
        }
    }
}

/// Sets the length of a body that a remedy has replaced. The trailers of the received body are dropped.
fn edit_length(fields: &[Field], len: usize, edits: &mut Edits) {
    for (index, field) in fields.iter().enumerate() {
        let known = field.known;
        if matches!(known, KnownField::ContentLength | KnownField::TransferEncoding | KnownField::Trailer) {
            edits.remove(index);
        }
    }
    edits.insert("Content-Length", len.to_string().as_bytes());
}

/// Applies the remedies' changes, then those of a `credential`. Fields that frame or route a message cannot
/// be changed.
fn edit_fields(
    fields: &[Field],
    bytes: &[u8],
    changes: &Changes,
    credential: Option<&Changes>,
    edits: &mut Edits,
) {
    let is_replaced = |name: &[u8]| credential.is_some_and(|credential| credential.removes(name));
    if changes.is_empty() && credential.is_none() {
        return;
    }
    for (index, field) in fields.iter().enumerate() {
        let name = field.name.of(bytes);
        if changes.removes(name) || is_replaced(name) {
            edits.remove(index);
        }
    }
    let changed = changes.added().filter(|(name, _)| !is_replaced(name));
    for (name, value) in changed.chain(credential.into_iter().flat_map(Changes::added)) {
        if let Ok(name) = std::str::from_utf8(name) {
            edits.insert(name, value);
        }
    }
}

/// Collects the changes to a final or informational response. `via` is the line for it.
pub(crate) fn edit_response(
    response: &ResponseHead,
    bytes: &[u8],
    reply: Reply,
    via: &[u8],
    request_id: &RequestId,
    inbound: Option<&Inbound>,
    edits: &mut Edits,
) {
    edits.clear();
    let mut dated = response.status < 200;
    let is_chunked = reply.framing == Framing::Chunked;
    for (index, field) in response.fields.iter().enumerate() {
        dated |= field.known == KnownField::Date;
        let remove = match field.known {
            KnownField::TransferEncoding => !(is_chunked && response.framing == ResponseFraming::Chunked),
            KnownField::Upgrade if response.status == 101 => false,
            KnownField::ProxyStatus => true,
            KnownField::Other => field.hop_by_hop || is_own_field(field.name.of(bytes)),
            _ => field.hop_by_hop,
        };
        if remove {
            edits.remove(index);
        }
    }
    if response.version == Version::Http10 || !response.has_space_after_status() {
        // The status code has a fixed position: `HTTP/1.0 200`. A space follows it, with or without a reason
        // phrase.
        edits.start_line(&[b"HTTP/1.1 ", &bytes[9..12], b" ", response.reason.of(bytes)]);
    }
    if !dated {
        // RFC 9110 §6.6.1: a recipient that forwards a response without `Date` adds one.
        edits.insert("Date", http_date::now().as_bytes());
    }
    if is_chunked && response.framing != ResponseFraming::Chunked {
        edits.insert("Transfer-Encoding", b"chunked");
    }
    if response.status == 101 {
        edits.insert("Connection", b"upgrade");
    } else if response.status >= 200 && !reply.persistent {
        edits.insert("Connection", b"close");
    } else if response.status >= 200 && reply.version == Version::Http10 {
        edits.insert("Connection", b"keep-alive");
    }
    edits.insert_lines(via);
    insert_request_id(request_id, edits);
    if let Some(inbound) = inbound {
        edit_by_flows(response, bytes, inbound, edits);
    }
}

/// Adds the id of the request.
fn insert_request_id(id: &RequestId, edits: &mut Edits) {
    let line = id.response_line();
    if !line.is_empty() {
        edits.insert_lines(line);
    }
}

/// Applies the remedies' changes to a response, and adds their decisions if the client requested a trace.
fn edit_by_flows(response: &ResponseHead, bytes: &[u8], inbound: &Inbound, edits: &mut Edits) {
    edit_fields(&response.fields, bytes, &inbound.fields, None, edits);
    if let Some(body) = &inbound.body {
        edit_length(&response.fields, body.len(), edits);
    }
    if let Some(trace) = &inbound.trace {
        edits.insert("x-egret-trace", trace.as_bytes());
    }
}

/// Collects the changes to the gateway's own response, or a stored one, after it has passed through remedies.
pub(crate) fn edit_generated(
    response: &ResponseHead,
    bytes: &[u8],
    reply: Reply,
    request_id: &RequestId,
    inbound: Option<&Inbound>,
    edits: &mut Edits,
) {
    edits.clear();
    insert_request_id(request_id, edits);
    edits.insert("Connection", if reply.persistent { b"keep-alive" } else { b"close" });
    if let Some(inbound) = inbound {
        edit_by_flows(response, bytes, inbound, edits);
    }
}

/// Returns `true` for the fields that report the gateway's own actions. A provider must not forge them.
fn is_own_field(name: &[u8]) -> bool {
    match name.len() {
        18 => name.eq_ignore_ascii_case(OWN_REQUEST_ID.as_bytes()),
        17 => name.eq_ignore_ascii_case(b"x-egret-generated"),
        13 => name.eq_ignore_ascii_case(b"x-egret-error") || name.eq_ignore_ascii_case(b"x-egret-trace"),
        _ => false,
    }
}
