//! Tests of obfuscated files.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fixture;
use crate::fixture::any_json;
use crate::validate::validate;

fn obfuscator(exclusions: &[&str]) -> Obfuscator {
    let exclusions = Exclusions::compile(exclusions.iter().copied()).unwrap();
    Obfuscator::new(Key::new(&[3; 32]), exclusions)
}

fn pseudonym(text: &str) -> String {
    Key::new(&[3; 32]).text(text.as_bytes()).to_string()
}

fn full(exclusions: &[&str]) -> HarEntry {
    let mut har = Har::read(fixture::FULL.as_bytes()).unwrap();
    obfuscator(exclusions).har(&mut har);
    har.log.entries.remove(0)
}

fn body(exclusions: &[&str], media_type: &str, text: &[u8], piece_bytes: usize) -> Vec<u8> {
    let obfuscator = obfuscator(exclusions);
    let mut body = obfuscator.body(MessageKind::Response, media_type);
    for piece in text.chunks(piece_bytes.max(1)) {
        body.push(piece);
    }
    body.finish()
}

fn json_body(exclusions: &[&str], text: &str) -> String {
    String::from_utf8(body(exclusions, "application/json", text.as_bytes(), 7)).unwrap()
}

fn header<'a>(headers: &'a [NameValue], name: &str) -> &'a str {
    &headers.iter().find(|header| header.name == name).unwrap().value
}

#[test]
fn obfuscated_har_is_valid_and_shows_no_value() {
    let mut har = Har::read(fixture::FULL.as_bytes()).unwrap();
    obfuscator(&[]).har(&mut har);
    let value = serde_json::to_value(&har).unwrap();
    assert_eq!(validate(&value), []);
    let text = value.to_string();
    for value in [
        "user:",
        "pass@",
        "ch_42",
        "s3cr",
        "abc123session",
        "dark",
        "tok-987-654",
        "4200",
        "Ada",
        "new-session",
        "secret",
        "A title",
        "page_1",
        "a comment",
        "\"abc",
        "344",
        "beta",
        "/v1",
        "here",
        "kept",
    ] {
        assert!(!text.contains(value), "{value} is left in {text}");
    }
    for value in [
        "https://",
        "api.example.com",
        "POST",
        "\"page\"",
        "Created",
        "amount",
        "holder",
        "\"size\":60",
        "192.0.2.7",
        "SameSite=Lax",
    ] {
        assert!(text.contains(value), "{value} is missing in {text}");
    }
    assert_eq!(har.log.entries[0].extra[MARK], format!("hmac-sha256:{}", Key::new(&[3; 32]).id()));
}

#[test]
fn a_value_has_the_same_pseudonym_wherever_it_stands() {
    let HarEntry { request, response, .. } = full(&[]);
    let token = pseudonym("s3cr et");
    assert!(
        request.url.ends_with(&format!("/{}?page={}&token={token}", pseudonym("ch_42"), pseudonym("2"))),
        "{}",
        request.url
    );
    assert_eq!(request.query_string[1].value, token);
    let session = pseudonym("abc123session");
    assert_eq!(header(&request.headers, "Cookie"), format!("session={session}; theme={}", pseudonym("dark")));
    assert_eq!(request.cookies[0].value, session);
    assert_eq!(header(&request.headers, "Authorization"), format!("Bearer {}", pseudonym("tok-987-654")));
    let set = response.cookies[0].clone();
    assert_eq!(set.path.as_deref(), Some(&*format!("/{}", pseudonym("v1"))));
    assert_eq!(
        header(&response.headers, "Set-Cookie"),
        format!(
            "session={}; Path=/{}; Domain=example.com; HttpOnly; Secure; SameSite=Lax",
            set.value,
            pseudonym("v1")
        )
    );
    assert_eq!(set.value, pseudonym("new-session"));
    assert_eq!(set.extra["sameSite"], "Lax");
    assert_eq!(header(&response.headers, "Location"), response.redirect_url);
    assert!(response.redirect_url.ends_with(&format!("token={token}")));
    assert!(response.content.text.unwrap().starts_with(&format!("{{\"id\":\"{}\",", pseudonym("ch_42"))));
}

#[test]
fn excluded_values_stay_and_no_others() {
    let HarEntry { request, response, .. } = full(&[
        "request.headers.content-type",
        "request.query.page",
        "request.path[0]",
        "request.cookies.theme",
        "request.body.$.amount",
        "response.body.$.items[*].id",
    ]);
    assert_eq!(header(&request.headers, "Content-Type"), "application/json");
    assert_eq!(header(&response.headers, "Content-Type"), pseudonym("application/json"));
    assert!(
        request.url.contains(&format!(
            "/v1/{}/{}?page=2&token=egr_",
            pseudonym("charges"),
            pseudonym("ch_42")
        )),
        "{}",
        request.url
    );
    assert_eq!((request.query_string[0].value.as_str(), request.cookies[1].value.as_str()), ("2", "dark"));
    assert!(header(&request.headers, "Cookie").ends_with("; theme=dark"));
    let text = request.post_data.unwrap().text.unwrap();
    assert_eq!(text, format!("{{\"amount\":4200,\"card\":{{\"holder\":\"{}\"}}}}", pseudonym("Ada")));
    let text = response.content.text.unwrap();
    assert_eq!(
        text,
        format!(
            "{{\"id\":\"{}\",\"items\":[{{\"id\":1,\"ok\":true}},{{\"id\":2,\"ok\":null}}]}}",
            pseudonym("ch_42")
        )
    );
}

#[test]
fn paths_into_json_name_leaves_alone() {
    let text = r#"{"a":{"b":"x","c":["y","z"]},"d.e":"w","l":[["p"],["q"]]}"#;
    for (path, kept) in [
        ("response.body.$.a", ""),
        ("response.body.$", ""),
        ("response.body.$.a.b", "x"),
        ("response.body.$.a.*", "x"),
        ("response.body.$.a.c[1]", "z"),
        ("response.body.$['a'][\"c\"][*]", "yz"),
        ("response.body.$['d.e']", "w"),
        ("response.body.$.d.e", ""),
        ("response.body.$.l[*][0]", "pq"),
        ("response.body.$.l[1][*]", "q"),
        ("response.body.$.l.0[0]", ""),
        ("response.body.$.*.*", "x"),
        ("request.body.$.a.b", ""),
    ] {
        let obfuscated = json_body(&[path], text);
        let kept_leaves: String =
            "xyzwpq".chars().filter(|leaf| obfuscated.contains(&format!("\"{leaf}\""))).collect();
        let sorted = |text: &str| {
            let mut letters: Vec<char> = text.chars().collect();
            letters.sort_unstable();
            letters
        };
        assert_eq!(sorted(&kept_leaves), sorted(kept), "{path}: {obfuscated}");
    }
    assert_eq!(json_body(&["response.body.$"], "\"x\""), "\"x\"");
}

#[test]
fn texts_and_numbers_that_are_spelt_differently_are_equal() {
    let obfuscated: Value =
        serde_json::from_str(&json_body(&[], r#"["\u0061\/", "a/", 1, 1.0, 1e0, "1", ""]"#)).unwrap();
    assert!(
        obfuscated[0] == obfuscated[1] && obfuscated[2] == obfuscated[3] && obfuscated[3] == obfuscated[4]
    );
    assert_eq!(
        (&obfuscated[0], &obfuscated[5], &obfuscated[6]),
        (&json!(pseudonym("a/")), &json!(pseudonym("1")), &json!(""))
    );
    assert!(obfuscated[2].is_i64());
}

#[test]
fn a_body_other_than_json_is_replaced() {
    for text in [
        "{\"name\": \"x\"",
        "{\"name\": 'x'}",
        "{\"name\":1}}",
        "name",
        "[\"name\",]",
        "{\"name\":\"\\ud800\"}",
    ] {
        assert_eq!(json_body(&[], text), pseudonym(text));
    }
    assert_eq!(json_body(&[], ""), "");
    assert_eq!(body(&[], "text/html", b"<p>name</p>", 3), pseudonym("<p>name</p>").into_bytes());
    assert_eq!(body(&["response.body.$"], "text/html", b"<p>name</p>", 3), b"<p>name</p>");
}

#[test]
fn forms_keep_how_they_are_built() {
    let form = "user=a%40b.com&pass=x+y&user=a%40b.com";
    let obfuscated = body(&["response.body.$.pass"], "application/x-www-form-urlencoded", form.as_bytes(), 5);
    let user = pseudonym("a@b.com");
    assert_eq!(String::from_utf8(obfuscated).unwrap(), format!("user={user}&pass=x+y&user={user}"));

    let parts = "--XyZ\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhello\r\n--XyZ\r\n\
        Content-Disposition: form-data; name=\"file\"; filename=\"me.json\"\r\nContent-Type: application/json\r\nX-A: b\r\n\r\n\
        {\"k\": \"v\"}\r\n--XyZ\r\nContent-Disposition: form-data; name=\"kept\"\r\n\r\nas it is\r\n--XyZ--\r\n";
    let obfuscated =
        body(&["response.body.$.kept"], "multipart/form-data; boundary=XyZ", parts.as_bytes(), 11);
    let b = pseudonym("XyZ");
    assert_eq!(
        String::from_utf8(obfuscated).unwrap(),
        format!(
            "--{b}\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\n{}\r\n--{b}\r\n\
             Content-Disposition: form-data; name=\"file\"; filename=\"{}\"\r\nContent-Type: application/json\r\nX-A: {}\r\n\r\n\
             {{\"k\":\"{}\"}}\r\n--{b}\r\nContent-Disposition: form-data; name=\"kept\"\r\n\r\nas it is\r\n--{b}--\r\n",
            pseudonym("hello"),
            pseudonym("me.json"),
            pseudonym("b"),
            pseudonym("v")
        )
    );
    let broken = body(&[], "multipart/form-data; boundary=Other", parts.as_bytes(), 11);
    assert_eq!(broken, pseudonym(parts).into_bytes());
}

#[test]
fn params_agree_with_the_text_however_they_are_recorded() {
    let mut entry = Har::read(fixture::FULL.as_bytes()).unwrap().log.entries.remove(0);
    let param =
        |name: &str, value: &str| Param { name: name.into(), value: Some(value.into()), ..Param::default() };
    entry.request.post_data = Some(PostData {
        mime_type: "application/x-www-form-urlencoded".to_owned(),
        text: Some("a=x%20y&b=x+y&%7B%22token%22=1".to_owned()),
        // Encoded, as Chrome writes them, and decoded, as others do.
        params: Some(vec![param("a", "x%20y"), param("b", "x y"), param("%7B%22token%22", "1")]),
        ..PostData::default()
    });
    obfuscator(&[]).entry(&mut entry);
    let PostData { text, params, .. } = entry.request.post_data.unwrap();
    let (xy, odd) = (pseudonym("x y"), pseudonym("{\"token\""));
    assert_eq!(text.unwrap(), format!("a={xy}&b={xy}&{odd}={}", pseudonym("1")));
    let params: Vec<_> =
        params.unwrap().into_iter().map(|param| (param.name, param.value.unwrap())).collect();
    assert_eq!(params, [("a".to_owned(), xy.clone()), ("b".to_owned(), xy), (odd, pseudonym("1"))]);
}

#[test]
fn bodies_in_base64_are_read() {
    let mut entry = Har::read(fixture::FULL.as_bytes()).unwrap().log.entries.remove(0);
    // {"k":"v"}
    entry.response.content.text = Some("eyJrIjoidiJ9".to_owned());
    entry.response.content.encoding = Some("base64".to_owned());
    let post_data = entry.request.post_data.as_mut().unwrap();
    post_data.text = Some("eyJrIjoidiJ9".to_owned());
    post_data.extra.insert("_encoding".to_owned(), json!("base64"));
    obfuscator(&[]).entry(&mut entry);
    let expected = format!("{{\"k\":\"{}\"}}", pseudonym("v"));
    assert_eq!(entry.response.content.text.as_ref(), Some(&expected));
    assert_eq!(entry.response.content.encoding, None);
    let post_data = entry.request.post_data.unwrap();
    assert_eq!((post_data.text, post_data.extra.len()), (Some(expected), 0));
}

#[test]
fn attributes_of_cookies_stay_if_they_are_some() {
    let obfuscator = obfuscator(&[]);
    let side = MessageExclusions::default();
    let line = "a=\"b\"; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Max-Age=60; Priority=High; Partitioned; SameSite=mine; Secret=c; word\nd=e";
    assert_eq!(
        obfuscator.header(&side, "Set-Cookie", line),
        format!(
            "a={}; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Max-Age=60; Priority=High; Partitioned; {}; {}; {}\nd={}",
            pseudonym("b"),
            pseudonym("SameSite=mine"),
            pseudonym("Secret=c"),
            pseudonym("word"),
            pseudonym("e")
        )
    );
    assert_eq!(
        obfuscator.header(&side, "cookie", "a=\"b\"; ; c"),
        format!("a={}; ; {}", pseudonym("b"), pseudonym("c"))
    );
}

#[test]
fn unexpected_values_of_known_members_are_obfuscated() {
    let mut entry = Har::read(fixture::FULL.as_bytes()).unwrap().log.entries.remove(0);
    let planted = "PLANTED value, not |OK|Created|";
    entry.request.method = planted.into();
    entry.request.http_version = planted.into();
    entry.request.headers.push(NameValue::new(planted, planted));
    entry.request.query_string.push(NameValue::new(planted, planted));
    entry.response.status_text = planted.into();
    entry.response.redirect_url = planted.into();
    entry.response.content.mime_type = planted.into();
    entry.response.content.encoding = Some(planted.into());
    entry.response.cookies[0].domain = Some(planted.into());
    entry.response.cookies[0].expires = Some(planted.into());
    entry.response.cookies[0].extra.insert("sameSite".into(), planted.into());
    entry.started_date_time = planted.into();
    entry.server_ip_address = Some(planted.into());
    entry.connection = Some(planted.into());
    entry.extra.insert(MARK.into(), planted.into());
    obfuscator(&[]).entry(&mut entry);
    let text = serde_json::to_string(&entry).unwrap();
    assert!(!text.contains("PLANTED"), "{text}");
}

/// Asserts that two values have the same structure, and that equal leaves were replaced by equal pseudonyms.
/// `seen` collects the leaves.
fn check_shape(before: &Value, after: &Value, seen: &mut HashMap<String, String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            assert!(before.keys().eq(after.keys()));
            before.values().zip(after.values()).for_each(|(before, after)| check_shape(before, after, seen));
        }
        (Value::Array(before), Value::Array(after)) => {
            assert_eq!(before.len(), after.len());
            before.iter().zip(after).for_each(|(before, after)| check_shape(before, after, seen));
        }
        (Value::String(text), Value::String(_)) if text.is_empty() => assert_eq!(before, after),
        (Value::String(_), Value::String(_)) | (Value::Number(_), Value::Number(_)) => {
            assert_ne!(before, after);
            let known = seen.entry(before.to_string()).or_insert_with(|| after.to_string());
            assert_eq!(*known, after.to_string());
        }
        _ => assert_eq!(before, after),
    }
}

proptest! {
    #[test]
    fn json_keeps_its_shape_and_no_leaf(json in any_json()) {
        let after = serde_json::from_str(&json_body(&[], &json.to_string())).unwrap();
        let mut seen = HashMap::new();
        check_shape(&json, &after, &mut seen);
        let pseudonyms: std::collections::HashSet<&String> = seen.values().collect();
        // 0.0 and -0.0 are one number.
        let zeros = ["0", "0.0", "-0.0"].iter().filter(|zero| seen.contains_key(**zero)).count();
        prop_assert!(pseudonyms.len() + zeros.saturating_sub(1) >= seen.len());
    }

    #[test]
    fn it_does_not_matter_how_a_body_is_cut(json in any_json(), cut in 0_usize..80, piece_bytes in 1_usize..9) {
        let mut text = serde_json::to_vec_pretty(&json).unwrap();
        text.truncate(text.len().saturating_sub(cut).max(text.len() / 2));
        for media_type in ["application/json", "application/x-www-form-urlencoded", "image/png"] {
            let at_once = body(&[], media_type, &text, usize::MAX);
            prop_assert_eq!(&body(&[], media_type, &text, piece_bytes), &at_once);
            let obfuscator = obfuscator(&[]);
            let obfuscated = obfuscator.whole(&MessageExclusions::default(), media_type, &text, &mut Encodings::default(), None);
            prop_assert_eq!(obfuscated.as_bytes(), at_once);
        }
    }

    #[test]
    fn no_planted_leaf_is_left(planted in "[a-zA-Z0-9]{8}( [a-z]{3})?", json in any_json(), index in 0_usize..14) {
        let planted = format!("PLANTED{planted}");
        let mut entry = Har::read(fixture::FULL.as_bytes()).unwrap().log.entries.remove(0);
        let HarEntry { request, response, .. } = &mut entry;
        let encoded = planted.replace(' ', "%20");
        match index {
            0 => request.url = format!("https://a.example/{encoded}/x?b={encoded}&{encoded}"),
            1 => request.query_string[0].value = planted.clone(),
            2 => request.headers[4].value = planted.clone(),
            3 => request.headers[2].value = format!("session={planted}; {planted}"),
            4 => request.cookies[0].value = planted.clone(),
            5 => request.headers[3].value = format!("Own {planted}"),
            6 => response.headers[1].value = format!("session={planted}; Path=/{encoded}; Own={planted}"),
            7 => response.redirect_url = format!("//user:{encoded}@a.example/#{encoded}"),
            8 => response.content.text = Some(json!([json, {"a": planted}]).to_string()),
            9 => response.content.text = Some(format!("{{\"a\": \"{planted}\"")),
            10 => request.post_data.as_mut().unwrap().mime_type = format!("multipart/form-data; boundary={encoded}"),
            11 => { entry.extra.insert("_own".to_owned(), json!([json, {"a": planted}])); }
            12 => entry.comment = Some(planted.clone()),
            _ => response.cookies[0].path = Some(format!("/{planted}")),
        }
        obfuscator(&[]).entry(&mut entry);
        let text = serde_json::to_string(&entry).unwrap();
        prop_assert!(!text.contains("PLANTED"), "{}", text);
    }
}
