//! The built-in provider sets cookies like go-httpbin.

use egret_tests::provider_pair::{ProviderPair, request};

#[test]
fn cookies_are_shown_alike() {
    let pair = ProviderPair::default();
    for cookies in ["a=1; b=\"2\"; c", "a=1;a=2", "bad name=1; d=ok", ""] {
        pair.assert_equal_json(&request("GET", "/cookies").field("Cookie", cookies));
    }
    pair.assert_equal_json(&request("GET", "/cookies"));
}

#[test]
fn cookies_are_set_and_deleted_alike() {
    let pair = ProviderPair::default();
    let base = ["/cookies/set?", "/cookies/delete?"];
    for query in [
        "a=1&b=2",
        "a=b%20c",
        "a=b%3Bc",
        "bad%20name=1&good=2",
        "a=1&attr[SameSite]=lax&attr[Secure]=1&attr[Domain]=x.test&attr[Path]=/p&attr[HttpOnly]=false",
        "a=1&attr[samesite]=none&attr[unknown]=1",
        "a=1&attr[Domain]=-bad_.%20x",
        "",
    ] {
        for path in base {
            pair.assert_alike(&request("GET", &format!("{path}{query}")));
        }
    }
    pair.assert_alike(&request("GET", "/cookies/set?a=1").field("X-Forwarded-Proto", "https"));
}
