//! Tunnels of redirected connections that lead back to the gateway: a packet filter that redirects the
//! gateway's own connections too would make it call itself until there are no descriptors left.
//!
//! Requests carry `Via`, which tells. A tunnel is recognized by the address of its end here, which is then
//! the address of a client.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use egret_clock::Moment;
use parking_lot::Mutex;

use crate::notice::Notice;

/// The gateway's ends of tunnels that were opened for redirected connections.
#[derive(Debug, Default)]
pub struct Loops {
    ends: Mutex<HashSet<SocketAddr>>,
    notice: Notice,
}

impl Loops {
    /// Notes the end of a tunnel, until the result is dropped. Call it before a byte is sent.
    pub fn note(self: &Arc<Self>, end: Option<SocketAddr>) -> OwnEnd {
        let end = end.map(canonical);
        if let Some(end) = end {
            self.ends.lock().insert(end);
        }
        OwnEnd { loops: Arc::clone(self), end }
    }

    /// Returns `true` if the client at `peer` is the gateway itself. Call it once the client has sent a byte.
    pub fn is_own(&self, peer: SocketAddr) -> bool {
        self.ends.lock().contains(&canonical(peer))
    }

    /// Returns `true` if it is time to log a loop.
    pub fn is_due(&self) -> bool {
        self.notice.is_due(Moment::now())
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A noted end.
#[derive(Debug)]
pub struct OwnEnd {
    loops: Arc<Loops>,
    end: Option<SocketAddr>,
}

impl Drop for OwnEnd {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            self.loops.ends.lock().remove(&end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_known_while_its_tunnel_lasts() {
        let loops = Arc::new(Loops::default());
        let [v4, mapped]: [SocketAddr; 2] =
            ["10.0.0.1:5000", "[::ffff:10.0.0.1]:5000"].map(|text| text.parse().unwrap());
        let noted = loops.note(Some(mapped));
        assert!(loops.is_own(v4) && loops.is_own(mapped));
        assert!(!loops.is_own("10.0.0.1:5001".parse().unwrap()));
        drop(noted);
        assert!(!loops.is_own(v4));
        drop(loops.note(None));
    }
}
