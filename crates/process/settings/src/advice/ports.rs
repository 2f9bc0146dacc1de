//! Addresses that cannot all be listened on, and providers that are the gateway itself.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use egret_config::Problem;
use egret_match::providers::ProviderUrl;
use egret_message::authority::Host;

use crate::config::Config;

/// Returns a warning for each port that is used twice.
pub fn advise(config: &Config) -> Vec<Problem> {
    let mut advice = Vec::new();
    let listeners = config.gateway.listen.iter().enumerate();
    let listeners = listeners.filter_map(|(number, listener)| Some((number, listener.address.internet()?)));
    let listeners: Vec<(usize, SocketAddr)> = listeners.collect();
    let control = config.control.listen;
    for (place, (number, address)) in listeners.iter().enumerate() {
        let path = format!("gateway.listen[{number}]");
        if clash(*address, control) {
            let message = format!(
                "`control.listen` is {control}, so Egret cannot start: choose another port for one of them"
            );
            advice.push(Problem::new(path.clone(), message).related("control.listen"));
        }
        // The same address twice is an error.
        let mut earlier = listeners.iter().take(place);
        if let Some((other, on)) = earlier.find(|(_, other)| other != address && clash(*other, *address)) {
            let message = format!(
                "`gateway.listen[{other}]` already is on this port ({on}), so Egret cannot start: choose another port, or remove one of the two"
            );
            advice.push(Problem::new(path, message).related(format!("gateway.listen[{other}]")));
        }
    }
    for (name, provider) in &config.providers {
        let Ok(url) = ProviderUrl::parse(provider.base_url()) else { continue };
        let Host::Ip(ip) = &url.origin.authority.host else { continue };
        let target = SocketAddr::new(*ip, url.origin.authority.port);
        let mut all = listeners.iter().map(|(_, address)| address).chain([&control]);
        if let Some(own) = all.find(|own| is_own(**own, target)) {
            let message = format!(
                "this is Egret's own address ({own}), which it does not call: write the URL of the API itself"
            );
            advice.push(Problem::new(format!("providers.{name}.url"), message));
        }
    }
    advice
}

/// Returns `true` if two sockets of this machine cannot listen on these addresses at once. The system chooses
/// another port for each port 0.
fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && a.port() != 0 && (covers(a.ip(), b.ip()) || covers(b.ip(), a.ip()))
}

/// Returns `true` if a socket on `own` receives connections to the address `ip` of this machine.
fn covers(own: IpAddr, ip: IpAddr) -> bool {
    let is_any = match own {
        IpAddr::V4(own) => own.is_unspecified() && ip.to_canonical().is_ipv4(),
        // Listeners on `[::]` accept IPv4 as well.
        IpAddr::V6(own) => own == Ipv6Addr::UNSPECIFIED,
    };
    is_any || own.to_canonical() == ip.to_canonical()
}

/// Returns `true` if a socket on `own` surely receives connections to `target`.
fn is_own(own: SocketAddr, target: SocketAddr) -> bool {
    let is_here = target.ip().to_canonical().is_loopback() || own.ip() == target.ip();
    own.port() == target.port() && own.port() != 0 && is_here && covers(own.ip(), target.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_clash_on_the_same_port_of_the_same_addresses() {
        for (a, b, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::]:80", "0.0.0.0:80", true),
            ("[::1]:80", "127.0.0.1:80", false),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            let [one, other] = [a, b].map(|text| text.parse().unwrap());
            assert_eq!((clash(one, other), clash(other, one)), (expected, expected), "{a} {b}");
        }
    }
}
