//! Non-blocking sockets of a loop. They make a system call only if it may succeed.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_clock::planted;
use egret_message::ClientAddress;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer};
use socket2::SockAddr;

use super::current::{Inner, with_current};
use super::source::{Haste, PolledSocket, Received};
use crate::os;
use crate::os::kernel::{
    self, AsFd, BorrowedFd, OwnedFd, SockRef, TcpListener, TcpStream, recv, send, sendmsg,
};

/// Maximum number of slices that Linux sends in one system call (`IOV_MAX`). With more it sends none.
const SLICES_MAX: usize = 1_024;

/// A socket's registration with a loop, removed on drop.
#[derive(Debug)]
struct Registration {
    inner: Rc<Inner>,
    number: usize,
    source: Rc<PolledSocket>,
}

impl Registration {
    fn new(socket: OwnedFd) -> io::Result<Self> {
        let inner = with_current(Rc::clone);
        let inner = inner.ok_or_else(|| io::Error::other("this thread runs no event loop"))?;
        let (number, source) = inner.poller.add(socket)?;
        Ok(Self { inner, number, source })
    }

    /// Ready if something may be received, up to a number of times per run. Beyond that the task is woken
    /// again: callers receive when this is ready, so a task whose socket always has more data would never
    /// yield.
    fn poll_readable(&self, cx: &Context<'_>, haste: Haste) -> Poll<()> {
        let Self { inner, source, .. } = self;
        if !source.is_readable() {
            source.wait_to_read(inner.tasks.waiter(cx), haste);
            return Poll::Pending;
        }
        if !inner.tasks.has_receives_left() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Does the same for callers that receive when it is ready.
    fn poll_receivable(&self, cx: &Context<'_>) -> Poll<()> {
        let readable = self.poll_readable(cx, Haste::Turn);
        if readable.is_ready() {
            self.inner.tasks.count_receive();
        }
        readable
    }

    fn poll_writable(&self, cx: &Context<'_>) -> Poll<()> {
        if self.source.is_writable() {
            return Poll::Ready(());
        }
        self.source.wait_to_write(self.inner.tasks.waiter(cx));
        Poll::Pending
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.inner.poller.forget(self.number);
    }
}

/// Returns the Internet address in `address`. Fails for sockets of other families.
fn internet(address: io::Result<SockAddr>) -> io::Result<SocketAddr> {
    address?.as_socket().ok_or_else(|| ErrorKind::Unsupported.into())
}

/// A connected socket.
#[derive(Debug)]
pub struct Socket {
    place: Registration,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.place.source.as_fd()
    }
}

impl Socket {
    /// Registers a connected, non-blocking socket with this thread's loop.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        Ok(Self { place: Registration::new(stream.into())? })
    }

    /// Connects `socket` to `address`.
    pub async fn connect(socket: kernel::Socket, address: SocketAddr) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
                return Err(error);
            }
            _ => {}
        }
        let connected = Self::new(socket.into())?;
        poll_fn(|cx| connected.place.poll_writable(cx)).await;
        match SockRef::from(&connected).take_error()? {
            Some(error) => Err(error),
            None => Ok(connected),
        }
    }

    /// Unregisters the socket, so another thread's loop can use it. Fails if data was received ahead.
    pub fn into_std(self) -> io::Result<TcpStream> {
        let source = Rc::clone(&self.place.source);
        self.place.inner.poller.remove(&source)?;
        drop(self);
        let socket = Rc::into_inner(source).and_then(PolledSocket::into_socket);
        socket
            .map(TcpStream::from)
            .ok_or_else(|| io::Error::other("data has already been received for this socket"))
    }

    /// Returns the address of this end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        internet(SockRef::from(self).local_addr())
    }

    /// Returns the address of the other end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        internet(SockRef::from(self).peer_addr())
    }

    /// Returns the address of the other end, or the user who has connected to a Unix socket.
    pub fn peer(&self) -> io::Result<ClientAddress> {
        match SockRef::from(self).peer_addr()?.as_socket() {
            Some(address) => Ok(ClientAddress::Internet(address)),
            None => self.peer_user().map(ClientAddress::User),
        }
    }

    /// Returns the user who has connected to a Unix socket: the one that its process had then, as this
    /// process sees it.
    ///
    /// # Errors
    ///
    /// Fails for a socket of another kind.
    pub fn peer_user(&self) -> io::Result<u32> {
        os::peer(self).map(|peer| peer.user)
    }

    /// Ready if there may be something to receive, including EOF or an error. Data may have been received
    /// ahead by then, so the caller should read it soon.
    #[inline]
    pub fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        self.place.poll_readable(cx, Haste::Ahead)
    }

    /// Receives into `buffer`. Returns 0 if the peer has closed its sending side.
    pub fn poll_receive(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        while self.place.poll_receivable(cx).is_ready() {
            if let Some(received) = self.try_receive(buffer) {
                return Poll::Ready(received);
            }
        }
        Poll::Pending
    }

    /// Receives available data. Returns `None`, without registering a waker, if there is none. Makes no
    /// system call in that case, so it does not see data that arrived since the loop's last turn.
    pub fn try_receive(&self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        let Registration { inner, source, .. } = &self.place;
        if !source.is_readable() {
            return None;
        }
        let taken = match inner.poller.ahead.take(source, buffer) {
            None => 0,
            Some(Ok(taken)) if taken == buffer.len() || !source.has_more() => return Some(Ok(taken)),
            Some(Ok(taken)) => taken,
            Some(Err(error)) => return Some(Err(error.into())),
        };
        let rest = &mut buffer[taken..];
        loop {
            match recv(source, &mut *rest, RecvFlags::empty()) {
                // EOF, which the kernel reports at every attempt.
                Ok((_, 0)) => return Some(Ok(taken)),
                Ok((_, count)) => {
                    source.has_received(taken + count, taken + rest.len());
                    return Some(Ok(taken + count));
                }
                Err(Errno::AGAIN) => {
                    source.has_nothing();
                    return (taken > 0).then_some(Ok(taken));
                }
                Err(Errno::INTR) => {}
                Err(error) if taken > 0 => {
                    // The kernel reports it only once. It must follow the bytes received before it.
                    *source.ahead.borrow_mut() = Some(Received::Failed(error));
                    return Some(Ok(taken));
                }
                Err(error) => return Some(Err(error.into())),
            }
        }
    }

    /// Sends as much of `slices` as possible in one system call.
    pub fn poll_send(&self, cx: &Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let slices = &slices[..slices.len().min(SLICES_MAX)];
        while self.place.poll_writable(cx).is_ready() {
            let sent = match slices {
                [slice] => send(self, slice, os::NO_SIGNAL),
                _ => sendmsg(self, slices, &mut SendAncillaryBuffer::default(), os::NO_SIGNAL),
            };
            match sent {
                Err(Errno::AGAIN) => self.place.source.is_full(),
                Err(Errno::INTR) => {}
                Ok(sent) if planted!(TailDropped) && sent < slices.iter().map(|slice| slice.len()).sum() => {
                    return Poll::Ready(Ok(sent + 1));
                }
                sent => return Poll::Ready(sent.map_err(io::Error::from)),
            }
        }
        Poll::Pending
    }

    /// Closes the sending side.
    pub fn shut(&self) -> io::Result<()> {
        SockRef::from(self).shutdown(Shutdown::Write)
    }

    /// Makes the connection close with a reset, so the peer sees that a message is incomplete. If the kernel
    /// refuses, it closes in order.
    pub fn reset_on_close(&self) {
        let _ = SockRef::from(self).set_linger(Some(Duration::ZERO));
    }

    /// Returns the number of bytes that the kernel holds at most of those that were sent. 0 if it does not
    /// say.
    pub fn send_buffer_size(&self) -> usize {
        SockRef::from(self).send_buffer_size().unwrap_or_default()
    }

    /// Receives into `buffer`. Returns 0 if the peer has closed its sending side.
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
pub struct Listener {
    place: Registration,
}

impl Drop for Listener {
    /// Another process may hold the socket as well, so closing it does not unregister it (epoll(7)).
    fn drop(&mut self) {
        // It is registered, and could not be so twice.
        let _ = self.place.inner.poller.remove(&self.place.source);
    }
}

impl Listener {
    /// Registers a listening, non-blocking socket with this thread's loop.
    pub fn new(listener: TcpListener) -> io::Result<Self> {
        Ok(Self { place: Registration::new(listener.into())? })
    }

    /// Returns the address that it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        internet(SockRef::from(&self.place.source.as_fd()).local_addr())
    }

    /// Returns the next connection, not registered with a loop. Dropping the future loses no connection.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        poll_fn(|cx| {
            while self.place.poll_receivable(cx).is_ready() {
                match os::accept(&*self.place.source) {
                    Ok(socket) => return Poll::Ready(Ok(socket.into())),
                    Err(Errno::AGAIN) => self.place.source.has_nothing(),
                    Err(Errno::INTR) => {}
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            }
            Poll::Pending
        })
        .await
    }
}
