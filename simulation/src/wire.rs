//! An end of a connection as the stream of bytes that a peer's own HTTP/2 reads and writes.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake};

use bytes::Bytes;
use egret_clock::Moment;
use egret_kernel::outside::EndId;
use h2::SendStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::link::{Link, LinkState};
use crate::scenario::Dice;

/// An end of a connection. In each turn it moves a limited number of bytes. It wakes nobody: the world gives
/// its owner a turn when there is news.
pub struct Wire(Rc<Turn>);

/// The bytes that may move in a turn. It is shared with the owner of the connection.
pub struct Turn {
    link: RefCell<Link>,
    dice: RefCell<Dice>,
    /// Most bytes of a turn, each way.
    piece: usize,
    may_read: Cell<usize>,
    may_write: Cell<usize>,
    /// Number of bytes that have moved.
    pub moved: Cell<u64>,
}

impl Wire {
    /// Wraps an end. `piece` is the number of bytes that move in a turn at most.
    pub fn new(link: Link, dice: Dice, piece: usize) -> (Self, Rc<Turn>) {
        let (may_read, may_write, moved) = Default::default();
        let (link, dice) = (RefCell::new(link), RefCell::new(dice));
        let turn = Rc::new(Turn { link, dice, piece, may_read, may_write, moved });
        (Self(Rc::clone(&turn)), turn)
    }
}

impl Turn {
    /// Begins a turn.
    pub fn begin(&self) {
        self.may_read.set(self.piece);
        let most = self.dice.borrow_mut().between(1, self.piece as u64);
        self.may_write.set(usize::try_from(most).unwrap_or(1));
        // Before that, HTTP/2 only writes.
        self.link.borrow_mut().shake_hands(self.piece);
    }

    /// Returns `true` if another turn is needed soon.
    pub fn is_spent(&self) -> bool {
        self.may_write.get() == 0 || self.unread() > 0
    }

    /// The end of the connection.
    pub fn end(&self) -> EndId {
        self.link.borrow().end
    }

    /// Number of bytes that have arrived and were not read.
    pub fn unread(&self) -> usize {
        self.link.borrow().unread()
    }

    /// The time at which the connection goes on by itself.
    pub fn due(&self) -> Option<Moment> {
        self.link.borrow().due()
    }

    /// Takes the rule of TLS that the gateway has broken.
    pub fn violation(&self) -> Option<String> {
        self.link.borrow_mut().violation.take()
    }

    /// Returns `true` if the gateway has accepted a certificate that has expired.
    pub fn has_expired(&self) -> bool {
        self.link.borrow().has_expired()
    }

    /// Closes or resets the connection.
    pub fn leave(&self, resets: bool) {
        let mut link = self.link.borrow_mut();
        if resets {
            link.reset();
        } else {
            link.close(false);
        }
    }

    fn moved(&self, of: &Cell<usize>, count: usize) {
        of.set(of.get() - count);
        self.moved.set(self.moved.get() + count as u64);
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = self.0.may_read.get().min(buffer.remaining());
        if most == 0 {
            return Poll::Pending;
        }
        let (bytes, state) = self.0.link.borrow_mut().read(most);
        self.0.moved(&self.0.may_read, bytes.len());
        buffer.put_slice(&bytes);
        match state {
            _ if !bytes.is_empty() => Poll::Ready(Ok(())),
            LinkState::Open => Poll::Pending,
            LinkState::Ended | LinkState::Cut => Poll::Ready(Ok(())),
            LinkState::Reset => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let most = self.0.may_write.get().min(bytes.len());
        if most == 0 {
            return Poll::Pending;
        }
        match self.0.link.borrow_mut().write(&bytes[..most]) {
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Some(0) => Poll::Pending,
            Some(sent) => {
                self.0.moved(&self.0.may_write, sent);
                Poll::Ready(Ok(sent))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.link.borrow_mut().shut();
        Poll::Ready(Ok(()))
    }
}

/// Notes that a connection or one of its streams can go on.
#[derive(Debug, Default)]
pub struct News(AtomicBool);

impl News {
    /// Returns `true` if there was some since the last call.
    pub fn take(&self) -> bool {
        self.0.swap(false, Relaxed)
    }
}

impl Wake for News {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// The outcome of an attempt to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// There is no room.
    Nothing,
    /// A part was sent.
    Part,
    /// All was sent, and the end of the stream behind it if there was to be one.
    All,
    /// The stream is gone.
    Lost,
}

/// Sends as much of `unsent` on a stream as there is room for, and the end of the stream behind it if it
/// `ends` there.
pub fn send(to: &mut SendStream<Bytes>, unsent: &mut Bytes, ends: bool, cx: &mut Context<'_>) -> Sent {
    if unsent.is_empty() {
        let is_lost = ends && to.send_data(Bytes::new(), true).is_err();
        return if is_lost { Sent::Lost } else { Sent::All };
    }
    to.reserve_capacity(unsent.len());
    let room = to.capacity();
    if room == 0 {
        let is_lost = matches!(to.poll_capacity(cx), Poll::Ready(None | Some(Err(_))));
        return if is_lost { Sent::Lost } else { Sent::Nothing };
    }
    let piece = unsent.split_to(room.min(unsent.len()));
    let is_all = unsent.is_empty();
    match to.send_data(piece, is_all && ends) {
        Err(_) => Sent::Lost,
        Ok(()) if is_all => Sent::All,
        Ok(()) => Sent::Part,
    }
}
