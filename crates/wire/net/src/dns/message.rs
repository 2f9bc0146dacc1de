//! Messages of a name server (RFC 1035): a client's question, and the reply to it.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA};
use hickory_resolver::proto::rr::{DNSClass, RData, Record, RecordType};

use super::DnsError;

/// Maximum number of addresses in a reply. With these, and with the longest name, it fits into the 512 bytes
/// that every client accepts over UDP.
const ADDRESSES_MAX: usize = 6;

/// Lifetime of addresses in a reply. The resolver behind the reply has a cache, so asking again is cheap.
const TTL: Duration = Duration::from_secs(5);

/// A client's question.
#[derive(Debug)]
pub struct DnsQuestion {
    id: u16,
    is_recursion_desired: bool,
    query: Query,
}

/// The reason why there is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAddress {
    /// The host must not be looked up.
    Denied,
    /// The look-up failed.
    Dns(DnsError),
}

impl DnsQuestion {
    /// Parses a client's message. Returns `None` if it is none, or has not exactly one question. Such
    /// messages get no reply: their sender may be forged, or a server that would reply in turn.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let Message { metadata, mut queries, .. } = Message::from_vec(message).ok()?;
        if metadata.message_type != MessageType::Query || metadata.op_code != OpCode::Query {
            return None;
        }
        let query = queries.pop().filter(|_| queries.is_empty())?;
        Some(Self { id: metadata.id, is_recursion_desired: metadata.recursion_desired, query })
    }

    /// Returns the name whose addresses are asked for, in lower case and without a dot at its end. `None` for
    /// questions about anything else.
    pub fn host(&self) -> Option<String> {
        let is_known = matches!(self.query.query_type, RecordType::A | RecordType::AAAA)
            && self.query.query_class == DNSClass::IN;
        is_known.then(|| self.query.name.to_lowercase().to_ascii().trim_end_matches('.').to_owned())
    }

    /// Returns the reply with these addresses, or without any.
    pub fn reply(&self, found: Result<&[IpAddr], NoAddress>) -> Vec<u8> {
        let mut message = Message::response(self.id, OpCode::Query);
        message.metadata.recursion_desired = self.is_recursion_desired;
        message.metadata.recursion_available = true;
        message.metadata.response_code = match found {
            Ok(_) => ResponseCode::NoError,
            Err(NoAddress::Denied) => ResponseCode::Refused,
            Err(NoAddress::Dns(DnsError::NotFound)) => ResponseCode::NXDomain,
            Err(NoAddress::Dns(_)) => ResponseCode::ServFail,
        };
        let data =
            found.unwrap_or_default().iter().filter_map(|address| match (self.query.query_type, address) {
                (RecordType::A, IpAddr::V4(ip)) => Some(RData::A(A(*ip))),
                (RecordType::AAAA, IpAddr::V6(ip)) => Some(RData::AAAA(AAAA(*ip))),
                _ => None,
            });
        let ttl = u32::try_from(TTL.as_secs()).unwrap_or_default();
        let records = data.map(|data| Record::from_rdata(self.query.name.clone(), ttl, data));
        message.add_answers(records.take(ADDRESSES_MAX));
        message.add_query(self.query.clone());
        // Only an invalid name cannot be written, and this one was read.
        message.to_vec().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::rr::Name;

    use super::*;

    /// Returns the message of a client that asks for these records of a name.
    fn asked(name: &str, kind: RecordType) -> Vec<u8> {
        let mut message = Message::query();
        message.metadata.id = 7;
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        message.to_vec().unwrap()
    }

    fn replied(kind: RecordType, found: Result<&[IpAddr], NoAddress>) -> (ResponseCode, Vec<IpAddr>) {
        let reply = DnsQuestion::parse(&asked("A.Example.", kind)).unwrap().reply(found);
        let message = Message::from_vec(&reply).unwrap();
        assert_eq!((message.metadata.id, message.metadata.message_type), (7, MessageType::Response));
        assert_eq!((message.queries.len(), message.metadata.recursion_available), (1, true));
        let addresses = message.answers.iter().filter_map(|record| record.data.ip_addr());
        (message.metadata.response_code, addresses.collect())
    }

    #[test]
    fn a_question_about_addresses_names_its_host() {
        for kind in [RecordType::A, RecordType::AAAA] {
            assert_eq!(DnsQuestion::parse(&asked("A.Example.", kind)).unwrap().host().unwrap(), "a.example");
        }
        for kind in [RecordType::HTTPS, RecordType::TXT, RecordType::ANY, RecordType::PTR] {
            let question = DnsQuestion::parse(&asked("a.example.", kind)).unwrap();
            assert_eq!(question.host(), None);
            assert_eq!(replied(kind, Ok(&[])), (ResponseCode::NoError, Vec::new()));
        }
    }

    #[test]
    fn a_reply_has_the_addresses_of_the_wanted_family() {
        let [v4, v6]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        assert_eq!(replied(RecordType::A, Ok(&[v6, v4])), (ResponseCode::NoError, vec![v4]));
        assert_eq!(replied(RecordType::AAAA, Ok(&[v6, v4])), (ResponseCode::NoError, vec![v6]));
        assert_eq!(replied(RecordType::AAAA, Ok(&[v4])), (ResponseCode::NoError, Vec::new()));
    }

    #[test]
    fn a_reply_says_why_there_is_no_address() {
        for (why, code) in [
            (NoAddress::Denied, ResponseCode::Refused),
            (NoAddress::Dns(DnsError::NotFound), ResponseCode::NXDomain),
            (NoAddress::Dns(DnsError::Timeout), ResponseCode::ServFail),
        ] {
            assert_eq!(replied(RecordType::A, Err(why)), (code, Vec::new()));
        }
    }

    #[test]
    fn a_reply_fits_into_a_small_packet() {
        let label = "a".repeat(63);
        let name = format!("{label}.{label}.{label}.{}.", "b".repeat(61));
        let addresses: Vec<IpAddr> = (0..100).map(|last| IpAddr::from([0, 0, 0, 0, 0, 0, 0, last])).collect();
        let reply = DnsQuestion::parse(&asked(&name, RecordType::AAAA)).unwrap().reply(Ok(&addresses));
        assert!(reply.len() <= 512, "{}", reply.len());
        assert_eq!(Message::from_vec(&reply).unwrap().answers.len(), ADDRESSES_MAX);
    }

    #[test]
    fn other_messages_are_no_questions() {
        let question = asked("a.example.", RecordType::A);
        let mut response = question.clone();
        response[2] |= 0x80;
        let mut two = Message::from_vec(&question).unwrap();
        two.add_query(two.queries[0].clone());
        for message in [&[][..], b"\0", &question[..20], &response, &two.to_vec().unwrap()] {
            assert!(DnsQuestion::parse(message).is_none(), "{message:?}");
        }
        for length in 0..question.len() {
            assert!(DnsQuestion::parse(&question[..length]).is_none(), "{length}");
        }
    }
}
