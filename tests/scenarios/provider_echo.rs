//! The built-in provider describes the request like go-httpbin.

use egret_tests::provider_pair::{ProviderPair, request};

#[test]
fn every_echo_is_the_same_document() {
    let pair = ProviderPair::default();
    let json = "{\"b\": [1, 2.5, null], \"a\": \"ä\"} and what stands behind";
    for sent in [
        request("GET", "/get?a=1&b=x%20y&a=2&c&d=%zz&e=1;f=2").field("X-Two", "1").field("x-two", "2"),
        request("GET", "http://elsewhere.test/get?a=1"),
        request("GET", "/get")
            .field("X-Forwarded-For", " 10.1.2.3 , 10.4.5.6")
            .field("X-Forwarded-Proto", "https"),
        request("GET", "/get").field("True-Client-IP", "10.9.9.9").field("X-Forwarded-Ssl", "on"),
        request("POST", "/post"),
        request("POST", "/post?q=1")
            .content("a=1&b=2&a=%20")
            .field("Content-Type", "application/x-www-form-urlencoded"),
        request("PUT", "/put").content(json).field("Content-Type", "application/json; charset=utf-8"),
        request("PATCH", "/patch").content("some text").field("Content-Type", "text/plain"),
        request("DELETE", "/delete")
            .content("a=1")
            .field("Content-Type", "application/x-www-form-urlencoded"),
        request("POST", "/post").content([0xff_u8, 0, 0xfe]).field("Content-Type", "image/png"),
        request("POST", "/post").content("no type"),
        request("PURGE", "/anything").content("x").field("Content-Type", "text/html"),
        request("GET", "/anything/a/b?c=d"),
        request("GET", "/anything/"),
        request("POST", "/upload?x=1").content("five!"),
        request("GET", "/headers").field("Accept-Language", "de").field("X-Request-ID", "7"),
        request("GET", "/ip"),
        request("GET", "/user-agent").field("User-Agent", "tests"),
        request("GET", "/user-agent"),
        request("GET", "/env"),
    ] {
        pair.assert_equal_json(&sent);
    }
}

#[test]
fn chunked_content_is_read_and_shown() {
    let pair = ProviderPair::default();
    let mut client = pair.built_in().client();
    client.send(
        "POST /post HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    client.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    let echo = client.response().json();
    assert_eq!(echo["data"], "abcde");
    assert_eq!(echo["headers"]["Transfer-Encoding"][0], "chunked");
}

#[test]
fn multipart_forms_are_told_into_fields_and_files() {
    let pair = ProviderPair::default();
    let content = "--xx\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--xx\r\n\
        Content-Disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\nContent-Type: text/plain\r\n\r\nline\r\n--xx--\r\n";
    let sent =
        request("POST", "/post").content(content).field("Content-Type", "multipart/form-data; boundary=xx");
    let echo = pair.assert_equal_json(&sent);
    assert_eq!((&echo["form"]["a"][0], &echo["files"]["f"][0]), (&"1".into(), &"line".into()));
}

#[test]
fn content_that_cannot_be_read_is_refused_alike() {
    let pair = ProviderPair::default();
    for sent in [
        request("POST", "/post").content("{\"a\":").field("Content-Type", "application/json"),
        request("POST", "/post").content("a=%zz").field("Content-Type", "application/x-www-form-urlencoded"),
        request("POST", "/post").content("x").field("Content-Type", "multipart/form-data"),
        request("POST", "/post").content("x").field("Content-Type", "multipart/form-data; boundary=y"),
    ] {
        let (ours, _) = pair.assert_alike(&sent);
        assert_eq!(ours.status, 400);
    }
}

#[test]
fn content_up_to_the_limit_is_taken_and_more_is_refused_alike() {
    let pair = ProviderPair::default();
    let largest = request("POST", "/upload").content(vec![b'x'; 1 << 20]);
    assert_eq!(pair.assert_equal_json(&largest)["bytes_received"], 1 << 20);
    for (target, status) in [("/post", 400), ("/upload", 500), ("/anything", 400), ("/delay/0", 400)] {
        let (ours, _) = pair.assert_alike(&request("POST", target).content(vec![b'x'; (1 << 20) + 1]));
        assert_eq!(ours.status, status, "{target}");
    }
}

#[test]
fn heads_and_preflights_are_answered_alike() {
    let pair = ProviderPair::default();
    for sent in [
        request("HEAD", "/get"),
        request("HEAD", "/head"),
        request("HEAD", "/anything"),
        request("HEAD", "/bytes/10"),
        request("HEAD", "/status/404"),
        request("HEAD", "/nope"),
        request("HEAD", "/post"),
        request("OPTIONS", "/get").field("Origin", "http://a.test"),
        request("OPTIONS", "/no/such").field("Access-Control-Request-Headers", "X-A, X-B"),
        request("GET", "/get").field("Origin", "http://a.test"),
    ] {
        pair.assert_alike(&sent);
    }
}

#[test]
fn unknown_paths_wrong_methods_and_unclean_paths_are_answered_alike() {
    let pair = ProviderPair::default();
    for target in ["/no/such", "/get/", "/delay/", "/status", "/image/gif", "/websocket/echo"] {
        pair.assert_alike(&request("GET", target));
    }
    for (method, target) in [
        ("POST", "/get"),
        ("GET", "/post"),
        ("GET", "/head"),
        ("DELETE", "/upload"),
        ("POST", "/websocket/echo"),
    ] {
        let (ours, _) = pair.assert_alike(&request(method, target));
        assert_eq!(ours.status, 405, "{target}");
    }
    for target in ["//get", "/a/../get?x=1", "/anything//x", "/./get"] {
        let (ours, _) = pair.assert_alike(&request("GET", target));
        assert_eq!(ours.status, 307, "{target}");
    }
}

#[test]
fn the_request_is_dumped_alike() {
    let pair = ProviderPair::default();
    let sent = request("POST", "/dump/request?a=1").field("X-B", "2").field("X-A", "1").content("content");
    let (ours, theirs) = pair.assert_alike(&sent);
    assert_eq!(ours.text(), theirs.text());
}

#[test]
fn values_that_differ_each_time_have_equal_shapes() {
    let pair = ProviderPair::default();
    pair.assert_all_alike(&["/uuid", "/hostname", "/ip?format=text", "/"]);
    let uuid = pair.built_in().get("/uuid").json()["uuid"].as_str().unwrap().to_owned();
    assert!(
        uuid.len() == 36
            && uuid.as_bytes()[14] == b'4'
            && uuid != pair.built_in().get("/uuid").json()["uuid"],
        "{uuid}"
    );
}
