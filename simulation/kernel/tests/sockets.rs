//! Tests of the kernel with both of its sides.

use std::io::IoSlice;
use std::net::SocketAddr;

use egret_kernel::outside::{self, EndId, State};
use egret_kernel::*;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use socket2::{Domain, Type};

const ROOM: usize = 90;

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Begins a world, and returns a client's end and the gateway's accepted socket.
fn connection() -> (EndId, OwnedFd) {
    outside::begin(1, Faults::default(), 64);
    let listener = TcpListener::bind(at(80)).unwrap();
    let client = outside::connect(at(1_000), at(80), ROOM, ROOM).unwrap();
    let socket = accept(&listener).unwrap();
    assert_eq!(accept(&listener).unwrap_err(), Errno::AGAIN);
    (client, socket)
}

fn received(socket: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let mut buffer = [0; 256];
    let (_, count) = recv(socket, &mut buffer, RecvFlags::empty())?;
    Ok(buffer[..count].to_vec())
}

#[test]
fn bytes_pass_both_ways_in_order() {
    let (client, socket) = connection();
    assert_eq!(received(&socket), Err(Errno::AGAIN));
    assert_eq!(outside::write(client, b"question"), Some(8));
    assert_eq!(received(&socket).unwrap(), b"question");
    let slices = [IoSlice::new(b"ans"), IoSlice::new(b"wer")];
    let sent = sendmsg(&socket, &slices, &mut SendAncillaryBuffer::default(), SendFlags::empty());
    assert_eq!(sent, Ok(6));
    assert_eq!(outside::read(client, 4), (b"answ".to_vec(), State::Open));
    assert_eq!(outside::read(client, 4), (b"er".to_vec(), State::Open));
}

#[test]
fn a_sender_without_room_is_told_when_there_is_some() {
    let (client, socket) = connection();
    let mut poll = Poll::new().unwrap();
    let mut events = Events::with_capacity(1);
    let file = socket.as_raw_fd();
    poll.registry()
        .register(&mut SourceFd(&file), Token(7), Interest::READABLE | Interest::WRITABLE)
        .unwrap();
    poll.poll(&mut events, None).unwrap();
    assert!(events.iter().all(|event| event.token() == Token(7) && event.is_writable()));
    assert_eq!(events.iter().count(), 1);
    assert_eq!(send(&socket, &[1; 200], SendFlags::empty()), Ok(ROOM));
    assert_eq!(send(&socket, &[1; 200], SendFlags::empty()), Err(Errno::AGAIN));
    poll.poll(&mut events, None).unwrap();
    assert_eq!(events.iter().count(), 0);
    outside::read(client, ROOM / 2);
    poll.poll(&mut events, None).unwrap();
    assert!(events.iter().any(Event::is_writable));
}

#[test]
fn an_end_follows_the_data_and_unread_data_is_a_reset() {
    let (client, socket) = connection();
    outside::write(client, b"last");
    outside::close(client);
    assert_eq!(received(&socket).unwrap(), b"last");
    assert_eq!(received(&socket).unwrap(), b"");
    // Bytes to a closed socket are answered with a reset.
    assert_eq!(send(&socket, b"x", SendFlags::empty()), Ok(1));
    assert_eq!(send(&socket, b"x", SendFlags::empty()), Err(Errno::CONNRESET));
    assert_eq!(send(&socket, b"x", SendFlags::empty()), Err(Errno::PIPE));

    let (client, socket) = connection();
    outside::write(client, b"unread");
    drop(socket);
    assert_eq!(outside::read(client, 1), (Vec::new(), State::Reset));
}

#[test]
fn a_dial_is_decided_from_outside() {
    outside::begin(1, Faults::default(), 64);
    let dialled = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let begun = socket.connect(&at(80).into()).unwrap_err();
        assert_eq!(begun.raw_os_error(), Some(Errno::INPROGRESS.raw_os_error()));
        (socket, outside::take_dials()[0])
    };
    let (socket, dial) = dialled();
    outside::fail(dial, Errno::CONNREFUSED);
    let error = SockRef::from(&socket).take_error().unwrap().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let (socket, dial) = dialled();
    let provider = outside::establish(dial, ROOM, ROOM).unwrap();
    assert!(SockRef::from(&socket).take_error().unwrap().is_none());
    assert_eq!(send(&socket, b"x", SendFlags::empty()), Ok(1));
    assert_eq!(outside::unread(provider), 1);
    let (socket, dial) = dialled();
    drop(socket);
    assert_eq!(outside::establish(dial, ROOM, ROOM), None);
}

#[test]
fn numbers_of_files_are_used_again_and_have_a_maximum() {
    outside::begin(1, Faults::default(), 6);
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, None);
    let first = socket().unwrap();
    let second = socket().unwrap();
    assert_eq!((first.as_raw_fd(), second.as_raw_fd()), (4, 5));
    assert!(socket().is_err());
    drop(first);
    assert_eq!(socket().unwrap().as_raw_fd(), 4);
    drop(second);
    assert_eq!(outside::open_files(), 0);
}

#[test]
fn chance_repeats_with_its_seed() {
    let play = |seed| {
        outside::begin(seed, Faults { interrupted: 300, short_send: 300, ..Faults::default() }, 64);
        let listener = TcpListener::bind(at(80)).unwrap_or_else(|error| panic!("{error}"));
        let _client = outside::connect(at(1_000), at(80), 10_000, 10_000);
        let socket = loop {
            if let Ok(socket) = accept(&listener) {
                break socket;
            }
        };
        let sent: Vec<_> = (0..50).map(|_| send(&socket, &[1; 100], SendFlags::empty())).collect();
        (sent, outside::trace())
    };
    assert_eq!(play(5), play(5));
    assert_ne!(play(5), play(6));
}
