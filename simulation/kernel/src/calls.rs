//! The calls by which bytes move.

use std::io::IoSlice;

use egret_clock::planted;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::ends::{EndId, Stage};
use crate::files::{AsFd, OwnedFd};
use crate::state::{Kernel, Kind, with};

/// Begins a call: a signal may interrupt it.
fn begin(kernel: &mut Kernel) -> Result<(), Errno> {
    kernel.counts.calls += 1;
    if kernel.chance(kernel.faults.interrupted) {
        kernel.counts.interrupted += 1;
        return Err(Errno::INTR);
    }
    Ok(())
}

/// Takes the next connection of a listening socket.
///
/// # Errors
///
/// Fails with `AGAIN` if there is none, with `CONNABORTED` if the client has left, and with `MFILE` if no
/// file is left.
pub fn accept(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    with(|kernel| {
        begin(kernel)?;
        let place = kernel.place(listener.as_fd().number())?;
        let Kind::Listener { waiting, .. } = &mut kernel.open[place].kind else { return Err(Errno::INVAL) };
        let Some(first) = waiting.pop_front() else { return Err(Errno::AGAIN) };
        if kernel.chance(kernel.faults.accept_aborted) {
            kernel.counts.accepts_aborted += 1;
            kernel.reset_end(first);
            return Err(Errno::CONNABORTED);
        }
        let accepted = kernel.allot(Kind::End(first));
        if accepted.is_err()
            && let Kind::Listener { waiting, .. } = &mut kernel.open[place].kind
        {
            waiting.push_front(first);
        }
        kernel.note(3, first.0 as u64, accepted.is_ok().into());
        accepted
    })
}

/// Receives into `buffer`. Returns the number of bytes twice. It takes all that fits of what has arrived, as
/// Linux does (epoll(7)).
///
/// # Errors
///
/// Fails with `AGAIN` if nothing has arrived, and with the error of the connection, once.
pub fn recv(socket: impl AsFd, buffer: &mut [u8], _: RecvFlags) -> Result<(usize, usize), Errno> {
    with(|kernel| {
        begin(kernel)?;
        let id = kernel.end(socket.as_fd().number())?;
        let received = receive(kernel, id, buffer);
        kernel.note(4, id.0 as u64, received.map_or(u64::from(u16::MAX), |count| count as u64));
        received.map(|count| (count, count))
    })
}

/// Receives at an end, the gateway's or a peer's.
pub(crate) fn receive(kernel: &mut Kernel, id: EndId, buffer: &mut [u8]) -> Result<usize, Errno> {
    let is_gateway = kernel.ends[id.0].file.is_some();
    let loses = is_gateway && planted!(ByteLost) && kernel.random.up_to(63) == 0;
    let end = &mut kernel.ends[id.0];
    if end.received.is_empty() {
        if let Some(error) = end.error.take() {
            return Err(error);
        }
        let is_over = end.has_ended && !(is_gateway && planted!(EndUnseen));
        return match end.stage {
            Stage::Broken => Ok(0),
            _ if is_over || buffer.is_empty() => Ok(0),
            Stage::Connected => Err(Errno::AGAIN),
            Stage::Unconnected | Stage::Connecting => Err(Errno::NOTCONN),
        };
    }
    let was_free = end.free();
    let count = buffer.len().min(end.received.len());
    for (to, from) in buffer.iter_mut().zip(end.received.drain(..count)) {
        *to = from;
    }
    let (room, is_free) = (end.room, end.free());
    if let Some(peer) = end.peer
        && kernel.ends[peer.0].waits_for_room
        && was_free <= room / 3
        && is_free > room / 3
    {
        kernel.ends[peer.0].waits_for_room = false;
        kernel.tell(peer);
    }
    Ok(count - usize::from(loses && count > 1))
}

/// Sends as much of `bytes` as there is room for, or less.
///
/// # Errors
///
/// Fails with `AGAIN` if there is no room, and if the connection is closed.
pub fn send(socket: impl AsFd, bytes: &[u8], _: SendFlags) -> Result<usize, Errno> {
    transmit(socket.as_fd().number(), &[bytes])
}

/// Does the same with several slices.
///
/// # Errors
///
/// As [`send`].
pub fn sendmsg(
    socket: impl AsFd,
    slices: &[IoSlice<'_>],
    _: &mut SendAncillaryBuffer<'_, '_, '_>,
    _: SendFlags,
) -> Result<usize, Errno> {
    let slices: Vec<&[u8]> = slices.iter().map(|slice| &**slice).collect();
    transmit(socket.as_fd().number(), &slices)
}

fn transmit(number: i32, slices: &[&[u8]]) -> Result<usize, Errno> {
    with(|kernel| {
        begin(kernel)?;
        let id = kernel.end(number)?;
        let all: usize = slices.iter().map(|slice| slice.len()).sum();
        let is_short = all > 1 && kernel.chance(kernel.faults.short_send);
        let most = if is_short {
            kernel.counts.short_sends += 1;
            1 + usize::try_from(kernel.random.up_to(all as u64 - 2)).unwrap_or_default()
        } else {
            all
        };
        let sent = put(kernel, id, slices.iter().flat_map(|slice| slice.iter().copied()), most);
        kernel.note(5, id.0 as u64, sent.map_or(u64::from(u16::MAX), |count| count as u64));
        sent
    })
}

/// Sends at most `most` bytes from an end, the gateway's or a peer's.
pub(crate) fn put(
    kernel: &mut Kernel,
    id: EndId,
    bytes: impl Iterator<Item = u8>,
    most: usize,
) -> Result<usize, Errno> {
    let is_gateway = kernel.ends[id.0].file.is_some();
    let end = &mut kernel.ends[id.0];
    if let Some(error) = end.error.take() {
        return Err(error);
    }
    match end.stage {
        Stage::Broken => return Err(Errno::PIPE),
        _ if end.is_shut => return Err(Errno::PIPE),
        Stage::Unconnected | Stage::Connecting => return Err(Errno::AGAIN),
        Stage::Connected => {}
    }
    let Some(peer) = end.peer else {
        // The peer has closed. It answers the first bytes with a reset.
        end.stage = Stage::Broken;
        end.error = Some(Errno::CONNRESET);
        kernel.counts.resets += 1;
        kernel.tell(id);
        return Ok(most);
    };
    let count = most.min(kernel.ends[peer.0].free());
    if count < most {
        kernel.ends[id.0].waits_for_room = true;
    }
    if count == 0 && most > 0 {
        kernel.counts.full_sends += 1;
        return Err(Errno::AGAIN);
    }
    let before = kernel.ends[peer.0].received.len();
    let twice = is_gateway && planted!(ByteTwice) && kernel.random.up_to(63) == 0;
    let received = &mut kernel.ends[peer.0].received;
    received.extend(bytes.take(count));
    if twice && let Some(last) = received.back().copied() {
        received.push_back(last);
    }
    debug_assert!(kernel.ends[peer.0].received.len() >= before + count);
    kernel.ends[id.0].sent += count as u64;
    kernel.tell(peer);
    Ok(count)
}
