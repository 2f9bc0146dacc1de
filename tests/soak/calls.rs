//! Calls of clients that behave: each has its response, whatever it is.

use egret_tests::http::{Client, Response};
use egret_tests::random::Random;

use super::gateway::World;

/// Number of calls on a connection, so that opening connections is not all that the gateway does.
const CALLS: usize = 20;
/// Statuses of calls that a remedy may refuse: by quota, concurrency, circuit, fault or throttle.
const REFUSED: [u16; 3] = [200, 429, 503];

/// A number that hardly any other call has.
fn unique(random: &mut Random) -> u64 {
    random.draw() >> 16
}

/// The field lines that say whose call it is: one of a million consumers, and one of a million teams.
pub(crate) fn named(random: &mut Random) -> String {
    let (consumer, team) = (random.below(1_000_000), random.below(1_000_000));
    format!(
        "x-egret-consumer: c{consumer}\r\nx-team: t{team}\r\nuser-agent: soak/{}\r\n",
        random.below(100_000)
    )
}

/// Sends a request, and returns the response.
pub(crate) fn call(client: &mut Client, line: &str, host: &str, fields: &str, body: &str) -> Response {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    client.send(format!("{line} HTTP/1.1\r\nHost: {host}\r\n{fields}{length}\r\n{body}")).response()
}

/// Calls so many times over one connection, with a target for each call.
fn calls(world: &World, random: &mut Random, statuses: &[u16], target: impl Fn(&mut Random) -> String) {
    let (mut client, host) = (world.egret().client(), world.address().to_string());
    for _ in 0..CALLS {
        let (fields, target) = (named(random), target(random));
        let response = call(&mut client, &format!("GET /origin{target}"), &host, &fields, "");
        assert!(statuses.contains(&response.status), "{target}: {response:?}");
    }
}

/// Paths that were never called before.
pub(crate) fn paths(world: &World, random: &mut Random) {
    calls(world, random, &REFUSED, |random| {
        format!(
            "/anything/{:x}/{}?q={:x}",
            unique(random),
            random.part("users¦orders¦items¦v2"),
            unique(random)
        )
    });
}

/// Bodies of requests, of which one in four has no length.
pub(crate) fn bodies(world: &World, random: &mut Random) {
    let (mut client, host) = (world.egret().client(), world.address().to_string());
    for _ in 0..CALLS {
        let body = format!("{{\"id\":{},\"text\":\"{}\"}}", unique(random), "x".repeat(random.below(8_000)));
        let fields = named(random) + "Content-Type: application/json\r\n";
        let response = if random.once_in(4) {
            let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
            let head = format!(
                "POST /origin/post HTTP/1.1\r\nHost: {host}\r\n{fields}Transfer-Encoding: chunked\r\n\r\n"
            );
            client.send(head).send(chunk).response()
        } else {
            call(&mut client, "POST /origin/post", &host, &fields, &body)
        };
        response.assert_forwarded(200);
    }
}

/// Hosts without a configured provider, by address and by name.
pub(crate) fn hosts(world: &World, random: &mut Random) {
    let (mut client, port) = (world.egret().client(), world.plain.address().port());
    for _ in 0..CALLS {
        let host = match random.once_in(4) {
            true => format!("h{}.names.test:{port}", random.below(1_000_000)),
            false => {
                format!("127.{}.{}.{}:{port}", random.below(250), random.below(250), 1 + random.below(250))
            }
        };
        let line = format!("GET http://{host}/get?n={}", unique(random));
        let response = call(&mut client, &line, &host, &named(random), "");
        // The table of hosts can be full of those that are in use.
        assert!(matches!(response.status, 200 | 502 | 503), "{host}: {response:?}");
    }
}

/// Calls that fail before they succeed, so they are retried.
pub(crate) fn retried(world: &World, random: &mut Random) {
    calls(world, random, &REFUSED, |random| {
        let fault = random.part("¦&fault=reset¦&fault=close¦&fault=garbage¦&fault=truncate");
        // A response that has begun is not repeated, and may be cut.
        let fault = if fault.ends_with("truncate") { "" } else { fault };
        format!("/fail/{}?key=k{:x}{fault}", random.below(3), unique(random))
    });
}

/// Calls that a quota, a queue, a fault or the provider's own limit refuses at times.
pub(crate) fn refused(world: &World, random: &mut Random) {
    calls(world, random, &REFUSED, |random| {
        random.part("/anything/limited¦/anything/queued¦/ip¦/status/429¦/headers").to_owned()
    });
}

/// Responses that are stored, of which few are asked for again.
pub(crate) fn cached(world: &World, random: &mut Random) {
    calls(world, random, &[200], |random| {
        format!("/bytes/{}?seed={}", 100 + random.below(4_000), random.below(20_000))
    });
}

/// Slow calls, beside which a second one is made, and calls of a provider that is gone.
pub(crate) fn hedged(world: &World, random: &mut Random) {
    let (mut client, host) = (world.egret().client(), world.address().to_string());
    let line = format!("GET /origin/delay/{}ms", random.below(80));
    call(&mut client, &line, &host, &named(random), "").assert_forwarded(200);
    for _ in 0..CALLS {
        let line = format!("GET /down/{:x}", unique(random));
        let response = call(&mut client, &line, &host, &named(random), "");
        assert_eq!(response.status, 200, "the fallback responds: {response:?}");
    }
}

/// Calls of a language model, whose costs are summed, streamed and not.
pub(crate) fn metered(world: &World, random: &mut Random) {
    let (mut client, host) = (world.egret().client(), world.address().to_string());
    for _ in 0..CALLS / 4 {
        let (stream, user) = (random.once_in(2), unique(random));
        let body = format!(
            "{{\"model\":\"m-1\",\"max_tokens\":20,\"stream\":{stream},\"stream_options\":{{\"include_usage\":true}},\
             \"user\":\"u{user}\",\"messages\":[{{\"role\":\"user\",\"content\":\"hello {user}\"}}]}}"
        );
        let fields = named(random) + "Content-Type: application/json\r\n";
        let response = call(&mut client, "POST /llm/v1/chat/completions", &host, &fields, &body);
        response.assert_forwarded(200);
    }
}
