//! A kernel in memory: sockets, their readiness and their faults, and a disk, for a simulated world of one
//! thread.
//!
//! Its types and calls have the names and forms of those that `egret_net::os::kernel` and
//! `egret_files::system` take from the system, as far as the gateway uses them, so the gateway is compiled
//! with either. `outside` is the other end: the peers, which the simulation plays, and `disk::outside` that
//! of the disk. Nothing here waits or reads a clock, and all chance comes from one seed.
#![cfg(feature = "simulated")]

mod calls;
pub mod disk;
mod ends;
mod faults;
mod files;
pub mod outside;
mod poll;
mod socket;
mod state;

pub use calls::{accept, recv, send, sendmsg};
pub use faults::{Counts, Faults};
pub use files::{AsFd, AsRawFd, BorrowedFd, OwnedFd, TcpListener, TcpStream};
pub use poll::{Event, Events, Interest, Poll, Registry, SourceFd, Token, Waker};
pub use socket::{SockRef, Socket};
