use std::time::Duration;

use egret_clock::Random;
use egret_http1::{HeadLimits, RequestHead};
use egret_message::Changes;

use super::*;
use crate::host::thread_time_ns;

const RULES: Rules = Rules {
    field_problem: |name| (name.is_empty() || name == "host").then(|| format!("`{name}` is reserved")),
    is_path: |path| path.starts_with('/') && !path.contains("..") && path.is_ascii(),
};

const LIMITS: Limits = Limits { memory: 8 << 20, time: Duration::from_millis(20) };

fn script(text: &str) -> Script {
    let secrets = vec![("signing".to_owned(), "hunter2".to_owned())];
    Script::compile(text, LIMITS, secrets, RULES).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

fn fill(call: &mut Call, lines: &str) {
    let bytes = format!("{}\r\n\r\n", lines.replace('\n', "\r\n")).into_bytes();
    let mut head = RequestHead::new();
    head.parse(&bytes, &HeadLimits::default()).unwrap();
    call.request.copy_head(&head.fields, &bytes, &Changes::default());
    call.request.copy_body(Ok(br#"{"a":[1,2]}"#));
    call.method = b"POST".to_vec();
    call.path = b"/users/7".to_vec();
    call.query = Some(b"page=1&x=a%20b&page=2".to_vec());
    call.params = vec![("id".to_owned(), b"7".to_vec())];
    call.provider = "stripe".to_owned();
    call.consumer = Some(b"checkout".to_vec());
    call.now_ms = 1_700_000_000_123;
    call.random = Random::new(1);
}

const HEAD: &str = "POST /users/7 HTTP/1.1\nHost: one.example\nX-A: 1\nx-a: 2\nX-Bytes: \u{e9}";

/// The effect of a call: its decision, changed fields, target, and body.
#[derive(Debug)]
struct Done {
    decision: Decision,
    fields: Vec<String>,
    path: String,
    query: String,
    body: Option<String>,
}

fn call(instance: &Instance) -> Result<Done, CallError> {
    instance.call(
        ScriptSide::Request,
        |call| fill(call, HEAD),
        |call, decision| Done {
            decision,
            fields: (call.request.changes.added())
                .map(|(name, value)| {
                    format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
                })
                .collect(),
            path: String::from_utf8_lossy(&call.path).into_owned(),
            query: String::from_utf8_lossy(call.query.as_deref().unwrap_or_default()).into_owned(),
            body: call.request.take_body(),
        },
    )
}

/// Runs statements as the body of `onRequest`.
fn run(statements: &str) -> Result<Done, CallError> {
    let script = script(&format!("function onRequest(request) {{ {statements} }}"));
    call(&script.instance().unwrap())
}

/// Returns the value of an expression, as a text.
fn value(expression: &str) -> String {
    let done = run(&format!("request.headers.set('x-value', `${{{expression}}}`)")).unwrap();
    done.fields[0].strip_prefix("x-value: ").unwrap().to_owned()
}

#[test]
fn a_request_is_read() {
    for (expression, expected) in [
        ("request.method", "POST"),
        ("request.scheme", "http"),
        ("request.path", "/users/7"),
        ("request.provider", "stripe"),
        ("request.consumer", "checkout"),
        ("request.params.id", "7"),
        ("request.params.toString", "undefined"),
        ("request.headers.get('X-a')", "1"),
        ("request.headers.getAll('x-A')", "1,2"),
        ("request.headers.get('none')", "null"),
        ("request.headers.has('x-a')", "true"),
        ("request.headers.names()", "host,x-a,x-bytes"),
        ("request.headers.get('x-bytes').length", "2"),
        ("request.query.get('page')", "1"),
        ("request.query.getAll('page')", "1,2"),
        ("request.query.get('x')", "a b"),
        ("request.query.get('y')", "null"),
        ("request.query.names()", "page,x"),
        ("request.query", "page=1&x=a%20b&page=2"),
        ("request.json().a[1]", "2"),
        ("request.body.length", "11"),
        ("Date.now()", "1700000000123"),
        ("new Date().toISOString()", "2023-11-14T22:13:20.123Z"),
        ("new Date(0).getTime()", "0"),
        ("new Date() instanceof Date", "true"),
        ("Math.random() < 1 && Math.random() !== Math.random()", "true"),
        ("secrets.signing", "hunter2"),
        ("btoa('h\\u00e9')", "aOk="),
        ("atob('aGk=')", "hi"),
        (
            "/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID())",
            "true",
        ),
        ("crypto.hash('sha256', 'abc')", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            "crypto.hmac('sha1', 'key', 'The quick brown fox jumps over the lazy dog', 'base64')",
            "3nybhbi3iqa8ino29wqQcBydtNk=",
        ),
        ("['b', 'a', 10, 9].sort()", "10,9,a,b"),
        ("[3, 1, 2].sort((a, b) => a - b)", "1,2,3"),
        ("[1, [2, [3]]].flat().length", "3"),
        ("'a,b'.split(',').concat(['c']).reverse().join('-')", "c-b-a"),
        ("'a.b.c'.replaceAll('.', '/').replace(/a/, 'x').indexOf('c')", "4"),
        ("JSON.stringify({ a: 1 }) + JSON.parse('[2]')[0]", "{\"a\":1}2"),
        ("[...new Map([[1, 2]]).keys()]", "1"),
    ] {
        assert_eq!(value(expression), expected, "{expression}");
    }
}

#[test]
fn a_request_is_changed_and_sees_its_changes() {
    let done = run("request.path = '/v2' + request.path;
        request.query.set('page', 'a&b'); request.query.append('z', 1); request.query.delete('x');
        request.headers.set('x-a', 3); request.headers.append('x-b', request.headers.getAll('x-a').join());
        request.headers.delete('x-bytes'); request.headers.append('x-c', request.headers.has('x-bytes'));
        request.body = JSON.stringify({ ...request.json(), b: 1 });
        request.headers.set('x-length', request.body.length)")
    .unwrap();
    assert_eq!((done.path.as_str(), done.query.as_str()), ("/v2/users/7", "page=a%26b&z=1"));
    assert_eq!(done.fields, ["x-a: 3", "x-b: 3", "x-c: false", "x-length: 17"]);
    assert_eq!(done.body.as_deref(), Some(r#"{"a":[1,2],"b":1}"#));
    assert_eq!(done.decision, Decision::Next);
}

#[test]
fn a_script_decides_only_by_what_it_returns() {
    let done = run("return respond({ status: 201, headers: { 'x-a': ['1', '2'] }, body: 'hi' })").unwrap();
    let fields = vec![("x-a".to_owned(), b"1".to_vec()), ("x-a".to_owned(), b"2".to_vec())];
    assert_eq!(done.decision, Decision::Respond { status: 201, fields, body: "hi".to_owned() });
    let refused = Decision::Refuse { status: 403, detail: "A script refused the request.".to_owned() };
    assert_eq!(run("respond(); return refuse()").unwrap().decision, refused);
    assert_eq!(run("refuse(); respond()").unwrap().decision, Decision::Next);
    for returned in ["{}", "1", "false", "'x'", "request", "Object.create(null)"] {
        let result = run(&format!("return {returned}")).unwrap_err();
        assert_eq!(result, CallError::Returned { promise: false }, "{returned}");
    }
    for statements in
        ["return Promise.resolve()", "Promise.resolve().then(() => {})", "(async () => { await 1 })()"]
    {
        assert_eq!(run(statements).unwrap_err(), CallError::Returned { promise: true }, "{statements}");
    }
}

#[test]
fn invalid_values_are_not_set() {
    for statements in [
        "request.headers.set('x-a', 'a\\r\\nb: c')",
        "request.headers.set('x-a', 'a\\0')",
        "request.headers.set('x-a', '\\u0100')",
        "request.headers.set('x-a', '\\ud800')",
        "request.headers.set('x-a', 'a'.repeat(20000))",
        "request.headers.set('x-a', undefined)",
        "request.headers.set('x-a', Symbol('a'))",
        "request.headers.set('host', 'a')",
        "request.headers.delete('host')",
        "request.headers.append('', 'a')",
        "for (let i = 0; i < 300; i++) request.headers.append('x-a', 'a')",
        "for (let i = 0; i < 10; i++) request.headers.append('x-a', 'a'.repeat(16000))",
        "request.path = 'a'",
        "request.path = '/..'",
        "request.path = null",
        "request.query.set('', 'a')",
        "request.query.set('a', 'a'.repeat(20000))",
        "request.method = 'GET'",
        "request.tenant = 'a'",
        "request.headers.tenant = 'a'",
        "request.params.id = 'a'",
        "response.status",
        "return respond({ status: 99 })",
        "return respond({ status: 200.5 })",
        "return respond({ status: 'a' })",
        "return respond({ headers: { 'x-a': 'a\\nb' } })",
        "return respond({ headers: { host: 'b' } })",
        "return respond({ headers: { 'x-a': null } })",
        "return respond({ body: {}, code: 1 })",
        "return respond(null)",
        "return refuse({ status: 200 })",
        "return refuse({ detail: 'a\\nb' })",
        "crypto.hash('md5', 'a')",
        "crypto.hmac('sha256', undefined, 'a')",
        "crypto.hash('sha256', 'a', 'utf8')",
        "atob('=')",
        "throw new TypeError('mine')",
        "throw undefined",
        "throw Symbol('a')",
        "throw Object.create(null)",
        "throw { get message() { throw 1 }, get stack() { throw 2 } }",
        "const e = new Error('a'); Object.defineProperty(e, 'stack', { get() { throw e } }); throw e",
    ] {
        let error = run(statements).unwrap_err();
        assert!(matches!(error, CallError::Threw { .. }), "{statements}: {error:?}");
    }
}

#[test]
fn an_error_has_its_place_and_its_message_only_for_the_author() {
    let script =
        script("function onRequest(request) {\n  const a = request.headers.get('x-a');\n  a.b.c();\n}");
    let error = call(&script.instance().unwrap()).unwrap_err();
    let CallError::Threw { message, at } = &error else { panic!("{error:?}") };
    assert_eq!(*at, Some((3, 3)), "{error:?}");
    assert!(message.starts_with("TypeError: "), "{message}");
    assert_eq!(error.to_string(), "the script threw an error in line 3, column 3");
}

#[test]
fn mistakes_are_found_when_the_script_is_compiled() {
    for (text, message, at) in [
        ("function onRequest() {\n  let x = ;\n}", "invalid JavaScript", Some((2, 11))),
        ("function onRequest() {} }", "invalid JavaScript", Some((1, 25))),
        ("}); (function () { function onRequest() {}", "invalid JavaScript", Some((1, 1))),
        ("function onRequest() {}\nreturn 1", "invalid JavaScript", Some((2, 1))),
        ("function onRequest() { with (a) {} }", "invalid JavaScript", Some((1, 24))),
        ("function onRequest() { return 2n ** 9n }", "integers of any size", Some((1, 31))),
        ("export function onRequest() {}", "does not start", None),
        ("import a from 'b'; function onRequest() {}", "", None),
        ("\nundefined.a; function onRequest() {}", "does not start: TypeError", Some((2, 1))),
        ("for (;;); function onRequest() {}", "for longer", None),
        (
            "const a = []; for (;;) a.push('a'.repeat(1000) + a.length); function onRequest() {}",
            "more than",
            None,
        ),
        ("function onrequest() {}", "it has `onrequest`", None),
        ("const onRequest = 1", "expected `function onRequest(request)`", None),
        ("", "expected `function onRequest(request)`", None),
    ] {
        let error = Script::compile(text, LIMITS, Vec::new(), RULES).unwrap_err();
        assert!(error.message.contains(message), "{text}: {error:?}");
        if at.is_some() {
            assert_eq!(error.at, at, "{text}: {error:?}");
        }
    }
}

#[test]
fn state_does_not_survive_a_call() {
    let script = script(
        "let last = null; const kept = new Map(); class Kept { static value = 1 }
        function count() { count.calls = (count.calls ?? 0) + 1; return count.calls }
        function onRequest(request) {
            request.headers.set('x-state', [last, kept.size, Kept.value, count()].join());
            last = request.headers.get('x-a'); kept.set(1, 2); Kept.value += 1;
        }",
    );
    let instance = script.instance().unwrap();
    for _ in 0..3 {
        assert_eq!(call(&instance).unwrap().fields, ["x-state: ,0,1,1"]);
    }
    for statement in [
        "globalThis.kept = 1",
        "kept = 1",
        "Object.prototype.kept = 1",
        "Array.prototype.push = 1",
        "[].constructor.kept = 1",
        "(() => {}).__proto__.kept = 1",
        "(function* () {}).__proto__.kept = 1",
        "(function* () {})().__proto__.__proto__.kept = 1",
        "(async () => {}).__proto__.kept = 1",
        "[][Symbol.iterator]().__proto__.kept = 1",
        "new Map().entries().__proto__.kept = 1",
        "''.matchAll(/a/g).__proto__.kept = 1",
        "Math.kept = 1",
        "JSON.parse.kept = 1",
        "RegExp.prototype.exec.kept = 1",
        "Date.prototype.kept = 1",
        "Date.now = 1",
        "request.kept = 1",
        "request.headers.get.kept = 1",
        "respond.kept = 1",
        "respond().kept = 1",
        "secrets.kept = 1",
        "Symbol.iterator.kept = 1",
        "Reflect.kept = 1",
        "Object.setPrototypeOf(Object.prototype, {})",
        "Object.defineProperty(globalThis, 'kept', { value: 1 })",
        "Error.prototype.name = 'kept'",
        "Error.stackTraceLimit = 99",
        "Error.prepareStackTrace = () => 1",
    ] {
        let result = run(statement);
        assert!(matches!(result, Err(CallError::Threw { .. })), "{statement}: {result:?}");
    }
    assert_eq!(
        value(
            "(() => { class Mine extends Error { constructor() { super('a'); this.name = 'Mine' } } return new Mine() })()"
        ),
        "Mine: a"
    );
}

/// A native setter could keep a value in the engine although its object is frozen.
#[test]
fn no_setter_can_keep_a_value() {
    let script = script(
        "function onRequest(request) {
            const seen = new Set(); const setters = [];
            const visit = (value, path) => {
                if (Object(value) !== value || seen.has(value)) return;
                seen.add(value);
                if (!Object.isFrozen(value)) setters.push(`${path} is not frozen`);
                visit(Object.getPrototypeOf(value), `${path}.__proto__`);
                for (const key of Reflect.ownKeys(value)) {
                    const property = Object.getOwnPropertyDescriptor(value, key);
                    if (property.set !== undefined) setters.push(`${path}.${String(key)}`);
                    for (const part of ['value', 'get', 'set']) visit(property[part], `${path}.${String(key)}`);
                }
            };
            visit(globalThis, 'globalThis'); visit(request, 'request');
            return respond({ body: setters.filter((path) => !/Error\\.prototype\\.(name|message)$/.test(path)).join() });
        }",
    );
    let Decision::Respond { body, .. } = call(&script.instance().unwrap()).unwrap().decision else {
        panic!()
    };
    // The native ones define a property of the object that they are called on, or throw.
    let native = "globalThis.__proto__.toString.__proto__.caller,globalThis.__proto__.toString.__proto__.arguments,\
                  globalThis.__proto__.__proto__,globalThis.Error.prototype.stack,";
    assert_eq!(body, format!("{native}request.path,request.body"));
}

#[test]
fn forbidden_globals_are_undefined() {
    for name in [
        "eval",
        "Function",
        "BigInt",
        "Proxy",
        "WeakRef",
        "FinalizationRegistry",
        "SharedArrayBuffer",
        "Atomics",
        "Uint8Array",
        "performance",
        "console",
        "setTimeout",
        "fetch",
        "process",
        "require",
        "queueMicrotask",
        "std",
        "os",
        "host",
        "navigator",
    ] {
        assert_eq!(value(&format!("typeof {name}")), "undefined", "{name}");
    }
    for each in ["(() => {})", "(function* () {})", "(async () => {})", "(async function* () {})"] {
        assert_eq!(value(&format!("typeof {each}.constructor")), "undefined", "{each}");
    }
}

/// Every one of these must end soon, and as an error.
#[test]
fn a_runaway_script_is_ended() {
    for (statements, at_most_ms) in [
        ("for (;;);", 100),
        ("try { for (;;); } catch { } for (;;);", 100),
        ("for (;;) { try { for (;;); } finally { continue } }", 100),
        ("const f = () => { try { f() } catch { f() } }; f()", 500),
        ("/(a+)+$/.test('a'.repeat(40) + 'b')", 100),
        ("/(.*)*x/.exec('a'.repeat(5000))", 200),
        (
            "(function* () { for (;;) yield 1 })().next(); for (const a of (function* () { for (;;) yield 1 })());",
            200,
        ),
        ("[1, 2].sort(() => { for (;;); })", 100),
        ("JSON.parse('[1]', () => { for (;;); })", 100),
        ("`${{ toString() { for (;;); } }}`", 100),
        ("({ get a() { for (;;); } }).a", 100),
        ("JSON.stringify({ toJSON() { for (;;); } })", 100),
        ("'a'.repeat(2e6).indexOf('a'.repeat(1e6) + 'b')", 200),
        ("for (;;) 'a'.repeat(1e5).indexOf('b')", 300),
        ("for (;;) try { 'a'.repeat(60000).includes('a'.repeat(800) + 'b') } catch {}", 2000),
        ("Array(1e8).join('')", 100),
        ("Array(1e8).toString()", 100),
        ("`${Array(1e8)}`", 100),
        ("Array(1e8).reverse()", 100),
        ("Array(1e8).sort()", 100),
        ("Array(1e8).concat([1])", 100),
        ("[].concat(Array(1e8))", 100),
        ("Array.prototype.slice.call({ length: 1e8 })", 100),
        ("Array(1e8).includes(1)", 100),
        ("let a = []; for (let i = 0; i < 40; i++) a = [a, a]; a.flat(Infinity)", 200),
        ("const a = Array(1000000).fill('x'.repeat(1e6)); a.sort()", 500),
        ("'x'.repeat(1e9)", 100),
        ("for (;;) 'x'.repeat(1e6)", 100),
        ("for (;;) 'x'.padEnd(1e6)", 100),
        ("const a = []; for (;;) a.push('x'.repeat(100000) + a.length)", 500),
        ("const a = []; for (;;) { try { for (;;) a.push('x'.repeat(100000) + a.length) } catch {} }", 1000),
        ("let a = 'x'; for (;;) a += a", 500),
        ("Array.from({ length: 1e7 })", 500),
        ("JSON.stringify(Array(1000000).fill('xxxxxxxxxxxx'))", 500),
        ("(function f() { f() })()", 200),
        ("JSON.parse('['.repeat(100000))", 200),
        ("let a = []; for (let i = 0; i < 100000; i++) a = [a]; JSON.stringify(a)", 500),
        ("new RegExp('('.repeat(100000))", 500),
        ("Promise.resolve().then(function f() { return Promise.resolve().then(f) })", 100),
        ("for (;;) Promise.resolve().then(() => {})", 1000),
        ("const e = new Error(); e.toString = () => { for (;;); }; throw e", 100),
        ("const a = 'x'.repeat(1e6); for (;;) crypto.hmac('sha512', a, a)", 100),
        ("const a = 'x'.repeat(1e6); for (;;) crypto.hash('sha1', a)", 100),
        ("const a = 'x'.repeat(1e6); for (;;) try { crypto.hash('sha256', a) } catch {}", 100),
        ("const a = '\u{20ac}'.repeat(1e6); for (;;) try { crypto.hmac('sha256', 'k', a) } catch {}", 200),
        ("const a = 'x'.repeat(1e6); for (;;) try { btoa(a) } catch {}", 200),
        ("const a = 'eA'.repeat(5e5); for (;;) try { atob(a) } catch {}", 200),
        ("const a = 'x'.repeat(1e6); for (;;) try { request.headers.get(a) } catch {}", 100),
        ("const a = 'x'.repeat(1e6); for (;;) try { request.path = a } catch {}", 100),
        ("const a = 'x'.repeat(1e6); for (;;) try { respond({ body: a }) } catch {}", 100),
        ("request.body = 'x'.repeat(1e6); for (;;) request.body", 100),
        ("request.body = 'x'.repeat(1e6); for (;;) try { request.body } catch {}", 100),
        ("for (let a = new Map([[0, 0]]); ; ) for (const [k] of a) { a.delete(k); a.set(k + 1, 0) }", 200),
    ] {
        let script = script(&format!("function onRequest(request) {{ {statements} }}"));
        let instance = script.instance().unwrap();
        let start = thread_time_ns();
        let result = call(&instance);
        let took = Duration::from_nanos(thread_time_ns() - start);
        assert!(result.is_err(), "{statements}: {result:?}");
        assert!(took < Duration::from_millis(at_most_ms * 10), "{statements}: {took:?} {result:?}");
        println!("{took:>10.1?} {statements}: {result:?}");
        if result.is_err_and(|error| !error.spoils()) {
            // The instance still works, and its memory is free again.
            assert!(instance.memory() < 2 << 20, "{statements}: {}", instance.memory());
        }
    }
}

#[test]
fn an_engine_without_memory_can_be_dropped() {
    for step in 0..200 {
        let limits = Limits { memory: step * 2003, ..LIMITS };
        let text = "function onRequest(request) { const a = {}; for (let i = 0; ; i++) { a['key' + i] = [() => i, \
                    new Map([[i, {}]]), /a+/g, new Error('x'), class { static b = 1 }, request.json()]; \
                    a['key' + i].self = a } }";
        let Ok(script) = Script::compile(text, limits, Vec::new(), RULES) else { continue };
        let Ok(instance) = script.instance() else { continue };
        assert!(call(&instance).is_err());
    }
}

#[test]
fn the_declarations_and_the_engine_have_the_same_members() {
    let mut object = "";
    let mut members = 0;
    for line in DECLARATIONS.lines() {
        if let Some(name) = line.strip_prefix("interface Egret") {
            object = match name.trim_end_matches(" {") {
                "Headers" => "request.headers",
                "Query" => "request.query",
                "Request" => "request",
                "Response" => "response",
                "Crypto" => "crypto",
                other => panic!("{other}"),
            };
        }
        let global = line.strip_prefix("declare function ").or_else(|| line.strip_prefix("declare const "));
        let (holder, rest) = match (global, line.strip_prefix("  ")) {
            (Some(rest), _) => ("globalThis", rest),
            (None, Some(rest)) if !rest.starts_with(['/', ' ']) && line.contains(['(', ':']) => {
                (object, rest)
            }
            _ => continue,
        };
        let rest = ["readonly ", "get ", "set "].iter().fold(rest, |rest, word| {
            let after = rest.strip_prefix(word);
            after.filter(|after| !after.starts_with('(')).unwrap_or(rest)
        });
        let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap();
        if global.is_none() && ["status", "headers", "body"].contains(&name) && rest.contains("?:") {
            continue;
        }
        let text =
            format!("function onResponse(request, response) {{ if (!('{name}' in {holder})) throw 1 }}");
        let instance = script(&text).instance().unwrap();
        let result = instance.call(ScriptSide::Response, |call| fill(call, HEAD), |_, decision| decision);
        assert_eq!(result, Ok(Decision::Next), "{holder}.{name}");
        members += 1;
    }
    assert!(members > 35, "{members}");
    for holder in ["request", "request.headers", "request.query", "response", "crypto"] {
        let text = format!(
            "function onResponse(request, response) {{ return respond({{ body: Object.keys({holder}).join() }}) }}"
        );
        let instance = script(&text).instance().unwrap();
        let result = instance.call(ScriptSide::Response, |call| fill(call, HEAD), |_, decision| decision);
        let Ok(Decision::Respond { body, .. }) = result else { panic!("{result:?}") };
        for name in body.split(',') {
            let is_declared = |line: &str| {
                ["", "readonly ", "get "].iter().any(|word| {
                    line.strip_prefix("  ")
                        .and_then(|line| line.strip_prefix(word)?.strip_prefix(name))
                        .is_some_and(|rest| rest.starts_with(['(', ':']))
                })
            };
            assert!(DECLARATIONS.lines().any(is_declared), "{holder}.{name}");
        }
    }
}
