//! The beginning of a response that is held back, so that remedies can act on the call until then.

use std::task::Poll;

use egret_http1::{BodyDecoder, ResponseHead, Span};
use egret_message::grpc::GrpcStatus;
use egret_usage::ContentScan;

/// The part of a response until its first message, or its first event with content.
#[derive(Debug)]
pub struct Beginning {
    decoder: BodyDecoder,
    awaited: Awaited,
    /// Number of decoded bytes, those of the head included.
    used: usize,
    spans: Vec<Span>,
}

/// The end of the part that is held back.
#[derive(Debug)]
pub enum Awaited {
    /// Any data: a message of gRPC begins.
    Message,
    /// An event with content.
    Event(ContentScan),
}

impl Beginning {
    /// Starts behind the head of this response.
    pub fn new(response: &ResponseHead, awaited: Awaited) -> Self {
        let mut decoder = BodyDecoder::none();
        decoder.restart(response.framing);
        Self { decoder, awaited, used: response.len, spans: Vec::new() }
    }

    /// Decodes the new part of `received`, the response received so far. Ready once what is awaited has
    /// begun, or with the status in the trailers once the body has ended. A body that breaks a rule is ready
    /// too: forwarding it finds that out again.
    pub fn take(&mut self, received: &[u8]) -> Poll<Option<GrpcStatus>> {
        let received = &received[self.used..];
        self.spans.clear();
        let Ok(used) = self.decoder.decode(received, &mut self.spans) else { return Poll::Ready(None) };
        self.used += used;
        let spans = self.spans.iter();
        let is_there = match &mut self.awaited {
            Awaited::Message => !self.spans.is_empty(),
            Awaited::Event(scan) => spans.fold(false, |found, span| found | scan.push(span.of(received))),
        };
        if is_there {
            return Poll::Ready(None);
        }
        if !self.decoder.is_done() {
            return Poll::Pending;
        }
        Poll::Ready(GrpcStatus::in_trailers(self.decoder.trailers()))
    }
}

#[cfg(test)]
mod tests {
    use egret_http1::{HeadLimits, Method};

    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// Receives `body` byte by byte. Returns the number of its bytes that are held back, and the status.
    fn held(body: &str, awaited: Awaited) -> (usize, Option<GrpcStatus>) {
        let message = format!("{HEAD}{body}").into_bytes();
        let mut head = ResponseHead::new();
        head.parse(&message, &HeadLimits::default(), Method::Get).unwrap();
        let mut beginning = Beginning::new(&head, awaited);
        for end in HEAD.len()..=message.len() {
            if let Poll::Ready(status) = beginning.take(&message[..end]) {
                return (end - HEAD.len(), status);
            }
        }
        panic!("the body has no end");
    }

    #[test]
    fn a_response_is_held_back_until_its_first_message_or_event() {
        let body = "5\r\n: a\n\n\r\n9\r\ndata: b\n\n\r\n0\r\n\r\n";
        assert_eq!(held(body, Awaited::Message), (4, None));
        let event = || Awaited::Event(ContentScan::default());
        assert_eq!(held(body, event()), (body.len() - 7, None));
        assert_eq!(held("5\r\n: a\n\n\r\n0\r\n\r\n", event()).0, 15);
        let failed = "0\r\ngrpc-status: 14\r\n\r\n";
        assert_eq!(held(failed, Awaited::Message), (failed.len(), Some(GrpcStatus::Unavailable)));
        assert_eq!(held("x", Awaited::Message), (1, None));
    }
}
