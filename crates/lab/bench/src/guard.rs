//! Protects third parties: a target outside this machine and private networks receives little load unless the
//! user confirms.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::pace::Pace;
use crate::plan::Plan;

/// Maximum number of requests without `--yes`: as many as a person might send by hand in an afternoon.
const REQUESTS_MAX: u64 = 1_000;

/// Maximum number of concurrent exchanges without `--yes`: as many as a few browsers make.
const CONCURRENCY_MAX: usize = 10;

/// Maximum rate in exchanges per second without `--yes`.
const RATE_MAX: f64 = 50.0;

/// Describes the excess if a plan is more than modest.
pub(crate) fn excess_of(plan: &Plan) -> Option<String> {
    if plan.concurrency > CONCURRENCY_MAX {
        return Some(format!("a concurrency of {} (more than {CONCURRENCY_MAX})", plan.concurrency));
    }
    if let Pace::Open(rate) = plan.pace
        && rate.from.max(rate.to) > RATE_MAX
    {
        return Some(format!("{} requests per second (more than {RATE_MAX})", rate.from.max(rate.to)));
    }
    match (plan.count, plan.pace, plan.duration) {
        (Some(count), ..) if count > REQUESTS_MAX => {
            Some(format!("{count} requests (more than {REQUESTS_MAX})"))
        }
        (None, Pace::Closed { .. }, Some(duration)) => {
            Some(format!("an unlimited number of requests for {} s", duration.as_secs_f64()))
        }
        _ => None,
    }
}

/// Returns `true` if an address is on this machine or in a private network.
pub(crate) fn is_near(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    match ip {
        IpAddr::V4(v4) => {
            let shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
            v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_unspecified()
                || shared
                || is_own(ip)
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || is_local(v6) || is_own(ip),
    }
}

/// Returns `true` for unique local (RFC 4193) and link-local (RFC 4291) addresses.
fn is_local(ip: Ipv6Addr) -> bool {
    ip.segments()[0] & 0xfe00 == 0xfc00 || ip.segments()[0] & 0xffc0 == 0xfe80
}

/// Returns `true` for an address of this machine: only those can be bound.
fn is_own(ip: IpAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixture::compiled;
    use crate::options::Options;

    #[test]
    fn private_addresses_are_near() {
        for ip in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.31.0.1",
            "169.254.1.1",
            "100.64.0.1",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(is_near(ip.parse().unwrap()), "{ip}");
        }
        // Documentation addresses (RFC 5737, RFC 3849), which belong to no host, and neighbours of private
        // ranges.
        for ip in ["192.0.2.1", "198.51.100.7", "100.128.0.1", "172.32.0.1", "2001:db8::1"] {
            assert!(!is_near(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn a_plan_is_modest_up_to_each_limit() {
        let excess = |change: fn(&mut Options)| excess_of(&compiled(change).plan);
        assert_eq!(excess(|it| (it.requests, it.concurrency) = (Some(1_000), 10)), None);
        assert_eq!(excess(|it| (it.requests, it.rate) = (Some(60), Some((50.0, 50.0)))), None);
        let excess = |change| excess(change).unwrap_or_default();
        assert_eq!(excess(|it| it.requests = Some(1_001)), "1001 requests (more than 1000)");
        let many = excess(|it| (it.requests, it.concurrency) = (Some(20), 11));
        assert_eq!(many, "a concurrency of 11 (more than 10)");
        let fast = excess(|it| (it.requests, it.rate) = (Some(20), Some((51.0, 51.0))));
        assert_eq!(fast, "51 requests per second (more than 50)");
        let long = excess(|it| it.time = Some(Duration::from_secs(2)));
        assert_eq!(long, "an unlimited number of requests for 2 s");
    }
}
