//! The wait for events. It never waits: the simulation calls the loop when there is something for it.

use std::io;
use std::ops::BitOr;
use std::time::Duration;

use egret_clock::planted;
use rustix::io::Errno;

use crate::state::{Kernel, Poller, Watch, with};

/// The name of a registered file in its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub usize);

/// The events that a file is registered for. All are reported, whatever it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest;

impl Interest {
    /// There is something to receive.
    pub const READABLE: Self = Self;
    /// There is room to send.
    pub const WRITABLE: Self = Self;
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, _: Self) -> Self {
        self
    }
}

/// The number of a file, to be registered.
#[derive(Debug)]
pub struct SourceFd<'a>(pub &'a i32);

/// The state of a file in an event.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "the flags of the system are independent of each other")]
pub struct Event {
    token: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) read_closed: bool,
    pub(crate) write_closed: bool,
    pub(crate) error: bool,
}

impl Event {
    pub(crate) fn of(token: usize) -> Self {
        Self {
            token,
            readable: false,
            writable: false,
            read_closed: false,
            write_closed: false,
            error: false,
        }
    }

    /// The name of the file.
    pub fn token(&self) -> Token {
        Token(self.token)
    }

    /// There is something to receive.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// There is room to send.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The peer sends no more.
    pub fn is_read_closed(&self) -> bool {
        self.read_closed
    }

    /// Nothing can be sent any more.
    pub fn is_write_closed(&self) -> bool {
        self.write_closed
    }

    /// The connection has failed.
    pub fn is_error(&self) -> bool {
        self.error
    }

    fn bits(&self) -> u64 {
        [self.readable, self.writable, self.read_closed, self.write_closed, self.error]
            .into_iter()
            .fold(self.token as u64, |bits, flag| bits << 1 | u64::from(flag))
    }
}

/// The events of one wait.
#[derive(Debug, Default)]
pub struct Events(Vec<Event>);

impl Events {
    /// Creates an empty list. It has no maximum: a world has few files.
    pub fn with_capacity(_: usize) -> Self {
        Self::default()
    }

    /// The events.
    pub fn iter(&self) -> std::slice::Iter<'_, Event> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = std::slice::Iter<'a, Event>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The files that one loop waits for.
#[derive(Debug)]
pub struct Registry {
    poller: usize,
}

impl Registry {
    /// Registers a file. Its present state is reported first.
    ///
    /// # Errors
    ///
    /// Fails if it is registered already.
    pub fn register(&self, file: &mut SourceFd<'_>, token: Token, _: Interest) -> io::Result<()> {
        with(|kernel| {
            let place = kernel.place(*file.0)?;
            if kernel.open[place].watch.is_some() {
                return Err(Errno::EXIST.into());
            }
            kernel.open[place].watch = Some(Watch { poller: self.poller, token: token.0, is_due: true });
            kernel.pollers[self.poller].due.push_back(place);
            Ok(())
        })
    }

    /// Ends the registration of a file.
    ///
    /// # Errors
    ///
    /// Fails if it is not registered.
    pub fn deregister(&self, file: &mut SourceFd<'_>) -> io::Result<()> {
        with(|kernel| {
            let place = kernel.place(*file.0)?;
            kernel.open[place].watch.take().map(|_| ()).ok_or_else(|| Errno::NOENT.into())
        })
    }
}

/// The wait of one loop.
#[derive(Debug)]
pub struct Poll(Registry);

impl Poll {
    /// Creates it.
    ///
    /// # Errors
    ///
    /// None.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Registry {
            poller: with(|kernel| {
                kernel.pollers.push(Poller::default());
                kernel.pollers.len() - 1
            }),
        }))
    }

    /// The number by which the simulation knows it.
    pub fn number(&self) -> usize {
        self.0.poller
    }

    /// The files that it waits for.
    pub fn registry(&self) -> &Registry {
        &self.0
    }

    /// Returns the events that there are, in an order of chance. A few are kept for the next call, as if they
    /// had happened later. Notes how long the loop would wait.
    ///
    /// # Errors
    ///
    /// Fails if a signal interrupts it.
    pub fn poll(&mut self, events: &mut Events, limit: Option<Duration>) -> io::Result<()> {
        events.0.clear();
        with(|kernel| {
            let limit_ns = limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
            let is_silent = planted!(SilentAlarm) && kernel.random.up_to(15) == 0;
            kernel.pollers[self.0.poller].limit_ns = limit_ns.filter(|_| !is_silent);
            kernel.counts.calls += 1;
            if kernel.chance(kernel.faults.interrupted) {
                kernel.counts.interrupted += 1;
                kernel.pollers[self.0.poller].limit_ns = Some(0);
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.gather(kernel, events);
            Ok(())
        })
    }

    fn gather(&self, kernel: &mut Kernel, events: &mut Events) {
        if let Some(token) = kernel.pollers[self.0.poller].woken.take() {
            events.0.push(Event { readable: true, ..Event::of(token) });
        }
        let due = std::mem::take(&mut kernel.pollers[self.0.poller].due);
        for place in due {
            // One that was closed or unregistered meanwhile is not reported.
            let Some(mut watch) = kernel.open[place].watch.filter(|watch| watch.poller == self.0.poller)
            else {
                continue;
            };
            if kernel.chance(kernel.faults.late_event) {
                kernel.counts.late_events += 1;
                kernel.pollers[self.0.poller].due.push_back(place);
                continue;
            }
            watch.is_due = false;
            kernel.open[place].watch = Some(watch);
            events.0.push(kernel.event(place, watch.token));
        }
        if kernel.chance(kernel.faults.spurious_event) {
            self.add_spurious(kernel, events);
        }
        for last in (1..events.0.len()).rev() {
            let other = kernel.random.up_to(last as u64);
            events.0.swap(last, usize::try_from(other).unwrap_or(last));
        }
        for event in &events.0 {
            kernel.note(2, event.bits(), 0);
        }
    }

    fn add_spurious(&self, kernel: &mut Kernel, events: &mut Events) {
        let last = kernel.open.len().saturating_sub(1) as u64;
        let place = usize::try_from(kernel.random.up_to(last)).unwrap_or_default();
        let watch = kernel.open.get(place).and_then(|open| open.watch);
        if let Some(watch) = watch.filter(|watch| watch.poller == self.0.poller)
            && events.iter().all(|event| event.token != watch.token)
        {
            kernel.counts.spurious_events += 1;
            events.0.push(kernel.event(place, watch.token));
        }
    }
}

/// Ends the wait of a loop.
#[derive(Debug)]
pub struct Waker {
    poller: usize,
    token: usize,
}

impl Waker {
    /// Creates the waker of a loop.
    ///
    /// # Errors
    ///
    /// None.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        Ok(Self { poller: registry.poller, token: token.0 })
    }

    /// Wakes it.
    ///
    /// # Errors
    ///
    /// None.
    pub fn wake(&self) -> io::Result<()> {
        with(|kernel| {
            // A waker may outlive its world.
            if let Some(poller) = kernel.pollers.get_mut(self.poller) {
                poller.woken = Some(self.token);
            }
        });
        Ok(())
    }
}
