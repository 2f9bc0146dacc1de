//! The static table (RFC 7541, appendix A): the fields that every peer knows.

use egret_http1::KnownField;

use super::fields::{Text, ValueForm};
use super::name::FieldName::{self, Authority, Field, Method, Path, Scheme, Status};

/// Number of fields in the table. They have the indices from 1 on.
const STATIC_FIELDS: usize = 61;
/// Index of the first field in the dynamic table (RFC 7541 §2.3.3).
pub(super) const FIRST_INDEX: usize = STATIC_FIELDS + 1;

macro_rules! static_fields {
    ($($known:expr, $name:literal $value:literal;)*) => {
        [$(Text { known: $known, form: ValueForm::Plain, line: concat!($name, ": ", $value, "\r\n").as_bytes(), name_len: $name.len() },)*]
    };
}

/// The fields in the order of their indices.
pub(super) static STATIC: [Text<'static>; STATIC_FIELDS] = static_fields! {
    Authority, ":authority" "";
    Method, ":method" "GET";
    Method, ":method" "POST";
    Path, ":path" "/";
    Path, ":path" "/index.html";
    Scheme, ":scheme" "http";
    Scheme, ":scheme" "https";
    Status, ":status" "200";
    Status, ":status" "204";
    Status, ":status" "206";
    Status, ":status" "304";
    Status, ":status" "400";
    Status, ":status" "404";
    Status, ":status" "500";
    Field(KnownField::AcceptCharset), "accept-charset" "";
    Field(KnownField::AcceptEncoding), "accept-encoding" "gzip, deflate";
    Field(KnownField::AcceptLanguage), "accept-language" "";
    Field(KnownField::AcceptRanges), "accept-ranges" "";
    Field(KnownField::Accept), "accept" "";
    Field(KnownField::Other), "access-control-allow-origin" "";
    Field(KnownField::Age), "age" "";
    Field(KnownField::Allow), "allow" "";
    Field(KnownField::Authorization), "authorization" "";
    Field(KnownField::CacheControl), "cache-control" "";
    Field(KnownField::ContentDisposition), "content-disposition" "";
    Field(KnownField::ContentEncoding), "content-encoding" "";
    Field(KnownField::ContentLanguage), "content-language" "";
    Field(KnownField::ContentLength), "content-length" "";
    Field(KnownField::ContentLocation), "content-location" "";
    Field(KnownField::ContentRange), "content-range" "";
    Field(KnownField::ContentType), "content-type" "";
    Field(KnownField::Cookie), "cookie" "";
    Field(KnownField::Date), "date" "";
    Field(KnownField::Etag), "etag" "";
    Field(KnownField::Expect), "expect" "";
    Field(KnownField::Expires), "expires" "";
    Field(KnownField::Other), "from" "";
    Field(KnownField::Host), "host" "";
    Field(KnownField::IfMatch), "if-match" "";
    Field(KnownField::IfModifiedSince), "if-modified-since" "";
    Field(KnownField::IfNoneMatch), "if-none-match" "";
    Field(KnownField::IfRange), "if-range" "";
    Field(KnownField::IfUnmodifiedSince), "if-unmodified-since" "";
    Field(KnownField::LastModified), "last-modified" "";
    Field(KnownField::Other), "link" "";
    Field(KnownField::Location), "location" "";
    Field(KnownField::MaxForwards), "max-forwards" "";
    Field(KnownField::ProxyAuthenticate), "proxy-authenticate" "";
    Field(KnownField::ProxyAuthorization), "proxy-authorization" "";
    Field(KnownField::Range), "range" "";
    Field(KnownField::Referer), "referer" "";
    Field(KnownField::Other), "refresh" "";
    Field(KnownField::RetryAfter), "retry-after" "";
    Field(KnownField::Server), "server" "";
    Field(KnownField::SetCookie), "set-cookie" "";
    Field(KnownField::StrictTransportSecurity), "strict-transport-security" "";
    Field(KnownField::TransferEncoding), "transfer-encoding" "";
    Field(KnownField::UserAgent), "user-agent" "";
    Field(KnownField::Vary), "vary" "";
    Field(KnownField::Via), "via" "";
    Field(KnownField::WwwAuthenticate), "www-authenticate" "";
};

/// The first index of each known field, 0 if it is not in the table.
static INDICES: [u8; KnownField::Other as usize] = indices();

const fn indices() -> [u8; KnownField::Other as usize] {
    let mut indices = [0; KnownField::Other as usize];
    let mut index = 1_u8;
    while index as usize <= STATIC_FIELDS {
        if let Field(field) = STATIC[index as usize - 1].known
            && (field as usize) < indices.len()
        {
            indices[field as usize] = index;
        }
        index += 1;
    }
    indices
}

/// Returns the first index of a field with this name, 0 if there is none.
#[inline]
pub(super) fn name_index(known: FieldName, name: &[u8]) -> usize {
    match known {
        Authority => 1,
        Method => 2,
        Path => 4,
        Scheme => 6,
        Status => 8,
        FieldName::Protocol | FieldName::UnknownPseudo | FieldName::Malformed => 0,
        Field(KnownField::Other) => match name {
            b"access-control-allow-origin" => 20,
            b"from" => 37,
            b"link" => 45,
            b"refresh" => 52,
            _ => 0,
        },
        Field(field) => INDICES.get(field as usize).map_or(0, |index| usize::from(*index)),
    }
}

/// Returns the index of the field with this value, and with the name whose first index is `name_index`.
#[inline]
pub(super) fn field_index(name_index: usize, value: &[u8]) -> Option<usize> {
    // The other names have no value in the table.
    let last_index = match name_index {
        2 | 4 | 6 => name_index + 1,
        8 => 14,
        16 => 16,
        _ => return None,
    };
    let mut fields = STATIC[name_index - 1..last_index].iter();
    fields.position(|text| text.split().1 == value).map(|at| name_index + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_found_at_its_index() {
        for (at, text) in STATIC.iter().enumerate() {
            let (name, value) = text.split();
            assert_eq!(text.known, FieldName::of(name));
            let first = STATIC.iter().position(|other| other.split().0 == name).unwrap();
            assert_eq!(name_index(text.known, name), first + 1);
            assert_eq!(field_index(first + 1, value), (!value.is_empty()).then_some(at + 1));
        }
    }

    #[test]
    fn a_field_that_is_not_there_is_not_found() {
        for name in [&b":protocol"[..], b":x", b"te", b"x-own", b"links", b""] {
            assert_eq!(name_index(FieldName::of(name), name), 0);
        }
        for (name, value) in [(&b":status"[..], &b"201"[..]), (b":method", b"get"), (b"accept", b"*/*")] {
            assert_eq!(field_index(name_index(FieldName::of(name), name), value), None);
        }
    }
}
