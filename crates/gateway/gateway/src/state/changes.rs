//! The changes that flows make to a call and to its response, as plain data. A call without flows has none.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use egret_accounts::{Applied, SecretPatterns};
use egret_body::{FaultedBody, Lead, Pipe};
use egret_cache::Stored;
use egret_clock::Moment;
use egret_http1::Field;
use egret_match::{EventScan, is_event_stream};
use egret_message::{Changes, Fields};
use egret_net::budget::Budget;
use egret_quota::{Permit, Redraw};
use egret_remedy::BodyFault;
use egret_store::entries::BodyWriter;
use smallvec::SmallVec;

/// The changes to a call.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    /// The remedies' changes of the header fields.
    pub fields: Changes,
    /// The new path and query, relative to the provider's URL, if they change.
    pub target: Option<Rc<[u8]>>,
    /// `true` if a remedy has inserted a secret into that.
    pub has_secret_target: bool,
    /// The new body, if it changes.
    pub body: Option<Rc<[u8]>>,
    /// The changes by the credential of an account. They come last.
    pub credential: Option<Applied>,
    /// Length of the received body with its framing, if all of it has been received.
    pub framed_len: usize,
    /// Maximum time until the response begins, if it is not the provider's own.
    pub first_byte: Option<Duration>,
    /// The secrets to mask in the response, if any.
    pub mask: Option<Arc<SecretPatterns>>,
    /// The order to run a second call beside a slow one.
    pub hedge: Option<HedgeOrder>,
    /// `true` if the call goes on, even if the client has left.
    pub reads_on: bool,
    /// The permits that must be valid when the call is sent.
    pub permits: SmallVec<[Permit; 1]>,
}

impl Outbound {
    /// Releases all that the changes hold, apart from the memory of their fields.
    pub fn release(&mut self) {
        (self.target, self.body) = (None, None);
        (self.credential, self.mask, self.hedge) = (None, None, None);
        self.permits.clear();
    }

    /// Returns `true` if the call may be sent at this moment.
    pub fn is_permitted(&self) -> bool {
        self.permits.iter().all(Permit::is_valid)
    }

    /// Returns the credential's changes of the header fields.
    pub fn credential_fields(&self) -> Option<&Changes> {
        self.credential.as_ref().map(|applied| &applied.fields)
    }

    /// Returns the changes of the head as a recording shows them: without the values of the credential, and
    /// without secrets that remedies have inserted.
    pub fn shown(&self) -> Self {
        Self {
            fields: self.fields.shown(false),
            target: self.target.clone().filter(|_| !self.has_secret_target),
            body: self.body.clone(),
            credential: self.credential.as_ref().map(Applied::shown),
            ..Self::default()
        }
    }

    /// Returns the new path and query, if they change.
    pub fn target(&self) -> Option<&[u8]> {
        let applied = self.credential.as_ref().and_then(|applied| applied.target.as_deref());
        applied.or(self.target.as_deref())
    }

    /// Returns the new body, if it changes.
    pub fn body(&self) -> Option<&[u8]> {
        let applied = self.credential.as_ref().and_then(|applied| applied.body.as_deref());
        applied.or(self.body.as_deref())
    }
}

/// The changes to a response, and the copies of it that flows need.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// The remedies' changes of the header fields.
    pub fields: Changes,
    /// The new body, if it changes.
    pub body: Option<Rc<[u8]>>,
    /// Length of the received body with its framing, if all of it has been received.
    pub framed_len: usize,
    /// The remedies' decisions, if the client requested a trace.
    pub trace: Option<String>,
    /// The secrets to mask in the body, if any.
    pub mask: Option<Arc<SecretPatterns>>,
    /// The end of the body to keep, if remedies need it.
    pub tail: Option<Tail>,
    /// The fault that the body gets on its way, if any.
    pub fault: Option<Arc<BodyFault>>,
    /// Maximum time from one event with content to the next, in a stream of events.
    pub stall: Option<Duration>,
    /// `true` if the report of usage is left out of the body, which is a stream of events.
    pub hides_usage: bool,
    /// The cache entry to fill with the body, if a cache stores the response.
    pub filling: Option<BodyWriter<Stored>>,
    /// The tie to the task that fills it.
    pub lead: Option<Rc<Lead>>,
}

impl Inbound {
    /// Releases all that the changes hold, apart from the memory of their fields.
    pub fn release(&mut self) {
        (self.body, self.trace, self.mask) = (None, None, None);
        (self.tail, self.fault, self.filling, self.lead) = (None, None, None, None);
    }

    /// Starts to keep the end of the response or to read its events, if remedies need it, and to fill the
    /// cache, if one stores the response.
    pub fn add_stages(&mut self, fields: &[Field], head: &[u8], down: &mut Pipe, budget: &Arc<Budget>) {
        if let Some(mask) = &self.mask {
            down.add_stages().mask(mask);
        }
        if self.hides_usage {
            down.add_stages().hide_usage(Fields::received(fields, head), budget);
        }
        if self.fault.is_some() || self.stall.is_some() {
            let fields = Fields::received(fields, head);
            let is_event_stream = is_event_stream(fields) && !fields.is_encoded();
            let is_one_piece = self.body.is_some();
            if let Some(fault) = self.fault.take() {
                down.add_stages()
                    .inject(&fault, FaultedBody { is_event_stream, is_one_piece, now: Moment::now() });
            }
            if let Some(limit) = self.stall.filter(|_| is_event_stream && !is_one_piece) {
                down.add_stages().limit_stalls(limit);
            }
        }
        if let Some(filling) = self.filling.take() {
            down.add_stages().store(filling);
        }
        if let Some(Tail { max, wants_usage, memory, head: kept, .. }) = &mut self.tail {
            kept.clear();
            kept.extend_from_slice(head);
            let fields = Fields::received(fields, head);
            if *max > 0 {
                down.add_stages().tap(|tap| match EventScan::of_response(fields) {
                    Some(events) => tap.read_events(events, budget),
                    None => tap.keep_end(mem::take(memory), *max, budget),
                });
            }
            if *wants_usage {
                down.add_stages().read_usage(fields, budget);
            }
        }
    }
}

/// A copy of a response: its head, and the end of its body.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Number of bytes to keep of the body.
    pub max: usize,
    /// `true` if the usage that the body reports is read.
    pub wants_usage: bool,
    /// `true` if the body is read to its end, even if the client has left.
    pub reads_on: bool,
    /// Memory for the end of the body, until the body is tapped.
    pub memory: Vec<u8>,
    /// The head as received; empty if the response has not begun.
    pub head: Vec<u8>,
}

/// The order to run a second call beside a slow one. The first call fills in the request when it has sent all
/// of it.
#[derive(Debug, Clone)]
pub(crate) struct HedgeOrder {
    /// Time without a response after which the second call is made.
    pub after: Duration,
    request: Rc<RefCell<Option<Vec<u8>>>>,
    /// The units that the second call needs.
    pub redraws: Rc<[Redraw]>,
}

impl HedgeOrder {
    /// Creates the order of a second call `after` that time, which needs these units.
    pub fn new(after: Duration, redraws: Vec<Redraw>) -> Self {
        Self { after, request: Rc::default(), redraws: redraws.into() }
    }

    /// Stores the request that the first call has sent: head and body.
    pub fn set_request(&self, request: Vec<u8>) {
        *self.request.borrow_mut() = Some(request);
    }

    /// Takes the request, if the first call has sent it since the last call of this function.
    pub fn take_request(&self) -> Option<Vec<u8>> {
        self.request.borrow_mut().take()
    }
}
