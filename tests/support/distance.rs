//! A network with a distance between clients and a server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::timeline::pass;

/// Maximum number of bytes that arrive together.
const PIECE_BYTES: usize = 64 << 10;

/// Maximum number of pieces under way in one direction.
const PIECES_MAX: usize = 4_096;

/// Bytes with the time at which they arrive. No bytes are the end of their direction.
type Piece = (Instant, Vec<u8>);

/// A network in which bytes arrive half a round trip after they were sent, however many there are.
#[derive(Debug)]
pub struct Distance {
    address: SocketAddr,
}

impl Distance {
    /// Puts the network between its clients and this server.
    pub fn to(server: SocketAddr, round_trip: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (sent, arriving) = sync_channel(PIECES_MAX);
                    thread::spawn(move || send(from, &sent, round_trip / 2));
                    thread::spawn(move || arrive(&arriving, to));
                }
            }
        });
        Self { address }
    }

    /// Its address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn send(mut from: TcpStream, sent: &SyncSender<Piece>, delay: Duration) {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let count = from.read(&mut piece).unwrap_or(0);
        piece.truncate(count);
        if sent.send((Instant::now() + delay, piece)).is_err() || count == 0 {
            return;
        }
    }
}

fn arrive(arriving: &Receiver<Piece>, mut to: TcpStream) {
    let _ = to.set_nodelay(true);
    for (due, piece) in arriving {
        pass(due.saturating_duration_since(Instant::now()));
        if piece.is_empty() || to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
