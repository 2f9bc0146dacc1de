//! The variables by which SDKs find their API, for providers that are known by their URL.
//!
//! A call to such a URL reaches Egret in the clear on this machine, and Egret makes it over TLS: it needs no
//! second TLS connection, and no authority to trust.

use std::net::SocketAddr;

use egret_control::{GatewayInfo, ProviderInfo};
use egret_match::providers::ProviderUrl;

/// The URLs that SDKs use without a variable, and their variables.
const KNOWN: [(&str, &[&str]); 7] = [
    ("https://api.openai.com/v1", &["OPENAI_BASE_URL", "OPENAI_API_BASE"]),
    ("https://api.anthropic.com", &["ANTHROPIC_BASE_URL"]),
    ("https://generativelanguage.googleapis.com", &["GOOGLE_GEMINI_BASE_URL"]),
    ("https://api.groq.com", &["GROQ_BASE_URL"]),
    ("https://api.cohere.com", &["CO_API_URL"]),
    ("https://huggingface.co", &["HF_ENDPOINT"]),
    ("https://api.github.com", &["GITHUB_API_URL"]),
];

/// The services of AWS: the first label of their hosts, and their variables.
const AWS: [(&str, &str); 11] = [
    ("bedrock", "AWS_ENDPOINT_URL_BEDROCK"),
    ("bedrock-runtime", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"),
    ("dynamodb", "AWS_ENDPOINT_URL_DYNAMODB"),
    ("kinesis", "AWS_ENDPOINT_URL_KINESIS"),
    ("kms", "AWS_ENDPOINT_URL_KMS"),
    ("lambda", "AWS_ENDPOINT_URL_LAMBDA"),
    ("s3", "AWS_ENDPOINT_URL_S3"),
    ("secretsmanager", "AWS_ENDPOINT_URL_SECRETS_MANAGER"),
    ("sns", "AWS_ENDPOINT_URL_SNS"),
    ("sqs", "AWS_ENDPOINT_URL_SQS"),
    ("sts", "AWS_ENDPOINT_URL_STS"),
];

/// The variable for all services of AWS that have none of their own.
const AWS_ALL: &str = "AWS_ENDPOINT_URL";

/// A variable with its value. Several names mean the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    /// The names.
    pub names: &'static [&'static str],
    /// The base URL.
    pub url: String,
}

/// Returns the variables for the providers of a gateway with this proxy.
pub fn base_urls(proxy: SocketAddr, info: &GatewayInfo) -> Vec<BaseUrl> {
    let known = KNOWN.iter().filter_map(|(url, names)| {
        let (name, rest) = provider_of(url, info)?;
        Some(BaseUrl { names, url: format!("http://{proxy}/{name}{rest}") })
    });
    known.chain(aws(proxy, info)).collect()
}

/// Returns the provider with the longest URL that `url` is below, and the rest of its path.
fn provider_of<'a>(url: &str, info: &'a GatewayInfo) -> Option<(&'a str, String)> {
    let url = ProviderUrl::parse(url).ok()?;
    let candidates = info.providers.iter().filter_map(|(name, provider)| {
        let base = ProviderUrl::parse(&provider.url).ok()?;
        let rest = url.path.strip_prefix(&*base.path)?;
        let is_below = url.origin == base.origin && (rest.is_empty() || rest.starts_with(b"/"));
        is_below.then(|| (base.path.len(), name.as_str(), String::from_utf8_lossy(rest).into_owned()))
    });
    candidates.max_by_key(|(length, ..)| *length).map(|(_, name, rest)| (name, rest))
}

/// Returns the variables for AWS. An SDK signs the host that it calls, so the gateway must sign again: other
/// providers are left out.
fn aws(proxy: SocketAddr, info: &GatewayInfo) -> Vec<BaseUrl> {
    let services: Vec<_> = info
        .providers
        .iter()
        .filter(|(_, provider)| provider.signs)
        .filter_map(|(name, provider)| Some((name, aws_service(provider)?)))
        .collect();
    // With one service only, its SDK may not know the variable of the service yet.
    let all: &'static [&'static str] = if services.len() == 1 { &[AWS_ALL] } else { &[] };
    let urls = services.into_iter().filter_map(|(name, service)| {
        let (_, variable) = AWS.iter().find(|(label, _)| *label == service)?;
        Some(BaseUrl { names: std::slice::from_ref(variable), url: format!("http://{proxy}/{name}") })
    });
    let mut urls: Vec<_> = urls.collect();
    if let ([only], false) = (&urls[..], all.is_empty()) {
        let url = only.url.clone();
        urls.push(BaseUrl { names: all, url });
    }
    urls
}

/// Returns the first label of a host of AWS.
fn aws_service(provider: &ProviderInfo) -> Option<String> {
    let host = ProviderUrl::parse(&provider.url).ok()?.origin.authority.host.to_string();
    let (service, rest) = host.split_once('.')?;
    let is_aws =
        rest == "amazonaws.com" || rest.ends_with(".amazonaws.com") || rest.ends_with(".amazonaws.com.cn");
    is_aws.then(|| service.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(providers: &[(&str, &str, bool)]) -> Vec<(&'static str, String)> {
        let providers = providers.iter().map(|(name, url, signs)| {
            ((*name).to_owned(), ProviderInfo { url: (*url).to_owned(), signs: *signs })
        });
        let info = GatewayInfo { providers: providers.collect(), ..GatewayInfo::default() };
        let urls = base_urls(SocketAddr::from(([127, 0, 0, 1], 80)), &info);
        urls.into_iter().map(|base| (base.names[0], base.url)).collect()
    }

    #[test]
    fn a_provider_is_known_by_its_url() {
        let url = |text: &str| text.to_owned();
        assert_eq!(
            urls(&[("ai", "https://api.openai.com", false), ("claude", "https://api.anthropic.com/", false)]),
            [
                ("OPENAI_BASE_URL", url("http://127.0.0.1:80/ai/v1")),
                ("ANTHROPIC_BASE_URL", url("http://127.0.0.1:80/claude")),
            ]
        );
        let both = [("ai", "https://api.openai.com", false), ("v1", "https://api.openai.com/v1", false)];
        assert_eq!(urls(&both), [("OPENAI_BASE_URL", url("http://127.0.0.1:80/v1"))]);
        for other in [
            "http://api.openai.com",
            "https://api.openai.com:8443",
            "https://api.openai.com/v",
            "https://openai.com",
        ] {
            assert_eq!(urls(&[("ai", other, false)]), [], "{other}");
        }
    }

    #[test]
    fn services_of_aws_must_be_signed_by_the_gateway() {
        let s3 = ("objects", "https://s3.eu-central-1.amazonaws.com", true);
        let url = |name: &str| format!("http://127.0.0.1:80/{name}");
        let one = urls(&[s3, ("unsigned", "https://sqs.eu-central-1.amazonaws.com", false)]);
        assert_eq!(one, [("AWS_ENDPOINT_URL_S3", url("objects")), ("AWS_ENDPOINT_URL", url("objects"))]);
        let two = urls(&[s3, ("models", "https://bedrock-runtime.us-east-1.amazonaws.com", true)]);
        assert_eq!(
            two,
            [("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", url("models")), ("AWS_ENDPOINT_URL_S3", url("objects"))]
        );
        assert_eq!(urls(&[("s3", "https://s3.example.com", true)]), []);
    }
}
