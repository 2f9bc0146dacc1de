//! Reason phrases of status codes.

/// Returns the reason phrase of `status`: RFC 9110 §15, and RFC 6585 for 428, 429, 431 and 511. Empty for
/// other codes.
pub const fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::reason;

    #[test]
    fn registered_codes_have_a_reason_of_their_own() {
        let registered: Vec<u16> = [100..=101, 200..=206, 300..=305, 307..=308, 400..=417, 421..=422]
            .into_iter()
            .chain([425..=426, 428..=429, 431..=431, 500..=505, 508..=508, 511..=511])
            .flatten()
            .collect();
        let reasons: HashSet<&str> = registered.iter().map(|code| reason(*code)).collect();
        assert_eq!(reasons.len(), registered.len());
        for code in 0..=999 {
            assert_eq!(reason(code).is_empty(), !registered.contains(&code), "{code}");
        }
        assert_eq!((reason(404), reason(503)), ("Not Found", "Service Unavailable"));
    }
}
