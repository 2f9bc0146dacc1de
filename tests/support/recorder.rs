//! A TCP relay that keeps the bytes of each connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use crate::wait::Watched;

/// The bytes of one connection so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Carried {
    /// From the client.
    pub up: Vec<u8>,
    /// To the client.
    pub down: Vec<u8>,
    ended: u8,
}

/// A running relay.
#[derive(Debug)]
pub struct Recorder {
    address: SocketAddr,
    carried: Arc<Watched<Vec<Carried>>>,
}

impl Recorder {
    /// Starts a relay to this address.
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let carried = Arc::<Watched<Vec<Carried>>>::default();
        let recorded = Arc::clone(&carried);
        thread::spawn(move || {
            for (number, client) in listener.incoming().flatten().enumerate() {
                recorded.change(|all| all.push(Carried::default()));
                let server = TcpStream::connect(target).unwrap();
                for is_up in [true, false] {
                    let (client, server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                    let (from, to) = if is_up { (client, server) } else { (server, client) };
                    let recorded = Arc::clone(&recorded);
                    thread::spawn(move || {
                        carry(from, to, |bytes| {
                            recorded.change(|all| {
                                let one = &mut all[number];
                                let kept = if is_up { &mut one.up } else { &mut one.down };
                                kept.extend(bytes);
                            });
                        });
                        recorded.change(|all| all[number].ended += 1);
                    });
                }
            }
        });
        Self { address, carried }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until its only connection has ended, and returns its bytes.
    pub fn only(&self) -> Carried {
        self.carried.until("the connection ends", |all| match &all[..] {
            [one] if one.ended == 2 => Some(one.clone()),
            [] | [_] => None,
            _ => panic!("there are {} connections", all.len()),
        })
    }
}

/// Carries bytes in one direction until it ends.
fn carry(mut from: TcpStream, mut to: TcpStream, keep: impl Fn(&[u8])) {
    let mut piece = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        keep(&piece[..count]);
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
