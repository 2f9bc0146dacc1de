//! Tests of the options as the command line gives them.

use super::*;
use crate::fixture::{parsed, try_parsed};
use crate::report::Style;

#[test]
fn abs_options_are_taken_bundled_and_apart() {
    let options =
        parsed("-kqn100 -c10 -lr -H X-A:1 -H X-B:2 -C a=b -A u:p -P v:q -X p:1 -T a/b -p f -s 5 http://h/");
    assert_eq!((options.requests, options.concurrency, options.keep_alive), (Some(100), 10, true));
    assert_eq!((options.fields.len(), options.cookies.len(), options.content_type.as_str()), (2, 1, "a/b"));
    assert_eq!((options.post, options.timeout), (Some("f".into()), Duration::from_secs(5)));
    assert!(options.variable_length && options.receive_errors_are_fine);
}

#[test]
fn siege_and_ab_both_have_their_b() {
    assert_eq!(parsed("-b 8192 http://h/").buffer.as_deref(), Some("8192"));
    let siege = parsed("-b -t 10S http://h/");
    assert_eq!((siege.buffer.as_deref(), siege.time), (Some(""), Some(Duration::from_secs(10))));
    let before = parsed("-c 25 -t10S -b http://h/x").settled();
    assert_eq!((before.buffer, before.url.as_deref()), (None, Some("http://h/x")));
}

#[test]
fn times_have_units_of_both() {
    for (text, millis) in
        [("10", 10_000), ("0.5", 500), ("250ms", 250), ("10S", 10_000), ("2M", 120_000), ("1h", 3_600_000)]
    {
        assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for text in ["", "x", "-1", "10D", "25H", "NaN", "1e300"] {
        assert!(time(text).is_err(), "{text}");
    }
}

#[test]
fn rates_stay_or_change() {
    assert_eq!(rate("500"), Ok((500.0, 500.0)));
    assert_eq!(rate("100..2000/s"), Ok((100.0, 2_000.0)));
    assert!(rate("fast").is_err() && rate("1..").is_err() && rate("inf").is_err());
}

#[test]
fn wrong_lines_are_refused() {
    for line in [
        "-c x http://h/",
        "-n -1 http://h/",
        "-p a -u b http://h/",
        "--vs a --find-knee b",
        "-Q http://h/",
        "--fail-if p99 http://h/",
    ] {
        assert!(try_parsed(line).is_err(), "{line}");
    }
}

#[test]
fn attributes_imply_html() {
    assert_eq!(Style::from(&parsed("http://h/")).html, None);
    let attributes = Style::from(&parsed("-x border=1 http://h/")).html.unwrap();
    assert_eq!((attributes.table.as_str(), attributes.cell.as_str()), ("border=1", "bgcolor=white"));
}
