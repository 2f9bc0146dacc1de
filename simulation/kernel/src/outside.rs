//! The world outside of the gateway, which the simulation plays: clients that connect, providers that are
//! dialled, and what both do to their connections.

use std::net::SocketAddr;

use rustix::io::Errno;

use crate::calls;
pub use crate::ends::EndId;
use crate::ends::Stage;
use crate::faults::{Counts, Faults};
use crate::state::{self, Kernel, Kind, with};

/// A connection that the gateway opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dial {
    /// The gateway's end.
    pub end: EndId,
    /// The address that it dials.
    pub to: SocketAddr,
}

/// The state of a connection, as a peer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Bytes have arrived, or may arrive.
    Open,
    /// The gateway sends no more, and all bytes were read.
    Ended,
    /// The connection was reset.
    Reset,
}

/// Begins a world with this seed. At most `files_max` files can be open.
pub fn begin(seed: u64, faults: Faults, files_max: i32) {
    state::begin(Kernel::new(seed, faults, files_max));
}

/// The number of files that can be open.
pub fn files_max() -> i32 {
    with(|kernel| kernel.files_max)
}

/// Changes the number of files that can be open.
pub fn set_files_max(files_max: i32) {
    with(|kernel| kernel.files_max = files_max);
}

/// Changes the chances of faults.
pub fn set_faults(faults: Faults) {
    with(|kernel| kernel.faults = faults);
}

/// Number of calls and faults so far.
pub fn counts() -> Counts {
    with(|kernel| kernel.counts)
}

/// A number of all that has happened: that of another run is the same if and only if it went the same way.
pub fn trace() -> u64 {
    with(|kernel| kernel.trace)
}

/// Adds what a peer does to the trace.
pub fn note(what: u64, number: u64) {
    with(|kernel| kernel.note(9, what, number));
}

/// Number of files that the gateway has open.
pub fn open_files() -> usize {
    with(|kernel| kernel.open_files())
}

/// Returns `true` if there is something for the loop with this number of its wait.
pub fn has_news(poller: usize) -> bool {
    with(|kernel| {
        kernel.pollers.get(poller).is_some_and(|poller| !poller.due.is_empty() || poller.woken.is_some())
    })
}

/// Time in nanoseconds that the loop with this number would wait at most. `None` without a limit.
pub fn wait_limit_ns(poller: usize) -> Option<u64> {
    with(|kernel| kernel.pollers.get(poller)?.limit_ns)
}

/// Connects a client to a listener of the gateway, from `from`. `room` and `gateway_room` are the numbers of
/// bytes that each end holds. `None` if no socket listens there.
pub fn connect(from: SocketAddr, to: SocketAddr, room: usize, gateway_room: usize) -> Option<EndId> {
    with(|kernel| {
        let Some(listener) = kernel.listener(to) else {
            kernel.counts.refused += 1;
            return None;
        };
        let client = kernel.new_end(Some(from), room);
        let accepted = kernel.new_end(Some(to), gateway_room);
        kernel.join(client, accepted);
        kernel.enqueue(listener, accepted);
        Some(client)
    })
}

/// Takes the connections that the gateway has begun to open since the last call.
pub fn take_dials() -> Vec<Dial> {
    with(|kernel| {
        let dials = std::mem::take(&mut kernel.dials);
        let to = |end: EndId| Some(Dial { end, to: kernel.ends[end.0].remote? });
        dials.into_iter().filter_map(to).collect()
    })
}

/// Establishes a connection that the gateway opens. Returns the provider's end, or `None` if the gateway has
/// given it up.
pub fn establish(dial: Dial, room: usize, gateway_room: usize) -> Option<EndId> {
    with(|kernel| {
        let end = &mut kernel.ends[dial.end.0];
        if end.is_closed || end.stage != Stage::Connecting {
            return None;
        }
        end.room = gateway_room;
        let provider = kernel.new_end(Some(dial.to), room);
        kernel.join(dial.end, provider);
        kernel.tell(dial.end);
        Some(provider)
    })
}

/// Fails a connection that the gateway opens: it is refused, or there is no route.
pub fn fail(dial: Dial, error: Errno) {
    with(|kernel| {
        let end = &mut kernel.ends[dial.end.0];
        if end.is_closed || end.stage != Stage::Connecting {
            return;
        }
        end.stage = Stage::Broken;
        end.error = Some(error);
        kernel.counts.refused += 1;
        kernel.tell(dial.end);
    });
}

/// Takes the ends of peers that have news.
pub fn take_touched() -> Vec<EndId> {
    with(|kernel| std::mem::take(&mut kernel.touched))
}

/// Receives at most `most` bytes.
pub fn read(end: EndId, most: usize) -> (Vec<u8>, State) {
    with(|kernel| {
        let mut bytes = vec![0; most.min(kernel.ends[end.0].received.len())];
        let count = calls::receive(kernel, end, &mut bytes);
        let held = &kernel.ends[end.0];
        let state = match count {
            Err(Errno::CONNRESET) => State::Reset,
            _ if !held.received.is_empty() => State::Open,
            _ if held.stage == Stage::Broken => State::Reset,
            _ if held.has_ended => State::Ended,
            _ => State::Open,
        };
        bytes.truncate(count.unwrap_or_default());
        kernel.note(10, end.0 as u64, bytes.len() as u64);
        (bytes, state)
    })
}

/// Number of bytes that have arrived and were not read.
pub fn unread(end: EndId) -> usize {
    with(|kernel| kernel.ends[end.0].received.len())
}

/// Sends as much of `bytes` as the gateway's end has room for. Returns the number, or `None` if the
/// connection is gone.
pub fn write(end: EndId, bytes: &[u8]) -> Option<usize> {
    with(|kernel| {
        let sent = match calls::put(kernel, end, bytes.iter().copied(), bytes.len()) {
            Ok(sent) => Some(sent),
            Err(Errno::AGAIN) => Some(0),
            Err(_) => None,
        };
        kernel.note(11, end.0 as u64, sent.map_or(u64::from(u16::MAX), |sent| sent as u64));
        sent
    })
}

/// Closes the sending side.
pub fn shut(end: EndId) {
    with(|kernel| {
        kernel.note(12, end.0 as u64, 0);
        // It may have been reset.
        let _ = kernel.shut_end(end);
    });
}

/// Closes an end. Bytes that it has not read reset the connection.
pub fn close(end: EndId) {
    with(|kernel| {
        kernel.note(13, end.0 as u64, 0);
        kernel.close_end(end);
    });
}

/// Resets a connection.
pub fn reset(end: EndId) {
    with(|kernel| {
        kernel.note(14, end.0 as u64, 0);
        if !kernel.ends[end.0].is_closed {
            kernel.reset_end(end);
        }
    });
}

/// Returns `true` if the gateway has closed its end.
pub fn is_left(end: EndId) -> bool {
    with(|kernel| kernel.ends[end.0].peer.is_none())
}

/// Describes the gateway's open sockets, for the report of a leak.
pub fn describe_open() -> Vec<String> {
    with(|kernel| {
        let open = kernel.open.iter().filter(|open| open.numbers > 0);
        let describe = |kind: &Kind| match kind {
            Kind::Listener { address, .. } => format!("a listener at {address}"),
            Kind::Bound(address) => format!("a socket bound to {address}"),
            Kind::End(id) => {
                let end = &kernel.ends[id.0];
                format!("a connection from {:?} to {:?}, {:?}", end.local, end.remote, end.stage)
            }
        };
        open.map(|open| describe(&open.kind)).collect()
    })
}
