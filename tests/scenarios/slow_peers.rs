//! Slow, silent, dead and half-closed peers on either side: each is disconnected in time.

use std::io::Read;
use std::time::{Duration, Instant};

use egret_tests::closed_port::{ClosedPort, FullPort};
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::provider::{Peer, Provider, ok};
use egret_tests::wait;
use socket2::{Domain, Socket, Type};

/// The timeouts, of which only those under test are shorter than the deadline of a test.
fn timeouts(tested: &str) -> String {
    let names = ["head", "keep_alive", "half_close", "connect", "tls", "first_byte", "idle"];
    let others = names.iter().filter(|name| !tested.contains(&format!("{name}:")));
    let others: Vec<String> = others.map(|name| format!(", {name}: 1h")).collect();
    format!("timeouts: {{ {tested}{} }}", others.concat())
}

fn before(origin: &Provider, tested: &str) -> Egret {
    Config::with_origin(origin.url()).gateway(timeouts(tested)).start()
}

/// Asserts that `work` takes as long as a timeout at least. It does not end if that timeout does not expire.
fn assert_takes(least: Duration, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    let taken = start.elapsed();
    assert!(taken >= least, "took {taken:?}, not {least:?}");
}

/// Sends a GET on a new connection, which the gateway keeps for this time at least. `None` if it was closed
/// because the test came too late.
fn get_in_time(egret: &Egret, target: &str, kept: Duration) -> Option<Client> {
    let start = Instant::now();
    let mut client = egret.client();
    client.offer(format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", egret.address()));
    if matches!(client.stream().peek(&mut [0]), Ok(1..)) {
        return Some(client);
    }
    assert!(start.elapsed() >= kept, "closed although the request was in time");
    None
}

#[test]
fn a_head_that_dribbles_in_is_a_408() {
    let origin = Provider::plain();
    let egret = before(&origin, "head: 500ms");
    let mut client = egret.client();
    assert_takes(Duration::from_millis(450), || {
        client.send(format!("GET /origin/ HTTP/1.1\r\nHost: {}\r\n", egret.address()));
        // A byte now and then does not extend the timeout.
        let (stream, stop) = (client.stream().try_clone().unwrap(), std::sync::mpsc::channel::<()>());
        let dribbler = std::thread::spawn(move || {
            while stop
                .1
                .recv_timeout(Duration::from_millis(50))
                .is_err_and(|end| end == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                let _ = std::io::Write::write_all(&mut (&stream), b"a");
            }
        });
        client.response().assert_generated(408, "request-timeout");
        drop(stop.0);
        dribbler.join().unwrap();
        client.assert_closed();
    });
    assert_eq!(origin.connections(), 0);
}

#[test]
fn an_idle_connection_is_closed_in_silence() {
    let origin = Provider::plain();
    let egret = before(&origin, "keep_alive: 300ms");
    assert_takes(Duration::from_millis(250), || {
        let get = || get_in_time(&egret, "/origin/", Duration::from_millis(250));
        let mut client = wait::until("a request is in time", get);
        client.response().assert_forwarded(200);
        client.assert_closed();
    });
    assert_takes(Duration::from_millis(250), || egret.client().assert_closed());
}

#[test]
fn a_response_of_the_gateways_own_keeps_the_connection_alive_too() {
    const KEPT: Duration = Duration::from_secs(1);
    let egret = Config::default().gateway(timeouts("keep_alive: 1s")).start();
    // A round in which the test itself came too late shows nothing.
    wait::until_true("a round in which each request is in time", || {
        // The time to the first request begins with the connection.
        let mut before = Instant::now();
        let mut client = egret.client();
        for _ in 0..7 {
            let sent = Instant::now();
            client.offer(format!("GET /nobody/ HTTP/1.1\r\nHost: {}\r\n\r\n", egret.address()));
            if !matches!(client.stream().peek(&mut [0]), Ok(1..)) {
                assert!(before.elapsed() >= KEPT, "closed although a response had just passed");
                return false;
            }
            client.response().assert_generated(404, "unknown-provider");
            before = sent;
            std::thread::park_timeout(KEPT / 4);
        }
        client.assert_closed();
        assert!(before.elapsed() >= KEPT, "closed {:?} after the last request", before.elapsed());
        true
    });
}

#[test]
fn a_request_body_that_stops_is_a_408() {
    let origin = Provider::plain();
    let egret = before(&origin, "idle: 400ms");
    let mut client = egret.client();
    assert_takes(Duration::from_millis(300), || {
        client.send(format!(
            "POST /origin/ HTTP/1.1\r\nHost: {}\r\nContent-Length: 100\r\n\r\nonly this",
            egret.address()
        ));
        client.response().assert_generated(408, "request-timeout");
        client.assert_closed();
    });
    origin.until_ended(1);
    assert!(origin.requests().is_empty());
}

#[test]
fn a_request_body_slower_than_the_minimum_rate_is_a_408() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway("limits: { body_rate: 1KiB }").start();
    let mut client = egret.client();
    let start = Instant::now();
    client.request(egret.address(), "POST /origin/", "Content-Length: 100000\r\n", "");
    let mut stream = client.stream().try_clone().unwrap();
    let dribbler = std::thread::spawn(move || {
        while std::io::Write::write_all(&mut stream, b"a").is_ok() {
            std::thread::park_timeout(Duration::from_millis(100));
        }
    });
    client.response().assert_generated(408, "request-timeout");
    let taken = start.elapsed();
    assert!(taken > Duration::from_secs(9), "cut after {taken:?}, before a rate could be known");
    drop(client);
    dribbler.join().unwrap();
    origin.until_ended(1);
}

#[test]
fn a_provider_that_does_not_respond_is_a_504() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.stall();
    });
    let config = Config::with_origin(origin.url()).gateway(timeouts("first_byte: 1h"));
    let egret = config.provider_with("hasty", origin.url(), "timeouts: { first_byte: 400ms }").start();
    assert_takes(Duration::from_millis(350), || {
        egret.client().get(egret.address(), "/hasty/").response().assert_generated(504, "first-byte-timeout");
    });
    origin.until_ended(1);
    assert_eq!(egret.generated("first-byte-timeout"), 1);
}

#[test]
fn a_provider_that_stops_within_its_head_is_a_504() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Le");
        peer.stall();
    });
    let egret = before(&origin, "first_byte: 400ms, idle: 400ms");
    assert_takes(Duration::from_millis(350), || {
        assert_eq!(egret.get("/").status, 504);
    });
    origin.until_ended(1);
}

#[test]
fn a_response_body_that_stops_is_cut_short() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
        peer.stall();
    });
    let egret = before(&origin, "idle: 400ms");
    let mut client = egret.client();
    assert_takes(Duration::from_millis(350), || {
        assert!(client.get(egret.address(), "/origin/").any_response_to("GET").cut);
    });
    origin.until_ended(1);
}

#[test]
fn a_slow_but_steady_reader_is_not_cut() {
    const LENGTH: usize = 16 << 20;
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n{}", "a".repeat(LENGTH)));
        peer.stall();
    });
    let egret = before(&origin, "idle: 1s");
    // A round in which the test or the provider itself pauses for as long as the timeout shows nothing.
    wait::until_true("a round that is not cut", || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        socket.connect(&egret.address().into()).unwrap();
        let mut client = Client::over(socket.into());
        client.get(egret.address(), "/origin/");
        client.head();
        let mut piece = vec![0; 64 << 10];
        let (start, mut taken) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs(3) {
            if client.stream().read_exact(&mut piece).is_err() {
                return false;
            }
            taken += piece.len();
            std::thread::park_timeout(Duration::from_millis(200));
        }
        // Buffers of the system could hide an abort: the rest must arrive as well.
        let rest = LENGTH - taken - client.pending().len();
        client.stream().read_exact(&mut vec![0; rest]).is_ok()
    });
}

#[test]
fn an_exchange_that_takes_too_long_in_all_is_cut_short() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        while peer.send("a") && !peer.stopped() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    });
    let egret = before(&origin, "total: 500ms");
    assert_takes(Duration::from_millis(450), || {
        // If the provider has not even begun in time, it is a 504.
        let response = wait::until("the provider begins in time", || {
            let response = egret.client().get(egret.address(), "/origin/").any_response_to("GET");
            (response.status == 200).then_some(response)
        });
        assert!(response.cut, "{response:?}");
    });
    origin.until_ended(1);
}

#[test]
fn a_port_where_nobody_listens_is_a_502() {
    let closed = ClosedPort::take();
    let egret = Config::with_origin(format!("http://{}", closed.address())).start();
    egret.get("/").assert_generated(502, "connect-failed");
    assert_eq!(egret.provider_stat("origin", "connect_failures"), 1);
    egret.assert_well();
}

#[test]
fn a_host_that_takes_no_connection_is_a_504() {
    let full = FullPort::take();
    let origin = format!("http://{}", full.address());
    let egret = Config::with_origin(origin).gateway(timeouts("connect: 400ms")).start();
    assert_takes(Duration::from_millis(350), || {
        egret.get("/").assert_generated(504, "connect-timeout");
    });
}

#[test]
fn the_time_for_the_whole_exchange_holds_while_connecting() {
    let full = FullPort::take();
    let origin = format!("http://{}", full.address());
    let egret = Config::with_origin(origin).gateway(timeouts("total: 400ms")).start();
    assert_takes(Duration::from_millis(350), || {
        egret.get("/").assert_generated(504, "total-timeout");
    });
}

#[test]
fn a_provider_that_never_shakes_hands_is_a_504() {
    let origin = Provider::scripted(Peer::stall);
    let config = Config::with_origin(format!("https://{}", origin.address())).gateway(timeouts("tls: 400ms"));
    let egret = config.start();
    assert_takes(Duration::from_millis(350), || {
        egret.get("/").assert_generated(504, "tls-timeout");
    });
    origin.until_ended(1);
}

#[test]
fn a_client_that_closed_its_sending_side_still_gets_its_response() {
    let origin = Provider::scripted(|peer| {
        while peer.request().is_some() {
            // Long enough for the client's half-close to be noticed first.
            std::thread::park_timeout(Duration::from_millis(100));
            peer.send(ok("late"));
        }
    });
    let egret = Config::with_origin(origin.url()).gateway("on_client_close: finish").start();
    let mut client = egret.client();
    let response = client.get(egret.address(), "/origin/").half_close().response();
    assert_eq!(response.assert_forwarded(200).text(), "late");
    client.assert_closed();
}

#[test]
fn a_half_closed_client_is_served_for_bounded_time() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.stall();
    });
    for choice in ["cancel", "finish"] {
        let config = Config::with_origin(origin.url())
            .gateway(format!("on_client_close: {choice}"))
            .gateway(timeouts("first_byte: 400ms"));
        let egret = config.start();
        let mut client = egret.client();
        let least = if choice == "finish" { Duration::from_millis(350) } else { Duration::ZERO };
        assert_takes(least, || {
            client.get(egret.address(), "/origin/").half_close().rest();
        });
    }
    origin.until_ended(2);
}

#[test]
fn a_client_that_leaves_frees_the_providers_connection() {
    let origin = Provider::scripted(|peer| {
        let Some(request) = peer.request() else { return };
        if request.target() == "/streaming" {
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            while peer.send("1\r\na\r\n") && !peer.stopped() {
                std::thread::park_timeout(Duration::from_millis(5));
            }
        }
        peer.stall();
    });
    let egret = before(&origin, "half_close: 300ms");
    for (number, target) in ["/silent", "/streaming"].into_iter().enumerate() {
        let mut client = egret.client();
        client.get(egret.address(), &format!("/origin{target}"));
        if target == "/streaming" {
            client.head();
        } else {
            origin.until_requested(number + 1);
        }
        drop(client);
        origin.until_ended(number + 1);
    }
    wait::until_true("nothing is open any more", || {
        egret.stat("/clients/open") == 0 && egret.provider_stat("origin", "connections_open") == 0
    });
}

#[test]
fn a_client_that_leaves_within_a_stalled_response_frees_the_providers_connection() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
        peer.stall();
    });
    let config = Config::with_origin(origin.url()).gateway("on_client_close: finish");
    let egret = config.gateway(timeouts("half_close: 400ms")).start();
    let mut client = egret.client();
    client.get(egret.address(), "/origin/").head();
    assert_eq!(client.bytes(9), b"only this");
    assert_takes(Duration::from_millis(350), || {
        drop(client);
        origin.until_ended(1);
    });
}

#[test]
fn a_client_that_resets_frees_the_providers_connection_at_once() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.stall();
    });
    let egret = before(&origin, "half_close: 1h");
    let mut client = egret.client();
    client.get(egret.address(), "/origin/");
    origin.until_requested(1);
    client.reset();
    origin.until_ended(1);
}

#[test]
fn a_tunnel_in_which_nothing_moves_is_closed() {
    let origin = Provider::scripted(Peer::stall);
    let egret = Config::default().gateway(timeouts("idle: 400ms")).start();
    let mut client = egret.client();
    assert_takes(Duration::from_millis(300), || {
        client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.address()));
        assert_eq!(client.response_to("HEAD").status, 200);
        client.rest();
    });
    origin.until_ended(1);
}

#[test]
fn failing_peers_leave_no_open_connections() {
    let origin = Provider::scripted(|peer| {
        let Some(request) = peer.request() else { return };
        match request.target() {
            "/cut" => {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
            }
            "/reset" => peer.reset(),
            "/garbage" => {
                peer.send("\0\r\n\r\n");
            }
            _ => peer.stall(),
        }
    });
    let egret = before(&origin, "head: 200ms, first_byte: 200ms, keep_alive: 200ms, half_close: 200ms");
    let before = egret.process().sockets().len();
    for number in 0..80 {
        let target = ["/cut", "/reset", "/garbage", "/stall"][number % 4];
        let mut client = egret.client();
        client.get(egret.address(), &format!("/origin{target}"));
        match number / 4 % 3 {
            0 => drop(client),
            1 => drop(client.rest()),
            _ => {
                client.offer("POST /origin/ HTT");
                drop(client);
            }
        }
    }
    wait::until_true("nothing is open any more", || {
        egret.stat("/clients/open") == 0 && egret.provider_stat("origin", "connections_open") == 0
    });
    wait::until_true("no socket is left over", || egret.process().sockets().len() <= before);
    assert_eq!(egret.control_get("/healthz").status, 200);
    let get = || get_in_time(&egret, "/no-such-provider/", Duration::from_millis(150));
    wait::until("a request is in time", get).response().assert_generated(404, "unknown-provider");
}
