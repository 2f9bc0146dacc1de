//! Fixed responses for failed calls, and calls to fallback providers, with values of the exchange.

use egret_tests::egret::Config;
use egret_tests::provider::{Provider, ok};

fn failing() -> Provider {
    Provider::responding("HTTP/1.1 503 Service Unavailable\r\nX-Shard: 3\r\nContent-Length: 0\r\n\r\n")
}

#[test]
fn template_values_cannot_leave_their_place() {
    let origin = failing();
    let flows = "flows:\n  \
        - name: prices\n    \
          match: { path: '/prices/{id}' }\n    \
          remedies:\n      \
          - fallback:\n          \
              response:\n            \
                headers: { content-type: application/json, x-asked-for: '${params.id}' }\n            \
                body: '{\"id\": \"${params.id}\", \"status\": ${response.status}}'\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let response = egret.get("/prices/a%22b");
    assert_eq!((response.status, response.field("x-egret-generated")), (200, Some("true")));
    assert_eq!(response.json(), serde_json::json!({ "id": "a\"b", "status": 503 }));
    assert_eq!(response.field("x-asked-for"), Some("a\"b"));
    // A line end in a field makes the remedy fail: the provider's own response is forwarded.
    let split = egret.get("/prices/a%0d%0aX-Smuggled:1");
    split.assert_forwarded(503);
    assert_eq!(split.field("x-smuggled"), None);
}

#[test]
fn fallbacks_change_paths_and_may_be_mutual() {
    let (first, second) = (failing(), Provider::responding(ok("from the second")));
    let flows = "flows:\n  \
        - name: first\n    \
          match: { provider: origin, path: '/users/{id}' }\n    \
          remedies: [fallback: { provider: second, path: '/people/${params.id}/${response.headers.x-shard}' }]\n  \
        - name: second\n    \
          match: { provider: second }\n    \
          remedies: [fallback: { provider: origin }]\n";
    let egret = Config::with_origin(first.url()).provider("second", second.url()).flows(flows).start();
    assert_eq!(egret.get("/users/a%2Fb?c=d").assert_forwarded(200).text(), "from the second");
    assert_eq!(second.only_request().target(), "/people/a%2Fb/3?c=d");
    assert_eq!(first.only_request().target(), "/users/a%2Fb?c=d");

    // With both providers down, each is called once.
    let (first, second) = (failing(), failing());
    let egret = Config::with_origin(first.url()).provider("second", second.url()).flows(flows).start();
    egret.get("/users/7").assert_forwarded(503);
    assert_eq!((first.requests().len(), second.requests().len()), (1, 1));
    egret.client().get(egret.address(), "/second/users/7").response().assert_forwarded(503);
    assert_eq!((first.requests().len(), second.requests().len()), (2, 2));

    // The first provider may have acted on a POST, so it is not sent to another one.
    let post =
        format!("POST /origin/users/7 HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", egret.address());
    egret.client().send(post).response().assert_forwarded(503);
    assert_eq!((first.requests().len(), second.requests().len()), (3, 2));
}

#[test]
fn credentials_go_to_another_provider_where_that_is_wanted() {
    let (first, second) = (failing(), Provider::responding(ok("from the second")));
    let flows = "flows: [{ name: f, match: { provider: origin }, \
                 remedies: [{ fallback: { provider: second, forward_credentials: true } }] }]\n";
    let egret = Config::with_origin(first.url()).provider("second", second.url()).flows(flows).start();
    let request = format!(
        "GET /origin/a?api_key=k HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer t\r\n\r\n",
        egret.address()
    );
    egret.client().send(request).response().assert_forwarded(200);
    let seen = second.only_request();
    assert_eq!((seen.target(), seen.values("authorization")), ("/a?api_key=k", vec!["Bearer t"]));
}
