//! Examples at the end of the help of a command, which manual pages and the reference show too.

/// `egret run`.
pub const RUN: &str = "Examples:
  egret run                          with ./egret.yaml, if it is there
  egret run shop.yaml --listen 127.0.0.1:9100 --log-level debug
  egret run --demo                   beside a built-in provider: traffic without the Internet";

/// `egret init`.
pub const INIT: &str = "Examples:
  egret init                         writes ./egret.yaml
  egret init shop.yaml && egret run shop.yaml";

/// `egret exec`.
pub const EXEC: &str = "Examples:
  egret exec -- python app.py        the calls of app.py go through Egret
  egret exec --intercept=api.example.com -- node app.js
  eval \"$(egret exec --print-env)\"   for the commands that follow in this shell";

/// `egret check`.
pub const CHECK: &str = "Examples:
  egret check                        ./egret.yaml
  egret check shop.yaml --json       for programs";

/// `egret explain`.
pub const EXPLAIN: &str = "Examples:
  egret explain shop.yaml GET https://api.example.com/v1/things
  egret explain GET /shop/orders     a base URL, with ./egret.yaml
  egret explain shop.yaml --request 'POST http://127.0.0.1:8000/shop/orders' --data '{\"item\": 7}'";

/// `egret tail`.
pub const TAIL: &str = "Examples:
  egret tail --status 5xx --status 429
  egret tail --provider shop --slower-than 1s -v
  egret tail --json | jq .status";

/// `egret discover`.
pub const DISCOVER: &str = "Examples:
  egret discover
  egret discover --flows > proposed.yaml";

/// `egret doctor`.
pub const DOCTOR: &str = "Examples:
  egret doctor
  egret doctor --full > report.txt
  egret doctor --probe --json";

/// `egret provider`.
pub const PROVIDER: &str = "Examples:
  egret provider --rate-limit 100/1s
  egret provider --delay lognormal:150ms,0.5 --fault reset=0.01";

/// `egret bench`.
pub const BENCH: &str = "Examples:
  egret bench -k -n 10000 -c 100 http://127.0.0.1:9000/get
  egret bench -k -c 50 -t 10S --rate 500 --fail-if 'p99>10ms' http://127.0.0.1:9000/get
  egret bench -k -c 20 --vs http://127.0.0.1:9000/bytes/65536 http://127.0.0.1:9000/bytes/1024";

/// `egret completions`.
pub const COMPLETIONS: &str = "Examples:
  source <(egret completions bash)
  egret completions fish > ~/.config/fish/completions/egret.fish";
