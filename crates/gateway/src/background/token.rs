//! Fetches the tokens of accounts. The calls are exchanges like any other, with the gateway itself as the
//! client.
//!
//! A token endpoint is reached like a provider, with the gateway's name resolution, egress policy, TLS and
//! timeouts, but without flows. The response is read from the other end of the client's socket.

use std::net::SocketAddr;
use std::rc::Rc;

use egret_accounts::token::{ANSWER_BYTES_MAX, Answered, Fetch, Trouble};
use egret_clock::Moment;
use egret_http1::{
    BodyDecoder, Field, HeadLimits, MAX_FIELDS, Method, Progress, RequestFraming, ResponseHead,
};
use zeroize::Zeroizing;

use crate::background::revalidate::ends;
use crate::downstream::connection::{Client, ConnectionSlot};
use crate::exchange::call::Exchange;
use crate::exchange::forward::survey;
use crate::exchange::state::RequestState;
use crate::exchange::target::CallTarget;
use crate::failure::ErrorKind;
use crate::plan::token_origin;
use crate::upstream::Upstream;
use crate::worker::local::{View, Worker};
use egret_net::event_loop::{Socket, spawn};
use egret_net::stream::Stream;

/// Maximum number of bytes read of a response, with head and framing.
const MESSAGE_BYTES_MAX: usize = ANSWER_BYTES_MAX + (64 << 10);
/// Number of bytes per read.
const READ_BYTES: usize = 4096;

impl Exchange<'_> {
    /// Fetches a token, if this exchange is the leader for its account. Each account has at most one such
    /// call at a time. There is no other limit, because a call that was refused would be requested again at
    /// once.
    pub fn send_for_token(&mut self) {
        let Some(fetch) = self.flow_run.as_mut().and_then(|flow_run| flow_run.draft.fetch.take()) else {
            return;
        };
        let worker = Rc::clone(&self.client.worker);
        let (view, listener) = (Rc::clone(&self.view), self.client.listener);
        spawn(async move { bring(fetch, &worker, view, listener).await });
    }
}

/// Fetches a token, and reports it or the reason why there is none.
async fn bring(fetch: Fetch, worker: &Rc<Worker>, view: Rc<View>, listener: SocketAddr) {
    let now = || worker.shared.clock.timestamp(Moment::now());
    let Ok((near, far)) = ends() else {
        return fetch.end(now(), Err(Trouble::Unreachable(ErrorKind::ConnectFailed.slug())));
    };
    let request = fetch.request();
    let call = Call { view, request, timeout_at: Moment::now() + fetch.timeout() };
    let caller = Rc::clone(worker);
    let upstream = call.upstream(&fetch, worker);
    spawn(async move {
        if let Some(upstream) = upstream {
            call.run(upstream, &caller, near, listener).await;
        }
    });
    let mut received = Zeroizing::new(Vec::with_capacity(MESSAGE_BYTES_MAX));
    let answer = receive(far, &mut received).await;
    fetch.end(now(), answer.as_ref().map(Answer::answered).map_err(|trouble| *trouble));
}

/// A call to a token endpoint.
struct Call {
    view: Rc<View>,
    request: Zeroizing<Vec<u8>>,
    timeout_at: Moment,
}

impl Call {
    /// Returns the configured provider at the endpoint, or an upstream for the endpoint itself.
    fn upstream(&self, fetch: &Fetch, worker: &Worker) -> Option<Rc<Upstream>> {
        // The endpoint was validated with the config.
        let origin = token_origin(fetch.endpoint()).ok()?;
        let plan = &self.view.plan;
        let provider = plan.origin_number(&origin).and_then(|number| plan.owners(number).widest());
        Some(match provider {
            Some(number) => Rc::clone(&self.view.upstreams[number]),
            None => Rc::new(Upstream::new(plan.other_hosts.endpoint(origin).into(), worker.number)),
        })
    }

    /// Makes the call, for the client at the other end of `near`.
    async fn run(self, upstream: Rc<Upstream>, worker: &Rc<Worker>, near: Stream, listener: SocketAddr) {
        let mut state = worker.pools.take_state();
        let mut client = Client::new(ConnectionSlot::of_nobody(Rc::clone(worker)), near, listener);
        worker.pools.buffers.lend(&mut state.input);
        worker.pools.buffers.grow(&mut state.input, self.request.len() + 1);
        state.input.clear();
        state.input.spare()[..self.request.len()].copy_from_slice(&self.request);
        state.input.advance(self.request.len());
        state.request.reset();
        if self.is_understood(&mut state, worker) {
            state.reset_up();
            let forward = CallTarget::whole(Rc::clone(&upstream), state.request.target);
            let mut exchange = Exchange::new(&mut client, &mut state, self.view, upstream, Moment::now());
            exchange.deadlines.total = exchange.deadlines.total.min(self.timeout_at);
            exchange.run_afresh(&forward).await;
            state.return_response_state(&worker.pools);
        }
        // The buffer held the account's secret.
        state.input.clear();
        state.input.spare().fill(0);
        worker.return_state(state);
    }

    /// Parses the request as if a client had sent it. Uses the default head limits, so the configured ones
    /// cannot reject it.
    fn is_understood(&self, state: &mut RequestState, worker: &Worker) -> bool {
        let RequestState { input, request, .. } = state;
        let parsed = request.parse(input.filled(), &HeadLimits::default());
        matches!(parsed, Ok(Progress::Complete))
            && matches!(request.framing, RequestFraming::Length(_))
            && survey(request, input.filled(), &worker.shared.via, &self.view.plan.named_fields).is_ok()
    }
}

/// A complete response.
struct Answer<'a> {
    head: ResponseHead,
    bytes: &'a [u8],
    body: Zeroizing<Vec<u8>>,
}

impl Answer<'_> {
    fn answered(&self) -> Answered<'_> {
        let retry_after = self.field(b"retry-after");
        Answered { status: self.head.status, retry_after, body: &self.body }
    }

    fn field(&self, name: &[u8]) -> Option<&[u8]> {
        let is_it = |field: &&Field| field.name.of(self.bytes).eq_ignore_ascii_case(name);
        self.head.fields.iter().find(is_it).map(|field| field.value.of(self.bytes))
    }

    /// Returns the slug of the gateway's own error. Only the gateway can set this field.
    fn error(&self) -> Option<&'static str> {
        let slug = self.field(b"x-egret-error")?;
        ErrorKind::ALL.iter().map(|kind| kind.slug()).find(|known| known.as_bytes() == slug)
    }
}

/// Receives a response into `received`, which has enough capacity and is never reallocated.
async fn receive(far: Socket, received: &mut Zeroizing<Vec<u8>>) -> Result<Answer<'_>, Trouble> {
    let mut head = ResponseHead::new();
    while !is_head_complete(&mut head, received)? {
        if read_some(&far, received).await? == 0 {
            return Err(Trouble::CutShort);
        }
    }
    let mut decoder = BodyDecoder::from(head.framing);
    let mut body = Zeroizing::new(Vec::with_capacity(ANSWER_BYTES_MAX));
    let (mut decoded, mut spans) = (head.len, Vec::new());
    loop {
        spans.clear();
        let piece = &received[decoded..];
        let used = decoder.decode(piece, &mut spans).map_err(|_| Trouble::CutShort)?;
        for data in spans.iter().map(|span| span.of(piece)) {
            if body.len() + data.len() > ANSWER_BYTES_MAX {
                return Err(Trouble::TooLong);
            }
            body.extend_from_slice(data);
        }
        decoded += used;
        if decoder.is_done() {
            break;
        }
        if read_some(&far, received).await? == 0 {
            decoder.end_of_input().map_err(|_| Trouble::CutShort)?;
        }
    }
    let answer = Answer { head, bytes: received, body };
    match answer.error() {
        Some(slug) => Err(Trouble::Unreachable(slug)),
        None => Ok(answer),
    }
}

/// Returns `true` once the head of a final response is complete. Drops the informational responses before it.
fn is_head_complete(head: &mut ResponseHead, received: &mut Vec<u8>) -> Result<bool, Trouble> {
    let limits = HeadLimits { start_line: MESSAGE_BYTES_MAX, head: MESSAGE_BYTES_MAX, fields: MAX_FIELDS };
    while !received.is_empty() {
        match head.parse(received, &limits, Method::Post).map_err(|_| Trouble::CutShort)? {
            Progress::Partial => return Ok(false),
            Progress::Complete if head.status < 200 => drop(received.drain(..head.len)),
            Progress::Complete => return Ok(true),
        }
    }
    Ok(false)
}

/// Appends some bytes. Returns their number, which is 0 at the end of the stream.
async fn read_some(far: &Socket, received: &mut Vec<u8>) -> Result<usize, Trouble> {
    let len = received.len();
    let most = READ_BYTES.min(MESSAGE_BYTES_MAX - len);
    if most == 0 {
        return Err(Trouble::TooLong);
    }
    received.resize(len + most, 0);
    let count = far.receive(&mut received[len..]).await.unwrap_or(0);
    received.truncate(len + count);
    Ok(count)
}
