//! Fills a cache entry: receives the rest of a response at the provider's pace, in a task of its own. The
//! exchange whose response it is reads the entry as all others do, and may end before.
//!
//! These hold at all times:
//!
//! - The body has outgrown the store, so nothing is received while the exchange that leads lags behind:
//!   `received - read < AHEAD_BYTES_MAX + STREAM_BYTES` from then on.
//! - A body that has outgrown the store and whose exchange has ended is received no further.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use egret_clock::Moment;
use egret_http1::{ResponseFraming, ResponseHead};
use egret_leg::Leg;
use egret_net::buffer::{Buffer, STREAM_BYTES};
use tracing::debug;

use crate::downstream::connection::ClientConnection;
use egret_body::{Lead, Pipe, PipeError, Shared, Stages, StreamProgress};
use egret_upstream::{Connection, Upstream, View};

/// Number of bytes that a body which has outgrown the store may be ahead of the exchange that leads.
const AHEAD_BYTES_MAX: u64 = STREAM_BYTES as u64;

/// The receiving side of a body that is being stored.
pub(super) struct Filling {
    pub pipe: Pipe,
    /// Received bytes that are not decoded yet.
    pub buffer: Buffer,
    pub lead: Rc<Lead>,
}

impl Filling {
    /// Receives the body. Ready once it has ended, or nobody needs the rest.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Leg,
        shared: Shared<'_>,
    ) -> Poll<Result<(), PipeError>> {
        while let Some(storing) = self.pipe.stages().and_then(Stages::storing) {
            if storing.has_outgrown() {
                ready!(self.lead.poll_caught_up(cx, storing.body().received(), AHEAD_BYTES_MAX));
                if self.lead.has_left() {
                    break;
                }
            }
            let before = self.pipe.read_bytes;
            let polled = self.pipe.poll_receive(cx, source, &mut self.buffer, shared);
            let received = self.pipe.read_bytes - before;
            self.lead.received_bytes.set(self.lead.received_bytes.get() + received);
            ready!(polled)?;
        }
        if self.pipe.is_received() {
            *self.lead.trailers.borrow_mut() = self.pipe.take_trailers();
        }
        Poll::Ready(Ok(()))
    }

    /// Returns `true` while the provider's next bytes are awaited.
    fn awaits_provider(&self) -> bool {
        let storing = self.pipe.stages().and_then(Stages::storing);
        storing.is_some_and(|storing| !storing.has_outgrown())
    }
}

/// The bounds that a provider sets to the reuse of its connection.
pub(super) struct Reuse {
    timeout_s: Option<u32>,
    requests_left: Option<u32>,
}

impl Reuse {
    /// Returns the bounds, if the connection can carry another response after this one.
    pub fn after(response: &ResponseHead) -> Option<Self> {
        let is_kept = response.persistent && response.framing != ResponseFraming::UntilClose;
        let (timeout_s, requests_left) = (response.keep_alive_timeout_s, response.keep_alive_max);
        is_kept.then_some(Self { timeout_s, requests_left })
    }
}

/// A response whose body is being stored.
pub(super) struct Fill {
    pub filling: Filling,
    pub connection: Box<Connection>,
    pub upstream: Rc<Upstream>,
    pub view: Rc<View>,
    /// The client's connection counts as open until the body is stored.
    pub client: Rc<ClientConnection>,
    /// Maximum time until the next byte, and the end of the whole exchange.
    pub idle: Option<Duration>,
    pub total: Moment,
    /// `Some` if the connection can carry another response.
    pub reuse: Option<Reuse>,
}

impl Fill {
    /// Receives and stores the rest of the body.
    pub async fn run(mut self) {
        let is_whole = self.receive().await;
        let Self { filling: Filling { mut pipe, mut buffer, lead }, connection, upstream, client, .. } = self;
        pipe.add_stages().stop_storing();
        let worker = &client.worker;
        match self.reuse {
            // Bytes after the response were not requested.
            Some(Reuse { timeout_s, requests_left }) if is_whole && buffer.filled().is_empty() => {
                upstream.keep(connection, Moment::now(), timeout_s, requests_left);
                worker.has_kept();
            }
            // It is closed before the lead releases what its exchange held.
            _ => drop(connection),
        }
        worker.pools.buffers.take_back(&mut buffer);
        if lead.has_left() {
            debug!(provider = upstream.plan.stats.name(), is_whole, "stored a response without its client");
        }
        upstream.counters().received_bytes.add(lead.received_bytes.take());
    }

    /// Returns `true` if the whole body has been received.
    async fn receive(&mut self) -> bool {
        let Self { filling, connection, view, client, idle, total, .. } = self;
        let shared = (&client.worker.pools.buffers, &view.plan.trailers);
        let timer = client.worker.timers.timer();
        let mut deadline = Moment::now().after(*idle).min(*total);
        timer.set_at(deadline);
        let received = poll_fn(|cx| {
            let before = filling.pipe.read_bytes;
            if let Poll::Ready(received) = filling.poll(cx, &mut connection.leg, shared) {
                return Poll::Ready(received.is_ok());
            }
            let waits = filling.awaits_provider();
            if !waits {
                deadline = *total;
            } else if filling.pipe.read_bytes != before {
                deadline = match filling.pipe.add_stages().progress() {
                    StreamProgress::Bytes => Moment::now().after(*idle).min(*total),
                    StreamProgress::Content(limit) => (Moment::now() + limit).min(*total),
                    StreamProgress::Nothing => deadline,
                };
            }
            timer.set_at(deadline);
            if timer.poll_expired(cx) && deadline <= Moment::now() {
                return Poll::Ready(false);
            }
            Poll::Pending
        })
        .await;
        received && filling.pipe.is_received()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use egret_cache::Stored;
    use egret_clock::Timestamp;
    use egret_http1::{BodyDecoder, BodyError, TrailerNames};
    use egret_net::buffer::BufferPool;
    use egret_net::event_loop::spawn;
    use egret_store::entries::StoredValue as _;
    use egret_store::entries::{BodyWriter, Entries, EntryKey, EntryLimits, Next};
    use proptest::prelude::*;
    use tokio::sync::oneshot;

    use super::*;
    use egret_body::StoredSource;
    use egret_leg::Framing;
    use egret_leg::sockets::{ends, run, turn};

    /// Returns an entry that stores a body of at most `max` bytes.
    fn filling(max: u64) -> BodyWriter<Stored> {
        let lines = b"date: Sun, 22 Nov 2026 00:31:16 GMT\r\n";
        let mut kept =
            [1_795_307_476_000_000_u64, 1_795_307_476_000_000, 0, u64::MAX].map(u64::to_le_bytes).concat();
        kept.extend_from_slice(&200_u16.to_le_bytes());
        kept.extend_from_slice(&[0; 16]);
        for part in [&b"http://h:80/"[..], lines] {
            kept.extend_from_slice(&(part.len() as u64).to_le_bytes());
            kept.extend_from_slice(part);
        }
        let stored = Stored::load(&kept, &Box::default()).unwrap();
        let limits = EntryLimits { bytes: 64 << 20, body_bytes: max, ..EntryLimits::default() };
        let place = EntryKey { id: 1, group: 1 };
        Entries::new(limits).begin(place, stored, &[].into(), None, Timestamp::from_secs(1)).unwrap()
    }

    fn sent_in(chunked: bool) -> Framing {
        if chunked { Framing::Chunked } else { Framing::UntilClose }
    }

    /// Receives a body into `writer`'s entry, and serves `sink` from there.
    async fn serve(
        framing: ResponseFraming,
        sent_in: Framing,
        writer: BodyWriter<Stored>,
        mut source: Leg,
        mut sink: Leg,
    ) -> (Result<(), PipeError>, Result<(), PipeError>) {
        let (buffers, names) = (BufferPool::default(), TrailerNames::new(["x-*"]));
        let shared = (&buffers, &names);
        let mut buffer = Buffer::default();
        buffers.lend(&mut buffer);
        let mut pipe = Pipe::default();
        pipe.reset(framing, sent_in);
        let (mut stored, lead) = StoredSource::leading(&writer.entry().body);
        pipe.add_stages().store(writer);
        let mut filling = Filling { pipe: pipe.split(), buffer, lead };
        sink.start(sent_in);
        let mut received = None;
        let served = poll_fn(|cx| {
            if received.is_none()
                && let Poll::Ready(ended) = filling.poll(cx, &mut source, shared)
            {
                filling.pipe.add_stages().stop_storing();
                received = Some(ended);
            }
            pipe.poll_stored(cx, &mut stored, &mut sink, shared)
        })
        .await;
        (served, received.unwrap())
    }

    /// Returns the bytes that arrive at a receiver that starts to read only after the body has ended in the
    /// store, the results, and the stored body.
    fn stored(
        framing: ResponseFraming,
        chunked: bool,
        max: u64,
        pieces: Vec<Vec<u8>>,
    ) -> (Vec<u8>, Result<(), PipeError>, Option<Vec<u8>>) {
        run(async {
            let (sender, source) = ends();
            let (sink, receiver) = ends();
            spawn(async move {
                for piece in pieces {
                    if sender.send_all(&piece).await.is_err() {
                        return;
                    }
                }
            });
            let writer = filling(max);
            let entry = Arc::clone(writer.entry());
            let (tell, told) = oneshot::channel();
            let ended = Arc::clone(&entry);
            spawn(async move {
                poll_fn(|cx| ended.body.poll_ended(cx)).await;
                let (mut bytes, mut piece) = (Vec::new(), vec![0; 4096]);
                while let count @ 1.. = receiver.receive(&mut piece).await.unwrap() {
                    bytes.extend_from_slice(&piece[..count]);
                }
                tell.send(bytes).unwrap();
            });
            let (source, sink) = (Leg::plain(source), Leg::plain(sink));
            let (served, received) = serve(framing, sent_in(chunked), writer, source, sink).await;
            assert_eq!(served.is_ok(), received.is_ok());
            let kept = entry.body.blocks().map(<[_]>::concat);
            (told.await.unwrap(), received, kept)
        })
    }

    #[test]
    fn a_body_that_is_stored_is_received_though_its_sink_takes_nothing() {
        let body: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let length = ResponseFraming::Length(3_000_000);
        let (arrived, ended, kept) = stored(length, false, 4 << 20, vec![body.clone()]);
        assert!(ended.is_ok() && arrived == body && kept == Some(body.clone()));
        let (arrived, ended, kept) = stored(ResponseFraming::UntilClose, false, 4 << 20, vec![body.clone()]);
        assert!(ended.is_ok() && arrived == body && kept == Some(body.clone()));
        let framed =
            [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\nX-Sum: 1\r\n\r\n"].concat();
        let (arrived, ended, kept) = stored(ResponseFraming::Chunked, true, 4 << 20, vec![framed]);
        assert!(ended.is_ok() && arrived.ends_with(b"\r\n0\r\nX-Sum: 1\r\n\r\n") && kept == Some(body));
    }

    #[test]
    fn a_body_that_outgrows_the_store_arrives_as_a_whole() {
        let body: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        for max in [1, 100_000, 2_900_000] {
            let (arrived, ended, kept) = stored(ResponseFraming::UntilClose, false, max, vec![body.clone()]);
            assert!(ended.is_ok() && arrived == body && kept.is_none(), "{max}");
        }
    }

    /// Returns what another reader of the entry gets of a chunked body of which `sent` is received, in small
    /// pieces; `None` if it sees that the body is broken.
    fn passed_on(sent: Vec<u8>, max: u64) -> Option<Vec<u8>> {
        run(async {
            let (sender, source) = ends();
            let (sink, receiver) = ends();
            spawn(async move {
                for piece in sent.chunks(10_000) {
                    if sender.send_all(piece).await.is_err() {
                        return;
                    }
                    turn().await;
                }
            });
            spawn(async move {
                let mut piece = vec![0; 4096];
                while receiver.receive(&mut piece).await.is_ok_and(|count| count > 0) {}
            });
            let writer = filling(max);
            let entry = Arc::clone(writer.entry());
            let (tell, read) = oneshot::channel();
            spawn(async move {
                let mut bytes = Vec::new();
                let is_whole = loop {
                    match poll_fn(|cx| entry.body.poll_next(bytes.len() as u64, cx)).await {
                        Next::Block(block) => bytes.extend_from_slice(&block),
                        Next::End => break true,
                        Next::Broken => break false,
                    }
                };
                tell.send(is_whole.then_some(bytes)).unwrap();
            });
            let (source, sink) = (Leg::plain(source), Leg::plain(sink));
            let _ = serve(ResponseFraming::Chunked, Framing::Chunked, writer, source, sink).await;
            read.await.unwrap()
        })
    }

    #[test]
    fn a_body_that_outgrows_the_store_reaches_its_readers() {
        // Less than is kept for a reader who falls behind.
        let body: Vec<u8> = (0..900_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let chunk = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat();
        for max in [1, 100_000, 899_999, 4 << 20] {
            let whole = passed_on([&chunk[..], b"0\r\n\r\n"].concat(), max);
            assert!(whole.is_some_and(|read| read == body), "{max}");
            assert!(passed_on(chunk.clone(), max).is_none(), "{max}: it breaks off");
        }
    }

    #[test]
    fn what_an_exchange_held_is_released_when_its_response_has_arrived_too() {
        let (source, lead) = StoredSource::leading(&filling(1).entry().body);
        let permit = Rc::new(());
        lead.hold(Box::new(Rc::clone(&permit)));
        drop(source);
        assert!(lead.has_left() && Rc::strong_count(&permit) == 2);
        drop(lead);
        assert_eq!(Rc::strong_count(&permit), 1);
    }

    #[test]
    fn a_broken_body_is_forwarded_and_not_stored() {
        let body = vec![b'x'; 2_000_000];
        let (arrived, ended, kept) =
            stored(ResponseFraming::Length(3_000_000), false, 4 << 20, vec![body.clone()]);
        assert!(matches!(ended, Err(PipeError::Malformed(BodyError::Incomplete))), "{ended:?}");
        assert!(arrived == body && kept.is_none());
    }

    proptest! {
        #[test]
        fn storing_a_body_does_not_change_it(
            sizes in prop::collection::vec(0_usize..70_000, 0..8),
            max in 1_u64..300_000,
            is_cut in any::<bool>(),
            chunked in any::<bool>(),
        ) {
            let mut framed: Vec<Vec<u8>> = Vec::new();
            let mut body = Vec::new();
            for size in sizes.iter().filter(|size| **size > 0) {
                let data = vec![size.to_le_bytes()[0]; *size];
                framed.push([format!("{size:x}\r\n").as_bytes(), &data, b"\r\n"].concat());
                body.extend(data);
            }
            if !is_cut {
                framed.push(b"0\r\n\r\n".to_vec());
            }
            let (arrived, ended, kept) = stored(ResponseFraming::Chunked, chunked, max, framed);
            prop_assert_eq!(ended.is_ok(), !is_cut);
            prop_assert_eq!(kept.is_some(), !is_cut && body.len() as u64 <= max);
            prop_assert!(kept.is_none_or(|kept| kept == body));
            let arrived = if chunked { unframed(&arrived, is_cut) } else { arrived };
            prop_assert!(arrived == body, "{} of {}", arrived.len(), body.len());
        }
    }

    /// Returns the content of a chunked body.
    fn unframed(framed: &[u8], is_cut: bool) -> Vec<u8> {
        let (mut decoder, mut spans) = (BodyDecoder::none(), Vec::new());
        decoder.restart(ResponseFraming::Chunked);
        assert_eq!(decoder.decode(framed, &mut spans).unwrap(), framed.len());
        assert_eq!(decoder.is_done(), !is_cut);
        spans.iter().flat_map(|span| span.of(framed)).copied().collect()
    }
}
