//! Peers of the hand-over that are silent.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use egret_tests::egret::Config;
use egret_tests::wait::DEADLINE;

#[test]
fn peers_are_given_up_after_a_second() {
    let egret = Config::default().start();
    let socket = egret.directory().join("egret-data/handover.sock");
    // More than there are places.
    let started = Instant::now();
    let silent: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    for (number, mut peer) in silent.into_iter().enumerate() {
        peer.set_read_timeout(Some(DEADLINE)).unwrap();
        assert_eq!(peer.read(&mut [0; 10]).unwrap(), 0, "it is closed");
        // One after the other, each would have five.
        assert!(started.elapsed() < Duration::from_secs(15), "peer {number}: {:?}", started.elapsed());
    }
}
