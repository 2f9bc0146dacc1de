//! Bytes and open files that one process sends to another (unix(7), `SCM_RIGHTS`).

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use egret_net::os;
use rustix::cmsg_space;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    recvmsg, sendmsg,
};

/// Maximum number of open files in one message. Linux permits 253.
pub const DESCRIPTORS_MAX: usize = 128;

/// Sends the bytes and the open files, as one message. Fails if the bytes do not fit into the socket's buffer
/// at once.
pub fn send(channel: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let is_fit = descriptors.len() <= DESCRIPTORS_MAX;
    if !is_fit || !(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors))) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let sent = retry_on_intr(|| sendmsg(&channel, &[IoSlice::new(bytes)], &mut control, os::NO_SIGNAL))
        .map_err(timed_out)?;
    if sent == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

/// Receives bytes and the open files that were sent with them, and returns the number of the bytes. 0 means
/// that the other process has closed the channel.
pub fn receive(channel: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message =
        retry_on_intr(|| recvmsg(&channel, &mut [IoSliceMut::new(bytes)], &mut control, os::CLOSE_ON_EXEC))
            .map_err(timed_out)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = rights.flatten().collect();
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok((message.bytes, descriptors))
}

/// A socket with a time limit reports that it would block.
fn timed_out(error: Errno) -> io::Error {
    match error {
        Errno::AGAIN => ErrorKind::TimedOut.into(),
        error => error.into(),
    }
}
