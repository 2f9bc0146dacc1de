//! Receive buffers, lent by one pool per worker. A connection that waits for a request holds none.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::mem;
use std::sync::Arc;

use crate::budget::{Budget, Exhausted, Share};

/// Size of a buffer for one request, not a connection's: most heads fit. A thousand of them take
/// 2 MiB.
pub const SMALL_BYTES: usize = 2 * 1024;
/// Initial size of a connection's buffer: most heads and small bodies fit in one read.
pub const BUFFER_BYTES: usize = 16 * 1024;
/// Size of a buffer while a large body streams through it.
pub const STREAM_BYTES: usize = 128 * 1024;
/// The sizes of buffers, and the number of spare ones of each that a worker keeps. Others are freed.
const SIZES: [(usize, usize); 3] = [(SMALL_BYTES, 1024), (BUFFER_BYTES, 256), (STREAM_BYTES, 8)];
/// Number of checks after which freed memory is returned to the kernel. The allocator keeps it for one
/// second, and there is one check per second.
const LOOKS_BEFORE_RETURN: u8 = 3;
/// Size of an allocation that is large enough to get its own pages from the allocator. None of them is
/// touched.
const PROMPT_BYTES: usize = 4 << 20;

/// Received bytes that are not consumed yet, at the front of a fixed block of memory.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Box<[u8]>,
    filled: usize,
    /// The share of the budget for gathered bodies, if the buffer holds one.
    share: Share,
}

impl Buffer {
    /// Returns the received bytes.
    #[inline]
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Returns the received bytes mutably.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.filled]
    }

    /// Returns the free part, which receives the next bytes.
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Notes that `count` bytes of the free part were received.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        self.filled = (self.filled + count).min(self.bytes.len());
    }

    /// Removes the bytes from `start` to `end` and moves the bytes behind them up.
    #[inline]
    pub fn remove(&mut self, start: usize, end: usize) {
        self.bytes.copy_within(end..self.filled, start);
        self.filled -= end - start;
    }

    /// Removes all bytes.
    #[inline]
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// Returns `true` if the buffer has memory. Otherwise a pool must lend some first.
    #[inline]
    pub fn is_lent(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Returns `true` if there is no free part until bytes are removed or the buffer grows.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.filled == self.bytes.len()
    }

    /// Returns the size of the buffer.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }
}

/// The spare buffers of a worker.
#[derive(Debug, Default)]
pub struct BufferPool {
    /// The spare buffers of each size of `SIZES`.
    spare: RefCell<[Vec<Box<[u8]>>; SIZES.len()]>,
    /// The buffer in which small messages are assembled. A worker has one for all messages, so it stays in
    /// the processor's cache.
    pub gathered: RefCell<Vec<u8>>,
    /// The budget for gathered bodies.
    pub budget: Arc<Budget>,
    /// Number of checks until the allocator is asked to return memory. 0 if none was freed.
    looks_left: Cell<u8>,
}

impl BufferPool {
    /// Creates a pool whose gathered bodies take from `budget`.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Lends memory for a connection to `buffer` if it has none.
    #[inline]
    pub fn lend(&self, buffer: &mut Buffer) {
        self.lend_size(buffer, BUFFER_BYTES);
    }

    /// Lends memory for one request to `buffer` if it has none.
    #[inline]
    pub fn lend_small(&self, buffer: &mut Buffer) {
        self.lend_size(buffer, SMALL_BYTES);
    }

    #[inline]
    fn lend_size(&self, buffer: &mut Buffer, bytes: usize) {
        if !buffer.is_lent() {
            buffer.bytes = self.obtain(bytes);
            buffer.filled = 0;
        }
    }

    /// Returns memory of at least `bytes`.
    #[inline]
    fn obtain(&self, bytes: usize) -> Box<[u8]> {
        let spare = match SIZES.iter().position(|(size, _)| bytes == *size) {
            Some(size) => self.spare.borrow_mut()[size].pop(),
            None => None,
        };
        spare.unwrap_or_else(|| vec![0; bytes].into_boxed_slice())
    }

    /// Grows `buffer` to at least `bytes`. Keeps its content.
    pub fn grow(&self, buffer: &mut Buffer, bytes: usize) {
        if buffer.capacity() >= bytes {
            return;
        }
        let mut larger = self.obtain(bytes.max(BUFFER_BYTES));
        larger[..buffer.filled].copy_from_slice(buffer.filled());
        self.keep(mem::replace(&mut buffer.bytes, larger));
    }

    /// Grows `buffer` by one size, because more of a body follows: fewer, larger reads.
    pub fn grow_on(&self, buffer: &mut Buffer) {
        self.grow(buffer, if buffer.capacity() < BUFFER_BYTES { BUFFER_BYTES } else { STREAM_BYTES });
    }

    /// Grows `buffer` to at least `bytes` for a gathered body. Keeps its content. Fails if the budget is
    /// exhausted.
    pub fn grow_gathered(&self, buffer: &mut Buffer, bytes: usize) -> Result<(), Exhausted> {
        if buffer.capacity() < bytes {
            // Any connection has as much.
            if bytes > BUFFER_BYTES {
                buffer.share.cover(&self.budget, bytes)?;
            }
            self.grow(buffer, bytes);
        }
        Ok(())
    }

    /// Replaces the first `end` bytes of `buffer` by `bytes`, and moves the bytes behind them. Grows it if
    /// there is no room.
    pub fn replace_front(&self, buffer: &mut Buffer, end: usize, bytes: &[u8]) {
        let end = end.min(buffer.filled);
        let filled = buffer.filled - end + bytes.len();
        self.grow(buffer, filled);
        buffer.bytes.copy_within(end..buffer.filled, bytes.len());
        buffer.bytes[..bytes.len()].copy_from_slice(bytes);
        buffer.filled = filled;
    }

    /// Takes back the buffer's memory.
    pub fn take_back(&self, buffer: &mut Buffer) {
        buffer.filled = 0;
        self.keep(mem::take(&mut buffer.bytes));
        buffer.share.release();
    }

    /// Replaces the large memory that a gathered body left behind, if the remaining bytes need far less.
    pub fn shrink(&self, buffer: &mut Buffer) {
        if buffer.capacity() > STREAM_BYTES && buffer.filled <= BUFFER_BYTES / 2 {
            let mut smaller = Buffer::default();
            self.lend(&mut smaller);
            smaller.spare()[..buffer.filled].copy_from_slice(buffer.filled());
            smaller.advance(buffer.filled);
            self.take_back(buffer);
            *buffer = smaller;
        }
    }

    /// Returns `true` if freed memory should be returned to the kernel.
    pub fn has_freed(&self) -> bool {
        self.looks_left.get() > 0
    }

    /// Prompts the allocator to return memory that has been free for long enough. Call it every second while
    /// it returns `true`.
    ///
    /// The allocator checks for memory that has been free for a second only when it frees pages. After a
    /// burst without further traffic, all of it would stay resident. So this function allocates and frees
    /// some pages.
    pub fn give_memory_back(&self) -> bool {
        let left = self.looks_left.get().saturating_sub(1);
        if self.looks_left.replace(left) == 1 {
            drop(black_box(Vec::<u8>::with_capacity(PROMPT_BYTES)));
        }
        left > 0
    }

    fn keep(&self, bytes: Box<[u8]>) {
        let Some(size) = SIZES.iter().position(|(size, _)| bytes.len() == *size) else {
            if bytes.len() > STREAM_BYTES {
                self.looks_left.set(LOOKS_BEFORE_RETURN);
            }
            return;
        };
        let spare = &mut self.spare.borrow_mut()[size];
        if spare.len() < SIZES[size].1 {
            spare.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled_with(pool: &BufferPool, text: &[u8]) -> Buffer {
        let mut buffer = Buffer::default();
        pool.lend(&mut buffer);
        buffer.spare()[..text.len()].copy_from_slice(text);
        buffer.advance(text.len());
        buffer
    }

    #[test]
    fn replacing_the_front_moves_the_rest_and_makes_room() {
        let pool = BufferPool::default();
        let mut buffer = filled_with(&pool, b"headbody");
        for front in [&b"longer"[..], b"", b"h", &[b'x'; BUFFER_BYTES]] {
            let end = buffer.filled().len() - b"body".len();
            pool.replace_front(&mut buffer, end, front);
            assert_eq!(buffer.filled(), [front, b"body"].concat());
        }
    }

    #[test]
    fn removing_moves_what_follows_up() {
        let pool = BufferPool::default();
        let mut buffer = filled_with(&pool, b"first second third");
        buffer.remove(6, 13);
        assert_eq!(buffer.filled(), b"first third");
        buffer.remove(0, 11);
        assert_eq!(buffer.filled(), b"");
    }

    #[test]
    fn growing_keeps_the_bytes_and_gives_the_old_memory_back() {
        let pool = BufferPool::default();
        let mut buffer = filled_with(&pool, b"kept");
        pool.grow(&mut buffer, STREAM_BYTES);
        assert_eq!((buffer.filled(), buffer.capacity()), (&b"kept"[..], STREAM_BYTES));
        pool.take_back(&mut buffer);
        assert!(!buffer.is_lent());
        assert_eq!(pool.spare.borrow().each_ref().map(Vec::len), [0, 1, 1]);
    }

    #[test]
    fn a_small_buffer_grows_by_one_size_at_a_time() {
        let pool = BufferPool::default();
        let mut buffer = Buffer::default();
        pool.lend_small(&mut buffer);
        let mut sizes = vec![buffer.capacity()];
        for _ in 0..3 {
            pool.grow_on(&mut buffer);
            sizes.push(buffer.capacity());
        }
        assert_eq!(sizes, [SMALL_BYTES, BUFFER_BYTES, STREAM_BYTES, STREAM_BYTES]);
        let mut head = Buffer::default();
        pool.replace_front(&mut head, 0, b"head");
        assert_eq!((head.capacity(), head.filled()), (BUFFER_BYTES, &b"head"[..]));
    }

    #[test]
    fn a_gathered_body_takes_its_share_until_its_memory_is_taken_back() {
        let budget = Arc::new(Budget::default());
        budget.set_max(3 << 20);
        let pool = BufferPool::new(Arc::clone(&budget));
        let (mut one, mut other) = (filled_with(&pool, b"kept"), filled_with(&pool, b"x"));
        assert_eq!(pool.grow_gathered(&mut one, 2 << 20), Ok(()));
        assert_eq!((one.filled(), one.capacity(), budget.taken()), (&b"kept"[..], 2 << 20, 2 << 20));
        assert_eq!(pool.grow_gathered(&mut one, 1 << 20), Ok(()), "it is that large already");
        assert_eq!(pool.grow_gathered(&mut other, 2 << 20), Err(Exhausted));
        assert_eq!((other.capacity(), budget.taken()), (BUFFER_BYTES, 2 << 20));
        pool.shrink(&mut one);
        assert_eq!((one.filled(), one.capacity(), budget.taken()), (&b"kept"[..], BUFFER_BYTES, 0));
        assert_eq!(pool.grow_gathered(&mut other, 2 << 20), Ok(()));
        pool.take_back(&mut other);
        assert_eq!((other.is_lent(), budget.taken()), (false, 0));
    }

    #[test]
    fn memory_is_given_back_some_looks_after_it_was_freed_last() {
        let pool = BufferPool::default();
        let free = || {
            let mut buffer = filled_with(&pool, b"x");
            pool.grow(&mut buffer, 1 << 20);
            pool.take_back(&mut buffer);
        };
        assert!(!pool.has_freed() && !pool.give_memory_back());
        free();
        assert!(pool.has_freed() && pool.give_memory_back());
        free();
        assert!(pool.give_memory_back() && pool.give_memory_back() && !pool.give_memory_back());
        assert!(!pool.has_freed());
    }

    #[test]
    fn the_pool_keeps_a_bounded_number() {
        let pool = BufferPool::default();
        let mut buffers: Vec<Buffer> = (0..SIZES[1].1 + 10).map(|_| filled_with(&pool, b"x")).collect();
        for buffer in &mut buffers {
            pool.take_back(buffer);
        }
        assert_eq!(pool.spare.borrow().each_ref().map(Vec::len), [0, SIZES[1].1, 0]);
    }
}
