//! The channel between the old and the new process. Every message has a maximum length, and waiting has a
//! limit.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::message::{BYTES_MAX, Message};
use crate::descriptors;

/// Maximum time for a response of the other process.
pub const RESPONSE_MAX: Duration = Duration::from_secs(5);

/// One end of a channel.
#[derive(Debug)]
pub struct Channel(UnixStream);

impl Channel {
    /// Creates an end from a connected socket, whose other end must belong to the same user.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        if user_of(&stream)? != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "it belongs to another user"));
        }
        stream.set_nonblocking(false)?;
        let channel = Self(stream);
        channel.set_patience(RESPONSE_MAX)?;
        Ok(channel)
    }

    /// Sets the maximum time for a response.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.0.set_read_timeout(Some(patience))?;
        self.0.set_write_timeout(Some(patience))
    }

    /// Sends a message.
    pub fn send(&mut self, message: &Message) -> io::Result<()> {
        self.send_with(message, &[])
    }

    /// Sends a message with open files.
    pub fn send_with(&mut self, message: &Message, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = message.to_bytes()?;
        let length = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= BYTES_MAX);
        let length =
            length.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "the message is too long"))?;
        descriptors::send(&self.0, &length.to_be_bytes(), files)?;
        self.0.write_all(&bytes).map_err(timed_out)
    }

    /// Receives a message.
    pub fn receive(&mut self) -> io::Result<Message> {
        Ok(self.receive_with()?.0)
    }

    /// Receives a message with open files.
    pub fn receive_with(&mut self) -> io::Result<(Message, Vec<OwnedFd>)> {
        let mut length = [0; 4];
        let (count, files) = descriptors::receive(&self.0, &mut length)?;
        if count == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the other process has closed the channel"));
        }
        self.0.read_exact(&mut length[count..]).map_err(timed_out)?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > BYTES_MAX {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the other process sends a message that is too long",
            ));
        }
        let mut bytes = Vec::new();
        // Not allocated before the bytes are there.
        (&mut self.0).take(length as u64).read_to_end(&mut bytes).map_err(timed_out)?;
        if bytes.len() < length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let message = Message::parse(&bytes).map_err(|error| {
            let text = format!("the other process sent a message that is not understood: {error}");
            io::Error::new(ErrorKind::InvalidData, text)
        })?;
        Ok((message, files))
    }
}

/// A socket with a time limit reports that it would block.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}

/// Returns the user who has the other end.
#[cfg(target_os = "linux")]
fn user_of(stream: &UnixStream) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw())
}

/// Does not know the user on other systems, where nothing is handed over.
#[cfg(not(target_os = "linux"))]
fn user_of(_: &UnixStream) -> io::Result<u32> {
    Err(ErrorKind::Unsupported.into())
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
        let hello = Message::Hello { version: VERSION, pid: 7 };
        near.send_with(&hello, &[socket.as_fd()]).unwrap();
        near.send(&Message::Take).unwrap();
        let (message, files) = far.receive_with().unwrap();
        assert_eq!(message, hello);
        let [file] = <[OwnedFd; 1]>::try_from(files).unwrap();
        assert_eq!(TcpListener::from(file).local_addr().unwrap(), socket.local_addr().unwrap());
        assert_eq!(far.receive().unwrap(), Message::Take);
        drop(near);
        assert_eq!(far.receive().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_message_that_is_too_long_or_late_is_an_error() {
        let (mut near, mut far) = pair();
        near.0.write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert_eq!(far.receive().unwrap_err().kind(), ErrorKind::InvalidData);
        far.set_patience(Duration::from_millis(1)).unwrap();
        near.0.write_all(&[0, 0, 0, 9, b'{']).unwrap();
        assert_eq!(far.receive().unwrap_err().kind(), ErrorKind::TimedOut);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (mut near, mut far) = pair();
            near.0.write_all(&bytes).unwrap();
            drop(near);
            while far.receive().is_ok() {}
        }
    }
}
