//! The outcome of a request that has passed its remedies: the response that the client gets, that of a
//! provider or one that a remedy has made, and the calls that nobody waits for.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use egret_cache::Served;
use egret_clock::{Moment, planted};
use egret_http1::{HeadLimits, Method, Progress, ResponseFraming};
use egret_leg::Framing;
use egret_message::Changes;
use egret_observe::failure::{self, ErrorKind, Failure};
use egret_remedy::{LocalResponse, PendingChanges};
use egret_store::entries::Block;

use super::{CallOutcome, Guided, RESET};
use crate::exchange::reply::{self, Ended};
use crate::exchange::stop::Stop;
use crate::exchange::stored::{self, write_head};
use crate::state::flow_run::{StoredPart, is_plain_json};
use crate::state::follow_up::{FollowUp, ReceivedRequest, Revalidation};
use crate::state::request::ResponseState;
use egret_upstream::{CallTarget, Connection};

impl Guided<'_, '_> {
    /// Sends the client the outcome that has passed all remedies.
    pub(super) async fn conclude(&mut self, outcome: CallOutcome) -> Ended {
        match outcome {
            CallOutcome::Response(connection) => {
                self.call.lend_inbound(self.run.lend_inbound());
                reply::pass_on(self.call, connection).await
            }
            CallOutcome::LocalResponse(failure) => {
                self.call.lend_inbound(self.run.lend_inbound());
                // Only a response that came from a provider names that provider's paths.
                let is_stored = self.run.held == StoredPart::Whole;
                stored::deliver(self.call, failure.as_ref(), is_stored).await
            }
            CallOutcome::Stored(served) => {
                self.call.lend_inbound(self.run.lend_inbound());
                stored::serve(self.call, &served, self.run.held == StoredPart::Head).await
            }
            CallOutcome::Failure(failure) if failure.kind == ErrorKind::FaultReset => {
                reply::reset_client(self.call, failure.kind)
            }
            CallOutcome::Failure(failure) => {
                let failure = failure.with_fields(Changes::added(&self.run.draft.response));
                Box::pin(reply::respond_with_error(self.call, &failure)).await
            }
        }
    }

    /// Puts a remedy's own response into the response state, as if it had been received.
    pub(super) fn hold_response(&mut self, response: LocalResponse) -> CallOutcome {
        let with_body = self.call.state.request.method != Method::Head;
        self.run.held = if matches!(response, LocalResponse::Stored(_)) {
            StoredPart::Whole
        } else {
            StoredPart::Nothing
        };
        let (message, failure) = match response {
            LocalResponse::Stored(served) => match self.hold_stored(served) {
                Ok(message) => (message, None),
                Err(outcome) => return outcome,
            },
            LocalResponse::Fixed(fixed) if self.call.is_grpc() => (failure::fixed_in_grpc(&fixed), None),
            LocalResponse::Fixed(fixed) => (failure::fixed(&fixed, with_body), None),
            LocalResponse::Reset => {
                return CallOutcome::Failure(Failure::new(ErrorKind::FaultReset, RESET));
            }
            LocalResponse::Refused(refused) | LocalResponse::Aborted(refused) => {
                let now = self.timestamp(Moment::now());
                let failure = Failure::refused(refused, now);
                let (errors, shape) = (&self.call.view.plan.errors, self.call.error_shape());
                (failure.message(errors, shape, &self.call.state.request_id), Some(failure))
            }
        };
        match self.hold_message(&message) {
            Ok(()) => CallOutcome::LocalResponse(failure),
            Err(failure) => CallOutcome::Failure(failure),
        }
    }

    /// Puts a message into the response state, as if it had been received.
    fn hold_message(&mut self, message: &[u8]) -> Result<(), Failure> {
        let pools = &self.call.client.connection.worker.pools;
        self.call.state.take_response_state(pools);
        let ResponseState { output, response, .. } = &mut *self.call.state.response_state;
        pools.buffers.grow(output, message.len());
        output.clear();
        output.spare()[..message.len()].copy_from_slice(message);
        output.advance(message.len());
        response.reset();
        match response.parse(output.filled(), &HeadLimits::default(), self.call.state.request.method) {
            Ok(Progress::Complete) => Ok(()),
            _ => {
                Err(Failure::new(ErrorKind::RemedyFailed, "the flow's response head exceeds the size limit"))
            }
        }
    }

    /// Puts a stored response into the response state: the whole message if outer remedies need the body,
    /// otherwise only its head. Puts nothing there if there are no outer remedies.
    fn hold_stored(&mut self, served: Served) -> Result<Vec<u8>, CallOutcome> {
        self.run.held = StoredPart::Whole;
        if self.run.chain.is_outermost() {
            return Err(CallOutcome::Stored(Box::new(served)));
        }
        let max = self.run.chain.needs().response_json;
        let mut message = Vec::new();
        let version = self.call.state.request.version;
        write_head(&served, version, &self.call.client.connection.worker.shared.via, &mut message);
        message.extend_from_slice(b"\r\n");
        if let Err(failure) = self.hold_message(&message) {
            return Err(CallOutcome::Failure(failure));
        }
        let ResponseState { output, response, .. } = &*self.call.state.response_state;
        let is_wanted = served.status() != 206 && is_plain_json(&response.fields, output.filled());
        let whole =
            served.body().blocks().filter(|_| is_wanted && served.has_body() && served.pieces().is_none());
        match whole {
            Some(blocks) if self.makes_room(message.len(), blocks, max) => {
                for block in blocks {
                    message.extend_from_slice(block);
                }
                Ok(message)
            }
            _ => {
                self.run.held = StoredPart::Head;
                Err(CallOutcome::Stored(Box::new(served)))
            }
        }
    }

    /// Returns `true` if a stored body of these `blocks`, behind a head of `head_len` bytes, fits into the
    /// response state. It must not exceed `max`, the size that remedies need, nor the memory left for
    /// gathered bodies.
    fn makes_room(&mut self, head_len: usize, blocks: &[Block], max: usize) -> bool {
        let len: usize = blocks.iter().map(|block| block.len()).sum();
        let buffers = &self.call.client.connection.worker.pools.buffers;
        let output = &mut self.call.state.response_state.output;
        len <= max && buffers.grow_gathered(output, head_len + len).is_ok()
    }

    /// Discards a response that is not forwarded.
    pub(super) async fn discard(&mut self, outcome: CallOutcome) -> Result<(), Stop> {
        // At once, because the remedies inside have released what they held for the call.
        if let CallOutcome::Response(connection) = outcome {
            self.keep_if_whole(connection);
        }
        self.flush_informational().await?;
        self.call.state.return_response_state(&self.call.client.connection.worker.pools);
        Ok(())
    }

    /// Finishes sending an informational response of which the client has received a part.
    async fn flush_informational(&mut self) -> Result<(), Stop> {
        poll_fn(|cx| match self.call.poll_informational(cx) {
            Poll::Pending => self.poll_waiting_client(cx),
            flushed @ Poll::Ready(_) => flushed,
        })
        .await
    }

    /// Keeps the connection for reuse if the whole response has been received. Reading the rest would cost
    /// more than a new connection.
    fn keep_if_whole(&mut self, connection: Box<Connection>) {
        let ResponseState { output, response, down } = &mut *self.call.state.response_state;
        down.start(response.framing, Framing::Length);
        let body = &output.filled()[response.len..];
        let whole = down.skip(body) == Some(body.len()) && response.framing != ResponseFraming::UntilClose;
        if (whole || planted!(UnfinishedKept))
            && response.persistent
            && self.call.upload.is_complete(self.call.state)
        {
            reply::keep(self.call, connection, Moment::now());
        }
    }

    /// Orders a background revalidation, if a remedy requests one.
    pub(super) fn request_revalidation(&mut self, target: &CallTarget) {
        let Some(background) = self.run.draft.background.take() else { return };
        let worker = &self.call.client.connection.worker;
        let (head, bytes) = (&self.call.state.request, self.call.state.input.filled());
        let body = &bytes[head.len..head.len + self.run.body.framed_len];
        // A call in the background would not be bound to the provider of a recorded request.
        if self.call.client.connection.pin.is_some() || !worker.has_room_for_revalidation() {
            return;
        }
        let mut outer = PendingChanges::default();
        outer.inherit(&self.run.draft);
        worker.follow_up(FollowUp::Revalidation(Box::new(Revalidation {
            view: Rc::clone(&self.call.view),
            target: target.clone(),
            request: ReceivedRequest { head, bytes, body }.unconditional(&worker.pools),
            listener: self.call.client.connection.listener,
            client: self.run.draft.client,
            matches: self.run.matches.clone(),
            background,
            outer,
        })));
    }

    /// Orders a token, if this exchange is the leader for its account. Each account has at most one such call
    /// at a time. There is no other limit, because a call that was refused would be requested again at once.
    pub(super) fn request_token(&mut self) {
        let Some(fetch) = self.run.draft.fetch.take() else { return };
        let (view, listener) = (Rc::clone(&self.call.view), self.call.client.connection.listener);
        self.call.client.connection.worker.follow_up(FollowUp::Token { fetch, view, listener });
    }
}
