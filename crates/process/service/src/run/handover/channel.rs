//! The channel between the old and the new process. Every message has a maximum length, and waiting has a
//! limit.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::message::{BYTES_MAX, HandoverMessage};
use super::peer::Peer;
use crate::descriptors;

/// Maximum time for a response of the other process.
pub const RESPONSE_MAX: Duration = Duration::from_secs(5);

/// Maximum time for the other process to introduce itself.
pub const HELLO_MAX: Duration = Duration::from_secs(1);

/// Maximum length of the first message, in bytes. Nothing is known of its sender then.
const HELLO_BYTES_MAX: usize = 4096;

/// One end of a channel.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
    peer: Peer,
    /// Maximum time for a message to arrive whole.
    patience: Duration,
}

impl Channel {
    /// Creates an end from a connected socket. Fails if the process at the other end may not be spoken with.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        let peer = Peer::identify(&stream)?;
        stream.set_nonblocking(false)?;
        let mut channel = Self { stream, peer, patience: RESPONSE_MAX };
        channel.set_patience(RESPONSE_MAX)?;
        Ok(channel)
    }

    /// Sets the maximum time for a response.
    pub fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.patience = patience;
        self.stream.set_write_timeout(Some(patience))
    }

    /// Fails if the process that was identified has ended.
    pub fn check_peer(&self) -> io::Result<()> {
        self.peer.check()
    }

    /// Sends a message.
    pub fn send(&mut self, message: &HandoverMessage) -> io::Result<()> {
        self.send_with(message, &[])
    }

    /// Sends a message with open files.
    pub fn send_with(&mut self, message: &HandoverMessage, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = message.to_bytes()?;
        let length = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= BYTES_MAX);
        let length =
            length.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "the message is too long"))?;
        descriptors::send(&self.stream, &length.to_be_bytes(), files)?;
        self.stream.write_all(&bytes).map_err(timed_out)
    }

    /// Receives the message by which a process introduces itself.
    pub fn receive_hello(&mut self) -> io::Result<HandoverMessage> {
        Ok(self.receive_at_most(HELLO_BYTES_MAX)?.0)
    }

    /// Receives a message.
    pub fn receive(&mut self) -> io::Result<HandoverMessage> {
        Ok(self.receive_with()?.0)
    }

    /// Receives a message with open files.
    pub fn receive_with(&mut self) -> io::Result<(HandoverMessage, Vec<OwnedFd>)> {
        self.receive_at_most(BYTES_MAX)
    }

    fn receive_at_most(&mut self, bytes_max: usize) -> io::Result<(HandoverMessage, Vec<OwnedFd>)> {
        let mut reader = Timed { stream: &self.stream, deadline: Instant::now() + self.patience };
        let mut length = [0; 4];
        reader.limit()?;
        let (count, files) = descriptors::receive(&self.stream, &mut length)?;
        if count == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the other process has closed the channel"));
        }
        reader.read_exact(&mut length[count..])?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > bytes_max {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the other process sends a message that is too long",
            ));
        }
        let mut bytes = Vec::new();
        // Not allocated before the bytes are there.
        reader.take(length as u64).read_to_end(&mut bytes)?;
        if bytes.len() < length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let message = HandoverMessage::parse(&bytes).map_err(|error| {
            let text = format!("the other process sent a message that is not understood: {error}");
            io::Error::new(ErrorKind::InvalidData, text)
        })?;
        Ok((message, files))
    }
}

/// Reads until a deadline, which single bytes do not move.
struct Timed<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl Timed<'_> {
    /// Limits the time of the next read.
    fn limit(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.read(bytes).map_err(timed_out)
    }
}

/// A socket with a time limit reports that it would block.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::super::message::VERSION;
    use super::*;

    fn pair() -> (Channel, Channel) {
        let (near, far) = UnixStream::pair().unwrap();
        (Channel::new(near).unwrap(), Channel::new(far).unwrap())
    }

    #[test]
    fn messages_arrive_with_their_files() {
        let (mut near, mut far) = pair();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let hello = HandoverMessage::Hello { version: VERSION, pid: 7 };
        near.send_with(&hello, &[socket.as_fd()]).unwrap();
        near.send(&HandoverMessage::Take).unwrap();
        let (message, files) = far.receive_with().unwrap();
        assert_eq!(message, hello);
        let [file] = <[OwnedFd; 1]>::try_from(files).unwrap();
        assert_eq!(TcpListener::from(file).local_addr().unwrap(), socket.local_addr().unwrap());
        assert_eq!(far.receive().unwrap(), HandoverMessage::Take);
        drop(near);
        assert_eq!(far.receive().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_message_that_is_too_long_or_late_is_an_error() {
        let (mut near, mut far) = pair();
        near.stream.write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert_eq!(far.receive().unwrap_err().kind(), ErrorKind::InvalidData);
        near.stream.write_all(&[0, 0, 0x20, 0]).unwrap();
        assert_eq!(far.receive_hello().unwrap_err().kind(), ErrorKind::InvalidData, "too long for the first");
        far.set_patience(Duration::from_millis(5)).unwrap();
        near.stream.write_all(&[0, 0, 0, 9, b'{']).unwrap();
        assert_eq!(far.receive().unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn single_bytes_do_not_move_the_deadline() {
        let (near, mut far) = pair();
        far.set_patience(Duration::from_millis(50)).unwrap();
        let started = Instant::now();
        let sending = std::thread::spawn(move || {
            let mut stream = near.stream;
            // So long that it does not arrive whole, even if the receiver gets no time for seconds.
            stream.write_all(&[0, 0, 0x10, 0]).unwrap();
            while stream.write_all(b" ").is_ok() {
                std::thread::park_timeout(Duration::from_millis(5));
            }
        });
        assert_eq!(far.receive_hello().unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(started.elapsed() >= Duration::from_millis(50));
        drop(far);
        sending.join().unwrap();
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (mut near, mut far) = pair();
            near.stream.write_all(&bytes).unwrap();
            drop(near);
            while far.receive().is_ok() {}
        }
    }
}
