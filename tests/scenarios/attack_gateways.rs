//! Attacks by another user of the machine who listens where a gateway is expected: a command tells it
//! nothing, and sends no call through it.

use egret_tests::egret::egret;
use egret_tests::exec::Place;
use egret_tests::impostor::Impostor;
use egret_tests::process::run;

const TOKEN: &str = "t0ken-of-the-control-port";

/// Returns a place with a config for a gateway that does not run, in whose place the impostor listens.
fn place(impostor: &Impostor) -> Place {
    Place::with(&format!(
        "gateway: {{ listen: ['127.0.0.1:0'] }}\n\
         control: {{ listen: '{}', token: '${{env:EGRET_TEST_TOKEN}}' }}\n",
        impostor.address()
    ))
}

#[test]
fn commands_send_no_token_to_a_port_that_another_user_has_taken() {
    for command in [&["tail"][..], &["discover"], &["doctor"], &["health"], &["exec", "--", "true"]] {
        let impostor = Impostor::start();
        let place = place(&impostor);
        let mut with_config = egret([command[0], "--config", "egret.yaml"]);
        with_config.args(&command[1..]).env("EGRET_TEST_TOKEN", TOKEN);
        place.prepare(&mut with_config);
        run(&mut with_config);
        impostor.assert_got_no_token(command[0], &[TOKEN]);
    }
}

#[test]
fn the_token_that_egret_creates_is_sent_to_no_other_program() {
    let impostor = Impostor::start();
    let place = Place::with(&format!("control: {{ listen: '{}' }}\n", impostor.address()));
    std::fs::create_dir(place.directory.join("egret-data")).unwrap();
    place.directory.write_secret("egret-data/control-token", TOKEN);
    let mut tail = egret(["tail", "--config", "egret.yaml"]);
    place.prepare(&mut tail);
    run(&mut tail);
    impostor.assert_got_no_token("tail", &[TOKEN]);
}

#[test]
fn a_command_trusts_no_authority_of_another_user() {
    let impostor = Impostor::start();
    let place = place(&impostor);
    let mut exec = place.exec(["--intercept=api.example.com"], ["env"]);
    let output = run(exec.env("EGRET_TEST_TOKEN", TOKEN));
    let environment = String::from_utf8_lossy(&output.stdout);
    assert!(!impostor.is_used_by(&environment), "{environment}");
    assert!(output.status.success() && environment.contains("http_proxy=http://127.0.0.1:"), "{environment}");
    place.until_gateways_gone();
}

#[test]
fn a_mark_of_an_ended_gateway_is_ignored() {
    for impostor in [Impostor::start(), Impostor::asking_for_a_token()] {
        let place = Place::new();
        let mut exec = place.exec([], ["env"]);
        exec.env("EGRET_EXEC", format!("{} http_proxy HTTP_PROXY", impostor.address()));
        let output =
            run(exec.env("http_proxy", "http://127.0.0.1:9").env("HTTP_PROXY", "http://127.0.0.1:9"));
        let environment = String::from_utf8_lossy(&output.stdout);
        assert!(!impostor.is_used_by(&environment), "{environment}");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        place.until_gateways_gone();
    }
}
