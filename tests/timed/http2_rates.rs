//! The rate of one large body over HTTP/2, up and down, near and far away, beside that of nginx.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use egret_tests::distance::Distance;
use egret_tests::egret::Config;
use egret_tests::peers::{curl, free_port, nginx};
use egret_tests::process::{Directory, Process, run_checked};
use egret_tests::provider::{Peer, Provider};
use egret_tests::wait;

/// Length of a body.
const BYTES: usize = 100 << 20;

/// Transfers through each proxy, in turn.
const ROUNDS: usize = 5;

/// Share of nginx's rate that Egret reaches at least.
const SHARE_MIN: f64 = 0.9;

/// Reads what a client uploads, and sends what it asks for.
fn serve(peer: &mut Peer) {
    let body = vec![b'x'; 1 << 20];
    let mut piece = vec![0; 1 << 20];
    while let Some(request) = peer.request_head() {
        let mut left: usize =
            request.values("content-length").first().map_or(0, |length| length.parse().unwrap());
        while left > 0 {
            let asked = piece.len().min(left);
            match peer.read(&mut piece[..asked]) {
                0 => return,
                count => left -= count,
            }
        }
        let is_upload = request.target() == "/up";
        let length = if is_upload { 0 } else { BYTES };
        peer.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n"));
        for _ in 0..length / body.len() {
            peer.send(&body);
        }
    }
}

/// Starts an nginx that forwards HTTP/2 by prior knowledge, and passes a body on while it still arrives.
fn start_nginx(directory: &Directory, origin: SocketAddr) -> (Process, SocketAddr) {
    let (port, path) = (free_port(), directory.path().display());
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {path}/{kind};\n"))
        .concat();
    let config = format!(
        "daemon off; master_process off; pid {path}/pid; error_log stderr error;
         events {{ worker_connections 64; }}
         http {{
           access_log off; client_max_body_size 0; {temporary}
           server {{
             listen 127.0.0.1:{port} http2;
             location / {{
               proxy_pass http://{origin}; proxy_http_version 1.1; proxy_set_header Connection \"\";
               proxy_request_buffering off; proxy_max_temp_file_size 0; client_body_buffer_size 4m;
             }}
           }}
         }}"
    );
    let file = directory.write("nginx.conf", config);
    let process = Process::start(&mut nginx(directory, &file));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait::until_true("nginx listens", || TcpStream::connect(address).is_ok());
    (process, address)
}

/// Transfers a body, and returns the rate in bytes per second.
fn rate(address: SocketAddr, upload: Option<&str>) -> f64 {
    let mut command = curl();
    command.args(["--fail", "--http2-prior-knowledge", "--output", "/dev/null", "--max-time", "300"]);
    command.args(["--write-out", "%{time_total}"]);
    match upload {
        Some(file) => command.args(["--upload-file", file]).arg(format!("http://{address}/up")),
        None => command.arg(format!("http://{address}/down")),
    };
    let seconds: f64 = run_checked(&mut command).trim().parse().unwrap();
    f64::from(u32::try_from(BYTES).unwrap()) / seconds
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn a_large_body_is_about_as_fast_as_through_nginx() {
    let origin = Provider::scripted(serve);
    let directory = Directory::default();
    let file = directory.write("body", vec![b'x'; BYTES]);
    let (_nginx, nginx) = start_nginx(&directory, origin.address());
    let egret = Config::with_origin(origin.url())
        .listen(["{ address: 127.0.0.1:0, provider: origin }"])
        .gateway("workers: 1")
        .start();
    let mut missed = Vec::new();
    for round_trip in [Duration::ZERO, Duration::from_millis(50)] {
        let networks = [nginx, egret.address()].map(|proxy| Distance::to(proxy, round_trip));
        for (direction, upload) in [("up", file.to_str()), ("down", None)] {
            let mut rates = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (network, rates) in networks.iter().zip(&mut rates) {
                    rates.push(rate(network.address(), upload));
                }
            }
            let [nginx, egret] = rates.map(median);
            let (share, mib) = (egret / nginx, f64::from(1 << 20));
            let line = format!(
                "{direction} at {round_trip:?}: {share:.2} × nginx ({:.0} and {:.0} MiB/s)",
                egret / mib,
                nginx / mib
            );
            println!("{line}");
            missed.extend((share < SHARE_MIN).then_some(line));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
