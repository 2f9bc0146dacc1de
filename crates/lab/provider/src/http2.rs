//! Connections of HTTP/2: their requests in the form in which hyper gives those of HTTP/1.1.

use std::pin::pin;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use egret_lab_http2::{Cut, RequestBody, StreamReply};
use tokio::sync::watch;

use crate::call::Peer;
use crate::entry_point::{CallOutcome, EntryPoint};
use crate::stream::ClientStream;

/// Serves a connection to its end.
pub(crate) async fn serve(
    entry_point: &EntryPoint,
    stream: ClientStream,
    peer: &Peer,
    mut stop: watch::Receiver<()>,
) -> Result<(), egret_lab_http2::ConnectionError> {
    let stopped = pin!(async move {
        // A channel that is closed stops as well.
        let _ = stop.changed().await;
    });
    let handler = |request| reply(entry_point.clone(), request, peer.clone());
    egret_lab_http2::serve(stream, handler, entry_point.head_timeout(), stopped).await
}

async fn reply(
    entry_point: EntryPoint,
    mut request: Request<RequestBody>,
    peer: Peer,
) -> Result<StreamReply<Body>, Cut> {
    to_origin_form(&mut request);
    let method = request.method().clone();
    match entry_point.call(request, peer).await {
        CallOutcome::Response(response) => Ok(in_turn(response)),
        CallOutcome::Faulty(response, fault) => fault.reply(response, &method).await,
        // A stream has no connection of its own to take over.
        CallOutcome::Takeover(_) => Err(Cut::INTERNAL),
    }
}

/// Moves the authority of a target to `Host`, as HTTP/1.1 has it.
fn to_origin_form(request: &mut Request<RequestBody>) {
    if *request.method() == Method::CONNECT {
        return;
    }
    if let Some(authority) = request.uri().authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    let target = request.uri().path_and_query().cloned();
    *request.uri_mut() = target.map_or_else(|| Uri::from_static("/"), Uri::from);
}

/// Sends an informational response before a 200. HTTP/2 has no 101 (RFC 9113 §8.6).
fn in_turn(response: Response<Body>) -> StreamReply<Body> {
    if !response.status().is_informational() {
        return StreamReply::of(response);
    }
    let (parts, _) = response.into_parts();
    let informational = if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        Vec::new()
    } else {
        let mut informational = Response::new(());
        *informational.status_mut() = parts.status;
        *informational.headers_mut() = parts.headers.clone();
        vec![informational]
    };
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = parts.headers;
    StreamReply { informational, response, drains: false }
}
