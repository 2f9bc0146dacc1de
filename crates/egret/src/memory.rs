//! How the system gives this process its memory.

use std::io;

/// Has the system give this process pages of the ordinary size alone from now on. A huge one is resident as a
/// whole, 2 MiB, once a byte of it is used: what thousands of idle connections hold lies scattered, and would
/// take twice the memory.
///
/// The allocator asks for none of its own accord (its feature `no_thp`), but where the system is set to
/// `always` it hands them out unasked. What is set here is inherited by whatever program this process starts
/// afterwards, over `exec` too (prctl(2), `PR_SET_THP_DISABLE`). So only `egret run` calls it, which starts
/// none; `egret lab` starts gateways, proxies and clients, and leaves itself as it is.
pub fn refuse_huge_pages() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::thread::disable_transparent_huge_pages(true)?;
    Ok(())
}
