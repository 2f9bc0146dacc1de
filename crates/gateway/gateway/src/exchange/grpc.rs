//! gRPC calls: their deadline, and the status that they end with.
//!
//! A call is recognised by its content type. Only an exchange that has arrived over HTTP/2 keeps a state for
//! it: gRPC has no other transport.

use egret_clock::Moment;
use egret_http1::{Edits, RequestHead};
use egret_message::Fields;
use egret_message::grpc::{self, GrpcOutcome, GrpcStatus};
use egret_net::event_loop::now;
use egret_observe::provider_errors::ProviderErrors;

use crate::state::changes::Outbound;

/// The detail of the error for an exchange that has reached the client's own deadline.
const DEADLINE: &str = "the exchange took longer than its client allows (`grpc-timeout`)";
/// The detail of the error for an exchange that has reached the gateway's limit.
pub(super) const TOTAL: &str = "the exchange took longer than `timeouts.total`";
/// Time by which the provider's deadline may exceed the client's. Less than this passes in a call that waits
/// for nothing, whose field is forwarded as it is.
const SLACK_NANOS: u64 = 1_000_000;

/// A gRPC call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GrpcCall {
    /// The time at which the client gives up; `NEVER` if it does not say.
    pub deadline: Moment,
    /// The status of the last call to a provider, if it is known.
    pub status: Option<GrpcStatus>,
}

impl GrpcCall {
    /// Returns the gRPC call that the request is, if it is one. It `begun` at that time.
    pub fn of(request: &RequestHead, bytes: &[u8], begun: Moment) -> Option<Box<Self>> {
        let fields = Fields::received(&request.fields, bytes);
        // A value that is no timeout is the provider's to judge.
        let timeout = || grpc::read_timeout(fields.get(grpc::TIMEOUT.as_bytes())?);
        grpc::is_grpc_message(fields)
            .then(|| Box::new(Self { deadline: begun.after(timeout()), status: None }))
    }

    /// Gives the provider the time that is left, if the exchange has waited. Otherwise the client's field is
    /// forwarded as it is: rewriting it would gain nothing. A field that remedies have set stays too.
    pub fn edit_timeout(
        self,
        request: &RequestHead,
        bytes: &[u8],
        begun: Moment,
        outbound: Option<&Outbound>,
        edits: &mut Edits,
    ) {
        let now = now::turned();
        let is_changed = |outbound: &Outbound| outbound.fields.removes(grpc::TIMEOUT.as_bytes());
        if self.deadline == Moment::NEVER
            || now.nanos_since(begun) < SLACK_NANOS
            || outbound.is_some_and(is_changed)
        {
            return;
        }
        let left = grpc::write_timeout(self.deadline.since(now));
        let is_timeout = |name: &[u8]| name.eq_ignore_ascii_case(grpc::TIMEOUT.as_bytes());
        if let Some(index) = request.fields.iter().position(|field| is_timeout(field.name.of(bytes))) {
            edits.replace_value(index, left.as_bytes());
        }
    }

    /// Returns the detail of the error for an exchange that took too long as a whole.
    pub fn total_detail(self, now: Moment) -> &'static str {
        if self.deadline <= now { DEADLINE } else { TOTAL }
    }

    /// Returns what is known of the status.
    pub fn outcome(self) -> GrpcOutcome {
        self.status.map_or(GrpcOutcome::Pending, GrpcOutcome::Ended)
    }

    /// Notes the status that a provider's response has, and counts the call in `errors` if it has failed.
    pub fn note_provider_status(&mut self, status: Option<GrpcStatus>, errors: &ProviderErrors) {
        self.status = status;
        if let Some(status) = status.filter(|status| status.is_failure()) {
            errors.failed_grpc(status);
        }
    }
}
