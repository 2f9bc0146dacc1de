//! A stored body: shared blocks that can be read while more of them arrive. A body that turns out to be too
//! large to store is passed on to those who have begun to read it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, MutexGuard};

/// A piece of a body.
pub type Block = Arc<[u8]>;

/// Memory of a block besides its bytes: two counts, a fat pointer, and the allocator's overhead.
pub(super) const BLOCK_OVERHEAD: usize = 64;
/// Smaller blocks are joined when the body is complete.
const BLOCK_BYTES: usize = 16 << 10;
/// Minimum number of bytes of a body without room that are kept for those who read it.
const WINDOW_BYTES_MIN: u64 = 1 << 20;

/// A body.
#[derive(Debug)]
pub struct StoredBody {
    partial: Mutex<PartialBody>,
    /// The complete body, readable without a lock.
    whole: OnceLock<Whole>,
    /// Number of bytes in all bodies, including this one.
    alive: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct PartialBody {
    blocks: Vec<Block>,
    /// End of each block.
    ends: Vec<u64>,
    bytes: u64,
    /// Number of bytes at the start that are gone, because the body has no room.
    dropped: u64,
    is_broken: bool,
    /// `true` if it is not stored because there was no room.
    lacks_room: bool,
    /// `true` if there was no room, and all of it has been passed on.
    has_passed: bool,
    waiting: Vec<Waker>,
}

#[derive(Debug)]
struct Whole {
    blocks: Box<[Block]>,
    /// End of each block.
    ends: Box<[u64]>,
    bytes: u64,
}

/// The next part of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A block.
    Block(Block),
    /// The end of a complete body.
    End,
    /// The end of an incomplete body: the rest will never arrive.
    Broken,
}

impl StoredBody {
    pub(super) fn new(alive: Arc<AtomicU64>) -> Self {
        Self { partial: Mutex::default(), whole: OnceLock::new(), alive }
    }

    /// Length of a complete body, in bytes.
    pub fn len(&self) -> Option<u64> {
        self.whole.get().map(|whole| whole.bytes)
    }

    /// Returns `true` if the body is complete and empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Returns `true` if the body cannot be read from its start to its end.
    pub fn is_broken(&self) -> bool {
        let is_broken = |partial: MutexGuard<'_, PartialBody>| partial.is_broken || partial.dropped > 0;
        self.whole.get().is_none() && is_broken(self.partial.lock())
    }

    /// Returns `true` if the body is not stored because there was no room. The body of the next request would
    /// have no room either.
    pub fn lacks_room(&self) -> bool {
        self.whole.get().is_none() && self.partial.lock().lacks_room
    }

    /// Number of bytes received.
    pub fn received(&self) -> u64 {
        self.len().unwrap_or_else(|| self.partial.lock().bytes)
    }

    /// Returns `Ready` once the body is complete or will not be stored; wakes the task then.
    pub fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        if self.whole.get().is_some() {
            return Poll::Ready(());
        }
        let mut partial = self.partial.lock();
        if self.whole.get().is_some() || partial.is_broken || partial.lacks_room {
            return Poll::Ready(());
        }
        partial.wait(cx);
        Poll::Pending
    }

    /// Returns all blocks of a complete body.
    pub fn blocks(&self) -> Option<&[Block]> {
        self.whole.get().map(|whole| &*whole.blocks)
    }

    /// Returns the bytes from `start` to `end`, in pieces; none before the body is complete.
    pub fn slices(&self, start: u64, end: u64) -> impl Iterator<Item = &[u8]> {
        let (blocks, ends) =
            self.whole.get().map_or((&[][..], &[][..]), |whole| (&*whole.blocks, &*whole.ends));
        let first = ends.partition_point(|block_end| *block_end <= start);
        let ranged = blocks.iter().zip(ends).skip(first).map(move |(block, to)| {
            let from = to - block.len() as u64;
            let within = |point: u64| usize::try_from(point.clamp(from, *to) - from).unwrap_or(usize::MAX);
            block.get(within(start)..within(end)).unwrap_or_default()
        });
        ranged.take_while(|slice| !slice.is_empty())
    }

    /// Returns the block after the first `read` bytes, which the caller has read; wakes the task when it
    /// arrives.
    pub fn poll_next(&self, read: u64, cx: &mut Context<'_>) -> Poll<Next> {
        let of = |whole: &Whole| {
            Poll::Ready(after(&whole.blocks, &whole.ends, read).map_or(Next::End, Next::Block))
        };
        if let Some(whole) = self.whole.get() {
            return of(whole);
        }
        let mut partial = self.partial.lock();
        // The body is completed under the lock, which may have happened since.
        if let Some(whole) = self.whole.get() {
            return of(whole);
        }
        if read < partial.dropped {
            return Poll::Ready(Next::Broken);
        }
        match after(&partial.blocks, &partial.ends, read) {
            Some(block) => Poll::Ready(Next::Block(block)),
            None if partial.has_passed => Poll::Ready(Next::End),
            None if partial.is_broken => Poll::Ready(Next::Broken),
            None => {
                partial.wait(cx);
                Poll::Pending
            }
        }
    }

    /// Appends a non-empty block.
    pub(super) fn push(&self, block: Block) {
        self.alive.fetch_add(block.len() as u64, Relaxed);
        let mut partial = self.partial.lock();
        partial.bytes += block.len() as u64;
        let end = partial.bytes;
        partial.ends.push(end);
        partial.blocks.push(block);
        wake(partial);
    }

    /// Number of bytes received, and number of blocks.
    pub(super) fn extent(&self) -> (u64, usize) {
        let partial = self.partial.lock();
        (partial.bytes, partial.blocks.len())
    }

    /// Marks the body as complete. Returns the number of blocks.
    pub(super) fn finish(&self) -> usize {
        let mut partial = self.partial.lock();
        let blocks = std::mem::take(&mut partial.blocks);
        partial.ends = Vec::new();
        let blocks = if blocks.len() > 1 { joined(blocks) } else { blocks };
        let count = blocks.len();
        let ends = blocks.iter().scan(0, |end, block| {
            *end += block.len() as u64;
            Some(*end)
        });
        let ends = ends.collect();
        let _ = self.whole.set(Whole { blocks: blocks.into(), ends, bytes: partial.bytes });
        wake(partial);
        count
    }

    /// Marks the body as broken; `lacks_room` says why. Readers can still read the received part.
    pub(super) fn break_off(&self, lacks_room: bool) {
        let mut partial = self.partial.lock();
        partial.is_broken = true;
        partial.lacks_room = lacks_room;
        wake(partial);
    }

    /// Notes that the body will not be stored, because there is no room, and that it is passed on.
    pub(super) fn pass_on(&self) {
        let mut partial = self.partial.lock();
        partial.lacks_room = true;
        wake(partial);
    }

    /// Keeps about the last `window` bytes.
    fn drop_before(&self, window: u64) {
        let mut partial = self.partial.lock();
        let excess = (partial.bytes - partial.dropped).saturating_sub(window);
        // Many blocks at a time.
        if excess <= window / 4 {
            return;
        }
        let dropped = partial.dropped + excess;
        let count = partial.ends.partition_point(|end| *end <= dropped);
        let Some(end) = count.checked_sub(1).and_then(|last| partial.ends.get(last).copied()) else { return };
        partial.ends.drain(..count);
        partial.blocks.drain(..count);
        self.alive.fetch_sub(end - partial.dropped, Relaxed);
        partial.dropped = end;
    }

    /// Notes that all of the body has been passed on.
    fn end_passing(&self) {
        let mut partial = self.partial.lock();
        partial.has_passed = true;
        wake(partial);
    }
}

impl PartialBody {
    /// Wakes the task at the next change.
    fn wait(&mut self, cx: &Context<'_>) {
        if !self.waiting.iter().any(|other| other.will_wake(cx.waker())) {
            self.waiting.push(cx.waker().clone());
        }
    }
}

impl Drop for StoredBody {
    fn drop(&mut self) {
        let held = |partial: MutexGuard<'_, PartialBody>| partial.bytes - partial.dropped;
        let bytes = self.len().unwrap_or_else(|| held(self.partial.lock()));
        self.alive.fetch_sub(bytes, Relaxed);
    }
}

/// A body that has no room in the store, passed on to those who have begun to read it. They get the rest as
/// it arrives, unless they fall behind by more than is kept. If this is dropped before the body has ended,
/// they see a broken body.
#[derive(Debug)]
pub struct BodyRelay {
    body: Arc<StoredBody>,
    /// Number of bytes that are kept.
    window: u64,
    is_done: bool,
}

impl BodyRelay {
    pub(super) fn new(body: Arc<StoredBody>) -> Self {
        body.pass_on();
        let window = body.received().max(WINDOW_BYTES_MIN);
        Self { body, window, is_done: false }
    }

    /// Returns `true` if the body is read by others than `owners` holders of it.
    pub fn has_readers(&self, owners: usize) -> bool {
        Arc::strong_count(&self.body) > owners + 1
    }

    /// Passes on more of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.body.push(bytes.into());
            self.body.drop_before(self.window);
        }
    }

    /// Ends the body.
    pub fn finish(mut self) {
        self.is_done = true;
        self.body.end_passing();
    }
}

impl Drop for BodyRelay {
    fn drop(&mut self) {
        if !self.is_done {
            self.body.break_off(true);
        }
    }
}

/// Wakes the waiting tasks after releasing the lock.
fn wake(mut partial: MutexGuard<'_, PartialBody>) {
    let waiting = std::mem::take(&mut partial.waiting);
    drop(partial);
    waiting.into_iter().for_each(Waker::wake);
}

/// Returns the data after the first `read` bytes: the rest of the block in which they end. `ends` holds the
/// end of each block.
fn after(blocks: &[Block], ends: &[u64], read: u64) -> Option<Block> {
    let at = ends.partition_point(|end| *end <= read);
    let (block, end) = (blocks.get(at)?, ends.get(at)?);
    let skipped = usize::try_from(read - (end - block.len() as u64)).ok()?;
    Some(if skipped == 0 { Arc::clone(block) } else { block[skipped..].into() })
}

/// Joins small adjacent blocks.
fn joined(blocks: Vec<Block>) -> Vec<Block> {
    let mut out: Vec<Block> = Vec::new();
    let mut small: Vec<u8> = Vec::new();
    for block in blocks {
        if small.len() + block.len() > BLOCK_BYTES && !small.is_empty() {
            out.push(std::mem::take(&mut small).into());
        }
        if block.len() >= BLOCK_BYTES {
            out.push(block);
        } else {
            small.extend_from_slice(&block);
        }
    }
    if !small.is_empty() {
        out.push(small.into());
    }
    out
}
