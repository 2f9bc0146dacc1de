//! Address ranges: parsing, matching, and the special ranges built into the egress policy.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses. IPv4 is stored in its IPv4-mapped form, so `10.0.0.1` and `::ffff:10.0.0.1` are the
/// same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Net {
    bits: u128,
    /// Number of leading bits that must match, of 128.
    prefix: u8,
}

/// The prefix of an IPv4 address in its IPv4-mapped form (RFC 4291 §2.5.5.2).
const MAPPED: u128 = 0xffff << 32;
const MAPPED_PREFIX: u8 = 96;

/// The reason why a text is not a range.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NetError {
    /// Neither an address nor an address, a slash and a prefix length.
    Syntax,
    /// Bits beyond the prefix are set. Holds the range that was probably meant.
    HostBits(Net),
}

impl Net {
    const fn v4(octets: [u8; 4], prefix: u8) -> Self {
        Self {
            bits: MAPPED | Ipv4Addr::from_octets(octets).to_bits() as u128,
            prefix: MAPPED_PREFIX + prefix,
        }
    }

    const fn v6(segments: [u16; 8], prefix: u8) -> Self {
        Self { bits: Ipv6Addr::from_segments(segments).to_bits(), prefix }
    }

    /// Returns the range of one address.
    pub(crate) fn single(ip: IpAddr) -> Self {
        Self { bits: to_bits(ip), prefix: 128 }
    }

    /// Parses `10.0.0.0/8`, `fd00::/8` or a single address.
    pub(crate) fn parse(text: &str) -> Result<Self, NetError> {
        let (ip, length) = match text.split_once('/') {
            Some((ip, length)) => (ip, Some(length)),
            None => (text, None),
        };
        let ip: IpAddr = ip.parse().map_err(|_| NetError::Syntax)?;
        let Some(length) = length else { return Ok(Self::single(ip)) };
        if !(1..=3).contains(&length.len()) || !length.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NetError::Syntax);
        }
        let length: u8 = length.parse().map_err(|_| NetError::Syntax)?;
        let (bits_max, before) = if ip.is_ipv4() { (32, MAPPED_PREFIX) } else { (128, 0) };
        if length > bits_max {
            return Err(NetError::Syntax);
        }
        let prefix = before + length;
        let net = Self { bits: to_bits(ip) & mask(prefix), prefix };
        if net.bits == to_bits(ip) { Ok(net) } else { Err(NetError::HostBits(net)) }
    }

    /// Returns `true` if `ip` is in the range. An IPv6 range never contains an IPv4 address, not even `::/0`.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let bits = to_bits(ip);
        bits & mask(self.prefix) == self.bits && is_v4(bits) == self.is_v4()
    }

    /// Returns `true` if all of `other` is in the range.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.prefix <= other.prefix
            && other.bits & mask(self.prefix) == self.bits
            && other.is_v4() == self.is_v4()
    }

    /// Returns `true` if the range is a single address.
    pub(crate) fn is_single(&self) -> bool {
        self.prefix == 128
    }

    fn is_v4(&self) -> bool {
        self.prefix >= MAPPED_PREFIX && is_v4(self.bits)
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = Ipv6Addr::from_bits(self.bits).to_canonical();
        let length = if self.is_v4() { self.prefix - MAPPED_PREFIX } else { self.prefix };
        write!(f, "{ip}/{length}")
    }
}

fn to_bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => MAPPED | u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

const fn is_v4(bits: u128) -> bool {
    bits >> 32 == 0xffff
}

fn mask(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

/// Addresses of the services from which clouds hand a machine its credentials. Most are in link-local ranges,
/// which are denied as a whole. They are listed so that a rule for a link-local range does not allow them.
const METADATA: [Net; 10] = [
    Net::v4([169, 254, 169, 254], 32), // AWS, GCP, Azure, OCI, DigitalOcean, ...
    Net::v4([169, 254, 170, 2], 32),   // AWS ECS: credentials of the task
    Net::v4([169, 254, 170, 23], 32),  // AWS EKS: credentials of the pod
    Net::v4([100, 100, 100, 200], 32), // Alibaba
    Net::v4([168, 63, 129, 16], 32),   // Azure: WireServer
    Net::v4([192, 0, 0, 192], 32),     // Oracle, classic
    Net::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128), // AWS over IPv6
    Net::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128), // AWS EKS over IPv6
    Net::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), // GCP over IPv6
    Net::v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128), // Scaleway over IPv6
];

/// Names that resolve to [`METADATA`], denied before the DNS look-up.
pub(crate) const METADATA_NAMES: [&str; 3] =
    ["metadata.google.internal", "metadata.goog", "instance-data.ec2.internal"];

/// Link-local ranges (RFC 3927, RFC 4291 §2.5.6).
const LINK_LOCAL: [Net; 2] = [Net::v4([169, 254, 0, 0], 16), Net::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10)];

/// Ranges that are not reached over the public Internet: the special-purpose registries of RFC 6890 and its
/// updates, and multicast.
const PRIVATE: [Net; 26] = [
    Net::v4([0, 0, 0, 0], 8),                       // this network
    Net::v4([10, 0, 0, 0], 8),                      // private
    Net::v4([100, 64, 0, 0], 10),                   // carrier-grade NAT
    Net::v4([127, 0, 0, 0], 8),                     // loopback
    Net::v4([172, 16, 0, 0], 12),                   // private
    Net::v4([192, 0, 0, 0], 24),                    // protocol assignments
    Net::v4([192, 0, 2, 0], 24),                    // documentation
    Net::v4([192, 88, 99, 0], 24),                  // 6to4 relays, withdrawn
    Net::v4([192, 168, 0, 0], 16),                  // private
    Net::v4([198, 18, 0, 0], 15),                   // benchmarks
    Net::v4([198, 51, 100, 0], 24),                 // documentation
    Net::v4([203, 0, 113, 0], 24),                  // documentation
    Net::v4([224, 0, 0, 0], 4),                     // multicast
    Net::v4([240, 0, 0, 0], 4),                     // reserved, and broadcast
    Net::v6([0, 0, 0, 0, 0, 0, 0, 0], 127),         // unspecified and loopback
    Net::v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48),  // local-use NAT64
    Net::v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64),      // discard
    Net::v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48),     // benchmarks
    Net::v6([0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28),  // ORCHID
    Net::v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28),  // ORCHIDv2
    Net::v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), // documentation
    Net::v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),     // documentation
    Net::v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16),     // segment routing
    Net::v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),      // unique local
    Net::v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10),     // site-local, withdrawn
    Net::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),      // multicast
];

/// The kind of an address, from the most to the least dangerous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AddressKind {
    Metadata,
    LinkLocal,
    Private,
    Public,
}

impl AddressKind {
    /// Returns the kind of `ip` or of an IPv4 address embedded in it, whichever is more dangerous.
    pub(crate) fn of(ip: IpAddr) -> Self {
        let outer = Self::of_plain(ip);
        embedded_v4(ip).fold(outer, |kind, inner| kind.min(Self::of_plain(IpAddr::V4(inner))))
    }

    fn of_plain(ip: IpAddr) -> Self {
        let is_in = |nets: &[Net]| nets.iter().any(|net| net.contains(ip));
        if is_in(&METADATA) {
            Self::Metadata
        } else if is_in(&LINK_LOCAL) {
            Self::LinkLocal
        } else if is_in(&PRIVATE) {
            Self::Private
        } else {
            Self::Public
        }
    }

    /// Returns `true` if a rule for `net` names this kind explicitly: metadata only by its exact address,
    /// link-local only by a range within it. So `0.0.0.0/0` does not allow them by accident.
    pub(crate) fn is_named_by(self, net: &Net) -> bool {
        match self {
            Self::Metadata => net.is_single(),
            Self::LinkLocal => net.is_single() || LINK_LOCAL.iter().any(|range| range.covers(net)),
            Self::Private | Self::Public => true,
        }
    }
}

/// Returns the IPv4 addresses that packets to `ip` may be sent to: IPv4-mapped and -compatible (RFC 4291
/// §2.5.5), IPv4-translated (RFC 2765 §2.1), NAT64 (RFC 6052), 6to4 (RFC 3056), Teredo (RFC 4380 §4), and
/// ISATAP under any prefix, with its bit for a global address set or not (RFC 5214 §6.1). Only the operator
/// of a NAT64 with a local prefix (RFC 8215) knows the prefix's length, so there it is each that is possible.
pub(crate) fn embedded_v4(ip: IpAddr) -> impl Iterator<Item = Ipv4Addr> {
    let found = match ip {
        IpAddr::V6(ip) => embedded(ip),
        IpAddr::V4(_) => [None; 4],
    };
    found.into_iter().flatten()
}

fn embedded(ip: Ipv6Addr) -> [Option<Ipv4Addr>; 4] {
    let one = |high: u16, low: u16| {
        [Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))), None, None, None]
    };
    match ip.segments() {
        // `::` and `::1` are genuine IPv6 addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None; 4],
        // RFC 6052 §2.2: the octet in the middle is not part of the address.
        [0x64, 0xff9b, 1, ..] => {
            let octets = ip.octets();
            let at = |places: [usize; 4]| Some(Ipv4Addr::from(places.map(|place| octets[place])));
            [at([6, 7, 9, 10]), at([7, 9, 10, 11]), at([9, 10, 11, 12]), at([12, 13, 14, 15])]
        }
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [_, _, _, _, 0 | 0x200, 0x5efe, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => one(high, low),
        [0x2001, 0, .., high, low] => one(!high, !low),
        _ => [None; 4],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_reads_and_prints_the_same() {
        for text in [
            "10.0.0.0/8",
            "0.0.0.0/0",
            "192.168.1.7/32",
            "fd00::/8",
            "::/0",
            "2001:db8::1/128",
            "::ffff:0.0.0.0/0",
        ] {
            match Net::parse(text) {
                Ok(net) => assert_eq!(net.to_string(), text),
                Err(error) => assert_eq!(
                    (text, error),
                    ("::ffff:0.0.0.0/0", NetError::HostBits(Net { bits: 0, prefix: 0 }))
                ),
            }
        }
        assert_eq!(Net::parse("10.1.2.3").unwrap().to_string(), "10.1.2.3/32");
        assert_eq!(Net::parse("::1").unwrap().to_string(), "::1/128");
        assert_eq!(Net::parse("::ffff:10.0.0.0/104").unwrap(), Net::parse("10.0.0.0/8").unwrap());
    }

    #[test]
    fn a_malformed_range_is_refused() {
        for text in [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10/8",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
            "::/0x8",
            "a/8",
            "10.0.0.0/0008",
        ] {
            assert_eq!(Net::parse(text), Err(NetError::Syntax), "{text}");
        }
        assert_eq!(Net::parse("10.1.2.3/8"), Err(NetError::HostBits(Net::parse("10.0.0.0/8").unwrap())));
    }

    #[test]
    fn a_range_holds_what_lies_in_it() {
        for (net, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::10.0.0.1"),
            ("0.0.0.0/0", "8.8.8.8", "2001:4860:4860::8888"),
            ("::/0", "2001:4860:4860::8888", "8.8.8.8"),
            ("::/0", "::1", "::ffff:8.8.8.8"),
            ("192.168.1.7", "192.168.1.7", "192.168.1.6"),
            ("fe80::/10", "febf::1", "fec0::1"),
        ] {
            let net = Net::parse(net).unwrap();
            assert!(net.contains(ip(inside)), "{net} {inside}");
            assert!(!net.contains(ip(outside)), "{net} {outside}");
        }
    }

    #[test]
    fn ranges_cover_ranges() {
        let covers =
            |outer: &str, inner: &str| Net::parse(outer).unwrap().covers(&Net::parse(inner).unwrap());
        assert!(covers("10.0.0.0/8", "10.2.0.0/16") && covers("10.0.0.0/8", "10.0.0.0/8"));
        assert!(!covers("10.2.0.0/16", "10.0.0.0/8") && !covers("::/0", "10.0.0.0/8"));
    }

    #[test]
    fn every_special_address_is_known_for_what_it_is() {
        use AddressKind::*;
        for (text, kind) in [
            ("8.8.8.8", Public),
            ("1.1.1.1", Public),
            ("172.15.255.255", Public),
            ("172.32.0.0", Public),
            ("100.63.255.255", Public),
            ("100.128.0.0", Public),
            ("198.17.255.255", Public),
            ("198.20.0.0", Public),
            ("223.255.255.255", Public),
            ("168.63.129.15", Public),
            ("2001:4860:4860::8888", Public),
            ("2606:4700::1111", Public),
            ("0.0.0.0", Private),
            ("0.1.2.3", Private),
            ("10.0.0.0", Private),
            ("10.255.255.255", Private),
            ("100.64.0.1", Private),
            ("127.0.0.1", Private),
            ("127.255.255.254", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.0.0.1", Private),
            ("192.0.2.1", Private),
            ("192.168.0.1", Private),
            ("198.18.0.1", Private),
            ("198.19.255.255", Private),
            ("198.51.100.1", Private),
            ("203.0.113.1", Private),
            ("224.0.0.1", Private),
            ("239.255.255.255", Private),
            ("240.0.0.1", Private),
            ("255.255.255.255", Private),
            ("::", Private),
            ("::1", Private),
            ("100::1", Private),
            ("2001:db8::1", Private),
            ("3fff::1", Private),
            ("fc00::1", Private),
            ("fdff::1", Private),
            ("fec0::1", Private),
            ("ff02::1", Private),
            ("64:ff9b:1::1", Private),
            // A local NAT64 with a prefix of 48, 56, 64 and 96 bits, and another one of 96 bits.
            ("64:ff9b:1:a9fe:a9:fe00::", Metadata),
            ("64:ff9b:1:a9:fe:a9fe::", Metadata),
            ("64:ff9b:1:0:a9:fea9:fe00:0", Metadata),
            ("64:ff9b:1::169.254.169.254", Metadata),
            ("64:ff9b:1:ffff::169.254.169.254", Metadata),
            ("64:ff9b:1:ffff:abcd:ef:a9fe:1", LinkLocal),
            ("64:ff9b:1:ffff::8.8.8.8", Private),
            ("169.254.0.1", LinkLocal),
            ("fe80::1", LinkLocal),
            ("febf:ffff::1", LinkLocal),
            ("169.254.169.254", Metadata),
            ("169.254.170.2", Metadata),
            ("100.100.100.200", Metadata),
            ("168.63.129.16", Metadata),
            ("fd00:ec2::254", Metadata),
            ("fd00:42::42", Metadata),
            ("fd00:42::43", Private),
            // With an embedded IPv4 address: mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP.
            ("::ffff:8.8.8.8", Public),
            ("::ffff:10.0.0.1", Private),
            ("::ffff:169.254.169.254", Metadata),
            ("::127.0.0.1", Private),
            ("::169.254.169.254", Metadata),
            ("::ffff:0:8.8.8.8", Public),
            ("::ffff:0:127.0.0.1", Private),
            ("::ffff:0:169.254.169.254", Metadata),
            ("64:ff9b::8.8.8.8", Public),
            ("64:ff9b::7f00:1", Private),
            ("64:ff9b::a9fe:a9fe", Metadata),
            ("2002:808:808::1", Public),
            ("2002:7f00:1::1", Private),
            ("2002:a9fe:a9fe::", Metadata),
            ("2001:0:4136:e378:8000:63bf:f7f7:f7f7", Public), // 8.8.8.8 inverted
            ("2001:0:4136:e378:8000:63bf:80ff:fffe", Private), // 127.0.0.1 inverted
            ("2001:0:4136:e378:8000:63bf:5601:5601", Metadata), // 169.254.169.254 inverted
            ("::5efe:8.8.8.8", Public),
            ("2606:4700::5efe:808:808", Public),
            ("::5efe:127.0.0.1", Private),
            ("::5efe:169.254.169.254", Metadata),
            ("2606:4700::5efe:10.0.0.1", Private),
            ("2606:4700::200:5efe:169.254.1.1", LinkLocal),
            ("2606:4700:0:1:200:5efe:169.254.169.254", Metadata),
            ("fe80::5efe:8.8.8.8", LinkLocal),
        ] {
            assert_eq!(AddressKind::of(ip(text)), kind, "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_address_is_as_dangerous_as_the_one_inside_it(bits in any::<u32>()) {
            let v4 = Ipv4Addr::from_bits(bits);
            let kind = AddressKind::of(IpAddr::V4(v4));
            let [high, low] = [u16::try_from(bits >> 16).unwrap(), u16::try_from(bits & 0xffff).unwrap()];
            for v6 in [
                v4.to_ipv6_mapped(),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0x5efe, high, low),
                Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0x200, 0x5efe, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 0x4136, 0xe378, 0x8000, 0x63bf, !high, !low),
            ] {
                prop_assert_eq!(AddressKind::of(IpAddr::V6(v6)), kind);
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-f:./]{0,24}") {
            if let Ok(net) = Net::parse(&text) {
                prop_assert_eq!(Net::parse(&net.to_string()), Ok(net));
            }
        }
    }
}
