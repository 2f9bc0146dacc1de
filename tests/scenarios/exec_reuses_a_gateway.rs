//! `egret exec` uses the gateway that runs already, if it fits. Commands inside of others share one.

use egret_tests::egret::{Config, binary};
use egret_tests::exec::{FREE_PORTS, Place, control_of};
use egret_tests::intercepted::{Intercepting, SecureProvider, config};
use egret_tests::process::{Directory, run};
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;

#[test]
fn the_gateway_of_the_config_is_used_if_it_runs() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let place = Place::of(&egret);
    let script = format!("echo $EGRET_EXEC; curl --silent --fail {}/", origin.url());
    // The running gateway has a provider on loopback, so calls to loopback go through it.
    let printed = place.sh([], &script);
    assert_eq!(control_of(&printed), egret.control());
    assert!(printed.ends_with("hello"), "{printed}");
    assert_eq!((origin.only_request().values("via").len(), place.logs().len()), (1, 0));
}

#[test]
fn a_gateway_that_does_not_intercept_the_hosts_is_not_used() {
    let origin = Provider::plain();
    let provider = SecureProvider::before(&origin.url());
    let intercepting = Intercepting::start(&config(&provider, "interception: {}"), &provider);
    let egret = &intercepting.egret;
    let place = Place::of(egret);
    let control = |option| control_of(&place.sh([option], "echo $EGRET_EXEC"));
    assert_eq!(control("--intercept=localhost"), egret.control());
    assert_ne!(control("--intercept=other.example"), egret.control());
    assert_eq!(place.logs().len(), 1);
    place.until_gateways_gone();
}

#[test]
fn a_port_that_is_no_gateways_is_not_used() {
    let other = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.send(ok("hello"));
    });
    let place = Place::with(&format!(
        "gateway: {{ listen: ['127.0.0.1:0'] }}\ncontrol: {{ listen: '{}' }}\n",
        other.address()
    ));
    // A gateway of this directory could prove itself.
    place.sh([], "true");
    // The gateway of the command has the free ports, and the other program's port stays untouched.
    let exec = || {
        let output = run(&mut place.exec(["-v"], ["sh", "-c", "echo $EGRET_EXEC"]));
        let [mark, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_ne!(control_of(&mark), other.address());
        assert!(said.contains("a gateway was started"), "{said}");
        said
    };
    // The other program has a second to respond.
    wait::until_value("it is no gateway", exec, |said| {
        said.contains("not the gateway of this data directory")
    });
    place.until_gateways_gone();
}

#[test]
fn a_gateway_with_a_token_is_used_without_it() {
    let directory = Directory::default();
    let token = directory.write_secret("token", "the-token-of-the-control-port");
    let key = format!("token: \"${{file:{}}}\"", token.display());
    let egret = Config::default().control(&key).start();
    let place = Place::of(&egret);
    let output = run(&mut place.exec(["-v"], ["env"]));
    let shown = [output.stdout, output.stderr].concat();
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains(&format!("EGRET_EXEC={}", egret.control())), "{shown}");
    assert!(!shown.contains("the-token-of-the-control-port"), "{shown}");
    assert_eq!(place.logs().len(), 0);
}

#[test]
fn an_inner_command_uses_the_gateway_of_the_outer_one() {
    let place = Place::new();
    let egret = binary().display();
    let inner = format!("{egret} exec --config egret.yaml -- sh -c 'echo $EGRET_EXEC; echo $HTTP_PROXY'");
    let printed = place.sh([], &format!("echo $EGRET_EXEC; echo $HTTP_PROXY; {inner}; {inner}"));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[..2], lines[2..4], "{printed}");
    assert_eq!(lines[..2], lines[4..], "{printed}");
    assert_eq!(place.logs().len(), 1);
    place.until_gateways_gone();
}

#[test]
fn an_inner_command_may_have_its_own_gateway() {
    let origin = Provider::plain();
    let provider = SecureProvider::before(&origin.url());
    let place = Place::with(&format!(
        "{FREE_PORTS}providers: {{ origin: {{ url: '{}', tls: {{ ca: provider.pem }} }} }}\n",
        provider.url()
    ));
    place.directory.write("provider.pem", provider.authority().certificate());
    let egret = binary().display();
    let call = format!("curl --silent --show-error --fail {}/", provider.url());
    let inner =
        format!("{egret} exec --config egret.yaml --intercept -- sh -c '{call}; echo; echo $EGRET_EXEC'");
    let printed = place.sh([], &format!("echo $EGRET_EXEC; {inner}"));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[1], "hello");
    assert_ne!(control_of(lines[0]), control_of(lines[2]), "{printed}");
    let [request] = &origin.requests()[..] else { panic!("{printed}") };
    assert_eq!(request.values("via").len(), 1, "the inner gateway does not call through the outer one");
    place.until_gateways_gone();
}
