//! Egret between real peers: whether it changes, loses or lets through what it must not. Part of `make
//! garden`, because the servers take long to install and a whole run takes hours.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue panics with the reason")]

mod garden {
    mod clients;
    mod compare;
    mod generate;
    mod hyper;
    mod mutate;
    mod play;
    mod raw;
    mod record;
    mod report;
    mod requests;
    mod responses;
    mod servers;
    mod shrink;
    mod verdict;
}
