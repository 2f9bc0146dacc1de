//! End-to-end scenarios: the binary as users run it, between real clients and real providers, and between hostile ones.
//!
//! One theme a file, one claim a test. `EGRET_BIN` names another binary to put to the test, such as the release build.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says so and stops")]

mod scenarios {
    mod archiver_answers;
    mod archiver_recordings;
    mod archiver_routes;
    mod bad_requests;
    mod bad_responses;
    mod bench_ab;
    mod bench_exchanges;
    mod bench_files;
    mod bench_open_model;
    mod bench_refusals;
    mod bodies;
    mod cache_crowds;
    mod cache_requirements;
    mod cache_serving;
    mod clients;
    mod command;
    mod connections;
    mod control;
    mod diagnosis_access_log;
    mod diagnosis_discovery;
    mod diagnosis_metrics;
    mod diagnosis_records;
    mod diagnosis_traces;
    mod dns;
    mod egress;
    mod explain;
    mod exporter_delivery;
    mod exporter_trouble;
    mod flow_bodies;
    mod flow_breakers;
    mod flow_configs;
    mod flow_crowds;
    mod flow_fallbacks;
    mod flow_hedge;
    mod flow_limits;
    mod flow_retries;
    mod flow_transform;
    mod har_bodies;
    mod har_kills;
    mod har_secrets;
    mod har_surface;
    mod lab_limits;
    mod lab_report;
    mod lab_run;
    mod lab_truth;
    mod limits;
    mod loops;
    mod provider_auth;
    mod provider_caching;
    mod provider_content;
    mod provider_cookies;
    mod provider_delays;
    mod provider_echo;
    mod provider_faults;
    mod provider_network;
    mod provider_pace;
    mod provider_pages;
    mod provider_playback;
    mod provider_redirects;
    mod provider_scenes;
    mod provider_statuses;
    mod provider_websocket;
    mod quota_store;
    mod reload;
    mod routing;
    mod scale;
    mod slow_peers;
    mod tls;
    mod tls_listener;
    mod tunnels;
}
