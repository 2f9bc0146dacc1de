//! hyper's HTTP server.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

use super::record::{Record, Records};

/// Starts it on a thread of its own, and returns its address.
pub(crate) fn start(records: &Records) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let records = records.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let records = records.clone();
                let service = service_fn(move |request| respond(request, records.clone()));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
    });
    address
}

async fn respond(request: Request<Incoming>, records: Records) -> Result<Response<String>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return Ok(Response::builder().status(400).body(String::new()).unwrap_or_default());
    };
    let fields = head.headers.iter().map(|(name, value)| (name.as_str().into(), value.as_bytes().to_vec()));
    let target = head.uri.to_string();
    let record =
        Record::new(head.method.as_str().as_bytes(), target.as_bytes(), fields.collect(), &body.to_bytes());
    let case = head.headers.get("x-case").and_then(|value| value.to_str().ok()).unwrap_or("-").to_owned();
    records.add(record);
    Ok(Response::builder().header("x-echo", case).body("ok\n".to_owned()).unwrap_or_default())
}
