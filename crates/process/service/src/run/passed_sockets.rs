//! Sockets that a command hands to its gateway (unix(7), `SCM_RIGHTS`). They were made in the command's
//! network namespace and stay in it. The gateway, which is outside, accepts on them inside and calls outside.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::descriptors;

/// Maximum number of sockets.
const SOCKETS_MAX: usize = 16;

/// The use of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A listener of the forward proxy.
    Proxy,
    /// A listener for connections whose clients believe to reach a provider.
    Direct,
    /// Receives the questions of DNS clients over UDP.
    Names,
    /// Does so over TCP.
    NamesOverTcp,
}

impl Purpose {
    const ALL: [(Self, u8); 4] =
        [(Self::Proxy, b'p'), (Self::Direct, b'd'), (Self::Names, b'n'), (Self::NamesOverTcp, b't')];

    fn letter(self) -> u8 {
        Self::ALL.iter().find(|(purpose, _)| *purpose == self).map_or(0, |(_, letter)| *letter)
    }

    fn of(letter: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == letter).map(|(purpose, _)| *purpose)
    }
}

/// Sends the sockets, as one message.
pub fn send(channel: impl AsFd, sockets: &[(Purpose, OwnedFd)]) -> io::Result<()> {
    let letters: Vec<u8> = sockets.iter().map(|(purpose, _)| purpose.letter()).collect();
    let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
    if descriptors.len() > SOCKETS_MAX {
        return Err(ErrorKind::InvalidInput.into());
    }
    descriptors::send(channel, &letters, &descriptors)
}

/// Receives the sockets. Fails if the command has ended, or if the message is another one.
pub fn receive(channel: impl AsFd) -> io::Result<Vec<(Purpose, OwnedFd)>> {
    let mut letters = [0; SOCKETS_MAX];
    let (count, descriptors) = descriptors::receive(channel, &mut letters)?;
    let purposes: Option<Vec<Purpose>> =
        letters.iter().take(count).map(|letter| Purpose::of(*letter)).collect();
    match purposes.filter(|purposes| purposes.len() == descriptors.len() && !purposes.is_empty()) {
        Some(purposes) => Ok(purposes.into_iter().zip(descriptors).collect()),
        None if count == 0 => Err(ErrorKind::UnexpectedEof.into()),
        None => Err(ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn listener() -> OwnedFd {
        TcpListener::bind("127.0.0.1:0").unwrap().into()
    }

    #[test]
    fn sockets_arrive_with_their_purpose() {
        let (near, far) = UnixStream::pair().unwrap();
        let sent = [(Purpose::Proxy, listener()), (Purpose::NamesOverTcp, listener())];
        let address = |socket: &OwnedFd| TcpListener::from(socket.try_clone().unwrap()).local_addr().unwrap();
        let addresses = sent.each_ref().map(|(_, socket)| address(socket));
        send(&near, &sent).unwrap();
        let received = receive(&far).unwrap();
        let purposes: Vec<Purpose> = received.iter().map(|(purpose, _)| *purpose).collect();
        assert_eq!(purposes, [Purpose::Proxy, Purpose::NamesOverTcp]);
        let there: Vec<_> = received.iter().map(|(_, socket)| address(socket)).collect();
        assert_eq!(there, addresses);
    }

    #[test]
    fn other_messages_are_refused() {
        let (near, far) = UnixStream::pair().unwrap();
        let many: Vec<_> = (0..=SOCKETS_MAX).map(|_| (Purpose::Direct, listener())).collect();
        assert_eq!(send(&near, &many).unwrap_err().kind(), ErrorKind::InvalidInput);
        descriptors::send(&near, b"pp", &[]).unwrap();
        assert_eq!(receive(&far).unwrap_err().kind(), ErrorKind::InvalidData);
        far.set_read_timeout(Some(std::time::Duration::from_millis(1))).unwrap();
        assert_eq!(receive(&far).unwrap_err().kind(), ErrorKind::TimedOut);
        drop(near);
        assert_eq!(receive(&far).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
