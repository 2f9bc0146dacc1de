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
use crate::state::request::ResponseState;

/// The detail of the error for an exchange that has reached the client's own deadline.
const DEADLINE: &str = "the exchange took longer than its client allows (`grpc-timeout`)";
/// The detail of the error for an exchange that has reached the gateway's limit.
const TOTAL: &str = "the exchange took longer than `timeouts.total`";
/// Time by which the provider's deadline may exceed the client's. Less than this passes in a call that waits
/// for nothing, whose field is forwarded as it is.
const SLACK_NANOS: u64 = 1_000_000;

/// A gRPC call.
#[derive(Debug, Clone, Copy)]
struct GrpcCall {
    /// The time at which the client gives up; `NEVER` if it does not say.
    deadline: Moment,
    /// The status of the last call to a provider, if it is known.
    status: Option<GrpcStatus>,
}

impl GrpcCall {
    /// Returns the gRPC call that the request is, if it is one. It `begun` at that time.
    fn of(request: &RequestHead, bytes: &[u8], begun: Moment) -> Option<Self> {
        let fields = Fields::received(&request.fields, bytes);
        // A value that is no timeout is the provider's to judge.
        let timeout = || grpc::read_timeout(fields.get(grpc::TIMEOUT.as_bytes())?);
        grpc::is_grpc_message(fields).then(|| Self { deadline: begun.after(timeout()), status: None })
    }

    /// Gives the provider the time that is left, if the exchange has waited. Otherwise the client's field is
    /// forwarded as it is: rewriting it would gain nothing. A field that remedies have set stays too.
    fn edit_timeout(
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
}

/// The gRPC call that a request is, if it is one.
#[derive(Debug, Default)]
pub(crate) struct GrpcState(Option<Box<GrpcCall>>);

impl GrpcState {
    /// Looks whether the request, which `begun` at that time, is a gRPC call.
    pub fn of(request: &RequestHead, bytes: &[u8], begun: Moment) -> Self {
        Self(GrpcCall::of(request, bytes, begun).map(Box::new))
    }

    /// Returns `true` if the request is a gRPC call.
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the time at which the client of a gRPC call gives up; `NEVER` if the request is none or has no
    /// deadline.
    pub fn deadline(&self) -> Moment {
        self.0.as_ref().map_or(Moment::NEVER, |grpc| grpc.deadline)
    }

    /// Returns `true` if it is the client's own deadline that ends the exchange.
    pub fn is_past_deadline(&self, now: Moment) -> bool {
        self.deadline() <= now
    }

    /// Returns the detail of the error for an exchange that took too long as a whole.
    pub fn total_detail(&self, now: Moment) -> &'static str {
        if self.is_past_deadline(now) { DEADLINE } else { TOTAL }
    }

    /// Gives the provider the time that is left, if the request is a gRPC call.
    pub fn edit_timeout(
        &self,
        request: &RequestHead,
        bytes: &[u8],
        begun: Moment,
        outbound: Option<&Outbound>,
        edits: &mut Edits,
    ) {
        if let Some(grpc) = &self.0 {
            grpc.edit_timeout(request, bytes, begun, outbound, edits);
        }
    }

    /// Returns what is known of the status of the gRPC call, if the request is one.
    pub fn outcome(&self) -> GrpcOutcome {
        match &self.0 {
            None => GrpcOutcome::NotGrpc,
            Some(grpc) => grpc.status.map_or(GrpcOutcome::Pending, GrpcOutcome::Ended),
        }
    }

    /// Notes the status of the gRPC call.
    pub fn note_status(&mut self, status: Option<GrpcStatus>) {
        if let Some(grpc) = &mut self.0 {
            grpc.status = status;
        }
    }

    /// Notes the status that a provider's response has, and counts the call in `errors` if it has failed.
    pub fn note_provider_status(&mut self, status: Option<GrpcStatus>, errors: &ProviderErrors) {
        self.note_status(status);
        if let Some(status) = status.filter(|status| status.is_failure()) {
            errors.failed_grpc(status);
        }
    }

    /// Notes the status that the head of a response has, if there is no message.
    pub fn note_head(&mut self, response_state: &ResponseState, errors: &ProviderErrors) {
        if self.is_some() {
            let ResponseState { output, response, .. } = response_state;
            let status = GrpcStatus::in_head(Fields::received(&response.fields, output.filled()));
            self.note_provider_status(status, errors);
        }
    }

    /// Notes the status that the trailers of a response have, unless it was known before.
    pub fn note_trailers(&mut self, trailers: &[u8], errors: &ProviderErrors) {
        if self.outcome() == GrpcOutcome::Pending {
            self.note_provider_status(GrpcStatus::in_trailers(trailers), errors);
        }
    }
}
