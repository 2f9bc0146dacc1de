//! A call of the gateway's own. It has no client: its request is in memory, and nobody reads its response.

use std::rc::Rc;

use egret_http1::{HeadLimits, Progress};
use egret_leg::Leg;
use egret_match::named_fields::NamedFields;
use egret_message::{ClientAddress, ListenAddress};

use crate::downstream::connection::{ClientConnection, ClientLeg};
use crate::exchange::forward::survey;
use crate::state::request::RequestState;
use crate::worker::Worker;

/// The client's side of an internal call, with the request parsed.
pub(super) struct InternalClient {
    pub client: ClientLeg,
    pub state: Box<RequestState>,
}

impl InternalClient {
    /// Prepares `request`: a head, whose `named` fields are not sent, and perhaps a body. Returns `None` if
    /// there is no memory for it, or if it cannot be parsed within `limits`. `listener` and `peer` stand for
    /// those of the client whose request caused the call.
    pub fn new(
        worker: &Rc<Worker>,
        named: &NamedFields,
        limits: &HeadLimits,
        request: &[u8],
        listener: ListenAddress,
        peer: Option<ClientAddress>,
    ) -> Option<Self> {
        let mut state = worker.pools.take_state();
        let client = ClientLeg::new(ClientConnection::internal(worker, listener, peer), Leg::None);
        worker.pools.buffers.lend(&mut state.input);
        if worker.pools.buffers.grow_gathered(&mut state.input, request.len() + 1).is_err() {
            worker.return_state(state);
            return None;
        }
        state.input.clear();
        state.input.spare()[..request.len()].copy_from_slice(request);
        state.input.advance(request.len());
        state.request.reset();
        let RequestState { input, request, .. } = &mut *state;
        let parsed = request.parse(input.filled(), limits);
        let is_understood = matches!(parsed, Ok(Progress::Complete))
            && survey(request, input.filled(), &worker.shared.via, named).is_ok();
        let mut call = Self { client, state };
        if !is_understood {
            call.end(worker);
            return None;
        }
        call.state.reset_up();
        Some(call)
    }

    /// Overwrites the request and the response, which may hold secrets, and returns their memory to `worker`.
    pub fn end(mut self, worker: &Worker) {
        if self.state.has_response_state() {
            self.state.response_state.output.filled_mut().fill(0);
        }
        self.state.return_response_state(&worker.pools);
        self.state.input.clear();
        self.state.input.spare().fill(0);
        worker.return_state(self.state);
    }
}
