//! However a response is cut and coded, it ends in the same record.

use egret_tests::coded::coded;
use proptest::prelude::*;

use crate::samples::{all, assert_reads};

#[test]
fn samples_are_read_at_each_cut() {
    for sample in all() {
        let body = &sample.body;
        assert_reads(&sample, None, [&body[..]], "whole");
        assert_reads(&sample, None, body.chunks(1), "by bytes");
        for cut in 1..body.len() {
            let (start, end) = body.split_at(cut);
            assert_reads(&sample, None, [start, end], &format!("cut at {cut}"));
        }
    }
}

#[test]
fn coded_samples_are_read_at_each_cut() {
    for sample in all() {
        for coding in ["gzip", "br", "zstd"] {
            let body = coded(coding, &sample.body);
            assert_reads(&sample, Some(coding), [&body[..]], coding);
            assert_reads(&sample, Some(coding), body.chunks(1), coding);
        }
        let body = coded("gzip", &sample.body);
        for cut in 1..body.len() {
            let (start, end) = body.split_at(cut);
            assert_reads(&sample, Some("gzip"), [start, end], &format!("gzip, cut at {cut}"));
        }
    }
}

proptest! {
    #[test]
    fn samples_are_read_at_any_cuts(
        number in 0..all().len(),
        sizes in prop::collection::vec(1_usize..200, 1..40),
        is_coded: bool,
    ) {
        let sample = &all()[number];
        let (coding, body) =
            if is_coded { (Some("gzip"), coded("gzip", &sample.body)) } else { (None, sample.body.clone()) };
        let mut rest = &body[..];
        let pieces = sizes.iter().cycle().map_while(|size| {
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            rest = after;
            (!piece.is_empty()).then_some(piece)
        });
        assert_reads(sample, coding, pieces.collect::<Vec<_>>(), "at random cuts");
    }
}
