//! Tests of bodies of each framing over real connections, whole, cut, malformed and masked.

use std::future::poll_fn;

use std::sync::Arc;

use egret_accounts::SecretPatterns;
use egret_message::{Changes, Fields};
use egret_net::budget::Budget;
use tokio::sync::oneshot;

use super::*;
use egret_leg::sockets::{ends, run, turn};
use egret_net::event_loop::spawn;

fn sent_in(chunked: bool) -> Framing {
    if chunked { Framing::Chunked } else { Framing::UntilClose }
}

/// Returns the bytes that arrive when `pieces` are received one after the other, and the result.
fn piped(framing: ResponseFraming, chunked: bool, pieces: Vec<Vec<u8>>) -> (Vec<u8>, Result<(), PipeError>) {
    arriving(None, framing, chunked, pieces)
}

/// Does the same with a mask.
fn arriving(
    echoes: Option<SecretPatterns>,
    framing: ResponseFraming,
    chunked: bool,
    pieces: Vec<Vec<u8>>,
) -> (Vec<u8>, Result<(), PipeError>) {
    let mask = |stages: &mut Stages| echoes.into_iter().for_each(|echoes| stages.mask(&Arc::new(echoes)));
    staged(mask, framing, chunked, pieces)
}

/// Does the same with the stages that `add` adds.
fn staged(
    add: impl FnOnce(&mut Stages),
    framing: ResponseFraming,
    chunked: bool,
    pieces: Vec<Vec<u8>>,
) -> (Vec<u8>, Result<(), PipeError>) {
    run(async {
        let (sender, source) = ends();
        let (sink, receiver) = ends();
        spawn(async move {
            for piece in pieces {
                // The pipe may have rejected an earlier piece.
                if sender.send_all(&piece).await.is_err() {
                    return;
                }
                turn().await;
            }
        });
        let (tell, received) = oneshot::channel();
        spawn(async move {
            let (mut bytes, mut piece) = (Vec::new(), vec![0; 4096]);
            while let count @ 1.. = receiver.receive(&mut piece).await.unwrap() {
                bytes.extend_from_slice(&piece[..count]);
            }
            tell.send(bytes).unwrap();
        });
        let (mut source, mut sink) = (Leg::plain(source), Leg::plain(sink));
        let (buffers, names) = (BufferPool::default(), TrailerNames::new(["x-*"]));
        let mut buffer = Buffer::default();
        buffers.lend(&mut buffer);
        let mut pipe = Pipe::default();
        sink.start(sent_in(chunked));
        pipe.reset(framing, sent_in(chunked));
        add(pipe.add_stages());
        let shared = (&buffers, &names);
        let ended =
            poll_fn(|cx| pipe.poll(cx, &mut source, &mut buffer, &mut Kept::first(0), &mut sink, shared))
                .await;
        drop(sink);
        (received.await.unwrap(), ended)
    })
}

#[test]
fn a_body_with_a_length_arrives_as_it_is_however_large() {
    let body: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let (arrived, ended) = piped(ResponseFraming::Length(3_000_000), false, vec![body.clone()]);
    assert!(ended.is_ok());
    assert!(arrived == body);
}

#[test]
fn bytes_after_the_body_are_not_forwarded() {
    let (arrived, ended) = piped(ResponseFraming::Length(4), false, vec![b"bodyGET / HTTP/1.1".to_vec()]);
    assert!(ended.is_ok());
    assert_eq!(arrived, b"body");
}

#[test]
fn chunks_are_framed_anew_without_extensions_and_unlisted_trailers() {
    let pieces = vec![b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 1\r\nAuthorization: no\r\n\r\n".to_vec()];
    let (arrived, ended) = piped(ResponseFraming::Chunked, true, pieces);
    assert!(ended.is_ok());
    assert_eq!(arrived, b"5\r\nabcde\r\n0\r\nX-Sum: 1\r\n\r\n");
}

#[test]
fn a_body_until_close_goes_out_in_chunks_and_ends() {
    let (arrived, ended) = piped(ResponseFraming::UntilClose, true, vec![b"abc".to_vec()]);
    assert!(ended.is_ok());
    assert_eq!(arrived, b"3\r\nabc\r\n0\r\n\r\n");
}

#[test]
fn chunks_for_an_http_1_0_client_go_out_bare() {
    let (arrived, ended) = piped(ResponseFraming::Chunked, false, vec![b"3\r\nabc\r\n0\r\n\r\n".to_vec()]);
    assert!(ended.is_ok());
    assert_eq!(arrived, b"abc");
}

#[test]
fn a_body_cut_short_is_an_error_and_gets_no_end() {
    for (framing, piece) in [(ResponseFraming::Chunked, "3\r\nab"), (ResponseFraming::Length(3), "ab")] {
        let (arrived, ended) = piped(framing, true, vec![piece.into()]);
        assert!(matches!(ended, Err(PipeError::Malformed(BodyError::Incomplete))), "{ended:?}");
        assert_eq!(arrived, b"2\r\nab\r\n");
    }
}

#[test]
fn a_malformed_chunk_is_an_error_and_not_forwarded() {
    let (arrived, ended) = piped(ResponseFraming::Chunked, true, vec![b"3\r\nabc\r\nzz\r\n".to_vec()]);
    assert!(matches!(ended, Err(PipeError::Malformed(BodyError::ChunkSize))), "{ended:?}");
    assert_eq!(arrived, b"");
}

#[test]
fn secrets_are_masked_however_they_are_cut_and_the_framing_stays() {
    let echoes = || SecretPatterns::new([&b"sk_live_0123456789"[..]]).ok();
    let text = b"key=sk_live_0123456789&end=sk_live_01".to_vec();
    let masked = b"key=******************&end=sk_live_01";
    for cut in 0..text.len() {
        let length = ResponseFraming::Length(text.len() as u64);
        let pieces = || vec![text[..cut].to_vec(), text[cut..].to_vec()];
        let (arrived, ended) = arriving(echoes(), length, false, pieces());
        assert!(ended.is_ok());
        assert_eq!(arrived, masked, "cut at {cut}");
        let (arrived, ended) = arriving(echoes(), ResponseFraming::UntilClose, false, pieces());
        assert!(ended.is_ok());
        assert_eq!(arrived, masked, "cut at {cut}");
        let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        let chunks: Vec<_> =
            pieces().iter().filter(|piece| !piece.is_empty()).map(|piece| chunk(piece)).collect();
        let end = b"0\r\nX-Key: sk_live_0123456789\r\n\r\n".to_vec();
        let (arrived, ended) =
            arriving(echoes(), ResponseFraming::Chunked, false, [chunks.concat(), end.clone()].to_vec());
        assert!(ended.is_ok());
        assert_eq!(arrived, masked, "cut at {cut}");
        let (arrived, _) = arriving(echoes(), ResponseFraming::Chunked, true, [chunks, vec![end]].concat());
        assert!(arrived.ends_with(b"0\r\nX-Key: ******************\r\n\r\n"));
    }
}

#[test]
fn a_report_is_left_out_however_it_is_framed_and_cut() {
    let hide = |stages: &mut Stages| {
        let mut changes = Changes::default();
        changes.add(b"content-type", b"text/event-stream");
        stages.hide_usage(Fields::new(&[], b"", &changes), &Arc::new(Budget::default()));
        assert!(stages.are_inseparable());
    };
    let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
    let text = "data: {\"choices\":[{}],\"usage\":null}\n\n";
    let stream =
        format!("{text}data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":1}}}}\n\ndata: [DONE]\n\n");
    let expected = format!("{text}data: [DONE]\n\n");
    let stream = stream.as_bytes();
    for cut in 1..stream.len() {
        let pieces = || vec![stream[..cut].to_vec(), stream[cut..].to_vec()];
        let chunks: Vec<_> =
            pieces().iter().map(|piece| chunk(piece)).chain([b"0\r\n\r\n".to_vec()]).collect();
        let length = ResponseFraming::Length(stream.len() as u64);
        for (framing, pieces) in [
            (length, pieces()),
            (ResponseFraming::UntilClose, pieces()),
            (ResponseFraming::Chunked, chunks.clone()),
            (ResponseFraming::Chunked, vec![chunks.concat()]),
        ] {
            let (arrived, ended) = staged(hide, framing, false, pieces.clone());
            assert!(ended.is_ok());
            assert_eq!(String::from_utf8(arrived).unwrap(), expected, "{framing:?}, cut at {cut}");
            let (arrived, ended) = staged(hide, framing, true, pieces);
            assert!(ended.is_ok() && arrived.ends_with(b"\r\n0\r\n\r\n"));
            assert_eq!(arrived.windows(5).filter(|window| window == b"\r\n0\r\n").count(), 1);
        }
    }
}

#[test]
fn usage_is_read_before_its_report_is_left_out() {
    let mut changes = Changes::default();
    changes.add(b"content-type", b"text/event-stream");
    let mut stages = Stages::default();
    stages.hide_usage(Fields::new(&[], b"", &changes), &Arc::new(Budget::default()));
    stages.tap(|tap| tap.keep_start(Vec::new(), 100));
    let input = b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n";
    let mut spans = vec![Span::new(0, input.len())];
    assert_eq!(stages.pass(input, &mut spans, true), (&b""[..], true));
    assert!(spans.is_empty());
    let usage = stages.take_usage(true).unwrap();
    assert_eq!((usage.input, usage.output), (1, 2));
    assert_eq!(stages.take_tap().unwrap().passed_bytes(), 0);
}

#[test]
fn withheld_bytes_of_a_broken_body_are_dropped() {
    let echoes = SecretPatterns::new([&b"sk_live_0123456789"[..]]).unwrap();
    let (arrived, ended) =
        arriving(Some(echoes), ResponseFraming::Length(9), false, vec![b"a\nsk_li".to_vec()]);
    assert!(matches!(ended, Err(PipeError::Malformed(BodyError::Incomplete))), "{ended:?}");
    assert_eq!(arrived, b"a\n");
}
