//! Finds personal data in a text by its look: IBANs, phone numbers, IP addresses and US social security
//! numbers.
//!
//! The detectors find nothing within a longer word or number, and no pseudonyms. Every byte is read a bounded
//! number of times.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use crate::pseudonym::{self, is_pseudonym};

/// A kind of personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PersonalKind {
    /// An account at a bank (ISO 13616), with valid check digits.
    Iban,
    /// A phone number: international with its `+` (E.164), or national with separators.
    Phone,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address with a digit.
    Ipv6,
    /// A US social security number with separators.
    Ssn,
}

/// The countries in the registry of IBANs, and the lengths of theirs.
const IBAN_LENGTHS: &str = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 \
EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 \
LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 \
RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30";

/// Number of digits of international phone numbers, with the code of the country. E.164 allows at most 15.
const INTERNATIONAL_DIGITS: Range<usize> = 8..16;

/// Number of digits of national phone numbers that begin with 0.
const NATIONAL_DIGITS: Range<usize> = 9..13;

/// Number of bytes of the longest IPv6 address, which ends with an IPv4 address.
const IPV6_BYTES_MAX: usize = 45;

/// Returns the places of data of these kinds, in order and without overlaps.
pub(crate) fn find(text: &str, kinds: &[PersonalKind]) -> Vec<Range<usize>> {
    let (text, mut found, mut at) = (text.as_bytes(), Vec::new(), 0);
    if kinds.is_empty() {
        return found;
    }
    while at < text.len() {
        if !begins(text, at) {
            at += 1;
            continue;
        }
        let rest = &text[at..];
        if rest.get(..pseudonym::LEN).is_some_and(is_pseudonym) {
            at += pseudonym::LEN;
            continue;
        }
        let before = at.checked_sub(1).map_or(b' ', |before| text[before]);
        match kinds.iter().filter_map(|kind| kind.length(before, rest)).max() {
            Some(length) => {
                found.push(at..at + length);
                at += length;
            }
            None => at += 1,
        }
    }
    found
}

/// Returns `true` if data may begin at `at`: not within a word or a percent-encoded character.
fn begins(text: &[u8], at: usize) -> bool {
    let are_hex = |high: &u8, low: &u8| high.is_ascii_hexdigit() && low.is_ascii_hexdigit();
    match (&text[..at], &text[at..]) {
        ([.., b'%', high, low], _) if are_hex(high, low) => true,
        ([.., b'%'], [high, low, ..]) if are_hex(high, low) => false,
        ([.., before], _) => !before.is_ascii_alphanumeric(),
        ([], _) => true,
    }
}

/// Returns `true` if a number may end before `after`.
pub(crate) fn is_boundary(after: &[u8]) -> bool {
    match after {
        [b'.', digit, ..] => !digit.is_ascii_digit(),
        [byte, ..] => !byte.is_ascii_alphanumeric() && *byte != b'_',
        [] => true,
    }
}

impl PersonalKind {
    /// Returns the length of the data that `text` begins with. `before` is the byte before it.
    fn length(self, before: u8, text: &[u8]) -> Option<usize> {
        let is_joined = matches!(before, b'-' | b'.' | b'_');
        match self {
            Self::Iban => iban(text),
            Self::Phone => international(text).or_else(|| national(text).filter(|_| !is_joined)),
            Self::Ipv4 => ipv4(text).filter(|_| before != b'.'),
            Self::Ipv6 => ipv6(text).filter(|_| before != b':'),
            Self::Ssn => ssn(text).filter(|_| !is_joined),
        }
    }
}

/// Returns the length of an IBAN: letters and digits, in groups of four if there are blanks.
fn iban(text: &[u8]) -> Option<usize> {
    let [first, second, b'0'..=b'9', ..] = text else { return None };
    let country = [first.to_ascii_uppercase(), second.to_ascii_uppercase()];
    let known = IBAN_LENGTHS.split(' ').find(|known| known.as_bytes().starts_with(&country))?;
    let length: usize = known[country.len()..].parse().ok()?;
    let (mut read, mut at) = (Vec::with_capacity(length), 0);
    while read.len() < length {
        match text.get(at)? {
            b' ' if read.len().is_multiple_of(4) && text[at - 1] != b' ' => {}
            byte if byte.is_ascii_alphanumeric() => read.push(*byte),
            _ => return None,
        }
        at += 1;
    }
    // The country and the check digits count at the end.
    read.rotate_left(4);
    let remainder = read.iter().fold(0, |remainder, byte| match char::from(*byte).to_digit(36) {
        Some(value @ 10..) => (remainder * 100 + value) % 97,
        value => (remainder * 10 + value.unwrap_or_default()) % 97,
    });
    (remainder == 1 && is_boundary(&text[at..])).then_some(at)
}

/// Returns the length of an international phone number. The plus may be percent-encoded.
fn international(text: &[u8]) -> Option<usize> {
    let start = match text {
        [b'+', b'1'..=b'9', ..] => 1,
        [b'%', b'2', b'B' | b'b', b'1'..=b'9', ..] => 3,
        _ => return None,
    };
    grouped(&text[start..], |lengths, _| INTERNATIONAL_DIGITS.contains(&lengths.iter().sum::<usize>()))
        .map(|length| start + length)
}

/// Returns the length of a national phone number: one of three, three and four digits, as in North America,
/// also behind a 1, or one whose area begins with 0. All separators are the same, so that no date with a time
/// is one.
fn national(text: &[u8]) -> Option<usize> {
    let area =
        |text: &[u8]| text.iter().take(NATIONAL_DIGITS.end).take_while(|byte| byte.is_ascii_digit()).count();
    let start = match text {
        [b'(', rest @ ..] if rest.get(area(rest)) == Some(&b')') => 1,
        [b'(', ..] => return None,
        _ => 0,
    };
    let is_area = matches!(text[start..], [b'0', b'1'..=b'9', ..]);
    let is_number = |lengths: &[usize], separators: &[u8]| {
        let is_pattern = match lengths {
            [3, 3, 4] => true,
            [1, 3, 3, 4] => text[start] == b'1',
            [2..=5, rest @ ..] => {
                // A single point is that of a fraction.
                is_area
                    && !rest.is_empty()
                    && separators != b"."
                    && rest.iter().all(|length| *length > 1)
                    && NATIONAL_DIGITS.contains(&lengths.iter().sum::<usize>())
            }
            _ => false,
        };
        is_pattern && separators.windows(2).all(|pair| pair[0] == pair[1])
    };
    grouped(&text[start..], is_number).map(|length| start + length)
}

/// Returns the length of the longest number in groups of digits that `is_number` accepts by the lengths of
/// the groups and by the separators, as far as these are not parentheses.
fn grouped(text: &[u8], is_number: impl Fn(&[usize], &[u8]) -> bool) -> Option<usize> {
    let (mut at, mut lengths, mut separators, mut end) = (0, Vec::new(), Vec::new(), None);
    loop {
        let digits = text[at..].iter().take(INTERNATIONAL_DIGITS.end);
        let length = digits.take_while(|byte| byte.is_ascii_digit()).count();
        at += length;
        lengths.push(length);
        if lengths.iter().sum::<usize>() >= INTERNATIONAL_DIGITS.end {
            return end;
        }
        if is_boundary(&text[at..]) && is_number(&lengths, &separators) {
            end = Some(at);
        }
        at += match &text[at..] {
            [separator @ (b' ' | b'-' | b'.' | b'/'), b'0'..=b'9', ..] => {
                separators.push(*separator);
                1
            }
            [b')' | b'(', b'0'..=b'9', ..] => 1,
            [b')', b' ' | b'-', b'0'..=b'9', ..] | [b' ', b'(', b'0'..=b'9', ..] => 2,
            _ => return end,
        };
    }
}

/// Returns the length of an IPv4 address.
fn ipv4(text: &[u8]) -> Option<usize> {
    let length = text.iter().take(16).take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
    // A full stop may end the sentence.
    let length = length - usize::from(text[..length].ends_with(b"."));
    let address = std::str::from_utf8(&text[..length]).ok()?;
    (address.parse::<Ipv4Addr>().is_ok() && is_boundary(&text[length..])).then_some(length)
}

/// Returns the length of an IPv6 address. One without a digit may be a path of names: `abc::def`.
fn ipv6(text: &[u8]) -> Option<usize> {
    let is_in = |byte: &&u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let run = text.iter().take(IPV6_BYTES_MAX + 1).take_while(is_in).count();
    // Punctuation may follow the address.
    let trimmed = run - usize::from(matches!(text[..run], [.., b':' | b'.']));
    [run, trimmed].into_iter().find(|length| {
        let address = std::str::from_utf8(&text[..*length]).ok();
        address.is_some_and(|address| {
            address.parse::<Ipv6Addr>().is_ok() && address.bytes().any(|byte| byte.is_ascii_digit())
        }) && is_boundary(&text[*length..])
    })
}

/// Returns the length of a US social security number: 123-45-6789. Some numbers are never given out.
fn ssn(text: &[u8]) -> Option<usize> {
    let number = text.first_chunk::<11>()?;
    let (area, group, serial) = (&number[..3], &number[4..6], &number[7..]);
    let is_written = matches!((number[3], number[6]), (b'-', b'-') | (b' ', b' '))
        && [area, group, serial].iter().all(|digits| digits.iter().all(u8::is_ascii_digit));
    let is_given = area[0] != b'9' && area != b"000" && area != b"666" && group != b"00" && serial != b"0000";
    (is_written && is_given && is_boundary(&text[number.len()..])).then_some(number.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Key;

    const ALL: [PersonalKind; 5] =
        [PersonalKind::Iban, PersonalKind::Phone, PersonalKind::Ipv4, PersonalKind::Ipv6, PersonalKind::Ssn];

    fn found<'a>(text: &'a str, kinds: &[PersonalKind]) -> Vec<&'a str> {
        find(text, kinds).into_iter().map(|span| &text[span]).collect()
    }

    /// Data that its kind alone finds.
    const DATA: [(PersonalKind, &[&str]); 5] = [
        (
            PersonalKind::Iban,
            &[
                "DE89370400440532013000",
                "DE89 3704 0044 0532 0130 00",
                "gb29nwbk60161331926819",
                "NO9386011117947",
                "MT84MALT011000012345MTLCAST001S",
                "FR14 2004 1010 0505 0001 3M02 606",
            ],
        ),
        (
            PersonalKind::Phone,
            &[
                "+4930123456",
                "+49 30 901820",
                "+49 (0)30 901820",
                "+49 (30) 901820-17",
                "+1-202-555-0143",
                "+1 (202) 555-0143",
                "+33 1 70 18 99 00",
                "%2B49301234567",
                "202-555-0143",
                "(202) 555-0143",
                "(202)555-0143",
                "1-202-555-0143",
                "202.555.0143",
                "202 555 0143",
                "030 901820",
                "030/1234567",
                "(030) 901820",
                "0171-1234567",
                "01 70 18 99 00",
                "020 7946 0958",
            ],
        ),
        (PersonalKind::Ipv4, &["192.0.2.1", "255.255.255.255", "0.0.0.0"]),
        (PersonalKind::Ipv6, &["2001:db8::1", "::1", "fe80::", "1:2:3:4:5:6:7:8", "::ffff:192.0.2.1"]),
        (PersonalKind::Ssn, &["123-45-6789", "123 45 6789"]),
    ];

    #[test]
    fn data_is_found_by_its_kind_in_any_text() {
        for (kind, data) in DATA {
            for one in data {
                for (before, after) in [
                    ("", ""),
                    ("a ", " b"),
                    ("\"", "\","),
                    ("é", "é"),
                    ("x: ", ". Then"),
                    ("%20", "%20"),
                    ("(", ")"),
                ] {
                    let text = format!("{before}{one}{after}");
                    assert_eq!(found(&text, &[kind]), [*one], "{text}");
                }
            }
        }
    }

    #[test]
    fn similar_texts_are_no_data() {
        for text in [
            "DE88370400440532013000",
            "XX89370400440532013000",
            "xDE89370400440532013000",
            "DE893704004405320130001",
            "DE89 37 1040 1440 5320 1300",
            "+4930",
            "+0930123456",
            "a+4930123456",
            "+4930123456789012",
            "2026-01-02T03:04:05+0100",
            "01/02/2026 03:04",
            "01-02-2026 1234",
            "2026-11-29 22:00:00",
            "0.123456789",
            "1234567890",
            "1,234,567.89",
            "4111 1111 1111 1111",
            "018bcfe5-6800-0123-4567-0123456789ab",
            "12-202-555-0143",
            "1.2.3",
            "1.2.3.4.5",
            "256.1.1.1",
            "v1.2.3.4",
            "10:20:30",
            "00:11:22:33:44:55",
            "abc::def",
            "std::net",
            "12345:",
            "000-45-6789",
            "666-45-6789",
            "900-45-6789",
            "123-00-6789",
            "123-45-0000",
            "123-45 6789",
            "1123-45-6789",
            "123-45-67890",
            "",
        ] {
            assert_eq!(found(text, &ALL), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_pseudonym_is_no_data_and_ends_none() {
        let hidden = Key::new(&[1; 32]).text(b"x").to_string();
        assert_eq!(found(&hidden, &ALL), [""; 0]);
        assert_eq!(found(&format!("{hidden} 192.0.2.1"), &ALL), ["192.0.2.1"]);
    }

    proptest! {
        #[test]
        fn any_text_is_searched_and_soon_hidden(
            text in "([0-9]{1,4}|[-+ ./():%a-fA-F]|DE89|é|\\+49|\\PC){0,40}"
        ) {
            let (key, mut text) = (Key::new(&[1; 32]), text);
            for _ in 0..4 {
                let (mut hidden, mut end) = (String::new(), 0);
                for span in find(&text, &ALL) {
                    prop_assert!(span.start >= end && !span.is_empty());
                    hidden.push_str(&text[end..span.start]);
                    hidden.push_str(key.text(text[span.clone()].as_bytes()).as_str());
                    end = span.end;
                }
                hidden.push_str(&text[end..]);
                text = hidden;
            }
            prop_assert_eq!(found(&text, &ALL), [""; 0]);
        }
    }
}
