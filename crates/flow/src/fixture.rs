//! Requests for unit tests, made from what would be sent.

use egret_http1::{HeadLimits, Progress, RequestHead};

use crate::message::{Changes, Fields, Request};

/// Shows `ask` the request that `lines` describe: `GET https://host/path?query`, then a field a line.
pub(crate) fn with_request<T>(provider: &str, lines: &str, ask: impl FnOnce(&Request<'_>) -> T) -> T {
    let (first, fields) = lines.split_once('\n').unwrap_or((lines, ""));
    let (method, url) = first.split_once(' ').unwrap();
    let (scheme, rest) = url.split_once("://").unwrap();
    let (host, target) = rest.split_at(rest.find(['/', '?', '*']).unwrap_or(rest.len()));
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let fields = fields.lines().collect::<Vec<_>>().join("\r\n");
    let end = if fields.is_empty() { "\r\n" } else { "\r\n\r\n" };
    let bytes = format!("{method} / HTTP/1.1\r\nHost: {host}\r\n{fields}{end}").into_bytes();
    let mut head = RequestHead::new();
    assert_eq!(head.parse(&bytes, &HeadLimits::default()).unwrap(), Progress::Complete);
    let changes = Changes::default();
    let fields = Fields::new(&head.fields, &bytes, &changes);
    ask(&Request {
        provider,
        tls: scheme == "https",
        host,
        port: 443,
        method: method.as_bytes(),
        path: path.as_bytes(),
        query: query.map(str::as_bytes),
        fields,
        consumer: fields.get(b"x-egret-consumer"),
        body: None,
    })
}
