//! A leg that speaks SOCKS 5 until its tunnel is open. On this side the handshake is a CONNECT, and the
//! response to it becomes the reply, so everything above it is the same.
//!
//! This holds at all times: bytes of an incomplete handshake in the buffer < `SOCKS_BYTES_MAX`.

use std::io::IoSlice;
use std::task::{Context, Poll, ready};

use egret_http1::{HeadLimits, MAX_HEAD, Method, Progress, ResponseHead};
use egret_message::{ErrorKind, Fields};
use egret_net::buffer::Buffer;
use egret_net::proxy::handshake::connect_head;
use egret_net::socks::{SOCKS_BYTES_MAX, SocksError, SocksHandshake, SocksReply};
use egret_net::stream::Stream;

use crate::frames::{parse_head, put_head};
use crate::http1::{Head, Http1};
use crate::message::{Gone, HeadRoom, NoHead, Received};

/// The state of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocksState {
    /// The client sends it, or waits for the reply.
    Begun,
    Refused(SocksError),
    /// The reply says that the tunnel is open.
    Open,
}

/// A connection whose client begins with a handshake.
#[derive(Debug)]
pub struct Socks {
    connection: Http1,
    handshake: SocksHandshake,
    state: SocksState,
}

impl Socks {
    pub(super) fn new(stream: Stream, asks: bool) -> Self {
        Self {
            connection: Http1::new(stream),
            handshake: SocksHandshake::new(asks),
            state: SocksState::Begun,
        }
    }

    pub(super) fn connection(&self) -> &Http1 {
        &self.connection
    }

    pub(super) fn connection_mut(&mut self) -> &mut Http1 {
        &mut self.connection
    }

    pub(super) fn into_connection(self) -> Http1 {
        self.connection
    }

    /// Returns `true` once the tunnel is open: all that is sent and received from then on are its bytes.
    pub(super) fn is_open(&self) -> bool {
        self.state == SocksState::Open
    }

    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Buffer,
        head: &mut impl Head,
        room: HeadRoom<'_>,
    ) -> Poll<Result<(), NoHead>> {
        loop {
            let read = self.handshake.read(buffer.filled());
            if self.connection.send_bytes(cx, self.handshake.answers()).is_err() {
                return Poll::Ready(Err(NoHead::End));
            }
            match read {
                Ok(None) => debug_assert!(buffer.filled().len() < SOCKS_BYTES_MAX),
                Ok(Some(request)) => {
                    let connect = connect_head(&request.target, request.credentials.as_ref());
                    buffer.remove(0, request.len);
                    put_head(connect.as_bytes(), buffer, room);
                    return parse_head(head, buffer, room);
                }
                Err(error) => {
                    self.state = SocksState::Refused(error);
                    return Poll::Ready(Err(NoHead::Socks(error)));
                }
            }
            if ready!(self.connection.poll_backlog(cx, &mut 0)).is_err() {
                return Poll::Ready(Err(NoHead::End));
            }
            match ready!(self.connection.poll_receive(cx, buffer)) {
                Received::Data(_) => {}
                Received::End => return Poll::Ready(Err(NoHead::End)),
                Received::Gone(error) => return Poll::Ready(Err(NoHead::Gone(error))),
            }
        }
    }

    /// Sends the reply that means the same as `slices`, a whole response. Ready with the number of their
    /// bytes.
    pub(super) fn poll_send_bytes(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<u64, Gone>> {
        let reply = match self.state {
            // The client may be one of HTTP, which can read the response.
            SocksState::Refused(SocksError::NotSocks) => return self.connection.poll_send_bytes(cx, slices),
            SocksState::Refused(error) => error.reply(),
            SocksState::Begun | SocksState::Open => {
                reply_of(slices.first().map_or(&[][..], |slice| &slice[..]))
            }
        };
        self.connection.send_bytes(cx, &self.handshake.end(reply))?;
        if reply == SocksReply::Succeeded {
            self.state = SocksState::Open;
        }
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len() as u64).sum()))
    }
}

/// Returns the reply that means the same as `response`, the gateway's own to a CONNECT.
fn reply_of(response: &[u8]) -> SocksReply {
    let mut head = ResponseHead::new();
    let limits = HeadLimits { head: MAX_HEAD, ..HeadLimits::default() };
    if head.parse(response, &limits, Method::Connect) != Ok(Progress::Complete) {
        return SocksReply::Failed;
    }
    let slug = Fields::received(&head.fields, response).get(b"x-egret-error");
    let error = ErrorKind::ALL.iter().find(|kind| slug == Some(kind.slug().as_bytes()));
    match error {
        None if (200..300).contains(&head.status) => SocksReply::Succeeded,
        Some(ErrorKind::EgressDenied | ErrorKind::ClientUnproven) => SocksReply::NotAllowed,
        Some(ErrorKind::DnsFailed | ErrorKind::DnsTimeout | ErrorKind::ConnectTimeout) => {
            SocksReply::HostUnreachable
        }
        Some(ErrorKind::ConnectFailed) => SocksReply::ConnectionRefused,
        _ => SocksReply::Failed,
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use egret_http1::RequestHead;
    use egret_net::buffer::BufferPool;
    use egret_net::event_loop::{Socket, spawn};
    use tokio::sync::oneshot;

    use super::*;
    use crate::Leg;
    use crate::sockets::{ends, run, turn};

    const REQUEST: &[u8] = &[5, 1, 0, 3, 6, b'a', b'.', b't', b'e', b's', b't', 1, 0xbb];
    const ESTABLISHED: &str = "HTTP/1.1 200 Connection Established\r\nx-egret-generated: true\r\n\r\n";

    /// Sends `pieces`, and tells all that it receives until the other end closes.
    fn client(socket: Socket, pieces: Vec<Vec<u8>>) -> oneshot::Receiver<Vec<u8>> {
        let (tell, told) = oneshot::channel();
        spawn(async move {
            for piece in pieces {
                socket.send_all(&piece).await.unwrap();
                turn().await;
            }
            let (mut bytes, mut piece) = (Vec::new(), vec![0; 256]);
            while let Ok(count @ 1..) = socket.receive(&mut piece).await {
                bytes.extend_from_slice(&piece[..count]);
            }
            let _ = tell.send(bytes);
        });
        told
    }

    /// Returns the head that a handshake becomes and the bytes behind it, or the reason why there is none.
    async fn receive(leg: &mut Leg) -> Result<(String, Vec<u8>), NoHead> {
        let (buffers, mut head, mut buffer) = (BufferPool::default(), RequestHead::new(), Buffer::default());
        buffers.lend(&mut buffer);
        let room = HeadRoom { limits: &HeadLimits::default(), buffers: &buffers };
        poll_fn(|cx| leg.poll_head(cx, &mut buffer, &mut head, room)).await?;
        assert!(!buffer.is_full());
        let (head, rest) = buffer.filled().split_at(head.len);
        Ok((String::from_utf8(head.to_vec()).unwrap(), rest.to_vec()))
    }

    async fn respond(leg: &mut Leg, response: &str) {
        let slices = [IoSlice::new(response.as_bytes())];
        let sent = poll_fn(|cx| leg.poll_send_bytes(cx, &slices)).await;
        assert_eq!(sent, Ok(response.len() as u64));
        poll_fn(|cx| leg.poll_backlog(cx, &mut 0)).await.unwrap();
    }

    #[test]
    fn a_handshake_is_a_connect_however_it_is_cut() {
        run(async {
            let whole = [&[5, 2, 0, 2][..], b"\x01\x01n\x02tk", REQUEST, b"ahead"].concat();
            let connect = "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nProxy-Authorization: Basic bjp0aw==\r\n\r\n";
            for piece in [1, 2, 5, 7, whole.len()] {
                let (near, far) = ends();
                let told = client(far, whole.chunks(piece).map(<[u8]>::to_vec).collect());
                let mut leg = Leg::socks(near, true);
                let (head, mut rest) = receive(&mut leg).await.unwrap();
                assert_eq!(head, connect);
                respond(&mut leg, ESTABLISHED).await;
                assert!(matches!(leg, Leg::Http1(_)));
                let (buffers, mut buffer) = (BufferPool::default(), Buffer::default());
                buffers.lend(&mut buffer);
                while rest.len() < 5 {
                    buffer.clear();
                    let received = poll_fn(|cx| leg.poll_receive(cx, &mut buffer)).await;
                    assert!(matches!(received, Received::Data(_)), "{received:?}");
                    rest.extend_from_slice(buffer.filled());
                }
                assert_eq!(rest, b"ahead");
                poll_fn(|cx| leg.poll_finish(cx)).await.unwrap();
                drop(leg);
                assert_eq!(told.await.unwrap(), [5, 2, 1, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
            }
        });
    }

    #[test]
    fn errors_become_reply_codes() {
        run(async {
            for (kind, code) in [
                (ErrorKind::EgressDenied, 2),
                (ErrorKind::ClientUnproven, 2),
                (ErrorKind::DnsFailed, 4),
                (ErrorKind::ConnectTimeout, 4),
                (ErrorKind::ConnectFailed, 5),
                (ErrorKind::PoolFull, 1),
            ] {
                // The config may change the status of an error.
                let response = format!(
                    "HTTP/1.1 599 x\r\nX-Egret-Error: {}\r\nContent-Length: 2\r\n\r\nno",
                    kind.slug()
                );
                let (near, far) = ends();
                let told = client(far, vec![[&[5, 1, 0][..], REQUEST].concat()]);
                let mut leg = Leg::socks(near, false);
                receive(&mut leg).await.unwrap();
                respond(&mut leg, &response).await;
                assert!(matches!(leg, Leg::Socks(_)));
                drop(leg);
                assert_eq!(told.await.unwrap(), [5, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0]);
            }
        });
    }

    #[test]
    fn a_refused_handshake_ends_as_its_part_demands() {
        let response = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
        run(async {
            for (asks, sent, error, received) in [
                (false, &b"GET / HTTP/1.1\r\n"[..], SocksError::NotSocks, response.as_bytes()),
                (true, &[5, 1, 0], SocksError::NoCredentials, &[5, 0xff]),
                (true, b"\x05\x01\x02\x02", SocksError::Credentials, &[5, 2, 1, 1]),
                (false, &[5, 1, 0, 5, 2, 0, 1], SocksError::Command, &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
            ] {
                let (near, far) = ends();
                let told = client(far, vec![sent.to_vec()]);
                let mut leg = Leg::socks(near, asks);
                let refused = receive(&mut leg).await;
                assert!(matches!(refused, Err(NoHead::Socks(found)) if found == error), "{refused:?}");
                respond(&mut leg, response).await;
                drop(leg);
                assert_eq!(told.await.unwrap(), received);
            }
        });
    }
}
