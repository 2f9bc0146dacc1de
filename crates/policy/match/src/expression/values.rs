//! Variables of an expression, built when they are read.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cel::common::traits::{Container, Indexer, Sizer};
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt, DYN_TYPE, MAP_TYPE,
    STRING_TYPE, Type,
};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::{DeclarationError, Env, ExecutionError};
use egret_items::words;
use egret_message::{Fields, Request};
use egret_usage::{UsageRecord, UsageSource};
use serde::de;

use super::inputs::{EXPRESSION_BODY_BYTES_MAX, Inputs, Stage};
use crate::form::{decode_form, is_same_decoded};
use crate::parameters::Parameters;
use crate::target::normal_path;

words! {
    /// A variable of expressions.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Variable: name {
        Method => "request.method",
        Path => "request.path",
        Host => "request.host",
        Provider => "request.provider",
        Scheme => "request.scheme",
        Consumer => "request.consumer",
        Headers => "request.headers",
        Query => "request.query",
        Parameters => "request.params",
        RequestBody => "request.body",
        ResponseStatus => "response.status",
        ResponseHeaders => "response.headers",
        ResponseBody => "response.body",
        ResponseDuration => "response.duration_ms",
        ResponseProviderTime => "response.provider_ms",
        ResponseError => "response.error",
        ResponseGenerated => "response.generated",
        GrpcService => "grpc.service",
        GrpcMethod => "grpc.method",
        GrpcStatus => "grpc.status",
        UsageInput => "usage.input",
        UsageOutput => "usage.output",
        UsageCached => "usage.cached",
        UsageReasoning => "usage.reasoning",
        UsageCost => "usage.cost",
        UsageModel => "usage.model",
        UsageSource => "usage.source",
        Attempt => "attempt",
        Now => "now",
    }
}

impl Variable {
    /// Returns the variable with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variable| variable.name() == name)
    }

    /// Returns the first stage of an exchange that knows it.
    pub fn stage(self) -> Stage {
        match self {
            Self::ResponseStatus | Self::ResponseHeaders => Stage::ResponseHead,
            Self::ResponseBody => Stage::Response,
            usage if usage.is_usage() => Stage::ResponseEnd,
            Self::ResponseDuration
            | Self::ResponseProviderTime
            | Self::ResponseError
            | Self::ResponseGenerated
            | Self::GrpcStatus => Stage::Finished,
            _ => Stage::Request,
        }
    }

    /// Returns `true` if it is a body.
    pub fn is_body(self) -> bool {
        matches!(self, Self::RequestBody | Self::ResponseBody)
    }

    /// Returns `true` if it is a part of the usage that the response reports.
    pub fn is_usage(self) -> bool {
        matches!(
            self,
            Self::UsageInput
                | Self::UsageOutput
                | Self::UsageCached
                | Self::UsageReasoning
                | Self::UsageCost
                | Self::UsageModel
                | Self::UsageSource
        )
    }

    /// Returns `true` if it is a table of texts.
    pub fn is_table(self) -> bool {
        matches!(self, Self::Headers | Self::Query | Self::Parameters | Self::ResponseHeaders)
    }
}

/// The variables of one evaluation.
pub(super) struct Values<'a> {
    inputs: &'a Inputs<'a>,
    request_body: OnceLock<Box<dyn Val>>,
    response_body: OnceLock<Box<dyn Val>>,
    body_too_long: AtomicBool,
}

impl<'a> Values<'a> {
    pub fn new(inputs: &'a Inputs<'a>) -> Self {
        let (request_body, response_body) = (OnceLock::new(), OnceLock::new());
        Self { inputs, request_body, response_body, body_too_long: AtomicBool::new(false) }
    }

    /// Returns `true` if the evaluation read a body that is too long.
    pub fn is_body_too_long(&self) -> bool {
        self.body_too_long.load(Relaxed)
    }

    fn body<'b>(&'b self, cache: &'b OnceLock<Box<dyn Val>>, bytes: Option<&[u8]>) -> CowVal<'b, 'b> {
        let value = cache.get_or_init(|| match bytes {
            Some(bytes) if bytes.len() > EXPRESSION_BODY_BYTES_MAX => {
                self.body_too_long.store(true, Relaxed);
                Box::new(CelNull)
            }
            Some(bytes) => {
                serde_json::from_slice::<Json>(bytes).map_or_else(|_| Box::new(CelNull) as _, |json| json.0)
            }
            None => Box::new(CelNull),
        });
        CowVal::Borrowed(value.as_ref())
    }
}

impl VariableResolver for Values<'_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        let Inputs { request, response, parameters, attempt, now, usage, ended } = *self.inputs;
        let text = |text: &'b str| CowVal::owned(CelString::from(text));
        let lossy = |bytes: &'b [u8]| CowVal::owned(CelString::from(String::from_utf8_lossy(bytes)));
        let table = |table: ValueTable<'b>| CowVal::owned(table);
        let count = |number: Option<u64>| {
            CowVal::owned(CelInt::from(i64::try_from(number.unwrap_or_default()).unwrap_or(i64::MAX)))
        };
        Some(match Variable::named(name)? {
            Variable::Method => lossy(request.method),
            Variable::Path => match normal_path(request.path) {
                Cow::Borrowed(path) => lossy(path),
                Cow::Owned(path) => {
                    CowVal::owned(CelString::from(String::from_utf8_lossy(&path).into_owned()))
                }
            },
            Variable::Host => text(request.host),
            Variable::Provider => text(request.provider),
            Variable::Scheme => text(if request.tls { "https" } else { "http" }),
            Variable::Consumer => lossy(request.consumer().unwrap_or_default()),
            Variable::Headers => table(ValueTable::Fields(request.fields)),
            Variable::Query => table(ValueTable::Query(*request)),
            Variable::Parameters => table(ValueTable::Parameters(parameters)),
            Variable::RequestBody => self.body(&self.request_body, request.body),
            Variable::ResponseStatus => CowVal::owned(CelInt::from(i64::from(response?.status))),
            Variable::ResponseHeaders => table(ValueTable::Fields(response?.fields)),
            Variable::ResponseBody => self.body(&self.response_body, response?.body),
            Variable::ResponseDuration => CowVal::owned(CelDouble::from(ended?.duration_ms)),
            Variable::ResponseProviderTime => CowVal::owned(CelDouble::from(ended?.provider_ms)),
            Variable::ResponseError => text(ended?.error),
            Variable::ResponseGenerated => CowVal::owned(CelBool::from(ended?.is_generated)),
            Variable::GrpcService => text(request.grpc().map_or("", |call| call.service)),
            Variable::GrpcMethod => text(request.grpc().map_or("", |call| call.method)),
            Variable::GrpcStatus => text(ended?.grpc_status),
            Variable::UsageInput => count(usage.map(|usage| usage.input)),
            Variable::UsageOutput => count(usage.map(|usage| usage.output)),
            Variable::UsageCached => count(usage.map(|usage| usage.cache_read)),
            Variable::UsageReasoning => count(usage.map(|usage| usage.reasoning)),
            Variable::UsageCost => count(usage.and_then(UsageRecord::cost)),
            Variable::UsageModel => text(usage.and_then(|usage| usage.model.as_deref()).unwrap_or_default()),
            Variable::UsageSource => text(usage.map_or(UsageSource::None, |usage| usage.source).word()),
            Variable::Attempt => CowVal::owned(CelInt::from(i64::from(attempt))),
            Variable::Now => CowVal::owned(CelInt::from(i64::try_from(now.as_secs()).unwrap_or(i64::MAX))),
        })
    }
}

/// A map from names to texts, read from the message without a copy.
#[derive(Clone, Copy)]
pub(crate) enum ValueTable<'a> {
    Fields(Fields<'a>),
    Query(Request<'a>),
    Parameters(Parameters<'a>),
}

impl<'a> ValueTable<'a> {
    /// Returns the first value of `name`.
    pub fn first(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        match self {
            Self::Fields(fields) => fields.iter().find_map(|(other, value)| {
                other.eq_ignore_ascii_case(name.as_bytes()).then_some(Cow::Borrowed(value))
            }),
            Self::Query(request) => request.parameters().find_map(|(other, value)| {
                is_same_decoded(other, name.as_bytes()).then(|| decode_form(value))
            }),
            Self::Parameters(parameters) => parameters.get(name).map(Cow::Borrowed),
        }
    }

    fn text(&self, name: &str) -> Option<CelString<'a>> {
        self.first(name).map(|value| match value {
            Cow::Borrowed(bytes) => CelString::from(String::from_utf8_lossy(bytes)),
            Cow::Owned(bytes) => CelString::from(String::from_utf8_lossy(&bytes).into_owned()),
        })
    }
}

impl fmt::Debug for ValueTable<'_> {
    /// Shows nothing of the message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Table")
    }
}

impl Val for ValueTable<'_> {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(*self)
    }
}

impl Container for ValueTable<'_> {
    fn contains(&self, name: &dyn Val) -> Result<bool, ExecutionError> {
        Ok(name.downcast_ref::<CelString<'_>>().is_some_and(|name| self.first(name.inner()).is_some()))
    }
}

impl Sizer for ValueTable<'_> {
    fn size(&self) -> CelInt {
        let count = match self {
            Self::Fields(fields) => fields.iter().count(),
            Self::Query(request) => request.parameters().count(),
            Self::Parameters(parameters) => parameters.iter().count(),
        };
        CelInt::from(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl Indexer for ValueTable<'_> {
    fn get<'b, 'v>(&'b self, name: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let Some(name) = name.downcast_ref::<CelString<'_>>() else {
            return Err(ExecutionError::no_such_overload(LOOK_UP, Vec::new()));
        };
        self.text(name.inner()).map(CowVal::owned).ok_or_else(|| ExecutionError::no_such_key(""))
    }

    fn steal<'v>(self: Box<Self>, name: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(name).map(CowVal::into_owned)
    }
}

/// Name of the function that replaces `request.headers["x"]`. It cannot be written in an expression.
pub(super) const LOOK_UP: &str = "@look_up";

/// Declares the function that looks up a name in a table.
pub(super) fn declare(environment: &mut Env) -> Result<(), DeclarationError> {
    environment.add_overload(LOOK_UP, LOOK_UP, vec![DYN_TYPE, STRING_TYPE], look_up)
}

/// Looks up a name in a table. Returns an empty text where a map would return an error.
fn look_up<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let mut args = args.into_iter();
    let (Some(table), Some(name)) = (args.next(), args.next()) else {
        return Err(ExecutionError::missing_argument_or_target());
    };
    let Some(table) = table.as_indexer() else {
        return Err(ExecutionError::no_such_overload(LOOK_UP, Vec::new()));
    };
    match table.get(name.as_ref()) {
        Ok(value) => Ok(CowVal::from(value.into_owned())),
        Err(ExecutionError::NoSuchKey(_)) => Ok(CowVal::owned(CelString::from(""))),
        Err(error) => Err(error),
    }
}

/// JSON as CEL values. The parser limits the nesting.
struct Json(Box<dyn Val>);

impl<'de> de::Deserialize<'de> for Json {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonVisitor;

        impl<'de> de::Visitor<'de> for JsonVisitor {
            type Value = Json;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json(Box::new(CelNull)))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
                Ok(Json(Box::new(CelBool::from(value))))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
                Ok(Json(Box::new(CelInt::from(value))))
            }

            /// CEL does not mix `int` and `uint` in arithmetic, so whole numbers are `int` if they fit.
            fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
                Ok(match i64::try_from(value) {
                    Ok(value) => Json(Box::new(CelInt::from(value))),
                    Err(_) => Json(Box::new(CelUInt::from(value))),
                })
            }

            fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
                Ok(Json(Box::new(CelDouble::from(value))))
            }

            fn visit_str<E>(self, value: &str) -> Result<Json, E> {
                Ok(Json(Box::new(CelString::from(value.to_owned()))))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
                let mut list: Vec<Box<dyn Val>> = Vec::new();
                while let Some(Json(value)) = access.next_element()? {
                    list.push(value);
                }
                Ok(Json(Box::new(CelList::from(list))))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
                let mut map: HashMap<CelMapKey<'static>, Box<dyn Val>> = HashMap::new();
                while let Some((key, Json(value))) = access.next_entry::<String, Json>()? {
                    map.insert(CelMapKey::from(key), value);
                }
                Ok(Json(Box::new(CelMap::from(map))))
            }
        }
        deserializer.deserialize_any(JsonVisitor)
    }
}
