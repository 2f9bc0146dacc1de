//! Sockets of a loop: bare system calls that are made only where they may succeed.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, accept_with, recv, send, sendmsg};

use super::poller::Readiness;
use super::{Inner, with_current};

/// A place among the sockets of a loop, for as long as it lives.
#[derive(Debug)]
struct Place {
    inner: Rc<Inner>,
    number: usize,
    readiness: Rc<Readiness>,
}

impl Place {
    fn new(socket: &impl AsRawFd) -> io::Result<Self> {
        let inner = with_current(Rc::clone);
        let inner = inner.ok_or_else(|| io::Error::other("this thread runs no event loop"))?;
        let (number, readiness) = inner.poller.add(socket.as_raw_fd())?;
        Ok(Self { inner, number, readiness })
    }

    fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        if self.readiness.is_readable() {
            return Poll::Ready(());
        }
        self.readiness.wait_to_read(self.inner.tasks.waiter(cx));
        Poll::Pending
    }

    fn poll_writable(&self, cx: &Context<'_>) -> Poll<()> {
        if self.readiness.is_writable() {
            return Poll::Ready(());
        }
        self.readiness.wait_to_write(self.inner.tasks.waiter(cx));
        Poll::Pending
    }

    /// As [`poll_readable`](Self::poll_readable), for those who take something then, as often as a run allows.
    fn poll_turn(&self, cx: &Context<'_>) -> Poll<()> {
        if self.poll_readable(cx).is_ready() && self.inner.tasks.may_receive() {
            return Poll::Ready(());
        }
        if self.readiness.is_readable() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.inner.poller.forget(self.number);
    }
}

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    place: Place,
    stream: TcpStream,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Socket {
    /// Takes a connected socket that does not block onto this thread's loop.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        Ok(Self { place: Place::new(&stream)?, stream })
    }

    /// Connects `socket` to `address`.
    pub async fn connect(socket: socket2::Socket, address: SocketAddr) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
                return Err(error);
            }
            _ => {}
        }
        let connected = Self::new(socket.into())?;
        poll_fn(|cx| connected.place.poll_writable(cx)).await;
        match connected.stream.take_error()? {
            Some(error) => Err(error),
            None => Ok(connected),
        }
    }

    /// Takes it off the loop, for another thread's.
    pub fn into_std(self) -> io::Result<TcpStream> {
        let Self { place, stream } = self;
        place.inner.poller.remove(&stream)?;
        Ok(stream)
    }

    /// The address of this end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// The address of the other end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// Ready when there may be something to receive, an end or an error included.
    pub fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        self.place.poll_readable(cx)
    }

    /// Receives into `buffer`; 0 is the peer's orderly end.
    pub fn poll_receive(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        while self.place.poll_turn(cx).is_ready() {
            if let Some(received) = self.try_receive(buffer) {
                return Poll::Ready(received);
            }
        }
        Poll::Pending
    }

    /// Receives what has come, if anything has; nobody is woken when it has not. Costs no system call then, so that what has come since the
    /// loop's last turn is not seen.
    pub fn try_receive(&self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        let readiness = &self.place.readiness;
        if !readiness.is_readable() {
            return None;
        }
        loop {
            match recv(&self.stream, &mut *buffer, RecvFlags::empty()) {
                Ok((_, count)) => {
                    // A short read tells that there is no more for now, which spares the call that would only say so.
                    if 0 < count && count < buffer.len() {
                        readiness.has_emptied();
                    }
                    return Some(Ok(count));
                }
                Err(Errno::AGAIN) => {
                    readiness.has_nothing();
                    return None;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Some(Err(error.into())),
            }
        }
    }

    /// Sends what it can of `slices` in one go.
    pub fn poll_send(&self, cx: &Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        while self.place.poll_writable(cx).is_ready() {
            let sent = match slices {
                [slice] => send(&self.stream, slice, SendFlags::NOSIGNAL),
                _ => sendmsg(&self.stream, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL),
            };
            match sent {
                Err(Errno::AGAIN) => self.place.readiness.is_full(),
                Err(Errno::INTR) => {}
                sent => return Poll::Ready(sent.map_err(io::Error::from)),
            }
        }
        Poll::Pending
    }

    /// Closes the sending side.
    pub fn shut(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Receives into `buffer`; 0 is the peer's orderly end.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_receive(cx, buffer)).await
    }

    /// Sends all of `bytes`.
    pub async fn send_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = poll_fn(|cx| self.poll_send(cx, &[IoSlice::new(bytes)])).await?;
            if sent == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            bytes = &bytes[sent..];
        }
        Ok(())
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    place: Place,
    listener: TcpListener,
}

impl Listener {
    /// Takes a listening socket that does not block onto this thread's loop.
    pub fn new(listener: TcpListener) -> io::Result<Self> {
        Ok(Self { place: Place::new(&listener)?, listener })
    }

    /// The address listened on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection, on no loop yet. Nothing is lost where it is waited for no longer.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        poll_fn(|cx| {
            while self.place.poll_turn(cx).is_ready() {
                match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                    Ok(socket) => return Poll::Ready(Ok(socket.into())),
                    Err(Errno::AGAIN) => self.place.readiness.has_nothing(),
                    Err(Errno::INTR) => {}
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            }
            Poll::Pending
        })
        .await
    }
}
