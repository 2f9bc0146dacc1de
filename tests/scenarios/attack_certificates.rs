//! The worth of the authority's key to a thief.

use egret_tests::authority::Place;

#[test]
fn openssl_refuses_a_thief_for_tunnelled_names_below_a_wildcard() {
    let place = Place::default();
    place.directory.write(
        "egret.yaml",
        "data_dir: data\ninterception: { hosts: ['*.two.example'], tunnel: [bank.two.example, '*.pay.two.example'] }\n",
    );
    place.printed(["init"]);
    let good = place.forged("api.two.example");
    assert!(good.status.success(), "{}", String::from_utf8_lossy(&good.stderr));
    for bad in ["bank.two.example", "a.bank.two.example", "a.pay.two.example"] {
        let output = place.forged(bad);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains("error 48 "), "{bad}: {errors}");
    }
}
