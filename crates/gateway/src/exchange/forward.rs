//! What is changed in a message on its way: no more than RFC 9110 asks of an intermediary.

use egret_clock::http_date;
use std::borrow::Cow;
use std::net::IpAddr;

use egret_flow::PendingChanges;
use egret_flow::accounts::Applied;
use egret_flow::message::Changes;
use egret_http1::{Edits, Field, KnownField, Method, RequestHead, ResponseFraming, ResponseHead, Version};

use crate::exchange::failure::{ErrorKind, Failure};
use crate::exchange::flow_run::FlowRun;
use crate::exchange::named_fields::NamedFields;
use crate::exchange::route::{EmptyPath, Forward, RoutingFields};

/// How this instance appears in `Via` (RFC 9110 §7.6.3). A request that carries its name has come round in a loop.
#[derive(Debug)]
pub(crate) struct Via {
    name: Box<[u8]>,
    /// The whole line for a message received as HTTP/1.0, and as HTTP/1.1.
    lines: [Box<[u8]>; 2],
}

impl Via {
    /// An instance that calls itself `name`, a token.
    pub fn new(name: &str) -> Self {
        let line = |version| format!("Via: {version} {name}\r\n").into_bytes().into_boxed_slice();
        Self { name: name.as_bytes().into(), lines: [line("1.0"), line("1.1")] }
    }

    /// The line for a message of that version.
    pub fn line(&self, version: Version) -> &[u8] {
        match version {
            Version::Http10 => &self.lines[0],
            Version::Http11 => &self.lines[1],
        }
    }

    fn is_in(&self, value: &[u8]) -> bool {
        memchr::memmem::find(value, &self.name).is_some()
    }
}

/// Looks at every field of a request once: notes what names the provider, marks what must not be forwarded, and refuses a request
/// that has been here before.
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
            KnownField::Other => field.hop_by_hop |= routing.note(field, bytes),
            KnownField::Via if via.is_in(field.value.of(bytes)) => {
                let detail =
                    "the request has come through this gateway before: what it is forwarded to sends it back";
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

/// Only these two methods count the intermediaries (RFC 9110 §7.6.2).
fn counts_forwards(method: Method) -> bool {
    matches!(method, Method::Options | Method::Trace)
}

/// What is left of `Max-Forwards` after this intermediary; none if it has to answer itself.
fn forwards_left(value: &[u8]) -> Result<u32, Failure> {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u32>().ok());
    number.and_then(|number| number.checked_sub(1)).ok_or_else(|| {
        Failure::new(
            ErrorKind::NoForwardsLeft,
            "Max-Forwards is used up, or no number: the request ends here",
        )
    })
}

/// What remedies, and the credential of an account, make of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drafted<'a> {
    /// What remedies have changed of its fields.
    pub fields: &'a Changes,
    /// What a credential changes of them after that.
    pub credential: Option<&'a Changes>,
    /// The path and query, relative to the provider's URL, where they are others.
    pub target: Option<&'a [u8]>,
    /// The body, where it is another.
    pub body: Option<&'a [u8]>,
}

impl<'a> Drafted<'a> {
    /// What `draft` has, and `applied` after it.
    pub fn new(draft: &'a PendingChanges, applied: Option<&'a Applied>) -> Self {
        let credential = applied.map(|applied| &applied.fields);
        let target = applied.and_then(|applied| applied.target.as_deref()).or(draft.target.as_deref());
        let body = applied.and_then(|applied| applied.body.as_deref()).or(draft.request_body.as_deref());
        Self { fields: &draft.request, credential, target, body }
    }
}

/// The changes to a request that [`survey`] has seen and that goes to `forward.upstream`. The provider is told of the `client` if one is
/// given.
pub(crate) fn edit_request(
    request: &RequestHead,
    bytes: &[u8],
    forward: &Forward,
    via: &Via,
    client: Option<IpAddr>,
    drafted: Option<Drafted<'_>>,
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
                // The survey has refused what has no number.
                let left = forwards_left(field.value.of(bytes)).unwrap_or_default();
                edits.replace_value(index, left.to_string().as_bytes());
            }
            // Sent on as they are, since what they say holds for the next connection too.
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
    if let Some(client) = client {
        let client = client.to_canonical().to_string();
        match forwarded_for.filter(|(_, before)| !before.is_empty()) {
            // Appended to the last, since some servers read no other.
            Some((index, before)) => {
                edits.replace_value(index, &[before.of(bytes), b", ", client.as_bytes()].concat());
            }
            None => edits.insert("X-Forwarded-For", client.as_bytes()),
        }
    }
    let target = drafted.and_then(|drafted| drafted.target);
    if forward.new_target || request.version == Version::Http10 || target.is_some() {
        let path = target.unwrap_or_else(|| forward.target.of(bytes));
        let is_empty = matches!(path.first(), None | Some(b'?'));
        // `OPTIONS http://host` asks about the server as a whole (RFC 9112 §3.2.4).
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
    edits.insert_lines(via.line(request.version));
    if let Some(Drafted { fields, credential, body, .. }) = drafted {
        edit_fields(&request.fields, bytes, fields, credential, edits);
        if let Some(body) = body {
            edit_length(&request.fields, body.len(), edits);
        }
    }
}

/// Has the head tell the length of a body that a remedy has put in the place of the one received. The trailers of that one are gone.
fn edit_length(fields: &[Field], len: usize, edits: &mut Edits) {
    for (index, field) in fields.iter().enumerate() {
        let known = field.known;
        if matches!(known, KnownField::ContentLength | KnownField::TransferEncoding | KnownField::Trailer) {
            edits.remove(index);
        }
    }
    edits.insert("Content-Length", len.to_string().as_bytes());
}

/// Applies what remedies have changed, and after it a `credential`. What frames a message, or says where it goes, they cannot change.
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

/// What becomes of the client's connection with this response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The client's protocol version.
    pub version: Version,
    /// Whether the connection stays open after it.
    pub persistent: bool,
    /// Whether the body goes out in chunks.
    pub chunked: bool,
}

impl Reply {
    /// How the response to a client of `version` goes out. `persistent` is whether the connection could stay open.
    pub fn new(version: Version, framing: ResponseFraming, persistent: bool) -> Self {
        let unknown_length = matches!(framing, ResponseFraming::Chunked | ResponseFraming::UntilClose);
        let chunked = unknown_length && version == Version::Http11;
        // Only the end of the connection tells an HTTP/1.0 client the end of a body without length.
        Self { version, persistent: persistent && (chunked || !unknown_length), chunked }
    }
}

/// The changes to a final or informational response.
pub(crate) fn edit_response(
    response: &ResponseHead,
    bytes: &[u8],
    reply: Reply,
    via: &Via,
    flow_run: Option<&FlowRun>,
    edits: &mut Edits,
) {
    edits.clear();
    let mut dated = response.status < 200;
    for (index, field) in response.fields.iter().enumerate() {
        dated |= field.known == KnownField::Date;
        let remove = match field.known {
            KnownField::TransferEncoding => !(reply.chunked && response.framing == ResponseFraming::Chunked),
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
        // The status has a fixed place: `HTTP/1.0 200`. A space follows it, reason or none.
        edits.start_line(&[b"HTTP/1.1 ", &bytes[9..12], b" ", response.reason.of(bytes)]);
    }
    if !dated {
        // RFC 9110 §6.6.1 asks this of whoever forwards a response without one.
        edits.insert("Date", http_date::now().as_bytes());
    }
    if reply.chunked && response.framing == ResponseFraming::UntilClose {
        edits.insert("Transfer-Encoding", b"chunked");
    }
    if response.status == 101 {
        edits.insert("Connection", b"upgrade");
    } else if response.status >= 200 && !reply.persistent {
        edits.insert("Connection", b"close");
    } else if response.status >= 200 && reply.version == Version::Http10 {
        edits.insert("Connection", b"keep-alive");
    }
    edits.insert_lines(via.line(response.version));
    if let Some(flow_run) = flow_run {
        edit_by_flows(response, bytes, flow_run, edits);
    }
}

/// What remedies have changed in a response, and what they have decided, if the client asks.
fn edit_by_flows(response: &ResponseHead, bytes: &[u8], flow_run: &FlowRun, edits: &mut Edits) {
    edit_fields(&response.fields, bytes, &flow_run.draft.response, None, edits);
    if let Some(body) = &flow_run.draft.response_body {
        edit_length(&response.fields, body.len(), edits);
    }
    if let Some(trace) = flow_run.trace() {
        edits.insert("x-egret-trace", trace.as_bytes());
    }
}

/// The changes to an answer of the gateway's own that has gone through remedies like a response.
pub(crate) fn edit_generated(
    response: &ResponseHead,
    bytes: &[u8],
    reply: Reply,
    flow_run: Option<&FlowRun>,
    edits: &mut Edits,
) {
    edits.clear();
    edits.insert("Connection", if reply.persistent { b"keep-alive" } else { b"close" });
    if let Some(flow_run) = flow_run {
        edit_by_flows(response, bytes, flow_run, edits);
    }
}

/// Fields that say what the gateway itself has done; a provider may not forge them.
fn is_own_field(name: &[u8]) -> bool {
    match name.len() {
        17 => name.eq_ignore_ascii_case(b"x-egret-generated"),
        13 => name.eq_ignore_ascii_case(b"x-egret-error") || name.eq_ignore_ascii_case(b"x-egret-trace"),
        _ => false,
    }
}
