//! The bodies of error responses, in the forms from which the clients of an API read the cause.
//!
//! AWS has a form for each of its protocols, and a client reads only that of its request. A client names its
//! service in the scope of its signature and in `User-Agent`, whichever way it was routed here.

use egret_http1::reason;
use egret_message::Fields;
use egret_message::grpc::{self, GrpcStatus};

use crate::failure::config::ErrorFormat;

/// The protocol in which the parties of AWS's newer services send CBOR.
const SMITHY_CBOR: &str = "rpc-v2-cbor";

/// The form of an error response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyForm {
    Problem,
    Text,
    OpenAi,
    Anthropic,
    /// JSON, of most services of AWS.
    AwsJson,
    AwsCbor,
    /// XML, of services that are called with forms, and of Route 53 and CloudFront.
    AwsQuery,
    AwsEc2,
    AwsS3,
    /// None: header fields alone, which are the trailers at the same time.
    Grpc,
}

/// An error that a body tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToldError<'a> {
    pub slug: &'a str,
    pub status: u16,
    pub detail: &'a str,
    pub request_id: Option<&'a str>,
}

/// A body with the header fields that belong to it.
#[derive(Debug)]
pub(super) struct ErrorBody {
    pub media_type: &'static str,
    pub content: Vec<u8>,
    /// Names and values. Clients read some of the error here.
    pub fields: Vec<(&'static str, String)>,
}

impl BodyForm {
    /// Returns the form for a request with these `fields`.
    pub fn of(format: ErrorFormat, fields: Fields<'_>) -> Self {
        match format {
            ErrorFormat::Problem => Self::Problem,
            ErrorFormat::Text => Self::Text,
            ErrorFormat::Openai => Self::OpenAi,
            ErrorFormat::Anthropic => Self::Anthropic,
            ErrorFormat::Aws => Self::of_aws(fields),
        }
    }

    fn of_aws(fields: Fields<'_>) -> Self {
        let text = |name: &[u8]| {
            let value =
                fields.get(name).and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default();
            value.to_ascii_lowercase()
        };
        if text(b"smithy-protocol") == SMITHY_CBOR {
            return Self::AwsCbor;
        }
        let (signed, agent, host) = (text(b"authorization"), text(b"user-agent"), text(b"host"));
        let is_form = text(b"content-type").starts_with("application/x-www-form-urlencoded");
        match signing_service(&signed).or_else(|| service_of_agent(&agent)) {
            Some(service) if service.starts_with("s3") => Self::AwsS3,
            Some("route53" | "cloudfront") => Self::AwsQuery,
            Some("ec2") => Self::AwsEc2,
            _ if is_form => Self::AwsQuery,
            None if host.starts_with("s3.") || host.contains(".s3.") || host.contains(".s3-") => Self::AwsS3,
            _ => Self::AwsJson,
        }
    }
}

/// Returns the service in the scope of a signature: `Credential=KEY/DATE/REGION/SERVICE/aws4_request`.
fn signing_service(authorization: &str) -> Option<&str> {
    let (_, scope) = authorization.split_once("credential=")?;
    scope.split(',').next()?.rsplit('/').nth(1)
}

/// Returns the service that an SDK names in `User-Agent`: `api/SERVICE#VERSION`.
fn service_of_agent(agent: &str) -> Option<&str> {
    let named = agent.split(' ').find_map(|word| word.strip_prefix("api/"))?;
    named.split('#').next()
}

impl ToldError<'_> {
    /// Writes the body in that form.
    pub fn body(&self, form: BodyForm) -> ErrorBody {
        let Self { slug, status, detail, request_id } = *self;
        let plain = |media_type, text: String| ErrorBody {
            media_type,
            content: text.into_bytes(),
            fields: Vec::new(),
        };
        match form {
            BodyForm::Grpc => ErrorBody {
                media_type: grpc::MEDIA_TYPE,
                content: Vec::new(),
                fields: vec![
                    (grpc::STATUS, GrpcStatus::of_http(status).code().to_string()),
                    (grpc::MESSAGE, grpc::encode_message(detail).into_owned()),
                ],
            },
            BodyForm::Problem => {
                let mut problem = serde_json::json!({
                    "type": "about:blank",
                    "title": reason(status),
                    "status": status,
                    "detail": detail,
                    "error": slug,
                });
                if let Some(id) = request_id {
                    problem["request_id"] = id.into();
                }
                plain("application/problem+json", problem.to_string())
            }
            BodyForm::Text => plain("text/plain; charset=utf-8", format!("{status}: {detail}")),
            BodyForm::OpenAi => {
                let error = serde_json::json!({
                    "message": detail, "type": type_of_openai(status), "param": null, "code": slug,
                });
                self.with_id("x-request-id", json(&serde_json::json!({ "error": error })))
            }
            BodyForm::Anthropic => {
                let error = serde_json::json!({
                    "type": type_of_anthropic(status), "message": detail, "code": slug,
                });
                let mut body = serde_json::json!({ "type": "error", "error": error });
                if let Some(id) = request_id {
                    body["request_id"] = id.into();
                }
                self.with_id("request-id", json(&body))
            }
            BodyForm::AwsJson => {
                let code = self.code();
                let mut body = json(&serde_json::json!({ "__type": code, "message": detail }));
                body.fields.push(("x-amzn-errortype", code));
                self.with_id("x-amzn-requestid", body)
            }
            BodyForm::AwsCbor => {
                let mut content = vec![0xa2];
                for text in ["__type", &*self.code(), "message", detail] {
                    write_cbor(text, &mut content);
                }
                let fields = vec![("smithy-protocol", SMITHY_CBOR.to_owned())];
                self.with_id(
                    "x-amzn-requestid",
                    ErrorBody { media_type: "application/cbor", content, fields },
                )
            }
            BodyForm::AwsQuery => {
                let error = format!("<Type>{}</Type>{}", self.side(), self.error_in_xml());
                let id = request_id.map(|id| element("RequestId", id)).unwrap_or_default();
                let text = format!("<ErrorResponse><Error>{error}</Error>{id}</ErrorResponse>");
                self.with_id("x-amzn-requestid", plain("text/xml", with_declaration(&text)))
            }
            BodyForm::AwsEc2 => {
                let error = self.error_in_xml();
                let id = request_id.map(|id| element("RequestID", id)).unwrap_or_default();
                let text = format!("<Response><Errors><Error>{error}</Error></Errors>{id}</Response>");
                self.with_id("x-amzn-requestid", plain("text/xml", with_declaration(&text)))
            }
            BodyForm::AwsS3 => {
                let id = request_id.map(|id| element("RequestId", id)).unwrap_or_default();
                let text = format!("<Error>{}{id}</Error>", self.error_in_xml());
                self.with_id("x-amz-request-id", plain("application/xml", with_declaration(&text)))
            }
        }
    }

    /// Adds the id of the request in the field in which this API's clients look for it.
    fn with_id(&self, name: &'static str, mut body: ErrorBody) -> ErrorBody {
        body.fields.extend(self.request_id.map(|id| (name, id.to_owned())));
        body
    }

    /// Returns the code for AWS's clients, which none of AWS's own errors has: `EgretPoolFull`.
    fn code(&self) -> String {
        let mut code = "Egret".to_owned();
        for word in self.slug.split('-') {
            let (first, rest) = word.split_at(word.len().min(1));
            code.extend([&*first.to_ascii_uppercase(), rest]);
        }
        code
    }

    fn error_in_xml(&self) -> String {
        element("Code", &self.code()) + &element("Message", self.detail)
    }

    /// Returns the party at fault, as AWS names it.
    fn side(&self) -> &'static str {
        if self.status < 500 { "Sender" } else { "Receiver" }
    }
}

fn json(value: &serde_json::Value) -> ErrorBody {
    let content = value.to_string().into_bytes();
    ErrorBody { media_type: "application/json", content, fields: Vec::new() }
}

fn type_of_openai(status: u16) -> &'static str {
    match status {
        401 | 407 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        ..500 => "invalid_request_error",
        _ => "server_error",
    }
}

fn type_of_anthropic(status: u16) -> &'static str {
    match status {
        401 | 407 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        ..500 => "invalid_request_error",
        _ => "api_error",
    }
}

fn with_declaration(xml: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{xml}")
}

/// Returns an element of XML. Control characters, which XML does not allow, become spaces.
fn element(name: &str, text: &str) -> String {
    let mut element = format!("<{name}>");
    for character in text.chars() {
        match character {
            '&' => element.push_str("&amp;"),
            '<' => element.push_str("&lt;"),
            '>' => element.push_str("&gt;"),
            '\u{fffe}' | '\u{ffff}' => element.push(' '),
            character if character.is_control() => element.push(' '),
            character => element.push(character),
        }
    }
    element + "</" + name + ">"
}

/// Appends a text in CBOR (RFC 8949 §3.1), of at most 64 KiB.
fn write_cbor(text: &str, out: &mut Vec<u8>) {
    let mut end = text.len().min(usize::from(u16::MAX));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let len = u16::try_from(end).unwrap_or(u16::MAX);
    out.push(0x79);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&text.as_bytes()[..end]);
}

#[cfg(test)]
mod tests {
    use egret_http1::{HeadLimits, Progress, RequestHead};

    use super::*;

    fn form(lines: &str) -> BodyForm {
        let host = if lines.contains("Host: ") { "" } else { "Host: h\r\n" };
        let bytes = format!("POST / HTTP/1.1\r\n{host}{lines}\r\n").into_bytes();
        let mut head = RequestHead::new();
        assert_eq!(head.parse(&bytes, &HeadLimits::default()).unwrap(), Progress::Complete);
        BodyForm::of(ErrorFormat::Aws, Fields::received(&head.fields, &bytes))
    }

    #[test]
    fn a_request_to_aws_tells_the_form_that_its_client_reads() {
        let signed = |service: &str| {
            format!(
                "Authorization: AWS4-HMAC-SHA256 Credential=AKID/20150830/us-east-1/{service}/aws4_request, \
                 SignedHeaders=host, Signature=ab\r\n"
            )
        };
        let agent = |service: &str| format!("User-Agent: Boto3/1 md/x api/{service}#1.4 lang/python\r\n");
        let form_type = "Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n";
        for (lines, expected) in [
            (signed("s3"), BodyForm::AwsS3),
            (agent("s3"), BodyForm::AwsS3),
            ("Host: bucket.s3.eu-west-1.amazonaws.com\r\n".to_owned(), BodyForm::AwsS3),
            (signed("s3") + "Host: dynamodb.us-east-1.amazonaws.com\r\n", BodyForm::AwsS3),
            (signed("dynamodb") + "X-Amz-Target: DynamoDB_20120810.ListTables\r\n", BodyForm::AwsJson),
            (signed("bedrock"), BodyForm::AwsJson),
            (signed("route53"), BodyForm::AwsQuery),
            (signed("ec2") + form_type, BodyForm::AwsEc2),
            (signed("sns") + form_type, BodyForm::AwsQuery),
            ("Host: sts.amazonaws.com\r\n".to_owned() + form_type, BodyForm::AwsQuery),
            (signed("monitoring") + "smithy-protocol: rpc-v2-cbor\r\n", BodyForm::AwsCbor),
            ("Authorization: AWS4-HMAC-SHA256 Credential=\r\n".to_owned(), BodyForm::AwsJson),
        ] {
            assert_eq!(form(&lines), expected, "{lines}");
        }
    }

    #[test]
    fn a_detail_cannot_leave_its_place_in_any_form() {
        let detail = "a \"b\" <c> & ]]> \u{1}\n</Message> \u{20ac}";
        let told = ToldError { slug: "pool-full", status: 503, detail, request_id: Some("i<d>") };
        for form in [BodyForm::AwsS3, BodyForm::AwsQuery, BodyForm::AwsEc2] {
            let xml = String::from_utf8(told.body(form).content).unwrap();
            let message = "<Message>a \"b\" &lt;c&gt; &amp; ]]&gt;   &lt;/Message&gt; \u{20ac}</Message>";
            assert!(xml.contains(message) && xml.contains("<Code>EgretPoolFull</Code>"), "{xml}");
            assert!(xml.to_lowercase().contains("<requestid>i&lt;d&gt;</requestid>"), "{xml}");
        }
        for (form, at) in [
            (BodyForm::Problem, "/detail"),
            (BodyForm::OpenAi, "/error/message"),
            (BodyForm::Anthropic, "/error/message"),
            (BodyForm::AwsJson, "/message"),
        ] {
            let body: serde_json::Value = serde_json::from_slice(&told.body(form).content).unwrap();
            assert_eq!(body.pointer(at).unwrap(), detail);
        }
        let cbor = told.body(BodyForm::AwsCbor).content;
        assert_eq!(&cbor[..5], b"\xa2\x79\x00\x06_");
        assert!(cbor.ends_with(detail.as_bytes()));
        let long = "\u{20ac}".repeat(30_000);
        let cbor = ToldError { detail: &long, ..told }.body(BodyForm::AwsCbor).content;
        assert!(std::str::from_utf8(&cbor[cbor.len() - 65_535..]).is_ok());
    }
}
