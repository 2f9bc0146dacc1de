//! The percentiles of `egret bench` are those of the real ab.

use egret_tests::bench::{Ran, bench};
use egret_tests::peers::ab;
use egret_tests::process::run;
use egret_tests::wait;

fn abbed(arguments: &[&str]) -> Ran {
    run(ab().args(arguments)).into()
}

#[test]
fn the_percentiles_agree_with_those_of_ab() {
    let provider = egret_tests::provider::Provider::scripted(|peer| {
        let (_never, wait) = std::sync::mpsc::channel::<()>();
        // ab sends HTTP/1.0 requests and waits for the end of the connection.
        if peer.request().is_some() {
            let _ = wait.recv_timeout(std::time::Duration::from_millis(50));
            peer.send(egret_tests::provider::ok("late"));
        }
    });
    let url = format!("{}/x", provider.url());
    let median = |ran: &Ran| ran.value("  50%").parse::<f64>().unwrap();
    let arguments = ["-q", "-n", "40", "-c", "4", &url];
    // A busy machine slows both, but not equally: the best runs are compared, until they agree.
    let (mut best_ab, mut best_own) = (f64::MAX, f64::MAX);
    let medians = || {
        best_ab = median(&abbed(&arguments)).min(best_ab);
        best_own = median(&bench(&arguments)).min(best_own);
        (best_ab, best_own)
    };
    wait::until_value("ab and egret bench agree", medians, |(ab, own)| {
        (50.0..60.0).contains(own) && (ab - own).abs() <= 2.0
    });
}
