//! The parts of a gRPC call that HTTP carries: its method, its deadline and its status (gRPC over HTTP/2,
//! §Requests and §Responses).
//!
//! Messages are not decoded. gRPC-Web and Connect have media types of their own and are ordinary HTTP here.

use std::borrow::Cow;
use std::time::Duration;

use crate::Fields;

/// Media type of gRPC, without the suffix that names the format of messages.
pub const MEDIA_TYPE: &str = "application/grpc";
/// Field and trailer with the status of a call.
pub const STATUS: &str = "grpc-status";
/// Field and trailer with the explanation of a status, percent-encoded.
pub const MESSAGE: &str = "grpc-message";
/// Field with the time that the client still waits.
pub const TIMEOUT: &str = "grpc-timeout";

/// Maximum number of digits of a timeout.
const TIMEOUT_DIGITS_MAX: usize = 8;

/// Defines the status codes. Each row has the number and the name.
macro_rules! statuses {
    ($($(#[$meta:meta])* $status:ident => $code:literal, $name:literal;)*) => {
        /// The status of a call (gRPC status codes).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum GrpcStatus {
            $($(#[$meta])* $status = $code,)*
        }

        impl GrpcStatus {
            /// Every status, in the order of the codes.
            pub const ALL: &'static [Self] = &[$(Self::$status,)*];

            /// Returns the name, in lower case and with dashes: `deadline-exceeded`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$status => $name,)* }
            }

            /// Returns the word for it among other outcomes of calls: `grpc-deadline-exceeded`.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$status => concat!("grpc-", $name),)* }
            }
        }
    };
}

statuses! {
    /// The call succeeded.
    Ok => 0, "ok";
    /// The client has cancelled the call.
    Cancelled => 1, "cancelled";
    /// An error without a better name.
    Unknown => 2, "unknown";
    /// The client has sent an argument that is never valid.
    InvalidArgument => 3, "invalid-argument";
    /// The deadline passed before the end of the call.
    DeadlineExceeded => 4, "deadline-exceeded";
    /// The requested entity does not exist.
    NotFound => 5, "not-found";
    /// The entity to be created exists.
    AlreadyExists => 6, "already-exists";
    /// The caller may not do that.
    PermissionDenied => 7, "permission-denied";
    /// A quota is used up, or a resource of the server.
    ResourceExhausted => 8, "resource-exhausted";
    /// The system is not in the state that the call needs.
    FailedPrecondition => 9, "failed-precondition";
    /// The call lost against a concurrent one.
    Aborted => 10, "aborted";
    /// The argument is beyond the valid range.
    OutOfRange => 11, "out-of-range";
    /// The method does not exist.
    Unimplemented => 12, "unimplemented";
    /// The server is broken.
    Internal => 13, "internal";
    /// The service is not available: the call may succeed if it is repeated.
    Unavailable => 14, "unavailable";
    /// Data were lost for good.
    DataLoss => 15, "data-loss";
    /// The caller has not proven who it is.
    Unauthenticated => 16, "unauthenticated";
}

impl GrpcStatus {
    /// Returns the number that `grpc-status` has.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the status with that number.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns the status with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|status| status.name() == name).copied()
    }

    /// Reads the value of `grpc-status`. A number without a meaning is [`Unknown`](Self::Unknown), as the
    /// status codes of gRPC have it, and so is anything that is not a number.
    pub fn read(value: &[u8]) -> Self {
        let code = match *value {
            [digit @ b'0'..=b'9'] => digit - b'0',
            [b'1', digit @ b'0'..=b'9'] => 10 + digit - b'0',
            _ => return Self::Unknown,
        };
        Self::of_code(code).unwrap_or(Self::Unknown)
    }

    /// Returns the status in a head with these fields. A head has one only if there is no message, so the
    /// head and the trailers are one (Trailers-Only).
    pub fn in_head(fields: Fields<'_>) -> Option<Self> {
        fields.get(STATUS.as_bytes()).map(Self::read)
    }

    /// Returns the status in the lines of trailers.
    pub fn in_trailers(lines: &[u8]) -> Option<Self> {
        let named = |line: &[u8]| {
            let (name, value) = line.split_at_checked(STATUS.len())?;
            let value = value.strip_prefix(b":")?;
            name.eq_ignore_ascii_case(STATUS.as_bytes()).then(|| Self::read(value.trim_ascii()))
        };
        lines.split(|byte| *byte == b'\n').find_map(named)
    }

    /// Returns the status that tells a gRPC client about a response with an HTTP status (HTTP to gRPC status
    /// code mapping). A timeout of the gateway is a deadline that has passed: unlike a client, the gateway
    /// knows which of the two it is.
    pub fn of_http(status: u16) -> Self {
        match status {
            200..=299 => Self::Ok,
            400 | 431 => Self::Internal,
            401 | 407 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502 | 503 => Self::Unavailable,
            504 => Self::DeadlineExceeded,
            _ => Self::Unknown,
        }
    }

    /// Returns `true` if the status says that the provider has failed, not the caller.
    pub fn is_failure(self) -> bool {
        matches!(
            self,
            Self::Unknown | Self::DeadlineExceeded | Self::Internal | Self::Unavailable | Self::DataLoss
        )
    }
}

/// The status of an exchange's gRPC call, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GrpcOutcome {
    /// The exchange is no gRPC call.
    #[default]
    NotGrpc,
    /// The call has not ended, or has ended without a status.
    Pending,
    /// The call has ended with this status.
    Ended(GrpcStatus),
}

impl GrpcOutcome {
    /// Returns the status, if it is known.
    pub fn status(self) -> Option<GrpcStatus> {
        match self {
            Self::Ended(status) => Some(status),
            Self::NotGrpc | Self::Pending => None,
        }
    }
}

/// Returns `true` if a media type is that of gRPC: `application/grpc`, with or without a suffix like
/// `+proto`. `application/grpc-web` is another protocol.
pub fn is_grpc(media_type: &[u8]) -> bool {
    media_type.split_at_checked(MEDIA_TYPE.len()).is_some_and(|(start, rest)| {
        start.eq_ignore_ascii_case(MEDIA_TYPE.as_bytes())
            && matches!(rest.first(), None | Some(b'+' | b';' | b' ' | b'\t'))
    })
}

/// Returns `true` if a message with these fields belongs to a gRPC call.
pub fn is_grpc_message(fields: Fields<'_>) -> bool {
    fields.get(b"content-type").is_some_and(is_grpc)
}

/// The method that a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrpcMethod<'a> {
    /// Name of the service with its package: `helloworld.Greeter`.
    pub service: &'a str,
    /// Name of the method: `SayHello`.
    pub method: &'a str,
}

impl<'a> GrpcMethod<'a> {
    /// Reads the path of a call: `/helloworld.Greeter/SayHello`. Returns `None` if it has another form. A
    /// service may be behind a prefix, which belongs to its name then.
    pub fn of_path(path: &'a [u8]) -> Option<Self> {
        let path = std::str::from_utf8(path).ok()?.strip_prefix('/')?;
        let (service, method) = path.rsplit_once('/')?;
        (!service.is_empty() && !method.is_empty()).then_some(Self { service, method })
    }
}

/// Reads the value of `grpc-timeout`: one to eight digits and a unit. Returns `None` if it has another form.
pub fn read_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > TIMEOUT_DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Writes a value of `grpc-timeout` in the smallest unit that has room for it. It is rounded down, so nobody
/// is given more time than there is, but never to 0, which some servers refuse.
pub fn write_timeout(timeout: Duration) -> String {
    const ROOM: u128 = 100_000_000;
    let nanos = timeout.as_nanos().max(1);
    let units = [('n', 1), ('u', 1_000), ('m', 1_000_000), ('S', 1_000_000_000), ('M', 60_000_000_000)];
    let fits = units.into_iter().find(|(_, unit_nanos)| nanos / unit_nanos < ROOM);
    let (unit, unit_nanos) = fits.unwrap_or(('H', 3_600_000_000_000));
    format!("{}{unit}", (nanos / unit_nanos).min(ROOM - 1))
}

/// Writes a value of `grpc-message`: bytes outside of printable ASCII, and `%`, are percent-encoded.
pub fn encode_message(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'%';
    if text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut encoded = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            for digit in [byte >> 4, byte & 15] {
                encoded
                    .extend(char::from_digit(u32::from(digit), 16).map(|digit| digit.to_ascii_uppercase()));
            }
        }
    }
    Cow::Owned(encoded)
}

/// Reads a value of `grpc-message`. What is not a valid encoding is kept as it is, and bytes that are not
/// UTF-8 are replaced: a client must be able to show a message that is wrong (gRPC over HTTP/2, §Responses).
pub fn decode_message(value: &[u8]) -> String {
    let digit =
        |byte: Option<&u8>| char::from(*byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(value.len());
    let mut at = 0;
    while let Some(byte) = value.get(at) {
        let encoded = (byte, digit(value.get(at + 1)), digit(value.get(at + 2)));
        if let (b'%', Some(high), Some(low)) = encoded {
            decoded.push(high << 4 | low);
            at += 3;
        } else {
            decoded.push(*byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_media_type_tells_grpc_from_its_relatives() {
        for media_type in
            ["application/grpc", "application/grpc+proto", "Application/GRPC;a=b", "application/grpc ; a=b"]
        {
            assert!(is_grpc(media_type.as_bytes()), "{media_type}");
        }
        for media_type in [
            "application/grpc-web",
            "application/grpc-web+proto",
            "application/grpcx",
            "application/proto",
            "application/connect+proto",
            "application/json",
            "",
        ] {
            assert!(!is_grpc(media_type.as_bytes()), "{media_type}");
        }
    }

    #[test]
    fn a_path_names_service_and_method() {
        let named = |path: &'static str| {
            GrpcMethod::of_path(path.as_bytes()).map(|named| (named.service, named.method))
        };
        assert_eq!(named("/helloworld.Greeter/SayHello"), Some(("helloworld.Greeter", "SayHello")));
        assert_eq!(named("/v1/a.B/C"), Some(("v1/a.B", "C")));
        for path in ["", "/", "/a", "a/b", "/a/", "//b", "*"] {
            assert_eq!(named(path), None, "{path}");
        }
        assert_eq!(GrpcMethod::of_path(b"/a/\xff"), None);
    }

    #[test]
    fn a_status_is_read_by_its_number() {
        for status in GrpcStatus::ALL {
            assert_eq!(GrpcStatus::read(status.code().to_string().as_bytes()), *status);
            assert_eq!(GrpcStatus::named(status.name()), Some(*status));
        }
        assert_eq!(GrpcStatus::ALL.len(), 17);
        for wrong in ["", "17", "99", "014", "-1", "+1", "1 ", "UNAVAILABLE", "100"] {
            assert_eq!(GrpcStatus::read(wrong.as_bytes()), GrpcStatus::Unknown, "{wrong}");
        }
    }

    #[test]
    fn trailers_have_a_status_among_other_lines() {
        let status = |lines: &[u8]| GrpcStatus::in_trailers(lines).map(GrpcStatus::name);
        assert_eq!(status(b"x-a: 1\r\nGrpc-Status:  14 \r\ngrpc-message: no\r\n"), Some("unavailable"));
        assert_eq!(status(b"grpc-status: 0\r\n"), Some("ok"));
        assert_eq!(status(b"grpc-status: nonsense\r\n"), Some("unknown"));
        for lines in ["", "grpc-status\r\n", "grpc-status-details-bin: 1\r\n", "x-grpc-status: 1\r\n"] {
            assert_eq!(status(lines.as_bytes()), None, "{lines}");
        }
    }

    #[test]
    fn http_statuses_become_those_of_grpc() {
        let pairs = [
            (200, 0),
            (400, 13),
            (401, 16),
            (403, 7),
            (404, 12),
            (407, 16),
            (413, 2),
            (429, 14),
            (431, 13),
            (500, 2),
            (502, 14),
            (503, 14),
            (504, 4),
        ];
        for (http, grpc) in pairs {
            assert_eq!(GrpcStatus::of_http(http).code(), grpc, "{http}");
        }
    }

    #[test]
    fn a_timeout_has_up_to_eight_digits_and_a_unit() {
        let read = |text: &str| read_timeout(text.as_bytes());
        assert_eq!(read("1H"), Some(Duration::from_hours(1)));
        assert_eq!(read("2M"), Some(Duration::from_mins(2)));
        assert_eq!(read("003S"), Some(Duration::from_secs(3)));
        assert_eq!(read("99999999m"), Some(Duration::from_millis(99_999_999)));
        assert_eq!(read("5u"), Some(Duration::from_micros(5)));
        assert_eq!(read("0n"), Some(Duration::ZERO));
        assert!(read("99999999H").is_some());
        for wrong in ["", "S", "1", "1s", "123456789m", "-1S", "1.5S", " 1S", "1S ", "1 S", "1mS"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_message_is_percent_encoded() {
        assert!(matches!(encode_message("all 8 connections are in use"), Cow::Borrowed(_)));
        assert_eq!(encode_message("50 % größer\n"), "50 %25 gr%C3%B6%C3%9Fer%0A");
        assert_eq!(decode_message(b"100%, %zz %4"), "100%, %zz %4");
        assert_eq!(decode_message(b"%ff"), "\u{fffd}");
    }

    proptest! {
        /// A message survives, and its encoding is a field value that needs no further care.
        #[test]
        fn a_message_is_the_same_after_encoding(text: String) {
            let encoded = encode_message(&text);
            prop_assert!(encoded.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            prop_assert_eq!(decode_message(encoded.as_bytes()), text);
        }

        /// A written timeout is read as no more than it was, and as nearly as much: seven digits are exact.
        #[test]
        fn a_timeout_is_written_without_gaining_time(nanos in 1_u64..=u64::MAX) {
            let timeout = Duration::from_nanos(nanos);
            let text = write_timeout(timeout);
            let read = read_timeout(text.as_bytes()).unwrap();
            prop_assert!(!read.is_zero() && read <= timeout, "{text}");
            prop_assert!(timeout.saturating_sub(read) <= timeout / 1_000_000, "{text}");
        }
    }
}
