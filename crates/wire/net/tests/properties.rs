//! Properties of handshakes of SOCKS 5, tested on random values and on the corpus of the fuzz target.

mod checks;

use egret_message::authority::{Authority, Host};
use egret_net::proxy::handshake::{Credentials, Handshake, Step};
use egret_net::socks::{SocksHandshake, SocksReply};
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn the_fuzz_corpus_passes() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/socks");
    let files = std::fs::read_dir(corpus).unwrap().map(|file| file.unwrap());
    for file in files {
        let name = file.file_name().into_string().unwrap();
        let is_accepted = checks::socks(&std::fs::read(file.path()).unwrap());
        assert!(!name.starts_with("good-") || is_accepted, "{name}");
        assert!(!name.starts_with("bad-") || !is_accepted, "{name}");
    }
}

fn target() -> impl Strategy<Value = Authority> {
    let host = prop_oneof![
        "[a-z]{1,20}\\.test".prop_map(|name| Host::Name(name.into())),
        any::<[u8; 4]>().prop_map(|ip| Host::Ip(ip.into())),
        any::<[u8; 16]>().prop_map(|ip| Host::Ip(ip.into())),
    ];
    (host, 1_u16..).prop_map(|(host, port)| Authority { host, port })
}

proptest! {
    #[test]
    fn every_byte_of_a_client_is_read_alike_however_cut(
        asks: bool,
        piece in 1_u8..16,
        methods in vec(0_u8..4, 0..4),
        password in prop_oneof![Just(b"\x01\x01a\x02bc".to_vec()), vec(any::<u8>(), 0..12)],
        request in prop_oneof![
            Just(b"\x05\x01\x00\x03\x06a.test\x01\xbb".to_vec()),
            Just(b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50".to_vec()),
            (1_u8..4, 0_u8..6, vec(any::<u8>(), 0..24))
                .prop_map(|(command, kind, rest)| [vec![5, command, 0, kind], rest].concat()),
        ],
        rest in vec(any::<u8>(), 0..24),
    ) {
        let greeting = [vec![5, u8::try_from(methods.len()).unwrap()], methods].concat();
        let password = if asks { password } else { Vec::new() };
        checks::socks(&[vec![u8::from(asks), piece], greeting, password, request, rest].concat());
    }

    #[test]
    fn any_bytes_end_alike_however_they_are_cut(bytes in vec(any::<u8>(), 0..80)) {
        checks::socks(&bytes);
    }

    #[test]
    fn a_client_and_a_server_agree_about_the_tunnel(
        target in target(),
        credentials in proptest::option::of(("[ -9;-~]{1,255}", "[ -~]{1,255}")),
        asks: bool,
    ) {
        let credentials = credentials.map(|(username, password)| Credentials { username, password });
        prop_assume!(credentials.is_some() || !asks);
        let mut client = Handshake::socks5(&target, credentials.as_ref());
        let (mut server, mut sent, mut answers) = (SocksHandshake::new(asks), Vec::new(), Vec::new());
        let mut request = None;
        loop {
            match client.step() {
                Step::Send(bytes) => {
                    sent.extend(bytes);
                    request = server.read(&sent).unwrap();
                    answers.extend_from_slice(server.answers());
                    if request.is_some() {
                        answers.extend(server.end(SocksReply::Succeeded));
                    }
                }
                Step::Receive(wanted) => {
                    prop_assert!(!answers.is_empty(), "the server owes an answer");
                    let rest = answers.split_off(wanted.min(answers.len()));
                    client.receive(&answers).unwrap();
                    answers = rest;
                }
                Step::Done => break,
            }
        }
        let request = request.unwrap();
        prop_assert_eq!(&request.target, &target);
        prop_assert_eq!(request.credentials, credentials.filter(|_| asks));
        prop_assert_eq!((request.len, answers.len()), (sent.len(), 0));
    }
}
