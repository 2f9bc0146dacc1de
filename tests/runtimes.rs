//! Programs of many runtimes under `egret exec`, without a change of theirs, and h2spec. A separate suite,
//! part of `make test-clients`, because the runtimes take long to install.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue panics with the reason")]

mod runtimes {
    mod compiled;
    mod doors;
    mod grpc;
    mod grpc_interop;
    mod grpc_js;
    mod h2spec;
    mod http2_clients;
    mod javascript;
    mod lasting_streams;
    mod llm_provider;
    mod llm_sdks;
    mod missed_calls;
    mod moto;
    mod peers;
    mod scripted;
    mod sdk_errors;
    mod sdk_refusals;
    mod sdks;
    mod steps_of_clients;
    mod tools;
    mod trial;
    mod trust_stores;
    mod vault;
}
