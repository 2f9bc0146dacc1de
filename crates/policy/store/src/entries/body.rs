//! A stored body: blocks that are shared, not copied, and that can be read while more of them come.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

/// Bytes of a body that belong together.
pub type Block = Arc<[u8]>;

/// What a block takes besides its bytes: two counts, a fat pointer, and the allocator's share.
pub(super) const BLOCK_OVERHEAD: usize = 64;
/// Smaller blocks are put together when the body is whole.
const BLOCK_BYTES: usize = 16 << 10;

/// A body.
#[derive(Debug)]
pub struct Body {
    coming: Mutex<Coming>,
    /// All of it, once it is here: read without a lock.
    whole: OnceLock<Whole>,
    /// Bytes of all bodies that are anywhere, this one's among them.
    alive: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Coming {
    blocks: Vec<Block>,
    /// Where each of them ends.
    ends: Vec<u64>,
    bytes: u64,
    is_broken: bool,
    /// Whether that is because there was no room for more of it.
    lacks_room: bool,
    waiting: Vec<Waker>,
}

#[derive(Debug)]
struct Whole {
    blocks: Box<[Block]>,
    /// Where each of them ends.
    ends: Box<[u64]>,
    bytes: u64,
}

/// What comes next of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// This.
    Block(Block),
    /// Nothing: it is whole.
    End,
    /// Nothing: it will never be whole.
    Broken,
}

impl Body {
    pub(super) fn new(alive: Arc<AtomicU64>) -> Self {
        Self { coming: Mutex::default(), whole: OnceLock::new(), alive }
    }

    /// How many bytes it has, once all of them are here.
    pub fn len(&self) -> Option<u64> {
        self.whole.get().map(|whole| whole.bytes)
    }

    /// Whether it is whole and has nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Whether it will never be whole.
    pub fn is_broken(&self) -> bool {
        self.whole.get().is_none() && self.lock().is_broken
    }

    /// Whether it will never be whole because there was no room for all of it: that of the next request would
    /// not find any either.
    pub fn lacks_room(&self) -> bool {
        self.whole.get().is_none() && self.lock().lacks_room
    }

    /// How many bytes of it are here.
    pub fn received(&self) -> u64 {
        self.len().unwrap_or_else(|| self.lock().bytes)
    }

    /// The block after the first `read` bytes, if it is here.
    pub fn block_after(&self, read: u64) -> Option<Block> {
        if let Some(whole) = self.whole.get() {
            return after(&whole.blocks, &whole.ends, read);
        }
        let coming = self.lock();
        // It becomes whole under the lock, and may have since.
        match self.whole.get() {
            Some(whole) => after(&whole.blocks, &whole.ends, read),
            None => after(&coming.blocks, &coming.ends, read),
        }
    }

    /// Ready when it is whole, or will never be; whoever polls is woken then.
    pub fn poll_ended(&self, cx: &Context<'_>) -> Poll<()> {
        if self.whole.get().is_some() {
            return Poll::Ready(());
        }
        let mut coming = self.lock();
        if self.whole.get().is_some() || coming.is_broken {
            return Poll::Ready(());
        }
        coming.wait(cx);
        Poll::Pending
    }

    /// All of it, once it is here.
    pub fn blocks(&self) -> Option<&[Block]> {
        self.whole.get().map(|whole| &*whole.blocks)
    }

    /// The bytes from `start` up to `end`, in pieces; none before it is whole.
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

    /// The block after the first `read` bytes, which have been taken from it before; whoever polls is woken when it is there.
    pub fn poll_next(&self, read: u64, cx: &mut Context<'_>) -> Poll<Next> {
        let of = |whole: &Whole| {
            Poll::Ready(after(&whole.blocks, &whole.ends, read).map_or(Next::End, Next::Block))
        };
        if let Some(whole) = self.whole.get() {
            return of(whole);
        }
        let mut coming = self.lock();
        // It becomes whole under the lock, and may have since.
        if let Some(whole) = self.whole.get() {
            return of(whole);
        }
        match after(&coming.blocks, &coming.ends, read) {
            Some(block) => Poll::Ready(Next::Block(block)),
            None if coming.is_broken => Poll::Ready(Next::Broken),
            None => {
                coming.wait(cx);
                Poll::Pending
            }
        }
    }

    /// Adds a block, which is not empty.
    pub(super) fn push(&self, block: Block) {
        self.alive.fetch_add(block.len() as u64, Relaxed);
        let mut coming = self.lock();
        coming.bytes += block.len() as u64;
        let end = coming.bytes;
        coming.ends.push(end);
        coming.blocks.push(block);
        wake(coming);
    }

    /// How many bytes are here, and in how many blocks.
    pub(super) fn extent(&self) -> (u64, usize) {
        let coming = self.lock();
        (coming.bytes, coming.blocks.len())
    }

    /// Nothing more comes. Says in how many blocks it is.
    pub(super) fn finish(&self) -> usize {
        let mut coming = self.lock();
        let blocks = std::mem::take(&mut coming.blocks);
        coming.ends = Vec::new();
        let blocks = if blocks.len() > 1 { joined(blocks) } else { blocks };
        let count = blocks.len();
        let ends = blocks.iter().scan(0, |end, block| {
            *end += block.len() as u64;
            Some(*end)
        });
        let ends = ends.collect();
        let _ = self.whole.set(Whole { blocks: blocks.into(), ends, bytes: coming.bytes });
        wake(coming);
        count
    }

    /// It will never be whole; for want of room, if `lacks_room`. What is there of it stays for those who
    /// read it.
    pub(super) fn break_off(&self, lacks_room: bool) {
        let mut coming = self.lock();
        coming.is_broken = true;
        coming.lacks_room = lacks_room;
        wake(coming);
    }

    fn lock(&self) -> MutexGuard<'_, Coming> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Coming {
    /// Has whoever polls be woken by what comes next.
    fn wait(&mut self, cx: &Context<'_>) {
        if !self.waiting.iter().any(|other| other.will_wake(cx.waker())) {
            self.waiting.push(cx.waker().clone());
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let bytes = self.len().unwrap_or_else(|| self.lock().bytes);
        self.alive.fetch_sub(bytes, Relaxed);
    }
}

/// Wakes who waits, without the lock.
fn wake(mut coming: MutexGuard<'_, Coming>) {
    let waiting = std::mem::take(&mut coming.waiting);
    drop(coming);
    waiting.into_iter().for_each(Waker::wake);
}

/// What follows the first `read` bytes: the rest of the block in which they end. `ends` is where each block
/// ends.
fn after(blocks: &[Block], ends: &[u64], read: u64) -> Option<Block> {
    let at = ends.partition_point(|end| *end <= read);
    let (block, end) = (blocks.get(at)?, ends.get(at)?);
    let skipped = usize::try_from(read - (end - block.len() as u64)).ok()?;
    Some(if skipped == 0 { Arc::clone(block) } else { block[skipped..].into() })
}

/// The same bytes, with small neighbours put together.
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
