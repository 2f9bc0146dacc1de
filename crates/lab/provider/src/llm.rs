//! Language models: the APIs of their providers, unary and streamed, with a ledger of what each call cost.
//!
//! A call is read into a `Generation`. The file of its wire family makes the response, or the `EventScript`
//! of a stream, which the `player` sends at the pace that the call asked for.

mod anthropic;
mod bedrock;
mod chat;
mod cohere;
mod cost;
mod dialect;
mod framing;
mod gemini;
mod generation;
pub(crate) mod ledger;
mod limit_fields;
mod ollama;
mod player;
mod refusal;
mod responses;
mod script;
mod vectors;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::Value;

use self::dialect::{Dialect, Operation};
use self::generation::Generation;
use self::ledger::{CALLS_MAX, Charge, Ledger, OpenCharge};
use self::limit_fields::{Limit, Limits};
use self::player::StreamPace;
use self::refusal::InjectedRefusal;
use self::script::EventScript;
use crate::call::ProviderCall;
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::options::RateLimit;
use crate::parameters::Parameters;
use crate::query::Query;
use crate::respond::{self, field_value};

/// Path of the ledger, which is exempt from delays, limits and faults.
pub(crate) const LEDGER: &str = "/llm/ledger";

/// Field with parameters in the form of a query, for clients that cannot add any to the target.
const PARAMETERS_FIELD: HeaderName = HeaderName::from_static("x-llm");

/// Number of calls that the ledger lists unless asked for more.
const CALLS_LISTED: usize = 1_000;

/// The limits that a provider states unless the call asks for others.
const REQUESTS_LIMIT: u64 = 10_000;
const TOKENS_LIMIT: u64 = 2_000_000;
const RESET: Duration = Duration::from_millis(6);

/// An endpoint of a dialect.
macro_rules! model {
    ($path:literal, $dialect:ident, $operation:ident, $about:literal) => {
        Endpoint::new("POST", $path, || {
            post(|call: ProviderCall| answer(Dialect::$dialect, Operation::$operation, None, call))
        })
        .about($about)
    };
}

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    model!("/llm/openai/v1/chat/completions", Openai, Chat, "OpenAI's chat completions."),
    model!("/llm/openai/v1/responses", Openai, Responses, "OpenAI's responses."),
    model!("/llm/openai/v1/embeddings", Openai, Embeddings, "OpenAI's embeddings, also in Base64."),
    model!(
        "/llm/openai/v1/images/generations",
        Openai,
        Images,
        "OpenAI's images: always the same, with usage."
    ),
    model!("/llm/anthropic/v1/messages", Anthropic, Messages, "Anthropic's messages."),
    Endpoint::new("POST", "/llm/gemini/{version}/models/{call}", || post(gemini_call))
        .about("Gemini's content generation.")
        .parameters(
            "`call`, a model with `:generateContent` or `:streamGenerateContent`; `alt=sse` for a stream of events instead of a JSON array",
        )
        .example("/llm/gemini/v1beta/models/gemini-3-flash:generateContent"),
    Endpoint::new(
        "POST",
        "/llm/vertex/{version}/projects/{project}/locations/{location}/publishers/{publisher}/models/{call}",
        || post(vertex_call),
    )
    .about("Vertex's content generation, and Anthropic's messages on it.")
    .parameters(
        "as Gemini's; for the publisher `anthropic` a model with `:rawPredict` or `:streamRawPredict`",
    )
    .example("/llm/vertex/v1/projects/p/locations/global/publishers/google/models/gemini-3-flash:generateContent"),
    Endpoint::new("POST", "/llm/bedrock/model/{model}/{operation}", || post(bedrock_call))
        .about("Bedrock's InvokeModel in the form of Anthropic's models if the model's name has `anthropic.`, otherwise of Meta's; and Converse. Streams are AWS event streams.")
        .parameters("`operation` `invoke`, `invoke-with-response-stream`, `converse` or `converse-stream`")
        .example("/llm/bedrock/model/anthropic.claude-sonnet/converse"),
    Endpoint::new("POST", "/llm/azure/openai/deployments/{deployment}/{*rest}", || post(azure_call))
        .about("Azure OpenAI, by deployment.")
        .parameters("`rest` `chat/completions` or `embeddings`")
        .example("/llm/azure/openai/deployments/d/chat/completions"),
    model!("/llm/azure/openai/v1/chat/completions", Azure, Chat, "Azure's chat completions, version 1."),
    model!(
        "/llm/azure/openai/v1/responses",
        Azure,
        Responses,
        "Azure's responses; the limits that it states are unknown ones."
    ),
    model!("/llm/azure/openai/v1/embeddings", Azure, Embeddings, "Azure's embeddings."),
    model!(
        "/llm/mistral/v1/chat/completions",
        Mistral,
        Chat,
        "Mistral's chat; usage is in the last chunk, unasked."
    ),
    model!(
        "/llm/groq/openai/v1/chat/completions",
        Groq,
        Chat,
        "Groq's chat; usage is in `x_groq` of the last chunk, unasked."
    ),
    model!("/llm/cohere/v2/chat", Cohere, CohereChat, "Cohere's chat; `billed_units` are what it bills."),
    model!(
        "/llm/deepseek/chat/completions",
        Deepseek,
        Chat,
        "DeepSeek's chat; streams begin with a comment."
    ),
    model!("/llm/deepseek/v1/chat/completions", Deepseek, Chat, "The same."),
    model!(
        "/llm/openrouter/api/v1/chat/completions",
        Openrouter,
        Chat,
        "OpenRouter's chat; streams begin with a comment, and usage has a `cost`, unasked."
    ),
    model!(
        "/llm/ollama/api/chat",
        Ollama,
        OllamaChat,
        "Ollama's chat, streamed as lines of JSON unless `stream` is false."
    ),
    model!("/llm/ollama/api/generate", Ollama, OllamaGenerate, "Ollama's completion, likewise."),
    model!("/llm/ollama/v1/chat/completions", Ollama, Chat, "Ollama's chat in OpenAI's form."),
    model!("/llm/vllm/v1/chat/completions", Vllm, Chat, "vLLM's chat, also with `continuous_usage_stats`."),
    model!(
        "/llm/llamacpp/v1/chat/completions",
        LlamaCpp,
        Chat,
        "The chat of llama.cpp's server, with `timings`."
    ),
    Endpoint::new("GET, DELETE", LEDGER, || get(ledger_page).delete(forget))
        .about("The calls that language models were billed for, and totals; DELETE forgets them. Exempt from delays, limits and faults, and not counted.")
        .parameters(
            "`id`, `dialect`, `model` and `consumer` select calls; `last`, the number of calls listed, 0 to 100000 (1000)",
        ),
];

async fn gemini_call(Path((_, called)): Path<(String, String)>, call: ProviderCall) -> EndpointResult {
    let (model, operation) = google_operation(&called, &call)?;
    answer(Dialect::Gemini, operation, Some(model), call).await
}

async fn vertex_call(
    Path((_, _, _, _, called)): Path<(String, String, String, String, String)>,
    call: ProviderCall,
) -> EndpointResult {
    let (model, operation) = google_operation(&called, &call)?;
    answer(Dialect::Vertex, operation, Some(model), call).await
}

/// The model and the operation of the last segment of Google's paths.
fn google_operation(called: &str, call: &ProviderCall) -> Result<(String, Operation), ProviderError> {
    let (model, name) = called.rsplit_once(':').unwrap_or_default();
    let operation = match name {
        "generateContent" => Operation::Generate,
        "streamGenerateContent" => Operation::GenerateStream { events: call.query.get("alt") == Some("sse") },
        "rawPredict" | "streamRawPredict" => Operation::Messages,
        _ => return Err(ProviderError::not_found()),
    };
    Ok((model.to_owned(), operation))
}

async fn bedrock_call(
    Path((model, operation)): Path<(String, String)>,
    call: ProviderCall,
) -> EndpointResult {
    let operation = match operation.as_str() {
        "invoke" => Operation::Invoke,
        "invoke-with-response-stream" => Operation::InvokeStream,
        "converse" => Operation::Converse,
        "converse-stream" => Operation::ConverseStream,
        _ => return Err(ProviderError::not_found()),
    };
    answer(Dialect::Bedrock, operation, Some(model), call).await
}

async fn azure_call(
    Path((deployment, operation)): Path<(String, String)>,
    call: ProviderCall,
) -> EndpointResult {
    let operation = match operation.as_str() {
        "chat/completions" => Operation::Chat,
        "embeddings" => Operation::Embeddings,
        _ => return Err(ProviderError::not_found()),
    };
    answer(Dialect::Azure, operation, Some(deployment), call).await
}

/// Answers a call: with a refusal, in one piece, or with a stream.
async fn answer(
    dialect: Dialect,
    operation: Operation,
    model: Option<String>,
    mut call: ProviderCall,
) -> EndpointResult {
    if let Some(more) = call.headers().get(PARAMETERS_FIELD).and_then(|value| value.to_str().ok()) {
        // The first value of a name counts, so the target wins.
        call.query = Query::lenient(&format!("{}&{more}", call.uri().query().unwrap_or_default()));
    }
    let content = call.content_or_refusal().await?;
    let parameters = Parameters::of(&call);
    let number = call.state.ledger.next_number();
    let generation = Generation::read(dialect, operation, model.as_deref(), parameters, &content, number)?;
    let pace = StreamPace::read(parameters, generation.words, call.state.options().duration_max)?;
    let (limits, is_admitted) = limits(&call, &generation)?;
    let refusal = if is_admitted { refusal(&call, &generation)? } else { Some(InjectedRefusal::RateLimit) };
    let mut response = if let Some(refusal) = refusal {
        refused(&call, &generation, refusal, limits.requests.reset)?
    } else {
        let is_whole = bills_whole(&call)?;
        let ledger = Arc::clone(&call.state.ledger);
        responded(ledger, &Arc::new(generation.clone()), pace, is_whole).await?
    };
    let fields = response.headers_mut();
    fields.insert(dialect.request_id_field(), field_value(&generation.id));
    for (name, value) in limit_fields::fields(dialect, operation, limits) {
        if let Ok(name) = name.parse::<HeaderName>() {
            fields.insert(name, field_value(&value));
        }
    }
    Ok(response)
}

/// The refusal that the call asks for, if it is one of the first calls of its consumer that are refused.
fn refusal(call: &ProviderCall, generation: &Generation) -> Result<Option<InjectedRefusal>, ProviderError> {
    let parameters = Parameters::of(call);
    let Some(refusal) = parameters.parsed("refuse")? else { return Ok(None) };
    let Some(refusals) = parameters.parsed("refusals")? else { return Ok(Some(refusal)) };
    let fails = call.state.fails(&state_key(generation), refusals);
    let fails = fails.map_err(|error| ProviderError::bad_request(error.to_string()))?;
    Ok(fails.then_some(refusal))
}

/// Key of what the provider remembers of a consumer.
fn state_key(generation: &Generation) -> String {
    format!("llm/{}/{}", generation.dialect.name(), generation.consumer)
}

/// The limits to state, and `true` if the call is within that of requests.
fn limits(call: &ProviderCall, generation: &Generation) -> Result<(Limits, bool), ProviderError> {
    let parameters = Parameters::of(call);
    let reset = parameters.duration("reset", RESET)?;
    let (mut requests, mut is_admitted) =
        (Limit { allowed: REQUESTS_LIMIT, remaining: REQUESTS_LIMIT - 1, reset }, true);
    let rule: Option<RateLimit> = parameters.parsed("limit")?;
    if let Some(rule) = rule {
        let admission = call.state.admit_key(&state_key(generation), rule);
        let admission = admission.map_err(|error| ProviderError::bad_request(error.to_string()))?;
        requests = Limit { allowed: rule.limit, remaining: admission.remaining, reset: admission.reset };
        is_admitted = admission.admitted;
    }
    let limit = parameters.parsed("token_limit")?.unwrap_or(TOKENS_LIMIT);
    let remaining = parameters.parsed("token_remaining")?;
    let remaining = remaining.unwrap_or_else(|| limit.saturating_sub(generation.cost.total()));
    Ok((Limits { requests, tokens: Limit { allowed: limit, remaining, reset } }, is_admitted))
}

/// Refuses the call, which costs nothing.
fn refused(
    call: &ProviderCall,
    generation: &Generation,
    refusal: InjectedRefusal,
    reset: Duration,
) -> EndpointResult {
    let wait = Parameters::of(call).duration("retry_after", reset.max(Duration::from_secs(1)))?;
    let response = refusal.response(generation.dialect, &generation.id, wait);
    let status = response.status().as_u16();
    call.state.ledger.add(Charge { status, ..charge(generation, false) });
    Ok(response)
}

/// The charge of a call, with its cost unless it is refused.
fn charge(generation: &Generation, has_cost: bool) -> Charge {
    let cost = if has_cost { generation.cost } else { cost::Cost::default() };
    Charge {
        id: generation.id.clone(),
        dialect: generation.dialect.name(),
        operation: generation.operation.name(),
        model: generation.model.clone(),
        consumer: generation.consumer.clone(),
        status: 200,
        streamed: generation.streamed,
        complete: false,
        left: false,
        cost,
        stated_cost_nanodollars: chat::stated_cost(generation).filter(|_| has_cost),
    }
}

/// Returns `true` if a stream that ends early is billed as if it were complete.
fn bills_whole(call: &ProviderCall) -> Result<bool, ProviderError> {
    match call.query.get("on_leave") {
        None | Some("produced") => Ok(false),
        Some("whole") => Ok(true),
        Some(_) => Err(ProviderError::parameter("on_leave", "write produced or whole")),
    }
}

async fn responded(
    ledger: Arc<Ledger>,
    generation: &Arc<Generation>,
    pace: StreamPace,
    is_whole: bool,
) -> EndpointResult {
    if generation.streamed {
        let script = script(generation);
        let content_type = script.framing.content_type();
        let open = OpenCharge::new(ledger, charge(generation, true), is_whole);
        let body = player::body(script, generation, pace, open);
        let response = respond::of(StatusCode::OK, content_type, body);
        let response = respond::with(response, header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        return Ok(with_coding(response, pace.gzip));
    }
    let content = Bytes::from(unary(generation)?.to_string());
    pace.wait(generation.words).await;
    let content = if pace.gzip { player::compressed(&content).into() } else { content };
    let mut response = with_coding(respond::of(StatusCode::OK, respond::JSON, content), pace.gzip);
    if generation.operation == Operation::Invoke {
        for (name, count) in bedrock::usage_fields(generation) {
            response.headers_mut().insert(name, count.into());
        }
    }
    ledger.add(Charge { complete: true, ..charge(generation, true) });
    Ok(response)
}

fn with_coding(response: Response, is_gzip: bool) -> Response {
    const GZIP: HeaderValue = HeaderValue::from_static("gzip");
    if is_gzip { respond::with(response, header::CONTENT_ENCODING, GZIP) } else { response }
}

/// The response in one piece.
fn unary(call: &Generation) -> Result<Value, ProviderError> {
    Ok(match call.operation {
        Operation::Chat => chat::unary(call),
        Operation::Responses => responses::unary(call),
        Operation::Embeddings => vectors::embeddings(call)?,
        Operation::Images => vectors::image(call),
        Operation::Messages => anthropic::unary(call),
        Operation::Generate | Operation::GenerateStream { .. } => gemini::unary(call),
        Operation::Invoke | Operation::InvokeStream => bedrock::invoke(call),
        Operation::Converse | Operation::ConverseStream => bedrock::converse(call),
        Operation::CohereChat => cohere::unary(call),
        Operation::OllamaChat | Operation::OllamaGenerate => ollama::unary(call),
    })
}

/// The response as a stream.
fn script(call: &Arc<Generation>) -> EventScript {
    match call.operation {
        // An embedding is never streamed: see `Operation::streams`.
        Operation::Chat | Operation::Embeddings => chat::script(call),
        Operation::Responses => responses::script(call),
        Operation::Images => vectors::image_script(call),
        Operation::Messages => anthropic::script(call),
        Operation::Generate | Operation::GenerateStream { .. } => gemini::script(call),
        Operation::Invoke | Operation::InvokeStream => bedrock::invoke_script(call),
        Operation::Converse | Operation::ConverseStream => bedrock::converse_script(call),
        Operation::CohereChat => cohere::script(call),
        Operation::OllamaChat | Operation::OllamaGenerate => ollama::script(call),
    }
}

async fn ledger_page(call: ProviderCall) -> EndpointResult {
    let last = Parameters::of(&call).count("last", CALLS_LISTED, 0..=CALLS_MAX)?;
    let wanted = ["id", "dialect", "model", "consumer"].map(|name| call.query.get(name));
    let fits = |charge: &Charge| {
        let found = [&charge.id, charge.dialect, &charge.model, &charge.consumer];
        wanted.iter().zip(found).all(|(wanted, found)| wanted.is_none_or(|wanted| wanted == found))
    };
    let is_filtered = wanted.iter().any(Option::is_some);
    let excerpt = call.state.ledger.excerpt(last, if is_filtered { Some(&fits) } else { None });
    Ok(respond::json(StatusCode::OK, &excerpt))
}

async fn forget(call: ProviderCall) -> Response {
    call.state.ledger.clear();
    respond::empty(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests;
