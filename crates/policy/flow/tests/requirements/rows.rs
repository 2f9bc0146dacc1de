//! The rows, in the order of the RFCs.

use super::Row;

macro_rules! rows {
    ($($section:literal $level:literal $name:ident $asks:literal $config:literal $script:literal)*) => {
        /// Every requirement.
        pub const ROWS: &[Row] = &[$(Row {
            name: stringify!($name), section: $section, level: $level, asks: $asks, config: $config, script: $script,
        }),*];
    };
}

rows! {
    // ---- Storing.

    "9111 §3" "MUST NOT" responses_to_other_methods_are_not_stored
    "Store responses to methods that it does not understand." "{}" "
        > PUT /a
        < 200 | cache-control: max-age=60
        = 200
        > GET /a
        < 200 | cache-control: max-age=60
        = 200 | \"body-2\"
        > REPORT /a
        < 200 | cache-control: max-age=60
        = 200 | cache-status: egret; fwd=method | \"body-3\""

    "9111 §3" "MUST NOT" a_response_with_no_store_is_not_stored
    "Store a response with `no-store`." "{}" "
        > GET /a
        < 200 | cache-control: no-store, max-age=60 | etag: \"1\"
        = 200 | cache-status: egret; fwd=uri-miss; detail=no-store
        > GET /a
        < 200
        ? !if-none-match
        = 200 | \"body-2\""

    "9111 §3" "MUST NOT" a_private_response_is_not_stored_in_a_shared_cache
    "Store a response with `private`." "{}" "
        > GET /a | authorization: Bearer one
        < 200 | cache-control: private, max-age=60, public
        = 200 | cache-status: egret; fwd=uri-miss; detail=private
        > GET /a | authorization: Bearer one
        < 200
        = 200 | \"body-2\""

    "9111 §3" "MUST NOT" a_response_that_nothing_marks_is_not_stored
    "Store a response without `public`, an explicit lifetime or a heuristically cacheable status." "{}" "
        > GET /a
        < 302 | location: /b | etag: \"1\"
        = 302 | cache-status: egret; fwd=uri-miss; detail=unmarked
        > GET /a
        < 302 | location: /b | cache-control: max-age=60
        = 302 | cache-status: egret; fwd=uri-miss; ttl=60; stored
        > GET /a
        = 302 | location: /b
        > GET /e
        < 302 | location: /b | expires: {now+60}
        = 302
        > GET /e
        = 302"

    "9111 §3" "MUST NOT" a_response_of_unknown_status_is_stored_only_with_a_lifetime
    "Store a response with an unknown status on heuristics alone." "{}" "
        > GET /a
        < 299 | last-modified: {now-1000}
        = 299
        > GET /a
        < 299 | cache-control: max-age=60
        = 299
        > GET /a
        = 299 | \"body-2\""

    "9111 §3" "MUST NOT" a_part_is_not_stored_as_the_whole
    "Store a 206 as a complete response (§3.3, §3.4)." "{}" "
        > GET /a | range: bytes=0-3
        < 206 | cache-control: max-age=60 | content-range: bytes 0-3/6 | \"body\"
        = 206 | cache-status: egret; fwd=uri-miss; detail=status | \"body\"
        > GET /a
        < 200
        = 200 | \"body-2\""

    "9111 §3.3" "MUST NOT" a_response_that_breaks_off_is_not_served
    "Use an incomplete response for a request that needs a complete one." "{}" "
        > GET /a
        < cut | cache-control: max-age=60
        = 200
        > GET /a
        < 200 | cache-control: max-age=60
        = 200 | \"body-2\""

    "9111 §3" "MUST NOT" a_response_about_a_condition_is_not_stored
    "Serve 304, 412 or 416 to requests without the corresponding condition." "{}" "
        > GET /a | if-match: \"x\"
        < 412 | cache-control: max-age=60
        = 412
        > GET /a | range: bytes=90-
        < 416 | cache-control: max-age=60 | content-range: bytes */6
        = 416
        > GET /a | if-none-match: \"x\"
        < 304 | cache-control: max-age=60 | etag: \"x\"
        = 304
        > GET /a
        < 200
        = 200 | \"body-4\""

    "9111 §3.1" "MUST" every_field_is_stored
    "Store every field, known or not, including repeated ones." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | x-unknown: 1 | x-unknown: 2 | content-type: text/x | server: s
        = 200
        > GET /a
        = 200 | x-unknown: 1 | x-unknown: 2 | content-type: text/x | server: s | cache-control: max-age=60"

    "9111 §3.1" "MUST NOT" fields_of_the_connection_are_not_stored
    "Store `Connection`, the fields it names, and fields for proxies." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | connection: x-hop | x-hop: 1 | keep-alive: timeout=5 | proxy-authenticate: Basic | proxy-authentication-info: a=b | x-end: 1
        = 200
        > GET /a
        = 200 | x-end: 1 | !x-hop | !keep-alive | !proxy-authenticate | !proxy-authentication-info"

    "9111 §3.2" "MUST" a_validated_response_has_the_newer_fields
    "Replace stored fields by those of the same name in a 304, and keep the others." "{}" "
        > GET /a
        < 200 | cache-control: max-age=5 | etag: \"1\" | x-a: 1 | x-a: 2 | x-b: 1 | content-type: text/x
        = 200
        +10
        > GET /a
        < 304 | cache-control: max-age=60 | etag: \"1\" | x-a: 3 | x-c: 1
        = 200 | x-a: 3 | !x-a: 1 | x-b: 1 | x-c: 1 | content-type: text/x | \"body-1\"
        +30
        > GET /a
        = 200 | x-a: 3 | !x-a: 2 | x-b: 1 | age: 30 | cache-control: max-age=60 | \"body-1\""

    "9111 §3.2" "MUST NOT" a_validated_response_keeps_its_length_and_coding
    "Update `Content-Length`, `Content-Encoding` or `Content-Range` from a 304." "{}" "
        > GET /a
        < 200 | cache-control: max-age=5 | etag: \"1\" | content-encoding: x-a
        = 200
        +10
        > GET /a
        < 304 | cache-control: max-age=60 | etag: \"1\" | content-encoding: x-b | content-range: bytes 0-1/2
        = 200 | content-encoding: x-a | !content-encoding: x-b | !content-range | content-length: 6 | \"body-1\""

    "9111 §3.5" "MUST NOT" a_response_to_authorization_is_not_shared_unmarked
    "Reuse a response to a request with `Authorization` unless it has `public`, `must-revalidate` or `s-maxage`." "{\"shared\": true}" "
        > GET /a | authorization: Bearer one
        < 200 | cache-control: max-age=60
        = 200 | cache-status: egret; fwd=uri-miss; detail=authorization
        > GET /a | authorization: Bearer one
        < 200
        = 200 | \"body-2\""

    "9111 §3.5" "MAY" a_response_to_authorization_is_shared_if_it_says_so
    "Reuse such a response if it has one of them." "{\"shared\": true}" "
        > GET /public | authorization: Bearer one
        < 200 | cache-control: max-age=60, public
        = 200
        > GET /public | authorization: Bearer two
        = 200 | \"body-1\"
        > GET /must | authorization: Bearer one
        < 200 | cache-control: max-age=60, must-revalidate
        = 200
        > GET /must
        = 200 | \"body-2\"
        > GET /s | authorization: Bearer one
        < 200 | cache-control: s-maxage=60
        = 200
        > GET /s | authorization: Bearer two
        = 200 | \"body-3\""

    // ---- Reuse.

    "9111 §4" "MUST" a_fresh_response_is_served_with_its_age
    "Send `Age` with a response that was not validated for the request." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60
        = 200 | cache-status: egret; fwd=uri-miss; ttl=60; stored
        +20
        > GET /a
        = 200 | age: 20 | cache-status: egret; hit; ttl=40 | \"body-1\""

    "9111 §4" "MUST NOT" another_url_has_another_response
    "Serve a response that was stored for another URL." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60
        = 200
        > GET /a?b
        < 200
        = 200 | cache-status: egret; fwd=uri-miss; detail=useless | \"body-2\"
        > GET /A
        < 200
        = 200 | \"body-3\""

    "9111 §4" "MAY" a_stored_response_to_get_serves_head
    "Serve HEAD from a stored response to GET, without its body." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | x-a: 1
        = 200
        > HEAD /a
        = 200 | x-a: 1 | content-length: 6 | \"\""

    "9111 §4" "MUST NOT" a_response_to_head_serves_no_get
    "Serve GET from a stored response to HEAD." "{}" "
        > HEAD /a
        < 200 | cache-control: max-age=60 | \"\"
        = 200
        > GET /a
        < 200
        = 200 | \"body-2\""

    "9111 §4" "MUST" the_most_recent_response_is_used
    "Use the most recent of several suitable responses, by `Date`." "{}" "
        > GET /a | x-a: 1
        < 200 | cache-control: max-age=600 | date: {now} | vary: x-a
        = 200
        +1
        > GET /a | x-a: 2
        < 200 | cache-control: max-age=600 | date: {now-100}
        = 200 | \"body-2\"
        > GET /a | x-a: 1
        = 200 | \"body-1\"
        > GET /a | x-a: 3
        = 200 | \"body-2\""

    "9111 §4" "MUST" unsafe_methods_are_written_through
    "Forward unsafe methods and respond with the provider's response." "{}" "
        > POST /a
        < 201 | cache-control: max-age=60
        = 201 | \"body-1\"
        > POST /a
        < 201
        = 201 | \"body-2\"
        > DELETE /a
        < 204 | \"\"
        = 204"

    // ---- Vary.

    "9111 §4.1" "MUST NOT" a_response_that_varies_is_for_the_same_fields
    "Serve a response to a request that differs in the fields named by `Vary`." "{}" "
        > GET /a | accept-language: de
        < 200 | cache-control: max-age=60 | vary: Accept-Language, x-a
        = 200
        > GET /a | accept-language: en
        < 200 | cache-control: max-age=60 | vary: Accept-Language, x-a
        ? !if-none-match
        = 200 | cache-status: egret; fwd=vary-miss; ttl=60; stored
        > GET /a | accept-language: de
        = 200 | \"body-1\"
        > GET /a | accept-language: en
        = 200 | \"body-2\"
        > GET /a | accept-language: de | x-a: 1
        < 200
        = 200 | \"body-3\""

    "9111 §4.1" "MAY" fields_that_mean_the_same_are_the_same
    "Treat combined field lines and different white space in lists as equal." "{}" "
        > GET /a | accept: a/b, c/d | accept: e/f
        < 200 | cache-control: max-age=60 | vary: accept
        = 200
        > GET /a | accept: a/b,c/d ,e/f
        = 200 | \"body-1\""

    "9111 §4.1" "MUST" a_field_that_is_not_there_is_the_same_only_as_none
    "Match an absent field only with an absent field." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | vary: x-a
        = 200
        > GET /a
        = 200 | \"body-1\"
        > GET /a | x-a: 1
        < 200 | cache-control: max-age=60 | vary: x-a
        = 200 | \"body-2\""

    "9111 §4.1" "MUST NOT" a_response_that_varies_by_anything_is_not_reused
    "Match a request with a response that has `Vary: *`." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | vary: x-a, *
        = 200 | cache-status: egret; fwd=uri-miss; detail=vary
        > GET /a
        < 200
        = 200 | \"body-2\""

    // ---- Freshness.

    "9111 §4.2.1" "MUST" s_maxage_comes_before_max_age_and_expires
    "Use `s-maxage`, otherwise `max-age`, otherwise `Expires` minus `Date`." "{}" "
        > GET /s
        < 200 | cache-control: max-age=10, s-maxage=60 | expires: {now+5}
        = 200
        > GET /m
        < 200 | cache-control: max-age=60 | expires: {now+5}
        = 200
        > GET /e
        < 200 | date: {now-30} | expires: {now+30}
        = 200 | cache-status: egret; fwd=uri-miss; ttl=30; stored
        +20
        > GET /s
        = 200 | \"body-1\"
        > GET /m
        = 200 | \"body-2\"
        > GET /e
        = 200 | \"body-3\"
        +11
        > GET /e
        < 200
        = 200 | \"body-4\""

    "9111 §4.2" "MUST NOT" a_stale_response_is_not_served
    "Serve a response that is no longer fresh." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60
        = 200
        +60
        > GET /a
        < 200
        = 200 | cache-status: egret; fwd=stale; detail=useless | \"body-2\""

    "9111 §4.2.1" "SHOULD" contradictions_make_a_response_stale
    "Treat a response with two different lifetimes, or with one that is not a number, as stale." "{}" "
        > GET /two
        < 200 | cache-control: max-age=60, max-age=30 | etag: \"1\"
        = 200
        > GET /two
        < 304 | etag: \"1\"
        = 200 | \"body-1\"
        > GET /bad
        < 200 | cache-control: max-age=sixty | expires: {now+60}
        = 200
        > GET /bad
        < 200
        = 200 | \"body-4\"
        > GET /fraction
        < 200 | cache-control: max-age=60.5
        = 200
        > GET /fraction
        < 200
        = 200 | \"body-6\"
        > GET /no
        < 200 | cache-control: max-age=60, no-cache
        = 200
        > GET /no
        < 200
        = 200 | \"body-8\""

    "9111 §4.2.2" "MUST NOT" an_age_is_not_guessed_where_one_is_told
    "Use a heuristic if the response has an explicit lifetime." "{}" "
        > GET /a
        < 200 | cache-control: max-age=0 | last-modified: {now-86400}
        = 200
        > GET /a
        < 304
        = 200 | \"body-1\""

    "9111 §4.2.2" "MAY" a_tenth_of_its_age_is_taken_as_fresh
    "Treat a response without a lifetime as fresh for a tenth of the time since its modification, up to a limit." "{\"heuristic_max\": \"1h\"}" "
        > GET /a
        < 200 | last-modified: {now-1000}
        = 200
        +99
        > GET /a
        = 200 | \"body-1\"
        +2
        > GET /a
        < 304
        ? if-modified-since: {now-1101}
        = 200 | \"body-1\"
        > GET /old
        < 200 | last-modified: {now-8640000}
        = 200 | cache-status: egret; fwd=uri-miss; ttl=3600; stored"

    "9111 §4.2.2" "MUST NOT" a_status_that_must_be_told_is_not_guessed
    "Use a heuristic for a status that is not heuristically cacheable, unless the response has `public`." "{}" "
        > GET /a
        < 302 | last-modified: {now-1000}
        = 302
        > GET /a
        < 302 | last-modified: {now-1000} | cache-control: public
        = 302
        > GET /a
        = 302 | \"body-2\""

    "9111 §4.2.3" "MUST" the_age_counts_what_others_have_had_it_for
    "Add `Age`, the response delay and the resident time." "{}" "
        > GET /a
        ~5
        < 200 | cache-control: max-age=100 | age: 30 | date: {now}
        = 200 | age: 30 | cache-status: egret; fwd=uri-miss; ttl=65; stored
        +10
        > GET /a
        = 200 | age: 45"

    "9111 §4.2.3" "MUST" the_age_is_no_less_than_the_date_tells
    "Calculate the age from `Date` if that is longer." "{}" "
        > GET /a
        < 200 | cache-control: max-age=100 | age: 3 | date: {now-40}
        = 200
        +10
        > GET /a
        = 200 | age: 50
        +50
        > GET /a
        < 200
        = 200 | \"body-2\""

    "9111 §4.2.3" "MUST" a_date_in_the_future_does_not_make_it_younger
    "Give a response with a `Date` in the future the age 0, not a negative one." "{}" "
        > GET /a
        < 200 | cache-control: max-age=100 | date: {now+4000}
        = 200
        +90
        > GET /a
        = 200 | age: 90
        +20
        > GET /a
        < 200
        = 200 | \"body-2\""

    "9111 §4.2.4" "MUST NOT" what_must_be_validated_is_not_served_stale
    "Serve a stale response with `must-revalidate`, `proxy-revalidate`, `s-maxage` or `no-cache`, even if something else allows it."
    "{\"stale_while_revalidate\": \"1h\", \"stale_if_error\": \"1h\"}" "
        > GET /must
        < 200 | cache-control: max-age=5, must-revalidate, stale-while-revalidate=60 | etag: \"1\"
        = 200
        > GET /proxy
        < 200 | cache-control: max-age=5, proxy-revalidate | etag: \"1\"
        = 200
        > GET /s
        < 200 | cache-control: s-maxage=5, stale-if-error=600 | etag: \"1\"
        = 200
        > GET /no
        < 200 | cache-control: max-age=600, no-cache | etag: \"1\"
        = 200
        +10
        > GET /must | cache-control: max-stale
        < 503
        = 503
        > GET /proxy | cache-control: max-stale=100
        < 503
        = 503
        > GET /s | cache-control: max-stale, stale-if-error=100
        < down
        = 502
        > GET /no | cache-control: max-stale
        < 500
        = 500
        > GET /must
        < down
        = 502
        > GET /proxy
        < down
        = 502
        > GET /no
        < down
        = 502"

    "9111 §4.2.4" "MAY" what_is_stale_is_served_where_nobody_responds
    "Serve a stale response if the provider closes without a response: for 5 minutes, unless a lifetime is given." "{}" "
        > GET /a
        < 200 | cache-control: max-age=10
        = 200
        +100
        > GET /a
        < 503
        = 503
        > GET /a
        < down
        = 200 | age: 100 | cache-status: egret; fwd=stale; ttl=-90; detail=stale-if-error | \"body-1\"
        > GET /a | cache-control: max-age=200
        < down
        = 502
        > GET /a | cache-control: no-cache
        < down
        = 502
        > GET /b
        < 200 | cache-control: max-age=10, stale-if-error=0
        = 200
        +11
        > GET /b
        < down
        = 502
        +200
        > GET /a
        < down
        = 502"

    // ---- Validation.

    "9111 §4.3.1" "MUST" a_stale_response_is_validated_by_its_tag
    "Send the entity tags of the stored responses." "{}" "
        > GET /a
        < 200 | cache-control: max-age=5 | etag: \"1\" | last-modified: {now-100}
        = 200
        +10
        > GET /a
        < 304 | etag: \"1\"
        ? if-none-match: \"1\" | if-modified-since: {now-110}
        = 200 | cache-status: egret; fwd=stale; fwd-status=304; ttl=5; stored | \"body-1\""

    "9111 §4.3.1" "SHOULD" a_stale_response_without_a_tag_is_validated_by_its_date
    "Send `If-Modified-Since` with the unchanged `Last-Modified`." "{}" "
        > GET /a
        < 200 | cache-control: max-age=5 | last-modified: Sunday, 06-Nov-94 08:49:37 GMT
        = 200
        +10
        > GET /a
        < 304
        ? if-modified-since: Sunday, 06-Nov-94 08:49:37 GMT | !if-none-match
        = 200 | \"body-1\""

    "9111 §4.3.1" "MAY" the_clients_tags_are_asked_for_too
    "Send the client's tags together with its own, and forward a 304 for the client's tags." "{}" "
        > GET /a
        < 200 | cache-control: max-age=5 | etag: \"1\"
        = 200
        +10
        > GET /a | if-none-match: \"2\", W/\"3\"
        < 304 | etag: \"2\"
        ? if-none-match: \"1\", \"2\", W/\"3\"
        = 304 | etag: \"2\"
        > GET /a | if-none-match: \"2\"
        < 304 | etag: \"1\"
        = 200 | \"body-1\""

    "9111 §4.3.2" "SHOULD" a_condition_of_the_client_is_answered_from_what_is_stored
    "Respond to `If-None-Match` with 304 if it names the stored response (weak comparison)." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | etag: \"1\" | content-type: text/x | vary: x-a
        = 200
        > GET /a | if-none-match: \"0\", W/\"1\"
        = 304 | etag: \"1\" | cache-control: max-age=60 | vary: x-a | !content-type | !content-length | \"\"
        > GET /a | if-none-match: *
        = 304
        > GET /a | if-none-match: \"2\"
        = 200 | \"body-1\"
        > HEAD /a | if-none-match: \"1\"
        = 304"

    "9111 §4.3.2" "SHOULD" a_date_of_the_client_is_compared_with_what_is_stored
    "Evaluate `If-Modified-Since` against `Last-Modified`, otherwise `Date`, unless it is not a date." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | last-modified: {now-100}
        = 200
        > GET /a | if-modified-since: {now-100}
        = 304
        > GET /a | if-modified-since: {now-101}
        = 200 | \"body-1\"
        > GET /a | if-modified-since: yesterday
        = 200
        > GET /d
        < 200 | cache-control: max-age=60 | date: {now-50}
        = 200
        > GET /d | if-modified-since: {now-50}
        = 304
        > GET /d | if-modified-since: {now-51}
        = 200 | \"body-2\""

    "9110 §13.1.3" "MUST" tags_come_before_dates
    "Ignore `If-Modified-Since` if there is `If-None-Match`." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | etag: \"1\" | last-modified: {now-100}
        = 200
        > GET /a | if-none-match: \"2\" | if-modified-since: {now}
        = 200 | \"body-1\"
        > GET /a | if-none-match: \"1\" | if-modified-since: {now-500}
        = 304"

    "9111 §4.3.2" "MUST NOT" conditions_for_the_provider_are_forwarded
    "Evaluate `If-Match` or `If-Unmodified-Since`." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | etag: \"1\"
        = 200
        > GET /a | if-match: \"2\"
        < 412
        ? if-match: \"2\"
        = 412 | cache-status: egret; fwd=request; detail=status
        > GET /a | if-unmodified-since: {now-100}
        < 412
        = 412
        > GET /a
        = 200 | \"body-1\""

    "9110 §13.2.1" "MUST" conditions_are_for_successes
    "Ignore conditions if the response without them would not be successful." "{}" "
        > GET /a
        < 404 | cache-control: max-age=60 | etag: \"1\" | date: {now}
        = 404
        > GET /a | if-none-match: \"1\"
        = 404
        > GET /a | if-modified-since: {now+10}
        = 404"

    "9111 §4.3.3" "MUST" a_whole_response_takes_the_place_of_what_was_stored
    "Use the new response if the provider sends a complete one." "{}" "
        > GET /a
        < 200 | cache-control: max-age=5 | etag: \"1\"
        = 200
        +10
        > GET /a
        < 200 | cache-control: max-age=60 | etag: \"2\"
        = 200 | \"body-2\"
        > GET /a
        = 200 | etag: \"2\" | \"body-2\""

    "9111 §4.3.3" "MAY" an_error_goes_on_where_stale_responses_are_not_allowed
    "Forward an error that the provider sends instead of validating." "{}" "
        > GET /a
        < 200 | cache-control: max-age=5 | etag: \"1\"
        = 200
        +10
        > GET /a
        < 500
        = 500 | cache-status: egret; fwd=stale; detail=error
        > GET /a
        < 304 | etag: \"1\"
        = 200 | \"body-1\""

    "9111 §4.3.4" "MUST NOT" a_304_about_something_else_is_not_used
    "Update a stored response from a 304 with another tag." "{}" "
        > GET /a
        < 200 | cache-control: max-age=5 | etag: \"1\"
        = 200
        +10
        > GET /a
        < 304 | etag: \"9\"
        < 200 | cache-control: max-age=60 | etag: \"9\"
        ? !if-none-match
        = 200 | \"body-3\""

    "9111 §4.3.4" "MUST" a_weak_tag_updates_what_has_it
    "Update the most recent response with the same weak tag." "{}" "
        > GET /a
        < 200 | cache-control: max-age=5 | etag: W/\"1\"
        = 200
        +10
        > GET /a
        < 304 | etag: W/\"1\" | cache-control: max-age=60
        ? if-none-match: W/\"1\"
        = 200 | \"body-1\"
        +30
        > GET /a
        = 200 | age: 30 | \"body-1\""

    "9111 §4.3.5" "SHOULD" a_response_to_head_freshens_what_is_stored
    "Update a stored response from a HEAD with the same validators and length." "{}" "
        > GET /a
        < 200 | cache-control: max-age=5 | etag: \"1\"
        = 200
        +10
        > HEAD /a
        < 200 | cache-control: max-age=60 | etag: \"1\" | content-length: 6 | x-a: 1 | \"\"
        = 200
        > GET /a
        = 200 | x-a: 1 | \"body-1\""

    "9111 §4.3.5" "SHOULD" a_response_to_head_that_differs_makes_it_void
    "Treat a stored response as stale if a HEAD differs." "{}" "
        > GET /a
        < 200 | cache-control: max-age=600 | etag: \"1\"
        = 200
        > HEAD /a | cache-control: no-cache
        < 200 | cache-control: max-age=600 | etag: \"2\" | \"\"
        = 200
        > GET /a
        < 200 | cache-control: max-age=600 | etag: \"2\"
        ? !if-none-match
        = 200 | \"body-3\"
        > HEAD /a | cache-control: no-cache
        < 200 | cache-control: max-age=600 | etag: \"2\" | content-length: 7 | \"\"
        = 200
        > GET /a
        < 200
        = 200 | \"body-5\""

    // ---- Invalidation.

    "9111 §4.4" "MUST" a_change_makes_what_is_stored_void
    "Invalidate the URL of a successful request with an unsafe or unknown method." "{}" "
        > GET /a
        < 200 | cache-control: max-age=600
        = 200
        > POST /a
        < 204 | \"\"
        = 204
        > GET /a
        < 200 | cache-control: max-age=600
        = 200 | \"body-3\"
        > FROB /a
        < 302 | \"\"
        = 302
        > GET /a
        < 200
        = 200 | \"body-5\""

    "9111 §4.4" "MUST NOT" a_change_that_failed_makes_nothing_void
    "Invalidate after an error or a safe method." "{}" "
        > GET /a
        < 200 | cache-control: max-age=600
        = 200
        > POST /a
        < 409
        = 409
        > PUT /a
        < 500
        = 500
        > OPTIONS /a
        < 204 | \"\"
        = 204
        > GET /a
        = 200 | \"body-1\""

    "9111 §4.4" "MAY" a_change_makes_void_what_it_names_on_the_same_origin
    "Invalidate the URLs in `Location` and `Content-Location`, on the same origin only." "{}" "
        > GET /a
        < 200 | cache-control: max-age=600
        = 200
        > GET /b
        < 200 | cache-control: max-age=600
        = 200
        > POST /c
        < 201 | location: https://other.example/a | content-location: /b | \"\"
        = 201
        > GET /a
        = 200 | \"body-1\"
        > GET /b
        < 200
        = 200 | \"body-4\""

    "9111 §4.4" "MUST" a_change_goes_for_everybody
    "Invalidate the responses stored for all credentials and all fields." "{}" "
        > GET /a | x-api-key: one
        < 200 | cache-control: max-age=600
        = 200
        > GET /a | x-api-key: two | accept: b
        < 200 | cache-control: max-age=600 | vary: accept
        = 200
        > PUT /a | x-api-key: three
        < 200
        = 200
        > GET /a | x-api-key: one
        < 200
        = 200 | \"body-4\"
        > GET /a | x-api-key: two | accept: b
        < 200
        = 200 | \"body-5\""

    // ---- Age.

    "9111 §5.1" "SHOULD" an_age_that_is_no_number_is_not_counted
    "Ignore an `Age` that is not a number, and use the first of several." "{}" "
        > GET /bad
        < 200 | cache-control: max-age=60 | age: -5
        = 200 | cache-status: egret; fwd=uri-miss; ttl=60; stored
        > GET /list
        < 200 | cache-control: max-age=60 | age: 5, 50
        = 200 | cache-status: egret; fwd=uri-miss; ttl=55; stored
        > GET /lines
        < 200 | cache-control: max-age=60 | age: 6 | age: 50
        = 200 | cache-status: egret; fwd=uri-miss; ttl=54; stored"

    "9111 §1.2.2" "MUST" an_age_that_is_too_large_is_the_largest
    "Treat numbers of seconds that are too large as 2^31." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | age: 99999999999999999999999 | etag: \"1\"
        = 200
        > GET /a
        < 304 | etag: \"1\"
        = 200
        > GET /b
        < 200 | cache-control: max-age=99999999999999999999999
        = 200 | cache-status: egret; fwd=uri-miss; ttl=2147483648; stored
        +86400
        > GET /b
        = 200 | age: 86400"

    // ---- Cache-Control.

    "9111 §5.2" "MUST" directives_are_the_same_in_any_case_and_form
    "Compare directives case-insensitively, and accept arguments in both forms." "{}" "
        > GET /a
        < 200 | cache-control: MAX-AGE=\"60\"
        = 200
        > GET /a
        = 200 | \"body-1\"
        > GET /b
        < 200 | cache-control: max-age=60 | cache-control: No-Store
        = 200
        > GET /b
        < 200
        = 200 | \"body-3\""

    "9111 §5.2.3" "MUST" directives_that_are_not_known_are_ignored
    "Ignore unknown directives, whatever they contain." "{}" "
        > GET /a
        < 200 | cache-control: future, x=1, y=\"no-store, private\", max-age=60
        = 200
        > GET /a
        = 200 | \"body-1\""

    "9111 §5.2.1.1" "SHOULD" a_client_gets_nothing_older_than_it_wants
    "Serve only responses that are at most as old as the request's `max-age`." "{}" "
        > GET /a
        < 200 | cache-control: max-age=600 | etag: \"1\"
        = 200
        +20
        > GET /a | cache-control: max-age=20
        = 200 | \"body-1\"
        > GET /a | cache-control: max-age=19
        < 304 | etag: \"1\"
        = 200 | cache-status: egret; fwd=request; fwd-status=304; ttl=600; stored | \"body-1\"
        > GET /a | cache-control: max-age=0
        < 304 | etag: \"1\"
        = 200"

    "9111 §5.2.1.2" "MAY" a_client_gets_what_is_stale_if_it_takes_it
    "Serve a response that is stale by at most the request's `max-stale`." "{}" "
        > GET /a
        < 200 | cache-control: max-age=10 | etag: \"1\"
        = 200
        +15
        > GET /a | cache-control: max-stale=5
        = 200 | age: 15 | cache-status: egret; hit; ttl=-5
        > GET /a | cache-control: max-stale
        = 200
        > GET /a | cache-control: max-stale=4
        < 304 | etag: \"1\"
        = 200"

    "9111 §5.2.1.3" "SHOULD" a_client_gets_what_stays_fresh_long_enough
    "Serve only responses that stay fresh for at least the request's `min-fresh`." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | etag: \"1\"
        = 200
        +20
        > GET /a | cache-control: min-fresh=40
        = 200
        > GET /a | cache-control: min-fresh=41
        < 304 | etag: \"1\"
        = 200"

    "9111 §5.2.1.4" "SHOULD" a_client_gets_what_is_validated_if_it_wants
    "Validate for a request with `no-cache`, and for one with `Pragma: no-cache` and no `Cache-Control`." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | etag: \"1\"
        = 200
        > GET /a | cache-control: no-cache
        < 304 | etag: \"1\"
        ? if-none-match: \"1\"
        = 200 | \"body-1\"
        > GET /a | pragma: no-cache
        < 304 | etag: \"1\"
        = 200
        > GET /a | pragma: no-cache | cache-control: max-stale
        = 200"

    "9111 §5.2.1.5" "MUST NOT" what_a_client_does_not_want_stored_is_not
    "Store a response to a request with `no-store`." "{}" "
        > GET /a | cache-control: no-store
        < 200 | cache-control: max-age=60
        = 200 | cache-status: egret; fwd=uri-miss; detail=request-no-store
        > GET /a
        < 200
        = 200 | \"body-2\""

    "9111 §5.2.1.7" "SHOULD" a_client_that_wants_only_what_is_stored_gets_no_other
    "Respond to `only-if-cached` with a stored response or with 504." "{}" "
        > GET /a | cache-control: only-if-cached
        = 504
        > GET /a
        < 200 | cache-control: max-age=60 | vary: x-a | etag: \"1\"
        = 200
        > GET /a | cache-control: only-if-cached
        = 200 | \"body-1\"
        > GET /a | cache-control: only-if-cached | x-a: 1
        = 504
        > GET /a | cache-control: only-if-cached | if-match: \"1\"
        = 504
        +100
        > GET /a | cache-control: only-if-cached
        = 504
        > GET /a | cache-control: only-if-cached, max-stale
        = 200 | \"body-1\""

    "9111 §5.2.2.3" "MUST" what_must_be_understood_is_stored_only_then
    "Store a response with `must-understand` only if its status is known, and then despite `no-store`." "{}" "
        > GET /known
        < 200 | cache-control: must-understand, no-store, max-age=60
        = 200
        > GET /known
        = 200 | \"body-1\"
        > GET /new
        < 299 | cache-control: must-understand, max-age=60
        = 299 | cache-status: egret; fwd=uri-miss; detail=not-understood
        > GET /new
        < 299
        = 299 | \"body-3\""

    "9111 §5.2.2.4" "MUST NOT" what_says_no_cache_is_validated_each_time
    "Reuse a response with `no-cache` without validation." "{}" "
        > GET /a
        < 200 | cache-control: no-cache, max-age=60 | etag: \"1\"
        = 200
        > GET /a
        < 304 | etag: \"1\"
        = 200 | \"body-1\""

    "9111 §5.2.2.4" "MUST NOT" fields_that_no_cache_names_are_not_reused
    "Send fields named by `no-cache` without validation." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60, no-cache=\"X-A, x-b\" | x-a: 1 | x-b: 1 | x-c: 1
        = 200 | x-a: 1
        > GET /a
        = 200 | !x-a | !x-b | x-c: 1"

    "9111 §5.2.2.7" "MUST NOT" fields_that_private_names_are_not_stored
    "Store fields named by `private`." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60, private=\"x-a\" | x-a: 1 | x-c: 1
        = 200 | x-a: 1
        > GET /a
        = 200 | !x-a | x-c: 1"

    "9111 §5.3" "MUST" a_date_that_is_none_is_in_the_past
    "Treat an `Expires` that is not a date, especially `0`, as long ago." "{}" "
        > GET /a
        < 200 | expires: 0 | last-modified: {now-100000}
        = 200
        > GET /a
        < 304
        = 200
        > GET /z
        < 200 | expires: Thu, 18 Aug 2050 02:01:18 CET
        = 200
        > GET /z
        < 200
        = 200 | \"body-4\""

    "9111 §5.3" "MUST" expires_is_ignored_where_max_age_is
    "Ignore `Expires` if there is `max-age` or `s-maxage`." "{}" "
        > GET /a
        < 200 | cache-control: max-age=0 | expires: {now+600}
        = 200
        > GET /a
        < 200 | cache-control: max-age=60 | expires: {now-600}
        = 200
        > GET /a
        = 200 | \"body-2\""

    "9111 §5.3" "MUST" a_date_far_away_is_as_far_as_that
    "Handle dates that are centuries away." "{}" "
        > GET /a
        < 200 | expires: Fri, 31 Dec 9999 23:59:59 GMT
        = 200
        +31536000
        > GET /a
        = 200 | age: 31536000 | \"body-1\""

    "9110 §6.6.1" "MUST" a_response_without_a_date_gets_one
    "Add `Date` to a response that is stored without one." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60
        = 200
        +10
        > GET /a
        = 200 | date: {now-10} | age: 10"

    // ---- Extensions.

    "5861 §3" "MAY" what_is_stale_is_served_while_it_is_asked_for
    "Serve a response that is stale by at most `stale-while-revalidate`, and revalidate it." "{}" "
        > GET /a
        < 200 | cache-control: max-age=10, stale-while-revalidate=20 | etag: \"1\"
        = 200
        +25
        > GET /a
        = 200 | cache-status: egret; hit; ttl=-15 | \"body-1\"
        & 304 | etag: \"1\"
        > GET /a
        = 200 | age: 0 | cache-status: egret; hit; ttl=10 | \"body-1\"
        +31
        > GET /a
        < 304 | etag: \"1\"
        = 200"

    "5861 §4" "MAY" what_is_stale_is_served_where_the_provider_fails
    "Serve a response that is stale by at most `stale-if-error` instead of 500, 502, 503 and 504, or if there is no response." "{}" "
        > GET /a
        < 200 | cache-control: max-age=10, stale-if-error=20
        = 200
        +15
        > GET /a
        < 503
        = 200 | cache-status: egret; fwd=stale; fwd-status=503; ttl=-5; detail=stale-if-error | \"body-1\"
        > GET /a
        < down
        = 200 | age: 15 | \"body-1\"
        > GET /a
        < 501
        = 501
        > GET /a
        < 429
        = 429
        +16
        > GET /a
        < 503
        = 503
        > GET /a | cache-control: stale-if-error=60
        < 503
        = 200 | \"body-1\""

    "8246 §2" "SHOULD NOT" what_does_not_change_is_not_validated_while_it_is_fresh
    "Validate a fresh `immutable` response, unless the client sends `no-cache`." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60, immutable | etag: \"1\"
        = 200
        +10
        > GET /a | cache-control: max-age=0
        = 200 | \"body-1\"
        > GET /a | cache-control: no-cache
        < 304 | etag: \"1\"
        = 200
        +100
        > GET /a
        < 304 | etag: \"1\"
        = 200"

    "9213 §2.2" "MUST" a_targeted_field_takes_the_place_of_the_others
    "Use the first targeted field that is well-formed and not empty, and then ignore `Cache-Control` and `Expires`."
    "{\"targets\": [\"Egret-Cache-Control\", \"CDN-Cache-Control\"]}" "
        > GET /a
        < 200 | cdn-cache-control: max-age=600 | egret-cache-control: max-age=60 | cache-control: no-store | expires: 0
        = 200 | cache-status: egret; fwd=uri-miss; ttl=60; stored
        > GET /b
        < 200 | egret-cache-control: MAX-AGE=60 | cdn-cache-control: max-age=30 | cache-control: no-store
        = 200 | cache-status: egret; fwd=uri-miss; ttl=30; stored
        > GET /c
        < 200 | egret-cache-control: no-store | cache-control: max-age=60
        = 200 | cache-status: egret; fwd=uri-miss; detail=no-store
        > GET /d
        < 200 | cdn-cache-control: max-age=60, | cache-control: max-age=7
        = 200 | cache-status: egret; fwd=uri-miss; ttl=7; stored
        > GET /e
        < 200 | egret-cache-control: public | expires: {now+60}
        = 200 | cache-status: egret; fwd=uri-miss; detail=useless"

    "9211 §2" "SHOULD" what_caches_before_have_said_is_kept
    "Keep the `Cache-Status` of caches nearer to the provider, and append to it." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | cache-status: edge; hit
        = 200 | cache-status: edge; hit | cache-status: egret; fwd=uri-miss; ttl=60; stored
        > GET /a
        = 200 | cache-status: edge; hit | cache-status: egret; hit; ttl=60"

    // ---- Ranges.

    "9110 §14.2" "MAY" a_range_is_served_from_what_is_stored
    "Serve `Range` from a stored body: 206, 416, or the whole body." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | content-type: text/x | \"0123456789\"
        = 200
        > GET /a | range: bytes=2-4
        = 206 | content-range: bytes 2-4/10 | content-length: 3 | content-type: text/x | \"234\"
        > GET /a | range: bytes=-3
        = 206 | content-range: bytes 7-9/10 | \"789\"
        > GET /a | range: bytes=20-
        = 416 | content-range: bytes */10 | !content-type | \"\"
        > GET /a | range: lines=1-2
        = 200 | \"0123456789\"
        > HEAD /a | range: bytes=2-4
        = 200 | content-length: 10"

    "9110 §15.3.7.2" "MUST" several_ranges_are_parts_of_one_body
    "Send several ranges as `multipart/byteranges`, each with its own `Content-Range`." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | content-type: text/x | \"0123456789\"
        = 200
        > GET /a | range: bytes=0-1, 8-
        = 206 | content-type: multipart/byteranges* | !content-range | \"*content-type: text/x\\r\\ncontent-range: bytes 0-1/10\\r\\n\\r\\n01\\r\\n--*content-range: bytes 8-9/10\\r\\n\\r\\n89\\r\\n--*--\\r\\n\"
        > GET /a | range: bytes=0-5, 5-9
        = 200 | \"0123456789\""

    "9110 §13.1.5" "MUST" a_range_of_something_else_is_not_served
    "Ignore `Range` if `If-Range` does not name the stored response (strong comparison)." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | etag: \"1\" | last-modified: {now-100}
        = 200
        > GET /a | range: bytes=0-0 | if-range: \"1\"
        = 206 | \"b\"
        > GET /a | range: bytes=0-0 | if-range: \"2\"
        = 200 | \"body-1\"
        > GET /a | range: bytes=0-0 | if-range: W/\"1\"
        = 200
        > GET /a | range: bytes=0-0 | if-range: {now-100}
        = 206
        > GET /a | range: bytes=0-0 | if-range: {now-99}
        = 200
        > GET /a | range: bytes=0-0 | if-none-match: \"1\"
        = 304"

    // ---- Additional requirements.

    "Egret" "MUST NOT" one_customers_response_is_served_to_no_other
    "Serve a response obtained with one credential for another credential or for none." "{}" "
        > GET /a | x-api-key: one
        < 200 | cache-control: public, max-age=60
        = 200
        > GET /a | x-api-key: two
        < 200 | cache-control: public, max-age=60
        = 200 | \"body-2\"
        > GET /a
        < 200 | cache-control: public, max-age=60
        = 200 | \"body-3\"
        > GET /a | x-api-key: one
        = 200 | \"body-1\"
        > GET /a | x-api-key: one | cookie: a=b
        < 200
        = 200 | \"body-4\""

    "Egret" "MAY" a_credential_has_a_private_cache_where_that_is_asked_for
    "Store `private` responses, and unmarked ones to `Authorization`, for that credential only." "{\"private\": true}" "
        > GET /a | authorization: Bearer one
        < 200 | cache-control: private, max-age=60
        = 200
        > GET /a | authorization: Bearer one
        = 200 | \"body-1\"
        > GET /a | authorization: Bearer two
        < 200 | cache-control: max-age=60, s-maxage=5
        = 200 | cache-status: egret; fwd=uri-miss; ttl=60; stored
        > GET /a
        < 200 | cache-control: private, max-age=60
        = 200 | cache-status: egret; fwd=uri-miss; detail=private"

    "Egret" "MUST NOT" a_refusal_is_not_replayed
    "Store a 5xx without an explicit lifetime, unless `ttl` covers it." "{}" "
        > GET /a
        < 503 | etag: \"1\" | retry-after: 1
        = 503 | cache-status: egret; fwd=uri-miss; detail=error
        > GET /a
        < 501 | last-modified: {now-1000}
        = 501 | cache-status: egret; fwd=uri-miss; detail=error
        > GET /a
        < 503 | cache-control: max-age=0, public | etag: \"1\"
        = 503 | cache-status: egret; fwd=uri-miss; detail=error
        > GET /a
        < 200
        = 200 | \"body-4\""

    "9111 §3" "MAY" an_error_that_says_how_long_it_is_fresh_is_stored
    "Store a 5xx with an explicit lifetime." "{\"stale_if_error\": \"1h\", \"stale_while_revalidate\": \"1h\"}" "
        > GET /a
        < 503 | cache-control: max-age=60
        = 503 | cache-status: egret; fwd=uri-miss; ttl=60; stored
        > GET /b
        < 500 | expires: {now+60}
        = 500
        +50
        > GET /a
        = 503 | age: 50 | \"body-1\"
        > GET /b
        = 500 | \"body-2\"
        +20
        > GET /a
        < down
        = 502
        > GET /b
        < 200
        = 200 | \"body-4\""

    "6585 §3" "MUST NOT" what_is_about_one_client_or_its_network_is_not_stored
    "Store 428, 429, 431 or 511, whatever the response or the config says (§3 to §6)." "{\"ttl\": {\"4xx\": \"60s\", \"5xx\": \"60s\"}, \"override\": true}" "
        > GET /a
        < 428 | cache-control: max-age=60, public
        = 428 | cache-status: egret; fwd=uri-miss; detail=error
        > GET /a
        < 429 | cache-control: max-age=60, public
        = 429 | cache-status: egret; fwd=uri-miss; detail=error
        > GET /a
        < 431 | cache-control: max-age=60, public
        = 431 | cache-status: egret; fwd=uri-miss; detail=error
        > GET /a
        < 511 | cache-control: max-age=60, public
        = 511 | cache-status: egret; fwd=uri-miss; detail=error
        > GET /a
        < 510
        = 510 | cache-status: egret; fwd=uri-miss; ttl=60; stored"

    "Egret" "MUST NOT" a_field_that_does_not_go_on_tells_nothing_apart
    "Use a field that `Connection` withholds from the provider, in the key or for `Vary`." "{\"key\": {\"headers\": [\"x-b\"]}}" "
        > GET /a | x-a: 1 | connection: x-a
        < 200 | cache-control: max-age=60 | vary: x-a
        = 200
        > GET /a | x-a: 1
        < 200 | cache-control: max-age=60 | vary: x-a
        = 200 | cache-status: egret; fwd=vary-miss; ttl=60; stored | \"body-2\"
        > GET /a
        = 200 | \"body-1\"
        > GET /b | x-b: 1 | connection: x-b
        < 200 | cache-control: max-age=60
        = 200
        > GET /b | x-b: 1
        < 200
        = 200 | \"body-4\"
        > GET /b
        = 200 | \"body-3\""

    "Egret" "MUST NOT" who_asks_with_a_credential_and_another_field_gets_another_response
    "Serve a response obtained with a credential to a request that differs in a field that may identify the caller." "{}" "
        > GET /a | authorization: Bearer one | x-grafana-org-id: 1
        < 200 | cache-control: max-age=60, public
        = 200
        > GET /a | authorization: Bearer one | x-grafana-org-id: 2
        < 200
        = 200 | \"body-2\"
        > GET /a | authorization: Bearer one | x-grafana-org-id: 1 | x-unheard-of: 1
        < 200
        = 200 | \"body-3\"
        > GET /a | authorization: Bearer one | x-grafana-org-id: 1 | user-agent: other | x-request-id: 7
        = 200 | \"body-1\"
        > GET /b | x-unheard-of: 1
        < 200 | cache-control: max-age=60
        = 200
        > GET /b | x-unheard-of: 2
        = 200 | \"body-4\""

    "Egret" "MUST NOT" a_field_that_names_another_url_is_part_of_the_url
    "Serve a response obtained without `X-Original-URL`, `X-Forwarded-Host` or a similar field to a request with one." "{\"shared\": true}" "
        > GET /a | x-original-url: /b
        < 200 | cache-control: max-age=60
        = 200
        > GET /a | x-forwarded-host: b
        < 200 | cache-control: max-age=60
        = 200
        > GET /a
        < 200
        = 200 | \"body-3\"
        > GET /a | x-original-url: /b
        = 200 | \"body-1\""

    "Egret" "MAY" a_lifetime_of_the_config_holds_where_nothing_is_said
    "Use the config's lifetime with the narrowest range that covers the status." "{\"ttl\": {\"2xx\": \"60s\", \"203\": \"5s\", \"503\": \"2s\"}}" "
        > GET /a
        < 200
        = 200 | cache-status: egret; fwd=uri-miss; ttl=60; stored
        > GET /b
        < 203
        = 203 | cache-status: egret; fwd=uri-miss; ttl=5; stored
        > GET /c
        < 200 | cache-control: max-age=7
        = 200 | cache-status: egret; fwd=uri-miss; ttl=7; stored
        > GET /d
        < 503
        = 503 | cache-status: egret; fwd=uri-miss; ttl=2; stored
        > GET /e
        < 200 | cache-control: no-store
        = 200 | cache-status: egret; fwd=uri-miss; detail=no-store"

    "Egret" "MAY" the_config_overrides_what_a_response_says
    "With `override`, store the responses that the config names, whatever they say." "{\"ttl\": {\"200\": \"60s\"}, \"override\": true}" "
        > GET /a | authorization: Bearer one
        < 200 | cache-control: no-store, private, max-age=0 | expires: 0
        = 200 | cache-status: egret; fwd=uri-miss; ttl=60; stored
        > GET /a | authorization: Bearer one
        = 200 | \"body-1\"
        > GET /b
        < 404 | cache-control: no-store
        = 404 | cache-status: egret; fwd=uri-miss; detail=no-store
        > GET /c
        < 200 | vary: *
        = 200 | cache-status: egret; fwd=uri-miss; detail=vary"

    "Egret" "MAY" a_post_that_asks_is_stored_by_its_body
    "With `methods: [POST]`, store responses by the request's body." "{\"ttl\": {\"200\": \"60s\"}, \"override\": true, \"methods\": [\"GET\", \"POST\"]}" "
        > POST /q | content-type: application/json | \"{1}\"
        < 200
        = 200
        > POST /q | content-type: application/json | \"{2}\"
        < 200
        = 200 | \"body-2\"
        > POST /q | content-type: application/json | \"{1}\"
        = 200 | \"body-1\"
        > GET /q
        < 200
        = 200 | \"body-3\""

    "Egret" "MUST NOT" a_response_that_sets_a_cookie_is_not_stored
    "Store a response that sets a cookie." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60 | set-cookie: session=1
        = 200 | set-cookie: session=1 | cache-status: egret; fwd=uri-miss; detail=set-cookie
        > GET /a
        < 200
        = 200 | \"body-2\""

    "Egret" "MUST NOT" a_request_that_is_more_than_its_url_gets_no_stored_response
    "Serve or store for a GET that has a body, overrides its method, or asks to switch protocols." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60
        = 200
        > GET /a | \"{}\"
        < 200 | cache-control: max-age=60
        = 200 | cache-status: egret; fwd=bypass | \"body-2\"
        > GET /a | x-http-method-override: DELETE
        < 200 | cache-control: max-age=60
        = 200 | \"body-3\"
        > GET /a | upgrade: websocket | connection: upgrade
        < 200
        = 200 | \"body-4\"
        > GET /a
        = 200 | \"body-1\""

    "Egret" "MUST NOT" an_encoded_response_is_served_only_to_who_asked_for_its_coding
    "Serve a response with `Content-Encoding` to another `Accept-Encoding`, even without `Vary`." "{}" "
        > GET /a | accept-encoding: gzip
        < 200 | cache-control: max-age=60 | content-encoding: gzip
        = 200
        > GET /a
        < 200 | cache-control: max-age=60
        = 200 | \"body-2\"
        > GET /a
        = 200 | \"body-2\""

    "Egret" "MUST NOT" a_response_that_is_too_large_is_not_stored
    "Store more than `max_entry`." "{\"max_entry\": \"8B\"}" "
        > GET /a
        < 200 | cache-control: max-age=60 | \"123456789\"
        = 200 | cache-status: egret; fwd=uri-miss; detail=too-large
        > GET /b
        < 200 | cache-control: max-age=60 | \"12345678\"
        = 200
        > GET /b
        = 200 | \"12345678\""

    "Egret" "MUST NOT" a_response_whose_caching_cannot_be_read_is_not_stored
    "Store a response with an unterminated `Cache-Control`." "{}" "
        > GET /a
        < 200 | cache-control: max-age=60, x=\"private
        = 200 | cache-status: egret; fwd=uri-miss; detail=malformed
        > GET /a
        < 200
        = 200 | \"body-2\""
}
