//! Calls that an exchange orders and does not wait for. The worker's background tasks make them.

use std::rc::Rc;

use egret_accounts::token::Fetch;
use egret_http1::RequestHead;
use egret_match::router::Matches;
use egret_message::{ClientAddress, ListenAddress};
use egret_remedy::PendingChanges;
use egret_store::coalescer::Background;

use crate::state::request::Pools;
use egret_upstream::{CallTarget, View};

/// Fields with which a client requests a part, or says that it has a stored response.
const CONDITIONAL_FIELDS: [&[u8]; 4] = [b"range", b"if-range", b"if-none-match", b"if-modified-since"];

/// A call that an exchange has ordered.
#[derive(Debug)]
pub(crate) enum FollowUp {
    /// A call that refreshes a stored response for later requests.
    Revalidation(Box<Revalidation>),
    /// A call that fetches the token of an account.
    Token { fetch: Fetch, view: Rc<View>, listener: ListenAddress },
}

/// The request that refreshes a stored response.
#[derive(Debug)]
pub(crate) struct Revalidation {
    pub view: Rc<View>,
    pub target: CallTarget,
    /// The head of the client's request, without the fields of [`CONDITIONAL_FIELDS`], and its body if it was
    /// gathered.
    pub request: Vec<u8>,
    pub listener: ListenAddress,
    /// The client's address, if calls show it to the provider.
    pub client: Option<ClientAddress>,
    pub matches: Matches,
    pub background: Background,
    /// The changes that the outer remedies made to the request.
    pub outer: PendingChanges,
}

/// A request as received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceivedRequest<'a> {
    pub head: &'a RequestHead,
    /// The bytes from which the head was parsed.
    pub bytes: &'a [u8],
    /// The body with its framing, if it was gathered.
    pub body: &'a [u8],
}

impl ReceivedRequest<'_> {
    /// Returns the request as bytes, without the fields that make it conditional or partial.
    pub fn unconditional(&self, pools: &Pools) -> Vec<u8> {
        let Self { head, bytes, body } = *self;
        // Empty lines may precede the head. With them, all offsets stay valid.
        let mut request = bytes[..head.method_text.range().start].to_vec();
        let mut edits = pools.edits.borrow_mut();
        edits.clear();
        for (index, field) in head.fields.iter().enumerate() {
            if CONDITIONAL_FIELDS.iter().any(|name| field.name.of(bytes).eq_ignore_ascii_case(name)) {
                edits.remove(index);
            }
        }
        head.render(bytes, &edits).for_each_piece(|piece| request.extend_from_slice(piece));
        request.extend_from_slice(body);
        request
    }
}
