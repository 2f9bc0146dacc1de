//! The state of the kernel: open files, ends of connections, and who waits for events of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use egret_clock::{Random, mixed, planted};
use rustix::io::Errno;

use crate::ends::{End, EndId, Stage};
use crate::faults::{Counts, Faults};
use crate::files::OwnedFd;
use crate::poll::Event;

/// Number of the first file. The lower ones are those of standard input and output, and of the log.
const FIRST_FILE: usize = 4;
/// Maximum number of bytes that a gateway's end holds, unless the simulation says otherwise.
pub(crate) const ROOM_BYTES: usize = 64 << 10;

thread_local! {
    static KERNEL: RefCell<Kernel> = RefCell::new(Kernel::new(0, Faults::default(), i32::MAX));
    static WORLD: Cell<u64> = const { Cell::new(0) };
}

/// Uses the thread's kernel.
pub(crate) fn with<T>(act: impl FnOnce(&mut Kernel) -> T) -> T {
    KERNEL.with_borrow_mut(act)
}

/// Uses the thread's kernel, unless the thread is ending.
pub(crate) fn try_with(act: impl FnOnce(&mut Kernel)) {
    let _ = KERNEL.try_with(|kernel| act(&mut kernel.borrow_mut()));
}

/// Number of the world that this thread runs.
pub(crate) fn world() -> u64 {
    WORLD.get()
}

/// Begins another world.
pub(crate) fn begin(kernel: Kernel) {
    WORLD.set(WORLD.get() + 1);
    KERNEL.replace(kernel);
}

/// The kind of an open file.
#[derive(Debug)]
pub(crate) enum Kind {
    Listener {
        address: SocketAddr,
        waiting: VecDeque<EndId>,
    },
    /// A socket that is bound, and neither listens nor is connected.
    Bound(SocketAddr),
    End(EndId),
}

/// An open file, which may have several numbers.
#[derive(Debug)]
pub(crate) struct Open {
    pub numbers: u32,
    pub kind: Kind,
    pub watch: Option<Watch>,
}

/// The registration of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    pub poller: usize,
    pub token: usize,
    pub is_due: bool,
}

/// The wait of one event loop.
#[derive(Debug, Default)]
pub(crate) struct Poller {
    /// Files with news.
    pub due: VecDeque<usize>,
    /// Another thread has woken it, by the token of its waker.
    pub woken: Option<usize>,
    /// The time limit of its last wait, in nanoseconds. `None` if it has none.
    pub limit_ns: Option<u64>,
}

/// The kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Open files by their numbers.
    numbers: Vec<Option<usize>>,
    pub open: Vec<Open>,
    pub ends: Vec<End>,
    pub pollers: Vec<Poller>,
    /// Connections that the gateway opens, about which the simulation has not decided.
    pub dials: VecDeque<EndId>,
    /// Ends of peers with news.
    pub touched: Vec<EndId>,
    pub random: Random,
    pub faults: Faults,
    pub counts: Counts,
    pub files_max: i32,
    pub trace: u64,
    port: u16,
}

impl Kernel {
    pub fn new(seed: u64, faults: Faults, files_max: i32) -> Self {
        Self {
            numbers: vec![None; FIRST_FILE],
            open: Vec::new(),
            ends: Vec::new(),
            pollers: Vec::new(),
            dials: VecDeque::new(),
            touched: Vec::new(),
            random: Random::new(seed),
            faults,
            counts: Counts::default(),
            files_max,
            trace: seed,
            port: 30_000,
        }
    }

    /// Adds to the trace, which tells two runs of one seed apart.
    pub fn note(&mut self, what: u64, number: u64, more: u64) {
        self.trace = mixed(self.trace ^ (what << 56) ^ (number << 32) ^ more);
    }

    /// Returns `true` with this chance of 1,024.
    pub fn chance(&mut self, of_1024: u64) -> bool {
        of_1024 > 0 && self.random.up_to(1_023) < of_1024
    }

    /// Opens a file. Fails if none is left.
    pub fn allot(&mut self, kind: Kind) -> Result<OwnedFd, Errno> {
        let free = (FIRST_FILE..self.numbers.len()).find(|number| self.numbers[*number].is_none());
        let number = free.unwrap_or(self.numbers.len());
        let raw = i32::try_from(number).unwrap_or(i32::MAX);
        let fails = self.chance(self.faults.no_files);
        if raw >= self.files_max || fails {
            self.counts.no_files += 1;
            return Err(Errno::MFILE);
        }
        if number == self.numbers.len() {
            self.numbers.push(None);
        }
        let place = self.open.len();
        if let Kind::End(end) = kind {
            self.ends[end.0].file = Some(place);
        }
        self.open.push(Open { numbers: 1, kind, watch: None });
        self.numbers[number] = Some(place);
        Ok(OwnedFd::new(raw))
    }

    /// Returns another number of a file.
    pub fn duplicate(&mut self, number: i32) -> io::Result<OwnedFd> {
        let place = self.place(number)?;
        let copy = self.numbers.len();
        self.numbers.push(Some(place));
        self.open[place].numbers += 1;
        Ok(OwnedFd::new(i32::try_from(copy).unwrap_or(i32::MAX)))
    }

    /// Returns the open file of a number.
    pub fn place(&self, number: i32) -> Result<usize, Errno> {
        let place = usize::try_from(number).ok().and_then(|number| *self.numbers.get(number)?);
        place.ok_or(Errno::BADF)
    }

    /// Returns the end of a connection of a number.
    pub fn end(&self, number: i32) -> Result<EndId, Errno> {
        match self.open[self.place(number)?].kind {
            Kind::End(end) => Ok(end),
            Kind::Listener { .. } | Kind::Bound(_) => Err(Errno::NOTCONN),
        }
    }

    /// Number of files that are open.
    pub fn open_files(&self) -> usize {
        self.numbers.iter().flatten().count()
    }

    /// A port that no other connection of the world has.
    pub fn next_port(&mut self) -> u16 {
        self.port = self.port.wrapping_add(1).max(30_000);
        self.port
    }

    /// Closes a number.
    pub fn close(&mut self, number: i32) {
        self.note(1, number.unsigned_abs().into(), 0);
        let Ok(place) = self.place(number) else { return };
        if planted!(DescriptorLeaked) && self.random.up_to(15) == 0 {
            return;
        }
        self.numbers[number.unsigned_abs() as usize] = None;
        let open = &mut self.open[place];
        open.numbers -= 1;
        if open.numbers > 0 {
            return;
        }
        open.watch = None;
        let waiting = match &mut open.kind {
            Kind::End(end) => vec![*end],
            Kind::Listener { waiting, .. } => {
                let waiting = std::mem::take(waiting);
                waiting.iter().for_each(|end| self.ends[end.0].resets = true);
                waiting.into()
            }
            Kind::Bound(_) => Vec::new(),
        };
        for end in waiting {
            self.close_end(end);
        }
    }

    /// Closes an end. Its peer sees the end of the data, or a reset if something was not read.
    pub fn close_end(&mut self, id: EndId) {
        let end = &mut self.ends[id.0];
        if std::mem::replace(&mut end.is_closed, true) {
            return;
        }
        let resets = end.resets || !end.received.is_empty();
        if resets {
            self.reset_end(id);
            return;
        }
        let Some(peer) = self.ends[id.0].peer.take() else { return };
        let other = &mut self.ends[peer.0];
        other.peer = None;
        other.has_ended = true;
        if other.waits_for_room {
            // Bytes on their way to a closed socket are answered with a reset.
            other.error = Some(Errno::CONNRESET);
        }
        self.tell(peer);
    }

    /// Closes the sending side of an end.
    pub fn shut_end(&mut self, id: EndId) -> Result<(), Errno> {
        let end = &mut self.ends[id.0];
        if end.stage != Stage::Connected || end.is_closed {
            return Err(Errno::NOTCONN);
        }
        end.is_shut = true;
        if let Some(peer) = end.peer {
            self.ends[peer.0].has_ended = true;
            self.tell(peer);
        }
        Ok(())
    }

    /// Resets a connection from one of its ends.
    pub fn reset_end(&mut self, id: EndId) {
        self.counts.resets += 1;
        let end = &mut self.ends[id.0];
        end.is_closed = true;
        end.stage = Stage::Broken;
        end.received.clear();
        let Some(peer) = end.peer.take() else { return };
        let loses = self.chance(self.faults.lossy_reset);
        let other = &mut self.ends[peer.0];
        other.peer = None;
        other.stage = Stage::Broken;
        other.error = Some(Errno::CONNRESET);
        if loses {
            other.received.clear();
        }
        self.tell(peer);
    }

    /// Tells the owner of an end that there is news of it.
    pub fn tell(&mut self, id: EndId) {
        match self.ends[id.0].file {
            Some(place) => self.tell_file(place),
            None if self.ends[id.0].is_closed => {}
            None => self.touched.push(id),
        }
    }

    /// Notes an event of a file for the loop that waits for it.
    pub fn tell_file(&mut self, place: usize) {
        if planted!(LostWakeUp) && self.random.up_to(31) == 0 {
            return;
        }
        if let Some(watch) = &mut self.open[place].watch
            && !std::mem::replace(&mut watch.is_due, true)
        {
            self.pollers[watch.poller].due.push_back(place);
        }
    }

    /// Returns what is to be said of a file now.
    pub fn event(&self, place: usize, token: usize) -> Event {
        let mut event = Event::of(token);
        match &self.open[place].kind {
            Kind::Bound(_) => {}
            Kind::Listener { waiting, .. } => event.readable = !waiting.is_empty(),
            Kind::End(id) => {
                let end = &self.ends[id.0];
                event.error = end.error.is_some();
                let is_over = end.stage == Stage::Broken;
                event.readable = !end.received.is_empty() || end.has_ended || event.error || is_over;
                event.read_closed = end.has_ended || event.error || is_over;
                event.write_closed = event.error || is_over || (end.is_shut && end.has_ended);
                event.writable = event.write_closed
                    || (end.stage == Stage::Connected && self.free_for(*id) > self.room_for(*id) / 3);
            }
        }
        event
    }

    /// Number of bytes that an end could send. A peer that has closed takes any number.
    pub fn free_for(&self, id: EndId) -> usize {
        self.ends[id.0].peer.map_or(ROOM_BYTES, |peer| self.ends[peer.0].free())
    }

    fn room_for(&self, id: EndId) -> usize {
        self.ends[id.0].peer.map_or(0, |peer| self.ends[peer.0].room)
    }

    /// Connects two ends.
    pub fn join(&mut self, one: EndId, other: EndId) {
        for (near, far) in [(one, other), (other, one)] {
            let remote = self.ends[far.0].local;
            let end = &mut self.ends[near.0];
            end.peer = Some(far);
            end.remote = end.remote.or(remote);
            end.stage = Stage::Connected;
        }
    }

    /// Returns the listening file with this address.
    pub fn listener(&self, to: SocketAddr) -> Option<usize> {
        self.open.iter().position(|open| {
            open.numbers > 0 && matches!(&open.kind, Kind::Listener { address, .. } if *address == to)
        })
    }

    /// Lets an end wait to be accepted.
    pub fn enqueue(&mut self, listener: usize, accepted: EndId) {
        if let Kind::Listener { waiting, .. } = &mut self.open[listener].kind {
            waiting.push_back(accepted);
            self.tell_file(listener);
        }
    }

    /// Connects a socket of the gateway to one of its own listeners.
    pub fn connect_within(&mut self, number: i32, to: SocketAddr) -> io::Result<()> {
        let near = self.end(number)?;
        let listener = self.listener(to).ok_or(Errno::CONNREFUSED)?;
        self.ends[near.0].local = Some(SocketAddr::new(to.ip(), self.next_port()));
        self.ends[near.0].remote = Some(to);
        let far = self.new_end(Some(to), ROOM_BYTES);
        self.join(near, far);
        self.enqueue(listener, far);
        Ok(())
    }

    /// Makes an end that no file has yet.
    pub fn new_end(&mut self, local: Option<SocketAddr>, room: usize) -> EndId {
        self.ends.push(End { local, ..End::new(None, room) });
        EndId(self.ends.len() - 1)
    }
}
