//! Tests that judge time, or the share of an allowance that is used. A separate suite, `make test-timed`,
//! which runs one test at a time on a machine that does nothing else: a busy machine makes them fail.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue panics with the reason")]

mod timed {
    mod alerts_raised;
    mod attack_handover;
    mod attack_http2;
    mod attack_limits;
    mod bench_comparison;
    mod bench_open_model;
    mod bench_percentiles;
    mod fault_switch;
    mod handover_restarts;
    mod http2_rates;
    mod lab_limits;
    mod limits_allowance;
    mod overload;
    mod page_busy;
    mod provider_delays;
    mod start;
    mod time_parts;
}
