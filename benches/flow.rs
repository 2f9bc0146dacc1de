//! Instruction counts for finding the flows of an exchange, with a limit for each case. They ensure that a
//! thousand flows cost as much as one. Needs valgrind and `gungraun-runner` in the version of `gungraun`.
//!
//! The limits are about 7 % above the counts measured on a machine with AVX2, which memchr uses. A thousand
//! flows may cost at most 5 % more than one. Raise a limit only with a reason in the commit.
#![expect(
    missing_docs,
    unused_qualifications,
    clippy::disallowed_methods,
    reason = "gungraun's macros do so"
)]

mod limits;

use std::hint::black_box;

use egret_clock::Timestamp;
use egret_flow::config::{FlowConfig, match_rules};
use egret_http1::{Field, HeadLimits, Progress, RequestHead};
use egret_match::matching::MatchInput;
use egret_match::router::{Matches, Router};
use egret_message::{Changes, Fields, Request};
use gungraun::prelude::*;
use serde_json::{Value, json};

use limits::at_most;

const HEAD: &[u8] = b"GET / HTTP/1.1\r\n\
    Host: api.provider-50.example\r\n\
    User-Agent: consumer/4.2 (linux; x86_64)\r\n\
    Accept: application/json\r\n\
    Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n\
    X-Tenant: acme\r\n\r\n";

/// The data that a worker has when a request arrives.
struct Case {
    router: Router,
    matches: Matches,
    fields: Vec<Field>,
    changes: Changes,
    expected: usize,
}

fn case(flows: &[Value], expected: usize) -> Case {
    let flow = |(number, config): (usize, &Value)| FlowConfig {
        name: format!("flow-{number}"),
        matching: serde_json::from_value(config.clone()).unwrap_or_default(),
        when_response: None,
        remedies: Vec::new(),
        diagnoses: Vec::new(),
    };
    let flows: Vec<FlowConfig> = flows.iter().enumerate().map(flow).collect();
    let Ok(router) = Router::compile(&match_rules(&flows)) else { unreachable!("the flows are good") };
    let mut head = RequestHead::new();
    assert_eq!(head.parse(HEAD, &HeadLimits::default()), Ok(Progress::Complete));
    let mut case = Case {
        router,
        matches: Matches::default(),
        fields: head.fields,
        changes: Changes::default(),
        expected,
    };
    // The first run allocates memory, and memchr detects the CPU's features.
    case = ask(case);
    assert_eq!(case.matches.iter().len(), expected);
    case
}

fn ask(mut case: Case) -> Case {
    let request = Request {
        provider: "provider-50",
        tls: true,
        host: "api.provider-50.example",
        port: 443,
        method: b"GET",
        path: black_box(b"/v1/resource-5/0123456789/items"),
        query: Some(b"limit=10&expand=customer"),
        fields: Fields::new(&case.fields, HEAD, &case.changes),
        upgrade: false,
        body: None,
    };
    let question =
        MatchInput { request: black_box(&request), roll: 7, now: Timestamp::default(), has_body: false };
    case.router.find(question, &mut case.matches);
    case
}

fn path(provider: usize, resource: usize) -> Value {
    json!({ "provider": format!("provider-{provider}"), "path": format!("/v1/resource-{resource}/{{id}}/items") })
}

fn none() -> Case {
    case(&[], 0)
}

fn one() -> Case {
    case(&[path(50, 5)], 1)
}

/// The same flow, and 999 flows of other providers.
fn thousand_providers() -> Case {
    let flows: Vec<Value> = (0..1000).map(|provider| path(provider, 5)).collect();
    case(&flows, 1)
}

/// The same flow, and 999 flows for other paths of its provider.
fn thousand_paths() -> Case {
    let flows: Vec<Value> = (0..1000).map(|resource| path(50, resource)).collect();
    case(&flows, 1)
}

/// A hundred providers with ten paths each.
fn hundred_by_ten() -> Case {
    let flows: Vec<Value> = (0..1000).map(|number| path(number / 10, number % 10)).collect();
    case(&flows, 1)
}

/// Two flows for all exchanges, one for the host, one for path and method, one for path and header, among a
/// thousand.
fn five_of_thousand() -> Case {
    let mut flows: Vec<Value> = (0..995).map(|number| path(number / 10, number % 10)).collect();
    flows[555] = json!({ "provider": "provider-50", "path": "/v1/*", "header": { "x-tenant": "acme*" } });
    flows.extend([
        json!({}),
        json!({ "method": "GET" }),
        json!({ "host": "*.provider-50.example" }),
        json!({ "host": "api.provider-50.example", "path": "/{version}/*", "query": { "limit": "*" } }),
        json!({ "host": "other.example" }),
    ]);
    case(&flows, 6)
}

#[library_benchmark(config = at_most(181, 220))]
#[bench::no_flows(none())]
fn find_nothing(case: Case) -> Case {
    ask(case)
}

#[library_benchmark(config = at_most(1_800, 2_700))]
#[bench::one(one())]
fn find_in_one(case: Case) -> Case {
    ask(case)
}

#[library_benchmark(config = at_most(1_800, 2_700))]
#[bench::providers(thousand_providers())]
#[bench::paths(thousand_paths())]
#[bench::hundred_by_ten(hundred_by_ten())]
fn find_in_a_thousand(case: Case) -> Case {
    ask(case)
}

#[library_benchmark(config = at_most(4_650, 6_450))]
#[bench::of_a_thousand(five_of_thousand())]
fn find_many(case: Case) -> Case {
    assert_eq!(case.matches.iter().len(), case.expected);
    ask(case)
}

library_benchmark_group!(
    name = router,
    benchmarks = [find_nothing, find_in_one, find_in_a_thousand, find_many]
);
main!(library_benchmark_groups = [router]);
