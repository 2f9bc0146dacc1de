//! Configs from editors that end lines with CRLF and begin files with a byte order mark.

use egret_tests::egret::egret;
use egret_tests::process::{Directory, run};

/// Checks a text. Returns the exit code, and what was printed.
fn checked(text: &str) -> (Option<i32>, String) {
    let directory = Directory::default();
    directory.write("egret.yaml", text);
    let output = run(egret(["check", "egret.yaml"]).current_dir(directory.path()).env("NO_COLOR", "1"));
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(printed).unwrap())
}

#[test]
fn line_ends_and_byte_order_mark_change_no_meaning() {
    let good = "# a shop\nproviders:\n  shop: { url: http://127.0.0.1:9000 }\nflows:\n  - name: shop\n    match:\n      \
                provider: shop\n      when: |\n        request.method == 'GET' &&\n        attempt == 1\n";
    let spoilt = [
        good.to_owned(),
        good.replace("url", "ulr"),
        good.replace("attempt ==", "attempt ="),
        good.replace("    match", "   match"),
        good.replace(" }", ""),
        good.replace("  shop: {", "\tshop: {"),
    ];
    for text in spoilt {
        let expected = checked(&text);
        assert_eq!(expected.0, Some(if text == good { 0 } else { 2 }), "{}", expected.1);
        let windows = text.replace('\n', "\r\n");
        assert_eq!(checked(&windows), expected, "{windows:?}");
        assert_eq!(checked(&format!("\u{feff}{windows}")), expected, "{windows:?}");
    }
}
