//! Accounts that sign (AWS Signature Version 4): a client without keys uses a real S3-compatible store.

use std::path::Path;

use egret_tests::egret::{Config, Egret};
use egret_tests::peers::{S3, curl};
use egret_tests::process::{Directory, run_checked};

/// A request with this field uses no account.
const ANONYMOUS: &str = "X-App:";

/// Starts Egret in front of `store`, with an account that signs with the store's keys.
fn before(store: &S3, directory: &Directory, keys: &str) -> Egret {
    let [id, key] = S3::KEYS.map(|key| directory.write_secret(key, key).display().to_string());
    let sigv4 = format!(
        "sigv4: {{ access_key_id: \"${{file:{id}}}\", secret_access_key: \"${{file:{key}}}\", region: us-east-1, service: s3{keys} }}"
    );
    Config::with_origin(store.url())
        .flows(format!(
            "accounts:\n  store: {{ provider: origin, {sigv4} }}\n\
             flows: [{{ name: f, match: {{ header: {{ x-app: \"*\" }} }}, remedies: [{{ authenticate: {{ account: store }} }}] }}]\n"
        ))
        .start()
}

/// Returns curl's output for a path in the bucket, and the status code from its last line.
fn curled(egret: &Egret, path: &str, arguments: &[&str]) -> (String, String) {
    let url = format!("{}/origin/bucket{path}", egret.url());
    let app = if arguments.contains(&ANONYMOUS) { ANONYMOUS } else { "X-App: one" };
    let fixed = ["--path-as-is", "--write-out", "\n%{http_code}", "--header", app, &url];
    let shown = run_checked(curl().args(fixed).args(arguments));
    let (body, status) = shown.rsplit_once('\n').unwrap();
    (body.to_owned(), status.to_owned())
}

fn put(egret: &Egret, path: &str, file: &Path, fields: &[&str]) -> (String, String) {
    let file = file.display().to_string();
    let fields = fields.iter().flat_map(|field| ["--header", field]);
    curled(egret, path, &["--upload-file", &file].into_iter().chain(fields).collect::<Vec<_>>())
}

fn ok(body: &str) -> (String, String) {
    (body.to_owned(), "200".to_owned())
}

#[test]
fn objects_are_put_listed_read_and_deleted_by_a_client_without_keys() {
    let (store, directory) = (S3::start(), Directory::default());
    let egret = before(&store, &directory, "");
    let file = directory.write("object", "what it holds");
    // Names as people choose them, with the encoding that clients use, and with unnecessary encoding.
    let paths =
        ["/plain.txt", "/a%20dir/%C3%A4+b.txt", "/odd/%28x%29!'*~%2B&=@:,;$%25.txt", "/odd/(x)-again.txt"];
    for path in paths {
        let fields = ["X-Amz-Meta-Owner: me   and  you", "Content-Type: text/plain; charset=utf-8"];
        assert_eq!(put(&egret, path, &file, &fields), ok(""), "{path}");
        assert_eq!(curled(&egret, path, &[]), ok("what it holds"), "{path}");
    }
    let names: Vec<_> = store.objects().into_iter().map(|(name, _)| name).collect();
    for name in ["a dir/ä+b.txt", "odd/(x)!'*~+&=@:,;$%.txt", "odd/(x)-again.txt", "plain.txt"] {
        assert!(names.iter().any(|stored| stored == name), "{name} in {names:?}");
    }
    // The store has no such names. It says so once it has verified the signature.
    let (refusal, _) = put(&egret, "/deep/a//b.txt", &file, &[]);
    assert!(refusal.contains("InvalidArgument") && refusal.contains("deep/a//b.txt"), "{refusal}");
    let (_, head) = curled(&egret, "/plain.txt", &["--head"]);
    assert_eq!(head, "200");
    for (query, listed, others) in [
        ("/?list-type=2&prefix=a%20dir%2F&delimiter=%2F", "a dir/ä+b.txt", "plain.txt"),
        ("/?prefix=a+dir/&list-type=2", "a dir/ä+b.txt", "plain.txt"),
        ("/?list-type=2&max-keys=100&prefix=pl", "plain.txt", "ä+b.txt"),
    ] {
        let (list, status) = curled(&egret, query, &[]);
        assert_eq!(status, "200", "{query}: {list}");
        assert!(list.contains(&format!("<Key>{listed}</Key>")) && !list.contains(others), "{query}: {list}");
    }
    assert_eq!(curled(&egret, "/plain.txt", &["--request", "DELETE"]).1, "204");
    assert_eq!(curled(&egret, "/plain.txt", &[]).1, "404");
}

#[test]
fn whatever_the_client_signs_with_is_replaced() {
    let (store, directory) = (S3::start(), Directory::default());
    let egret = before(&store, &directory, "");
    let file = directory.write("object", "mine");
    let signed = [
        "Authorization: AWS4-HMAC-SHA256 Credential=none/20130524/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0",
        "X-Amz-Date: 20130524T000000Z",
        "X-Amz-Security-Token: none",
        "X-Amz-Content-Sha256: UNSIGNED-PAYLOAD",
    ];
    assert_eq!(put(&egret, "/a", &file, &signed), ok(""));
    let own = put(&egret, "/a", &file, &[&signed[..], &[ANONYMOUS]].concat()).1;
    let none = curled(&egret, "/a", &["--header", ANONYMOUS]).1;
    assert!([&*own, &*none].iter().all(|status| ["400", "403"].contains(status)), "{own} {none}");
    assert_eq!(curled(&egret, "/a", &[]), ok("mine"));
}

#[test]
fn a_body_is_gathered_for_signing_up_to_its_limit() {
    let (store, directory) = (S3::start(), Directory::default());
    let egret = before(&store, &directory, ", body: 256KiB");
    let content = "0123456789abcdef".repeat(16 << 10);
    let file = directory.write("object", &content);
    assert_eq!(put(&egret, "/whole", &file, &[]), ok(""));
    assert_eq!(put(&egret, "/chunked", &file, &["Transfer-Encoding: chunked"]), ok(""));
    for path in ["/whole", "/chunked"] {
        assert!(curled(&egret, path, &[]) == ok(&content), "{path}");
    }
    let longer = directory.write("longer", content + "!");
    let (problem, status) = put(&egret, "/longer", &longer, &[]);
    assert_eq!(status, "413", "{problem}");
    assert!(
        problem.contains("body-too-large-to-sign") && problem.contains("raise `sigv4.body`"),
        "{problem}"
    );
    assert!(!store.objects().iter().any(|(name, _)| name == "longer"));
}

#[test]
fn a_changed_body_is_signed_as_sent() {
    let (store, directory) = (S3::start(), Directory::default());
    let [id, key] = S3::KEYS.map(|key| directory.write_secret(key, key).display().to_string());
    let egret = Config::with_origin(store.url())
        .flows(format!(
            "accounts:\n  store: {{ provider: origin, sigv4: {{ access_key_id: \"${{file:{id}}}\", secret_access_key: \"${{file:{key}}}\", region: us-east-1, service: s3 }} }}\n\
             flows:\n  - name: f\n    remedies:\n      - authenticate: {{ account: store }}\n      \
             - transform: {{ request: {{ json: {{ set: {{ /by: egret }} }}, headers: {{ set: {{ x-amz-meta-by: egret }} }}, path: /bucket/changed.json }} }}\n"
        ))
        .start();
    let file = directory.write("object.json", "{\"a\":1}");
    assert_eq!(put(&egret, "/object.json", &file, &["Content-Type: application/json"]), ok(""));
    let objects = store.objects();
    let (name, path) = &objects[0];
    assert_eq!((objects.len(), &**name), (1, "changed.json"));
    assert_eq!(std::fs::read_to_string(path).unwrap(), "{\"a\":1,\"by\":\"egret\"}");
}
