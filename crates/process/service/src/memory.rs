//! Memory settings of the process.

use std::io;

/// Makes the system give this process only pages of the ordinary size. A huge page is resident as a whole, 2
/// MiB, once one byte of it is used. The memory of thousands of idle connections is scattered, so it would
/// take twice as much.
///
/// The allocator does not request huge pages (its feature `no_thp`), but a system set to `always` uses them
/// anyway. The setting is inherited by all programs that this process starts, also across `exec` (prctl(2),
/// `PR_SET_THP_DISABLE`). Therefore only `egret run` calls this, which starts none; `egret lab` starts
/// gateways, proxies and clients, and does not call it.
pub fn refuse_huge_pages() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::thread::disable_transparent_huge_pages(true)?;
    Ok(())
}
