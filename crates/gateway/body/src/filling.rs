//! The receiving side of a body that is being stored, at the provider's pace.
//!
//! These hold at all times:
//!
//! - The body has outgrown the store, so nothing is received while the exchange that leads lags behind:
//!   `received - read < AHEAD_BYTES_MAX + STREAM_BYTES` from then on.
//! - A body that has outgrown the store and whose exchange has ended is received no further.

use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use egret_clock::Moment;
use egret_leg::Leg;
use egret_net::buffer::{Buffer, STREAM_BYTES};

use crate::pipe::{Pipe, PipeError, Shared};
use crate::stage::{Stages, StreamProgress};
use crate::stored_source::Lead;

/// Number of bytes that a body which has outgrown the store may be ahead of the exchange that leads.
const AHEAD_BYTES_MAX: u64 = STREAM_BYTES as u64;

/// The receiving side of a body that is being stored.
#[derive(Debug)]
pub struct Filling {
    /// The receiving side, with the stage that stores.
    pub pipe: Pipe,
    /// Received bytes that are not decoded yet.
    pub buffer: Buffer,
    /// The tie to the exchange that leads.
    pub lead: Rc<Lead>,
    /// `true` while it waits for the exchange that leads, and not for the provider.
    pub waits_for_lead: bool,
}

impl Filling {
    /// The receiving side of `pipe`, with the bytes in `buffer` first.
    pub fn new(pipe: Pipe, buffer: Buffer, lead: Rc<Lead>) -> Self {
        Self { pipe, buffer, lead, waits_for_lead: false }
    }

    /// Receives the body. Ready once it has ended, or nobody needs the rest.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Leg,
        shared: Shared<'_>,
    ) -> Poll<Result<(), PipeError>> {
        self.lead.watch(cx);
        while let Some(storing) = self.pipe.stages().and_then(Stages::storing) {
            let has_outgrown = storing.has_outgrown();
            self.waits_for_lead = has_outgrown && self.lead.lags(storing.body().received(), AHEAD_BYTES_MAX);
            if self.waits_for_lead {
                source.gather();
                return Poll::Pending;
            }
            if has_outgrown && self.lead.has_left() {
                break;
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

    /// Returns the time up to which the provider must send more, or its next event with content. `until` is
    /// the one so far.
    pub fn provider_deadline(&mut self, idle: Option<Duration>, until: Moment) -> Moment {
        match self.pipe.add_stages().progress() {
            StreamProgress::Bytes => Moment::now().after(idle),
            StreamProgress::Content(limit) => Moment::now() + limit,
            StreamProgress::Nothing => until,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use egret_cache::Stored;
    use egret_clock::Timestamp;
    use egret_http1::{BodyDecoder, BodyError, ResponseFraming, TrailerNames};
    use egret_net::buffer::BufferPool;
    use egret_net::event_loop::spawn;
    use egret_store::entries::StoredValue as _;
    use egret_store::entries::{BodyWriter, Entries, EntryKey, EntryLimits, Next};
    use proptest::prelude::*;
    use tokio::sync::oneshot;

    use super::*;
    use crate::stored_source::StoredSource;
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
        let mut filling = Filling::new(pipe.split(), buffer, lead);
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
    fn an_outgrown_body_is_received_no_further_once_its_exchange_has_ended() {
        run(async {
            let (provider, source) = ends();
            let writer = filling(1);
            let (mut stored, lead) = StoredSource::leading(&writer.entry().body);
            let mut pipe = Pipe::default();
            pipe.reset(ResponseFraming::Length(1_000_000), Framing::Length);
            pipe.add_stages().store(writer);
            let buffers = BufferPool::default();
            let mut buffer = Buffer::default();
            buffers.lend(&mut buffer);
            let mut filling = Filling::new(pipe, buffer, lead);
            let (tell, told) = oneshot::channel();
            spawn(async move {
                let (names, mut source) = (TrailerNames::new(["x-*"]), Leg::plain(source));
                let ended = poll_fn(|cx| filling.poll(cx, &mut source, (&buffers, &names))).await;
                tell.send((ended.is_ok(), filling.waits_for_lead)).unwrap();
            });
            provider.send_all(&[b'x'; 10_000]).await.unwrap();
            let mut read = 0;
            while read < 10_000 {
                let Next::Block(block) = poll_fn(|cx| stored.poll_next(cx)).await else { panic!() };
                read += block.len();
            }
            // The task has caught up, and waits for a provider that has fallen silent.
            turn().await;
            drop(stored);
            assert_eq!(told.await.unwrap(), (true, false));
            drop(provider);
        });
    }

    #[test]
    fn values_of_an_exchange_are_released_once_its_response_has_arrived_too() {
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
