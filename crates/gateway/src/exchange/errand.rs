//! Calls that are made in the background, for those who come later: exchanges like any other, whose client is nobody.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use egret_flow::Draft;
use egret_flow::cache::Background;
use egret_flow::router::Matches;
use egret_http1::Progress;
use egret_store::Moment;
use tracing::debug;

use super::Exchange;
use crate::client::{Client, Desk, Place};
use crate::event_loop::{Socket, spawn};
use crate::exchange::forward::survey;
use crate::exchange::route::Forward;
use crate::upstream::stream::Stream;
use crate::worker::{View, Worker};

/// Errands of one worker at once. Beyond, what is stale is served again, and the next request for it sends one out.
const ERRANDS_MAX: usize = 64;

/// What an errand needs to know.
struct Errand {
    view: Rc<View>,
    forward: Forward,
    /// The head of the client's request, without what it wants for itself alone, and its body if that is here.
    request: Vec<u8>,
    listener: SocketAddr,
    matches: Matches,
    background: Background,
    /// What the remedies further out have made of the request.
    outer: Draft,
}

/// Fields by which a client asks for a part, or has something already.
const OF_ITS_OWN: [&[u8]; 4] = [b"range", b"if-range", b"if-none-match", b"if-modified-since"];

impl Exchange<'_> {
    /// Sends out an errand, if a remedy wants one.
    pub(super) fn send_errand(&mut self, forward: &Forward) {
        let Some(guide) = &mut self.guide else { return };
        let Some(background) = guide.draft.background.take() else { return };
        let worker = Rc::clone(&self.client.worker);
        if worker.errands.get() >= ERRANDS_MAX {
            return;
        }
        let bytes = self.desk.input.filled();
        let body_end = self.desk.request.len + guide.body.framed_len;
        let head = &self.desk.request;
        // Empty lines may stand before the head; with them everything stays in its place.
        let mut request = bytes[..head.method_text.range().start].to_vec();
        let mut edits = worker.edits.borrow_mut();
        edits.clear();
        for (index, field) in head.fields.iter().enumerate() {
            if OF_ITS_OWN.iter().any(|own| field.name.of(bytes).eq_ignore_ascii_case(own)) {
                edits.remove(index);
            }
        }
        head.render(bytes, &edits).for_each_piece(|piece| request.extend_from_slice(piece));
        drop(edits);
        request.extend_from_slice(&bytes[head.len..body_end]);
        let mut outer = Draft::default();
        outer.inherit(&guide.draft);
        let errand = Errand {
            view: Rc::clone(&self.view),
            forward: forward.clone(),
            request,
            listener: self.client.listener,
            matches: guide.matches.clone(),
            background,
            outer,
        };
        worker.errands.set(worker.errands.get() + 1);
        spawn(async move {
            let (desk, has_run) = errand.run(&worker).await;
            debug!(has_run, "an answer was asked for in the background");
            worker.errands.set(worker.errands.get() - 1);
            worker.give_desk_back(desk);
        });
    }
}

impl Errand {
    /// Makes the call. Says whether it was made at all.
    async fn run(self, worker: &Rc<Worker>) -> (Box<Desk>, bool) {
        let mut desk = worker.desks.borrow_mut().pop().unwrap_or_default();
        let Ok(stream) = nobody() else { return (desk, false) };
        let mut client = Client::new(Place::of_nobody(Rc::clone(worker)), stream, self.listener);
        worker.buffers.lend(&mut desk.input);
        if worker.buffers.grow_gathered(&mut desk.input, self.request.len() + 1).is_err() {
            return (desk, false);
        }
        desk.input.clear();
        desk.input.spare()[..self.request.len()].copy_from_slice(&self.request);
        desk.input.advance(self.request.len());
        drop(self.request);
        desk.request.reset();
        let parsed = desk.request.parse(desk.input.filled(), &self.view.plan.head_limits);
        let Desk { input, request, .. } = &mut *desk;
        // It was read before, and let pass.
        if !matches!(parsed, Ok(Progress::Complete))
            || survey(request, input.filled(), &worker.shared.via, &self.view.plan.named_fields).is_err()
        {
            return (desk, false);
        }
        desk.reset_up();
        let upstream = Rc::clone(&self.forward.upstream);
        let mut exchange = Exchange::new(&mut client, &mut desk, self.view, upstream, Moment::now());
        let has_run = exchange.run_errand(&self.forward, self.matches, self.background, &self.outer).await;
        desk.give_tray_back(worker);
        (desk, has_run)
    }
}

/// A client that takes whatever it is sent, and says nothing.
fn nobody() -> io::Result<Stream> {
    let (near, far) = ends()?;
    spawn(async move {
        let mut taken = vec![0; 64 << 10];
        while far.receive(&mut taken).await.is_ok_and(|count| count > 0) {}
    });
    Ok(near)
}

/// The two ends of a connection to a client that is in this process: the one that an exchange holds, and the client's own.
pub(super) fn ends() -> io::Result<(Stream, Socket)> {
    let (near, far) = UnixStream::pair()?;
    let socket = |end: UnixStream| {
        end.set_nonblocking(true)?;
        // A socket is a socket; what differs is never asked for.
        Socket::new(OwnedFd::from(end).into())
    };
    Ok((Stream::Plain(socket(near)?), socket(far)?))
}
