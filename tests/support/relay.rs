//! A TCP relay that delays bytes, cuts connections, or lets nothing through.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::timeline::pass;

/// Time after which a relayed direction looks again at what it should do.
const TURN: Duration = Duration::from_millis(50);

/// The relay's way of treating bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RelayMode {
    /// They arrive at once.
    #[default]
    Pass,
    /// They arrive after this time.
    Delay(Duration),
    /// Connections are closed, and new ones too.
    Cut,
    /// Nothing arrives before another mode is set, and connections stay open.
    Stall,
}

/// A running relay.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    mode: Arc<Mutex<RelayMode>>,
}

impl Relay {
    /// Starts a relay to this address.
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mode = Arc::<Mutex<RelayMode>>::default();
        let now = Arc::clone(&mode);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if *now.lock().unwrap() == RelayMode::Cut {
                    continue;
                }
                let Ok(server) = TcpStream::connect(target) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let mode = Arc::clone(&now);
                    thread::spawn(move || carry(from, to, &mode));
                }
            }
        });
        Self { address, mode }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The value of `cluster.redis` in a config, if the relay leads to a store.
    pub fn config(&self) -> String {
        format!("{{ url: 'redis://{}' }}", self.address)
    }

    /// Treats bytes in this way from now on.
    pub fn set(&self, mode: RelayMode) {
        *self.mode.lock().unwrap() = mode;
    }
}

/// Carries bytes in one direction until a side closes.
fn carry(mut from: TcpStream, mut to: TcpStream, mode: &Mutex<RelayMode>) {
    let _ = from.set_read_timeout(Some(TURN));
    let _ = to.set_nodelay(true);
    let mut piece = [0; 4_096];
    loop {
        let before = *mode.lock().unwrap();
        if before == RelayMode::Stall {
            pass(TURN);
            continue;
        }
        let count = match from.read(&mut piece) {
            _ if before == RelayMode::Cut => break,
            Ok(count) if count > 0 => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            _ => break,
        };
        while *mode.lock().unwrap() == RelayMode::Stall {
            pass(TURN);
        }
        if let RelayMode::Delay(time) = before {
            pass(time);
        }
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
