//! A small gRPC service, whose calls fail as their metadata asks.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use axum::routing::{get, post};
use egret_lab_http2::Cut;
use egret_lab_http2::grpc::{CallStatus, EchoResponse, MessageError, Messages, PROTO, StatusCode as Code};
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};

use crate::call::ProviderCall;
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::injected_fault::InjectedFault;
use crate::pace::pause;
use crate::parameters::Parameters;
use crate::query::Query;
use crate::respond;

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("POST", "/egret.provider.Echo/{method}", || post(call))
        .about("A call of gRPC, over HTTP/2 alone.")
        .parameters(
            "`method` `Unary`, `ServerStream`, `ClientStream` or `Bidi`; [the metadata `x-echo`](#grpc)",
        )
        .example("/egret.provider.Echo/Unary"),
    Endpoint::new("GET", "/grpc/echo.proto", || get(|| async { respond::text(StatusCode::OK, PROTO) }))
        .about("The definition of the service."),
];

/// Metadata with parameters in the form of a query.
const PARAMETERS_FIELD: HeaderName = HeaderName::from_static("x-echo");
/// The deadline that a client sends, and the field that returns it as received.
const TIMEOUT_FIELD: HeaderName = HeaderName::from_static("grpc-timeout");
const RECEIVED_TIMEOUT_FIELD: HeaderName = HeaderName::from_static("x-received-grpc-timeout");

/// The type of gRPC's messages, whatever their own format.
const GRPC: &str = "application/grpc";

/// Maximum number of responses to one request.
const RESPONSES_MAX: u32 = 1_000_000;

/// A method of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EchoMethod {
    Unary,
    ServerStream,
    ClientStream,
    Bidi,
}

impl EchoMethod {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "Unary" => Self::Unary,
            "ServerStream" => Self::ServerStream,
            "ClientStream" => Self::ClientStream,
            "Bidi" => Self::Bidi,
            _ => return None,
        })
    }
}

/// A fault of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum EchoFault {
    Status(CallStatus),
    /// The stream is reset with this code.
    Reset(u32),
}

/// The parameters of a call.
#[derive(Debug)]
struct EchoPlan {
    /// Time before the head of the response.
    delay: Duration,
    /// Time before each response message.
    interval: Duration,
    /// The fault, and the number of response messages before it.
    fault: Option<(EchoFault, u32)>,
}

impl EchoPlan {
    fn read(call: &ProviderCall) -> Result<Self, ProviderError> {
        let parameters = Parameters::of(call);
        let code = parameters.count("status", 0, 0..=usize::from(Code::MAX))?;
        let message = call.query.get("message").unwrap_or_default().to_owned();
        let code = Code(u8::try_from(code).unwrap_or(Code::MAX));
        let fault = match parameters.parsed("cut")? {
            Some(code) => Some(EchoFault::Reset(code)),
            None if code == Code::OK => None,
            None => Some(EchoFault::Status(CallStatus { code, message })),
        };
        let after = parameters.count("after", 0, 0..=RESPONSES_MAX as usize)?;
        let after = u32::try_from(after).unwrap_or(RESPONSES_MAX);
        let failures = parameters.parsed("failures")?;
        Ok(Self {
            delay: parameters.duration("delay", Duration::ZERO)?,
            interval: parameters.duration("interval", Duration::ZERO)?,
            fault: fault.filter(|_| is_faulty(call, failures)).map(|fault| (fault, after)),
        })
    }
}

/// Counts the call by its key. Returns `true` if it is one of those that fail: the first `failures`, or all.
fn is_faulty(call: &ProviderCall, failures: Option<u64>) -> bool {
    let Some(key) = call.query.get("key") else { return true };
    // Beyond the keys that are remembered each call fails.
    call.state.fails(key, failures.unwrap_or(u64::MAX)).unwrap_or(true)
}

async fn call(Path(name): Path<String>, mut call: ProviderCall) -> EndpointResult {
    let is_grpc = call.field(&header::CONTENT_TYPE).starts_with(GRPC);
    if call.version() != Version::HTTP_2 || !is_grpc {
        let detail = "a call of gRPC is a POST over HTTP/2 with the content-type application/grpc";
        return Err(ProviderError::with_detail(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let parameters = call.field(&PARAMETERS_FIELD).to_owned();
    call.query = Query::lenient(&parameters);
    let Some(method) = EchoMethod::of(&name) else {
        let status = CallStatus::error(Code::UNIMPLEMENTED, format!("unknown method {name}"));
        return Ok(ended(&status));
    };
    match EchoPlan::read(&call) {
        Ok(plan) => Ok(respond_to(method, plan, call).await),
        Err(error) => Ok(ended(&CallStatus::error(Code::INVALID_ARGUMENT, error.detail()))),
    }
}

async fn respond_to(method: EchoMethod, plan: EchoPlan, mut call: ProviderCall) -> Response {
    pause(plan.delay).await;
    let timeout = call.headers().get(TIMEOUT_FIELD).cloned();
    let mut response = match plan.fault {
        Some((EchoFault::Status(status), 0)) => ended(&status),
        Some((EchoFault::Reset(code), 0)) => {
            let mut response = of_grpc(Body::empty());
            response.extensions_mut().insert(InjectedFault::reset(code));
            response
        }
        _ => {
            let messages = Messages::new(call.take_body(), call.state.options().body_bytes_max);
            let echo = Echo { method, plan, messages, request: None, sent: 0, has_ended: false };
            let frames = stream::unfold(echo, |mut echo| async move {
                let frame = echo.next_frame().await?;
                Some((frame, echo))
            });
            of_grpc(Body::new(StreamBody::new(frames)))
        }
    };
    if let Some(timeout) = timeout {
        response.headers_mut().insert(RECEIVED_TIMEOUT_FIELD, timeout);
    }
    response
}

fn of_grpc(body: Body) -> Response {
    respond::of(StatusCode::OK, HeaderValue::from_static(GRPC), body)
}

/// A response without messages: the status is in its head.
fn ended(status: &CallStatus) -> Response {
    let mut response = of_grpc(Body::empty());
    response.headers_mut().extend(status.fields());
    response
}

/// A call whose response is being sent.
struct Echo {
    method: EchoMethod,
    plan: EchoPlan,
    messages: Messages<Body>,
    /// The request of `ServerStream`: its payload, and the number of responses.
    request: Option<(Bytes, u32)>,
    /// Number of response messages sent.
    sent: u32,
    has_ended: bool,
}

impl Echo {
    /// The next frame of the response; `None` after the last.
    async fn next_frame(&mut self) -> Option<Result<Frame<Bytes>, Cut>> {
        if self.has_ended {
            return None;
        }
        if let Some((fault, after)) = &self.plan.fault
            && *after <= self.sent
        {
            self.has_ended = true;
            return Some(match fault {
                EchoFault::Status(status) => Ok(Frame::trailers(status.fields())),
                EchoFault::Reset(code) => Err(Cut::Stream(*code)),
            });
        }
        let status = match self.next_response().await {
            Ok(Some(response)) => {
                pause(self.plan.interval).await;
                self.sent += 1;
                return Some(Ok(response.frame()));
            }
            Ok(None) => CallStatus::ok(),
            Err(error) => error.status(),
        };
        self.has_ended = true;
        Some(Ok(Frame::trailers(status.fields())))
    }

    /// The next response message; `None` after the last.
    async fn next_response(&mut self) -> Result<Option<EchoResponse>, MessageError> {
        let number = self.sent.saturating_add(1);
        match self.method {
            EchoMethod::Unary | EchoMethod::ClientStream if self.sent > 0 => Ok(None),
            EchoMethod::Unary => {
                // A client that sends no message has made no call.
                let request = self.messages.next().await.ok_or(MessageError::Cut)??;
                Ok(Some(EchoResponse { payload: request.payload, number }))
            }
            EchoMethod::Bidi => {
                let request = self.messages.next().await.transpose()?;
                Ok(request.map(|request| EchoResponse { payload: request.payload, number }))
            }
            EchoMethod::ClientStream => {
                let mut response = EchoResponse::default();
                while let Some(request) = self.messages.next().await.transpose()? {
                    response.payload = request.payload;
                    response.number = response.number.saturating_add(1);
                }
                Ok(Some(response))
            }
            EchoMethod::ServerStream => {
                if self.request.is_none() {
                    let request = self.messages.next().await.ok_or(MessageError::Cut)??;
                    if request.count > RESPONSES_MAX {
                        return Err(MessageError::TooMany { count: request.count, max: RESPONSES_MAX });
                    }
                    self.request = Some((request.payload, request.count));
                }
                let request = self.request.as_ref().filter(|(_, count)| *count > self.sent);
                Ok(request.map(|(payload, _)| EchoResponse { payload: payload.clone(), number }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::*;
    use crate::entry_point::CallOutcome;
    use crate::fixture::{TestProvider, TestResponse, request};
    use crate::options::Options;

    /// A message with a payload and a number.
    fn message(payload: &'static str, number: u32) -> Bytes {
        let response = EchoResponse { payload: payload.into(), number };
        response.frame().into_data().unwrap()
    }

    async fn called(provider: &TestProvider, method: &str, echo: &str, body: Bytes) -> TestResponse {
        let fields = [("content-type", "application/grpc"), ("x-echo", echo), ("grpc-timeout", "5S")];
        let mut request = request("POST", &format!("/egret.provider.Echo/{method}"), &fields, body);
        *request.version_mut() = Version::HTTP_2;
        provider.send(request).await
    }

    fn provider() -> TestProvider {
        TestProvider::new(Options::default())
    }

    #[tokio::test]
    async fn each_method_echoes_in_its_own_way() {
        let provider = provider();
        let two = Bytes::from([message("a", 2), message("b", 1)].concat());
        for (method, expected) in [
            ("Unary", vec![message("a", 1)]),
            ("ServerStream", vec![message("a", 1), message("a", 2)]),
            ("ClientStream", vec![message("b", 2)]),
            ("Bidi", vec![message("a", 1), message("b", 2)]),
        ] {
            let response = called(&provider, method, "", two.clone()).await;
            assert_eq!((response.status, &response.trailers["grpc-status"]), (200, &HeaderValue::from(0)));
            assert_eq!(response.content, expected.concat(), "{method}");
            assert_eq!(response.field("x-received-grpc-timeout"), "5S");
        }
    }

    #[tokio::test]
    async fn a_status_is_told_at_once_or_after_messages() {
        let provider = provider();
        let at_once = called(&provider, "Unary", "status=14&message=not%20now", message("a", 1)).await;
        assert_eq!((at_once.field("grpc-status"), at_once.field("grpc-message")), ("14", "not now"));
        assert!(at_once.content.is_empty() && at_once.trailers.is_empty());
        let later = called(&provider, "ServerStream", "status=8&after=2", message("a", 5)).await;
        assert_eq!(later.pieces.len(), 2);
        assert_eq!((&later.trailers["grpc-status"], later.field("grpc-status")), (&HeaderValue::from(8), ""));
    }

    #[tokio::test]
    async fn the_first_calls_of_a_key_fail_and_all_are_counted() {
        let provider = provider();
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let response = called(&provider, "Unary", "status=14&failures=2&key=k", message("a", 1)).await;
            statuses.push(response.field("grpc-status").to_owned());
        }
        assert_eq!(statuses, ["14", "14", ""]);
        let counters = provider.get("/counters").await.json();
        assert_eq!(counters["failures"]["k"], serde_json::json!({ "failed": 2, "succeeded": 1 }));
    }

    #[tokio::test]
    async fn a_wrong_call_has_a_status_that_says_why() {
        let provider = provider();
        for (method, echo, body, status, message) in [
            ("Other", "", message("a", 1), "12", "unknown method Other"),
            ("Unary", "status=17", message("a", 1), "3", "invalid status: "),
            ("Unary", "status=14&failures=some", message("a", 1), "3", "invalid failures: "),
            ("ServerStream", "", message("a", RESPONSES_MAX + 1), "3", "1000001 responses exceed"),
            ("Unary", "", Bytes::from_static(&[1, 0, 0, 0, 0]), "12", "compressed messages"),
            ("Unary", "", Bytes::new(), "13", "the body ends within"),
        ] {
            let response = called(&provider, method, echo, body).await;
            let mut fields = response.fields.clone();
            fields.extend(response.trailers);
            assert_eq!(fields["grpc-status"], status);
            assert!(fields["grpc-message"].to_str().unwrap().starts_with(message), "{fields:?}");
        }
        let plain = provider.send(request("POST", "/egret.provider.Echo/Unary", &[], "")).await;
        assert_eq!(plain.status, 415);
    }

    #[tokio::test]
    async fn a_reset_without_messages_has_no_response() {
        let fields = [("content-type", "application/grpc"), ("x-echo", "cut=7")];
        let mut request = request("POST", "/egret.provider.Echo/Unary", &fields, message("a", 1));
        *request.version_mut() = Version::HTTP_2;
        let CallOutcome::Faulty(response, fault) = provider().call(request).await else { panic!() };
        let reply = fault.reply(response, &Method::POST).await;
        assert_eq!(reply.err(), Some(Cut::Stream(7)));
    }

    #[tokio::test]
    async fn the_definition_of_the_service_can_be_fetched() {
        let response = provider().get("/grpc/echo.proto").await;
        let name = egret_lab_http2::grpc::SERVICE.rsplit_once('.').unwrap();
        assert!(response.text().contains(&format!("package {};", name.0)));
        assert!(response.text().contains(&format!("service {} {{", name.1)));
    }
}
