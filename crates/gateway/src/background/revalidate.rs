//! Background calls that refresh a stored response for later requests. They are exchanges like any other,
//! with an internal client that ignores the response.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use egret_clock::Moment;
use egret_http1::Progress;
use egret_match::router::Matches;
use egret_remedy::exchange::PendingChanges;
use egret_store::coalescer::Background;
use tracing::debug;

use crate::downstream::connection::{Client, ConnectionSlot};
use crate::exchange::call::Exchange;
use crate::exchange::forward::survey;
use crate::exchange::state::RequestState;
use crate::exchange::target::CallTarget;
use crate::worker::local::{View, Worker};
use egret_net::event_loop::{Socket, spawn};
use egret_net::stream::Stream;

/// Maximum number of revalidations that one worker runs at once. Above it a stale response is served again,
/// and the next request for it starts one.
const REVALIDATIONS_MAX: usize = 64;

/// The state that a background revalidation needs.
struct Revalidation {
    view: Rc<View>,
    forward: CallTarget,
    /// The head of the client's request, without the fields in `OF_ITS_OWN`, and its body if it was gathered.
    request: Vec<u8>,
    listener: SocketAddr,
    matches: Matches,
    background: Background,
    /// The changes that the outer remedies made to the request.
    outer: PendingChanges,
}

/// Fields with which a client requests a part, or says that it has a stored response.
const OF_ITS_OWN: [&[u8]; 4] = [b"range", b"if-range", b"if-none-match", b"if-modified-since"];

impl Exchange<'_> {
    /// Starts a background revalidation, if a remedy requests one.
    pub fn send_revalidation(&mut self, forward: &CallTarget) {
        let Some(flow_run) = &mut self.flow_run else { return };
        let Some(background) = flow_run.draft.background.take() else { return };
        let worker = Rc::clone(&self.client.worker);
        if worker.revalidations.get() >= REVALIDATIONS_MAX {
            return;
        }
        let bytes = self.state.input.filled();
        let body_end = self.state.request.len + flow_run.body.framed_len;
        let head = &self.state.request;
        // Empty lines may precede the head. With them, all offsets stay valid.
        let mut request = bytes[..head.method_text.range().start].to_vec();
        let mut edits = worker.pools.edits.borrow_mut();
        edits.clear();
        for (index, field) in head.fields.iter().enumerate() {
            if OF_ITS_OWN.iter().any(|own| field.name.of(bytes).eq_ignore_ascii_case(own)) {
                edits.remove(index);
            }
        }
        head.render(bytes, &edits).for_each_piece(|piece| request.extend_from_slice(piece));
        drop(edits);
        request.extend_from_slice(&bytes[head.len..body_end]);
        let mut outer = PendingChanges::default();
        outer.inherit(&flow_run.draft);
        let revalidation = Revalidation {
            view: Rc::clone(&self.view),
            forward: forward.clone(),
            request,
            listener: self.client.listener,
            matches: flow_run.matches.clone(),
            background,
            outer,
        };
        worker.revalidations.set(worker.revalidations.get() + 1);
        spawn(async move {
            let (state, has_run) = revalidation.run(&worker).await;
            debug!(has_run, "a background revalidation has ended");
            worker.revalidations.set(worker.revalidations.get() - 1);
            worker.return_state(state);
        });
    }
}

impl Revalidation {
    /// Makes the call. Returns `true` if it was made.
    async fn run(self, worker: &Rc<Worker>) -> (Box<RequestState>, bool) {
        let mut state = worker.pools.take_state();
        let Ok(stream) = nobody() else { return (state, false) };
        let mut client = Client::new(ConnectionSlot::of_nobody(Rc::clone(worker)), stream, self.listener);
        worker.pools.buffers.lend(&mut state.input);
        if worker.pools.buffers.grow_gathered(&mut state.input, self.request.len() + 1).is_err() {
            return (state, false);
        }
        state.input.clear();
        state.input.spare()[..self.request.len()].copy_from_slice(&self.request);
        state.input.advance(self.request.len());
        drop(self.request);
        state.request.reset();
        let parsed = state.request.parse(state.input.filled(), &self.view.plan.head_limits);
        let RequestState { input, request, .. } = &mut *state;
        // The request was parsed and accepted before.
        if !matches!(parsed, Ok(Progress::Complete))
            || survey(request, input.filled(), &worker.shared.via, &self.view.plan.named_fields).is_err()
        {
            return (state, false);
        }
        state.reset_up();
        let upstream = Rc::clone(&self.forward.upstream);
        let mut exchange = Exchange::new(&mut client, &mut state, self.view, upstream, Moment::now());
        let has_run =
            exchange.run_revalidation(&self.forward, self.matches, self.background, &self.outer).await;
        state.return_response_state(&worker.pools);
        (state, has_run)
    }
}

/// Returns the stream of a client that reads and discards all data, and sends none.
fn nobody() -> io::Result<Stream> {
    let (near, far) = ends()?;
    spawn(async move {
        let mut taken = vec![0; 64 << 10];
        while far.receive(&mut taken).await.is_ok_and(|count| count > 0) {}
    });
    Ok(near)
}

/// Returns the two ends of a connection to a client in this process: the exchange's end, and the client's
/// own.
pub(super) fn ends() -> io::Result<(Stream, Socket)> {
    let (near, far) = UnixStream::pair()?;
    let socket = |end: UnixStream| {
        end.set_nonblocking(true)?;
        // A Unix socket works here: the differences between socket families never matter.
        Socket::new(OwnedFd::from(end).into())
    };
    Ok((Stream::Plain(socket(near)?), socket(far)?))
}
