//! Attacks with the token of the control port: a client that may change the config must not read or write
//! other files through it, nor learn whether they exist.

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::{Provider, ok};
use egret_tests::traffic::LiveTraffic;
use egret_tests::wait;
use serde_json::Value;

const MARK: &str = "content-of-a-file-of-the-owner";

/// Replaces the first word in the text that Egret started with.
fn changed(egret: &Egret, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(egret.directory().join("egret.yaml")).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    text.replacen(from, to, 1)
}

/// Returns a config with an account, an exporter, a quota and a flow.
fn config(origin: &Provider, egret_keys: &str) -> Config {
    Config::with_origin(origin.url()).control(egret_keys).flows(
        "accounts: { live: { provider: origin, bearer: { token: '${env:PATH}' } } }\n\
         exporters: { archive: { type: har, directory: ./har } }\n\
         quotas: { live: { limit: 5, window: 1h } }\n\
         flows: [{ name: f, match: { provider: origin }, remedies: [limit: { quota: live }] }]\n",
    )
}

/// Returns changes that would read or write the file, or send what is read elsewhere.
fn attacks(file: &str) -> Vec<(&'static str, String)> {
    let reference = format!("'${{file:{file}}}'");
    vec![
        ("'${env:PATH}'", reference.clone()),
        ("quotas:", format!("quotas: &q {{ x: {{ limit: {reference}, window: 1h }} }}\nx:")),
        ("live: { limit: 5", format!("x: &x {{ limit: {reference} }}, y: *x, live: {{ limit: 5")),
        ("limit: { quota: live }", format!("fixed-response: {{ body: {reference} }}")),
        ("limit: { quota: live }", "fixed-response: { body: '${env:HOME}' }".to_owned()),
        ("limit: { quota: live }", format!("fixed-response: {{ body: '${{env:X:-${{file:{file}}}}}' }}")),
        ("limit: { quota: live }", format!("script: {{ file: '{file}' }}")),
        ("limit: { quota: live }", format!("cache: {{ disk: {{ directory: '{file}' }} }}")),
        (
            "providers:\n",
            format!("providers:\n  evil: {{ url: 'http://127.0.0.1:1', tls: {{ ca: '{file}' }} }}\n"),
        ),
        ("directory: ./har", format!("directory: '{file}'")),
        ("type: har, directory: ./har", "type: otlp, endpoint: 'http://127.0.0.1:1'".to_owned()),
        ("gateway:\n", format!("gateway:\n  access_log: {{ output: '{file}' }}\n")),
        ("gateway:\n", format!("data_dir: '{file}'\ngateway:\n")),
        ("gateway:\n", "secrets: { world_readable: allow }\ngateway:\n".to_owned()),
        ("control:\n", "control:\n  allowed_hosts: [evil.example]\n".to_owned()),
        ("control:\n", "control:\n  config_changes: unrestricted\n".to_owned()),
        ("url: \"http://127.0.0.1", "url: \"http://localhost".to_owned()),
        ("provider: origin, bearer", "provider: [origin, evil], bearer".to_owned()),
    ]
}

#[test]
fn no_change_reads_or_writes_another_file() {
    let origin = Provider::plain();
    let egret = config(&origin, "allowed_hosts: []").start();
    let api = ConfigApi::of(&egret);
    let file = egret.directory().write_secret("secret", MARK).display().to_string();
    let missing = file.replace("secret", "absent");
    let before = std::fs::read_to_string(egret.directory().join("egret.yaml")).unwrap();
    for ((from, to), (_, other)) in attacks(&file).into_iter().zip(attacks(&missing)) {
        // The key is in the text already.
        let (from, to, other) = if to.contains("allowed_hosts") || to.contains("config_changes") {
            ("  allowed_hosts: []\n", to.replace("control:\n", ""), other.replace("control:\n", ""))
        } else {
            (from, to, other)
        };
        let text = changed(&egret, from, &to);
        let response = api.put(&text);
        assert_eq!(response.status, 403, "{to}: {}", response.text());
        assert!(!response.text().contains(MARK), "{to}");
        // Whether the file exists makes no difference.
        let [one, two] = [text, changed(&egret, from, &other)].map(|text| api.validate(&text).to_string());
        assert_eq!(one.replace(&file, &missing), two, "{to}");
        assert!(one.contains("\"valid\":false"), "{to}: {one}");
    }
    assert_eq!(std::fs::read_to_string(egret.directory().join("egret.yaml")).unwrap(), before);
    assert_eq!(api.put(&changed(&egret, "limit: 5", "limit: 6")).status, 200, "what is harmless is accepted");
}

#[test]
fn the_owner_of_the_file_may_allow_everything_but_the_rules_themselves() {
    let origin = Provider::plain();
    let egret = config(&origin, "config_changes: unrestricted").start();
    let api = ConfigApi::of(&egret);
    let file = egret.directory().write_secret("secret", MARK).display().to_string();
    let text = changed(&egret, "'${env:PATH}'", &format!("'${{file:{file}}}'"));
    let response = api.put(&text);
    assert_eq!(response.status, 200, "{}", response.text());
    for (from, to) in [
        ("config_changes: unrestricted", "config_changes: restricted"),
        ("gateway:\n", "data_dir: ./elsewhere\ngateway:\n"),
    ] {
        assert_eq!(api.put(&changed(&egret, from, to)).status, 403, "{to}");
    }
}

#[test]
fn a_removed_secret_cannot_be_rolled_back() {
    let origin = Provider::plain();
    let egret = config(&origin, "allowed_hosts: []").start();
    let api = ConfigApi::of(&egret);
    egret.rewrite(changed(&egret, "'${env:PATH}'", "'${env:HOME}'"));
    wait::until_true("the file is applied", || api.versions()[0]["origin"] == "file");
    let response = api.roll_back(1);
    assert_eq!(
        (response.status, response.json()["problems"][0]["path"].as_str()),
        (403, Some("accounts.live.bearer.token"))
    );
}

/// The variable that the attacks try to read.
const VARIABLE: &str = "EGRET_TEST_KEY";

/// A config with every place where a text is an expression, a template or a script.
const TEXTS: &str = r#"
quotas: { q: { limit: 1000, window: 1h, group_by: "cel:request.path", cost: { request: "size(request.path) + 0" } } }
flows:
- name: judge
  match: { provider: origin, path: /judge, when: "request.path != '/when'" }
  remedies: [fixed-response: { status: 418, headers: { x-a: "header-text" }, body: "body-text" }]
- name: rest
  match: { provider: origin, path: /rest }
  remedies:
  - limit: { quota: q }
  - transform: { request: { headers: { set: { x-t: "set-text" } } } }
  - script: { source: "function onRequest(request) { const text = 'script-text'; }" }
  diagnoses: [metrics: { counters: { seen: { cel: "size(request.path) + 1" } } }]
"#;

/// Returns spellings of a call that reads the variable, for expressions and scripts.
fn calls() -> Vec<String> {
    let between = [
        "",
        " ",
        "\t",
        "\n",
        "\r\n",
        "//\n",
        "//\r\n",
        "// (\n",
        " //\n//\n ",
        "//\n//\r\n\t",
        "/**/",
        "/* ( */",
        "\u{a0}",
        "\u{2003}",
        "\u{feff}",
        "\u{200b}",
        "\u{2028}",
        "\u{c}",
        "\u{b}",
        "\\\n",
    ];
    let names = [
        "(env)",
        "`env`",
        ".env",
        "this.env",
        "globalThis.env",
        "globalThis['e' + 'nv']",
        "env.call",
        "env?.",
        "[env][0]",
        "eval('env')",
        "Env",
        "ENV",
        "\u{435}nv",
        "\u{ff45}\u{ff4e}\u{ff56}",
        "e\u{301}nv",
        "en\u{200d}v",
        "\\u0065nv",
        "e\\u{6e}v",
    ];
    let between = between.map(|between| format!("env{between}('{VARIABLE}')"));
    let names = names.map(|name| format!("{name}('{VARIABLE}')"));
    between.into_iter().chain(names).collect()
}

/// Returns spellings of a reference to the variable, for templates.
fn references() -> Vec<String> {
    let forms = [
        "${env:V}",
        "${env:V:-x}",
        "$${env:V}",
        "$$${env:V}",
        "${ env:V}",
        "${env :V}",
        "${env: V}",
        "${env:V }",
        "${ENV:V}",
        "${env:${env:V}}",
        "${request.headers.x}${env:V}",
        "${request.headers.${env:V}}",
        "${file:/proc/self/environ}",
        "${secret:V}",
        "$\u{200b}{env:V}",
        "${env\u{2028}:V}",
        "${e\u{301}nv:V}",
        "${\u{435}nv:V}",
        "#{env:V}",
        "{{env.V}}",
        "$V",
        "${V}",
        "cel:env('V')",
        "${cel:env('V')}",
    ];
    forms.map(|form| form.replace('V', VARIABLE)).to_vec()
}

/// Returns the changes of [`TEXTS`]: a text, and what replaces it.
fn spellings() -> Vec<(&'static str, String)> {
    let mut changes = Vec::new();
    for call in calls() {
        changes.extend([
            ("\"request.path != '/when'\"", format!("{call} > 'sk_m'")),
            ("\"cel:request.path\"", format!("cel:{call}")),
            ("\"size(request.path) + 0\"", format!("{call} > 'sk_m' ? 1 : 2")),
            ("\"size(request.path) + 1\"", format!("{call} > 'sk_m' ? 1 : 2")),
            (
                "\"function onRequest(request) { const text = 'script-text'; }\"",
                format!("function onRequest(request) {{ request.headers.set('x-s', String({call})); }}"),
            ),
        ]);
    }
    for reference in references() {
        for place in ["\"header-text\"", "\"body-text\"", "\"set-text\""] {
            changes.push((place, reference.clone()));
        }
    }
    changes
}

#[test]
fn no_spelling_of_env_reveals_a_variable() {
    let changes = spellings();
    assert!(changes.len() >= 200, "only {} spellings", changes.len());
    // All that can be seen must be the same, whatever the variable contains.
    let seen = ["sk_a_0123456789abcdef", "sk_z_0123456789abcdef"].map(|value| {
        let origin = Provider::plain();
        let config = Config::with_origin(origin.url()).control("allowed_hosts: []").flows(TEXTS);
        let egret = Egret::start_with(&config, |command| {
            command.env(VARIABLE, value);
        });
        let api = ConfigApi::of(&egret);
        let mut seen = Vec::new();
        for (from, to) in &changes {
            // A string of JSON is one of YAML.
            let text = changed(&egret, from, &Value::from(to.as_str()).to_string());
            let answer = api.put(&text);
            assert_eq!(answer.status, 403, "{to:?} in place of {from}: {}", answer.text());
            let judged = egret.get("/judge");
            seen.push((answer.text().to_owned(), api.validate(&text).to_string(), judged.status));
        }
        let rest = egret.get("/rest").status;
        let metrics = egret.control_get("/metrics").text().contains(&value[..4]);
        let headers = origin.requests().iter().any(|request| !request.values("x-s").is_empty());
        (seen, rest, metrics, headers)
    });
    println!("{} spellings in 8 places, each refused", changes.len());
    assert_eq!(seen[0], seen[1]);
}

/// Sends a request with a credential of its client.
fn call_with_credential(egret: &Egret, path: &str) {
    egret.get_with(&format!("/origin{path}"), &format!("Authorization: Bearer {CREDENTIAL}\r\n"));
}

const CREDENTIAL: &str = "credential-of-a-client-0123456789";

fn resend(egret: &Egret, exchange: &Value) -> egret_tests::http::Response {
    let line = format!("POST /api/v1/traffic/{}/resend?confirmed=true", exchange["id"]);
    ConfigApi::of(egret).call(&line, "", "")
}

/// Returns flows that send calls, with their credentials, to the provider `evil`.
fn alternates() -> [&'static str; 4] {
    [
        "transform: { request: { provider: evil, forward_credentials: true } }",
        "fallback: { on: [200-299, 5xx], provider: evil, forward_credentials: true }",
        "transform: { request: { headers: { set: { x-a: '${request.headers.authorization}' } } } }\n  \
         - transform: { request: { provider: evil } }",
        "script: { source: \"function onRequest(request) { request.headers.set('x-a', request.headers.get('authorization')); }\" }\n  \
         - fallback: { on: [200-299], provider: evil }",
    ]
}

/// Returns the config of a gateway with one flow, whose remedy is `place`.
fn with_flow(origin: &Provider) -> Config {
    Config::with_origin(origin.url())
        .flows("flows:\n- name: f\n  match: { provider: origin }\n  remedies:\n  - timeout: { total: 20s }\n")
}

const PLACE: &str = "timeout: { total: 20s }";

#[test]
fn clients_credentials_reach_no_provider_that_came_over_the_api() {
    for alternate in alternates() {
        let (origin, evil) = (Provider::plain(), Provider::plain());
        let egret = with_flow(&origin).control("allowed_hosts: []").start();
        let traffic = LiveTraffic::open(&egret);
        call_with_credential(&egret, "/before");
        let recorded = traffic.until("path=/before", 1).remove(0);
        let text =
            changed(&egret, "providers:\n", &format!("providers:\n  evil: {{ url: '{}' }}\n", evil.url()));
        let changed = ConfigApi::of(&egret).put(&text.replace(PLACE, alternate)).status;
        call_with_credential(&egret, "/after");
        resend(&egret, &recorded);
        assert_eq!((evil.requests().len(), changed), (0, 403), "{alternate}");
    }
}

#[test]
fn no_flow_from_the_api_reveals_the_files_secrets() {
    const SECRET: &str = "secret-of-a-flow-0123456789";
    let origin = Provider::plain();
    let flow = "flows:\n- name: adds\n  match: { provider: origin }\n  remedies:\n  \
                - transform: { request: { headers: { set: { x-key: \"${env:EGRET_TEST_KEY}\" } } } }\n";
    let config = Config::with_origin(origin.url()).control("allowed_hosts: []").flows(flow);
    let egret = Egret::start_with(&config, |command| {
        command.env(VARIABLE, SECRET);
    });
    let show = [
        "- fixed-response: { body: '${request.headers.x-key}' }",
        "- script: { source: \"function onRequest(request) { return { status: 200, body: request.headers.get('x-key') }; }\" }",
        "- transform: { response: { headers: { set: { x-shown: '${request.headers.x-key}' } } } }",
    ];
    for remedy in show {
        for place in ["end", "- name: adds"] {
            let added = format!("- name: shows\n  match: {{ provider: origin }}\n  remedies:\n  {remedy}\n");
            let text = match place {
                "end" => changed(&egret, flow, &format!("{flow}{added}")),
                place => changed(&egret, place, &format!("{added}{place}")),
            };
            let status = ConfigApi::of(&egret).put(&text).status;
            let shown = egret.get("/x");
            let is_shown = shown.text().contains(SECRET) || shown.field("x-shown").is_some();
            assert_eq!((is_shown, status), (false, 403), "{remedy} at {place}");
        }
    }
    assert_eq!(origin.requests().last().unwrap().values("x-key"), [SECRET], "the provider gets it");
}

#[test]
fn no_change_over_the_api_reaches_a_denied_host() {
    let (origin, inner) = (Provider::plain(), Provider::plain());
    let config = with_flow(&origin).control("allowed_hosts: []").gateway("egress: { default: deny }");
    let egret = config.start();
    let get = |host: &str| {
        egret
            .client()
            .send(format!("GET /latest/meta-data/ HTTP/1.1\r\nHost: {host}\r\n\r\n"))
            .response()
            .status
    };
    let address = inner.address().to_string();
    assert_eq!(get(&address), 403);
    for url in [inner.url(), "http://169.254.169.254".to_owned(), "http://10.9.8.7".to_owned()] {
        let text = changed(&egret, "providers:\n", &format!("providers:\n  n: {{ url: '{url}' }}\n"));
        assert_eq!(ConfigApi::of(&egret).put(&text).status, 403, "{url}");
    }
    for (from, to) in
        [("default: deny", "default: allow"), ("default: deny", "mode: off"), (&*origin.url(), &*inner.url())]
    {
        assert_eq!(ConfigApi::of(&egret).put(&changed(&egret, from, to)).status, 403, "{to}");
    }
    assert_eq!(get(&address), 403);
    let named = egret.client().get(egret.address(), "/n/x").response();
    assert_eq!((named.status, inner.requests().len()), (404, 0));
}

/// Returns the requests with the client's credential in any field.
fn with_credential(provider: &Provider) -> usize {
    String::from_utf8_lossy(&provider.received()).matches(CREDENTIAL).count()
}

#[test]
fn a_recorded_request_is_resent_to_its_provider_only() {
    // The owner of the file has reasons for each of these.
    for alternate in alternates().into_iter().chain(["another URL"]) {
        let (origin, evil) = (Provider::plain(), Provider::plain());
        let mut config = with_flow(&origin);
        if alternate != "another URL" {
            config = config.provider("evil", evil.url());
        }
        let egret = config.start();
        let traffic = LiveTraffic::open(&egret);
        call_with_credential(&egret, "/before");
        let recorded = traffic.until("path=/before", 1).remove(0);
        egret.rewrite(match alternate {
            "another URL" => config.yaml().replace(&origin.url(), &evil.url()),
            alternate => config.yaml().replace(PLACE, alternate),
        });
        egret.until_logged("config reloaded");
        let answer = resend(&egret, &recorded);
        assert_eq!(evil.requests().len(), 0, "{alternate}");
        assert_eq!((answer.status, &answer.json()["status"]), (200, &Value::from(403)), "{alternate}");
        traffic.until("error=resend-elsewhere", 1);
    }
}

#[test]
fn a_flow_from_the_api_sees_no_earlier_request() {
    let shows = "fixed-response: { body: 'x${request.headers.authorization}' }";
    let changes = alternates().into_iter().chain([shows]);
    for change in changes {
        let (origin, evil) = (Provider::plain(), Provider::responding(ok("evil")));
        let egret = with_flow(&origin).control("config_changes: unrestricted").start();
        let traffic = LiveTraffic::open(&egret);
        call_with_credential(&egret, "/before");
        let recorded = traffic.until("path=/before", 1).remove(0);
        let before = with_credential(&origin);
        let text =
            changed(&egret, "providers:\n", &format!("providers:\n  evil: {{ url: '{}' }}\n", evil.url()));
        let put = ConfigApi::of(&egret).put(&text.replace(PLACE, change));
        assert_eq!(put.status, 200, "everything is allowed here: {}", put.text());
        let answer = resend(&egret, &recorded);
        assert_eq!((with_credential(&evil), with_credential(&origin)), (0, before), "{change}");
        assert_eq!(answer.status, 409, "{change}: {}", answer.text());
        // What is recorded from now on was sent under the new config.
        call_with_credential(&egret, "/after");
        let recorded = traffic.until("path=/after", 1).remove(0);
        assert_eq!(resend(&egret, &recorded).status, 200, "{change}");
    }
    a_change_of_a_limit_leaves_recorded_requests_to_be_sent_again();
}

/// A change that `tune` would accept is no reason to refuse a recorded request.
fn a_change_of_a_limit_leaves_recorded_requests_to_be_sent_again() {
    let origin = Provider::plain();
    let egret = with_flow(&origin).control("config_changes: unrestricted").start();
    let traffic = LiveTraffic::open(&egret);
    call_with_credential(&egret, "/before");
    let recorded = traffic.until("path=/before", 1).remove(0);
    assert_eq!(ConfigApi::of(&egret).put(&changed(&egret, "total: 20s", "total: 21s")).status, 200);
    assert_eq!(resend(&egret, &recorded).json()["status"], 200);
    assert_eq!(with_credential(&origin), 2);
}
