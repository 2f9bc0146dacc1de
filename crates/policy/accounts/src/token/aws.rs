//! Identities of AWS, by which an account gets temporary keys: those of a workload, a machine, a container or
//! a program, and those of a role that it assumes with them or with its own keys.

mod keys;
pub(super) mod step;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use egret_aws::AccessKey;
use egret_clock::{Clock, Moment, Timestamp, rfc3339};
use egret_config::{Duration, Secret, are_secrets_read};
use egret_message::Origin;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::{Grant, OAuth2Config, timeout_default, wait_max_default};
use super::endpoint::{EndpointError, TokenEndpoint};

pub(crate) use keys::TemporaryKeys;
use step::{AwsRole, AwsSource, ContainerProof, KeyStep};

/// The address of the instance metadata service. A name would be looked up in the DNS, whose owner could send
/// the call elsewhere.
const METADATA_HOST: &str = "169.254.169.254";
/// The address that `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI` is relative to.
const CONTAINER_HOST: &str = "169.254.170.2";
/// The hosts that give keys to containers over HTTP besides loopback: those of ECS and of EKS.
const CONTAINER_HOSTS: [&str; 3] = [CONTAINER_HOST, "169.254.170.23", "[fd00:ec2::23]"];
/// Time before their end at which keys are renewed. A metadata service has new ones five minutes before.
const RENEW_BEFORE_S: u64 = 300;
/// Maximum length of the ARN of a role, in bytes, as STS has it.
const ARN_BYTES_MAX: usize = 2048;

/// An identity of AWS, by which Egret gets temporary keys. It renews them before they expire. Set exactly one
/// of `web_identity`, `instance`, `container` and `process`; or none, if a `role` is assumed with the
/// account's own keys.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwsIdentityConfig {
    /// `true` proves a workload to STS by the token in a file, such as that of a service account on EKS
    /// (`AssumeRoleWithWebIdentity`).
    #[serde(default)]
    pub web_identity: bool,
    /// File with the token of `web_identity`, which is read for each request. The default is the file that
    /// the environment variable `AWS_WEB_IDENTITY_TOKEN_FILE` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// `true` asks the instance metadata service (`IMDSv2`) for the keys of the machine's role.
    #[serde(default)]
    pub instance: bool,
    /// `true` asks the credentials endpoint that ECS and EKS Pod Identity name in the environment
    /// (`AWS_CONTAINER_CREDENTIALS_FULL_URI` or `_RELATIVE_URI`, and `AWS_CONTAINER_AUTHORIZATION_TOKEN`
    /// or `_TOKEN_FILE`).
    #[serde(default)]
    pub container: bool,
    /// Keys as a program for `credential_process` prints them (JSON with `Version` 1): `${exec:NAME}`, with
    /// the program in `secrets.commands`. Its `lifetime` must be less than that of the keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Secret>,
    /// ARN of the role to assume, with the keys of the machine, the container, the program or the account.
    /// For `web_identity` it is the role of the token, and the default is the environment variable
    /// `AWS_ROLE_ARN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// External id that the trust policy of the role requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// Name of the session of the role, which AWS logs.
    #[serde(default = "session_name_default")]
    pub session_name: String,
    /// URL of STS. The default is `https://sts.REGION.amazonaws.com`, with the account's region. Requests are
    /// signed for the region that a host of this form names, and otherwise for the account's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sts_url: Option<String>,
    /// Host of the instance metadata service, with an optional port. The default is that of the environment
    /// variable `AWS_EC2_METADATA_SERVICE_ENDPOINT`, or 169.254.169.254. It is called over HTTP, through no
    /// proxy, and its address is allowed to this call alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_host: Option<String>,
    /// Maximum time that a call waits for keys if there are none. After that it is rejected with 503
    /// `account-unavailable`.
    #[serde(default = "wait_max_default")]
    pub wait_max: Duration,
    /// Maximum duration of each request for keys.
    #[serde(default = "timeout_default")]
    pub timeout: Duration,
}

fn session_name_default() -> String {
    "egret".to_owned()
}

/// Reason why there are no keys, and no request for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AwsError {
    /// None of the sources, or several.
    #[error(
        "set exactly one of `web_identity: true`, `instance: true`, `container: true` and `process`, or `role` with \
         `access_key_id` and `secret_access_key`"
    )]
    Source,
    /// A key is set that the source does not use.
    #[error("only with `{0}`")]
    Unused(&'static str),
    /// The program has printed something else.
    #[error(
        "is not the output of a `credential_process`: JSON with `\"Version\": 1`, `AccessKeyId` and `SecretAccessKey`"
    )]
    Output,
    /// The program has printed keys that are over.
    #[error("the printed keys expired at {}: check the program, its `lifetime`, and the clock of this machine", utc(*.0))]
    Expired(Timestamp),
    /// Neither the key nor the environment variable is set.
    #[error("required, because the environment variable {0} is not set")]
    Unset(&'static str),
    /// No variable names the endpoint of a container.
    #[error(
        "neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor AWS_CONTAINER_CREDENTIALS_FULL_URI is set: ECS and EKS Pod Identity \
         set one of them"
    )]
    NoContainer,
    /// A variable names another host than a container's.
    #[error(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI must begin with `https://`, or with `http://` and a loopback address, \
         169.254.170.2, 169.254.170.23 or [fd00:ec2::23]"
    )]
    ContainerUrl,
    /// Not the name of a role.
    #[error("must be an ARN, like `arn:aws:iam::123456789012:role/reader`")]
    Role,
    /// Not an external id.
    #[error("must consist of 2 to 1224 letters, digits, and characters of `_+=,.@:/-`")]
    ExternalId,
    /// Not the name of a session.
    #[error("must consist of 2 to 64 letters, digits, and characters of `_+=,.@-`")]
    SessionName,
    /// A URL that cannot be called.
    #[error("{0}")]
    Endpoint(EndpointError),
    /// A host that cannot be called.
    #[error("must be a host with an optional port, as in `169.254.169.254`")]
    Host,
}

/// The config key of a mistake, and the mistake.
type IdentityMistake = (&'static str, AwsError);

/// Keys, or the way to them.
#[derive(Debug)]
pub(crate) enum AwsKeys {
    /// Keys that a program has printed.
    Printed(TemporaryKeys),
    /// Keys that are fetched by this request.
    Fetched(Box<OAuth2Config>),
}

/// Returns the value of an environment variable, if it is set and not empty.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

impl AwsIdentityConfig {
    /// `true` if a request to STS is a part of the fetch.
    fn has_role(&self) -> bool {
        self.web_identity || self.role.is_some()
    }

    /// Returns the keys for this region and service, or the request for them; or the key that is wrong, and
    /// the reason. `own` are the account's own keys.
    pub(crate) fn keys(
        &self,
        own: Option<AccessKey>,
        region: &str,
        service: &str,
        variables: Variables<'_>,
    ) -> Result<AwsKeys, IdentityMistake> {
        for (key, is_unused, used_with) in [
            ("identity.token_file", self.token_file.is_some() && !self.web_identity, "web_identity: true"),
            ("identity.metadata_host", self.metadata_host.is_some() && !self.instance, "instance: true"),
            (
                "identity.external_id",
                self.external_id.is_some() && (self.role.is_none() || self.web_identity),
                "role` without `web_identity",
            ),
            ("identity.sts_url", self.sts_url.is_some() && !self.has_role(), "role` or `web_identity: true"),
            (
                "identity.session_name",
                self.session_name != session_name_default() && !self.has_role(),
                "role` or `web_identity: true",
            ),
        ] {
            if is_unused {
                return Err((key, AwsError::Unused(used_with)));
            }
        }
        let role = self.role(region, variables)?.map(Arc::new);
        let printed = self.process.as_ref().map(printed).transpose()?;
        let first = match (own, printed, self.web_identity, self.instance, self.container, &role) {
            (Some(key), None, false, false, false, Some(role)) => {
                KeyStep::AssumeRole(Arc::clone(role), Box::new(key))
            }
            (None, Some(keys), false, false, false, None) => return Ok(AwsKeys::Printed(keys)),
            (None, Some(keys), false, false, false, Some(role)) => {
                KeyStep::AssumeRole(Arc::clone(role), Box::new(keys.key))
            }
            (None, None, true, false, false, Some(role)) => {
                KeyStep::WebIdentity(Arc::clone(role), self.token_file(variables)?)
            }
            (None, None, false, true, false, _) => KeyStep::Session(self.metadata_service(variables)?),
            (None, None, false, false, true, _) => {
                container(variables).map_err(|error| ("identity.container", error))?
            }
            _ => return Err(("identity", AwsError::Source)),
        };
        let TokenEndpoint { tls, authority, target } = first.endpoint();
        let url = format!("{}://{authority}{target}", if *tls { "https" } else { "http" });
        let source = AwsSource {
            region: region.to_owned(),
            service: service.to_owned(),
            first,
            is_printed: self.process.is_some(),
            role,
        };
        Ok(AwsKeys::Fetched(Box::new(OAuth2Config {
            aws: Some(source),
            renew_before: Duration::from_secs(RENEW_BEFORE_S),
            wait_max: self.wait_max,
            timeout: self.timeout,
            // An identity has neither a grant nor a client.
            ..OAuth2Config::new(Grant::ClientCredentials, url, "aws".to_owned())
        })))
    }

    /// Returns the role to assume, if there is one.
    fn role(&self, region: &str, variables: Variables<'_>) -> Result<Option<AwsRole>, IdentityMistake> {
        let arn = match &self.role {
            Some(arn) => arn.clone(),
            None if self.web_identity => variable("AWS_ROLE_ARN", "arn:unknown", variables)
                .map_err(|error| ("identity.role", error))?,
            None => return Ok(None),
        };
        let is_arn = arn.starts_with("arn:")
            && arn.len() <= ARN_BYTES_MAX
            && arn.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_arn {
            return Err(("identity.role", AwsError::Role));
        }
        let is_of = |text: &str, more: &[u8], bytes_max: usize| {
            (2..=bytes_max).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
        };
        if self.external_id.as_ref().is_some_and(|id| !is_of(id, b"_+=,.@:/-", 1224)) {
            return Err(("identity.external_id", AwsError::ExternalId));
        }
        if !is_of(&self.session_name, b"_+=,.@-", 64) {
            return Err(("identity.session_name", AwsError::SessionName));
        }
        let url = self.sts_url.clone().unwrap_or_else(|| {
            let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
            format!("https://sts.{region}.amazonaws.com{suffix}")
        });
        let endpoint = endpoint(&url).map_err(|error| ("identity.sts_url", error))?;
        let region = sts_region(&endpoint.authority, region);
        let (session_name, external_id) = (self.session_name.clone(), self.external_id.clone());
        Ok(Some(AwsRole { endpoint, region, arn, session_name, external_id }))
    }

    fn token_file(&self, variables: Variables<'_>) -> Result<PathBuf, IdentityMistake> {
        if let Some(file) = &self.token_file {
            return Ok(file.clone());
        }
        let file = variable("AWS_WEB_IDENTITY_TOKEN_FILE", "unknown", variables);
        Ok(file.map_err(|error| ("identity.token_file", error))?.into())
    }

    fn metadata_service(&self, variables: Variables<'_>) -> Result<TokenEndpoint, IdentityMistake> {
        let host = self.metadata_host.clone().unwrap_or_else(|| {
            let url = variables("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_default();
            let host = url.strip_prefix("http://").unwrap_or(&url).trim_end_matches('/');
            if host.is_empty() { METADATA_HOST.to_owned() } else { host.to_owned() }
        });
        let is_host = !host.is_empty() && !host.contains(['/', '?', '@', '#']);
        let endpoint = Some(format!("http://{host}")).filter(|_| is_host).and_then(|url| endpoint(&url).ok());
        endpoint.ok_or(("identity.metadata_host", AwsError::Host))
    }
}

/// Returns the keys that a program has printed.
fn printed(output: &Secret) -> Result<TemporaryKeys, IdentityMistake> {
    if output.is_placeholder() {
        // Nothing is known of the keys.
        let key = AccessKey { id: output.clone(), secret: output.clone(), session_token: None };
        return Ok(TemporaryKeys { key, expires_at: None });
    }
    let keys = TemporaryKeys::of_program(output).ok_or(("identity.process", AwsError::Output))?;
    match keys.expires_at {
        Some(expires_at) if expires_at <= Clock::new().timestamp(Moment::now()) => {
            Err(("identity.process", AwsError::Expired(expires_at)))
        }
        _ => Ok(keys),
    }
}

/// Returns a time as in RFC 3339.
fn utc(time: Timestamp) -> String {
    rfc3339::write(SystemTime::UNIX_EPOCH + std::time::Duration::from_micros(time.as_micros()))
}

/// Returns the region that requests to STS at this host are signed for: the one that the host names, or the
/// account's.
fn sts_region(authority: &str, own: &str) -> String {
    let host = authority.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let name = host.strip_suffix(".cn").unwrap_or(&host).strip_suffix(".amazonaws.com").unwrap_or_default();
    if name == "sts" {
        return "us-east-1".to_owned();
    }
    let is_region = |name: &&str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let region = name.strip_prefix("sts.").or_else(|| name.strip_prefix("sts-fips."));
    region.filter(is_region).unwrap_or(own).to_owned()
}

/// Returns the request to the credentials endpoint of a container.
fn container(variables: Variables<'_>) -> Result<KeyStep, AwsError> {
    let relative = variables("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    let full = variables("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    let url = match (relative, full) {
        (Some(relative), _) => format!("http://{CONTAINER_HOST}{relative}"),
        (None, Some(full)) => full,
        (None, None) if !are_secrets_read() => format!("http://{CONTAINER_HOST}/"),
        (None, None) => return Err(AwsError::NoContainer),
    };
    let endpoint = endpoint(&url)?;
    if !endpoint.tls && !is_of_container(&endpoint.authority) {
        return Err(AwsError::ContainerUrl);
    }
    let token = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
    let proof = match (variables("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"), variables(token)) {
        (Some(file), _) => ContainerProof::File(file.into()),
        (None, Some(value)) => ContainerProof::Given(Secret::from_value(format!("${{env:{token}}}"), value)),
        (None, None) => ContainerProof::None,
    };
    Ok(KeyStep::Container(endpoint, proof))
}

/// Returns `true` if keys may be asked of this host over HTTP.
fn is_of_container(authority: &str) -> bool {
    let host = match authority.find(']') {
        Some(end) => &authority[..=end],
        None => authority.split(':').next().unwrap_or_default(),
    };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost"
        || CONTAINER_HOSTS.contains(&host)
        || address.is_ok_and(|address| address.is_loopback())
}

/// Returns a URL as an endpoint whose host can be called.
fn endpoint(url: &str) -> Result<TokenEndpoint, AwsError> {
    let endpoint = TokenEndpoint::parse(url).map_err(AwsError::Endpoint)?;
    Origin::parse(endpoint.tls, endpoint.authority.as_bytes()).map_err(|_| AwsError::Host)?;
    Ok(endpoint)
}

/// Returns a variable that must be set, or `unknown` while nothing secret is read: the machine of a check may
/// be another one.
fn variable(name: &'static str, unknown: &str, variables: Variables<'_>) -> Result<String, AwsError> {
    let value = variables(name).or_else(|| (!are_secrets_read()).then(|| unknown.to_owned()));
    value.ok_or(AwsError::Unset(name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::token::response::KeyService;

    const ROLE: &str = "arn:aws:iam::123456789012:role/reader";

    fn own() -> AccessKey {
        let secret = |value: &str| Secret::from_value("${env:KEY}", value.to_owned());
        AccessKey { id: secret("AKID"), secret: secret("hunter2"), session_token: None }
    }

    fn keys(
        identity: &Value,
        own: Option<AccessKey>,
        variables: &[(&str, &str)],
    ) -> Result<AwsKeys, IdentityMistake> {
        let config: AwsIdentityConfig = serde_json::from_value(identity.clone()).unwrap();
        let variables = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        };
        config.keys(own, "eu-west-1", "s3", &variables)
    }

    fn fetched(identity: &Value, own: Option<AccessKey>, variables: &[(&str, &str)]) -> OAuth2Config {
        match keys(identity, own, variables).unwrap() {
            AwsKeys::Fetched(request) => *request,
            AwsKeys::Printed(keys) => panic!("{keys:?}"),
        }
    }

    #[test]
    fn each_source_begins_with_its_own_request() {
        let container = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/1");
        let file = ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token");
        for (identity, own, variables, url, service) in [
            (
                json!({ "role": ROLE }),
                Some(own()),
                vec![],
                "https://sts.eu-west-1.amazonaws.com/",
                KeyService::Sts,
            ),
            (
                json!({ "web_identity": true }),
                None,
                vec![file, ("AWS_ROLE_ARN", ROLE)],
                "https://sts.eu-west-1.amazonaws.com/",
                KeyService::Sts,
            ),
            (
                json!({ "web_identity": true, "token_file": "/t", "role": ROLE, "sts_url": "http://sts.test:1/a" }),
                None,
                vec![],
                "http://sts.test:1/a",
                KeyService::Sts,
            ),
            (json!({ "instance": true }), None, vec![], "http://169.254.169.254/", KeyService::Instance),
            (
                json!({ "instance": true, "role": ROLE }),
                None,
                vec![("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://[fd00:ec2::254]/")],
                "http://[fd00:ec2::254]/",
                KeyService::Instance,
            ),
            (
                json!({ "instance": true, "metadata_host": "127.0.0.1:80" }),
                None,
                vec![("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://other")],
                "http://127.0.0.1:80/",
                KeyService::Instance,
            ),
            (
                json!({ "container": true }),
                None,
                vec![container],
                "http://169.254.170.2/v2/credentials/1",
                KeyService::Container,
            ),
        ] {
            let request = fetched(&identity, own, &variables);
            assert_eq!(request.token_url, url, "{identity}");
            assert_eq!(request.aws.as_ref().unwrap().first.service(), service, "{identity}");
            assert!(!request.is_shareable() && !format!("{request:?}").contains("hunter2"), "{request:?}");
        }
    }

    #[test]
    fn a_container_is_asked_at_home_or_over_tls() {
        let url = |url: &str| {
            let full = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
            let proof = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/token");
            keys(&json!({ "container": true }), None, &[full, proof]).map(|_| ()).map_err(|(_, error)| error)
        };
        for good in [
            "http://169.254.170.23/v1",
            "http://[fd00:ec2::23]/v1",
            "http://127.0.0.2:80/a",
            "https://a.example/",
        ] {
            assert_eq!(url(good), Ok(()), "{good}");
        }
        for wrong in ["http://a.example/", "http://169.254.169.254/", "http://169.254.170.2.example/"] {
            assert_eq!(url(wrong), Err(AwsError::ContainerUrl), "{wrong}");
        }
        assert_eq!(url("ftp://a"), Err(AwsError::Endpoint(EndpointError::Scheme)));
        let relative = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", ".example/");
        let error = keys(&json!({ "container": true }), None, &[relative]).unwrap_err();
        assert_eq!(error, ("identity.container", AwsError::ContainerUrl));
    }

    #[test]
    fn a_container_called_over_tls_is_no_service_of_the_machine() {
        for (url, is_of_machine) in [
            ("http://127.0.0.1/a", true),
            ("https://169.254.170.23/a", true),
            ("https://[fd00:ec2::23]/a", true),
            ("https://a.example/", false),
            ("https://10.0.0.1/", false),
        ] {
            let full = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
            let request = fetched(&json!({ "container": true }), None, &[full]);
            assert_eq!(request.aws.unwrap().first.is_of_machine(), is_of_machine, "{url}");
        }
    }

    #[test]
    fn requests_to_sts_are_signed_for_the_region_of_its_host() {
        for (host, region) in [
            ("sts.amazonaws.com", "us-east-1"),
            ("STS.us-west-2.amazonaws.com:443", "us-west-2"),
            ("sts-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
            ("sts.cn-north-1.amazonaws.com.cn", "cn-north-1"),
            ("vpce-1.sts.us-east-1.vpce.amazonaws.com", "eu-west-1"),
            ("sts.a.b.amazonaws.com", "eu-west-1"),
            ("sts.us-west-2.amazonaws.com.example", "eu-west-1"),
            ("sts.us-west-2.example", "eu-west-1"),
            ("[::1]:80", "eu-west-1"),
        ] {
            assert_eq!(sts_region(host, "eu-west-1"), region, "{host}");
        }
        let identity = json!({ "role": ROLE, "sts_url": "https://sts.amazonaws.com" });
        let request = fetched(&identity, Some(own()), &[]);
        assert_eq!(request.aws.unwrap().role.unwrap().region, "us-east-1");
    }

    #[test]
    fn expired_keys_of_a_program_are_refused_with_their_time() {
        let output = json!({
            "Version": 1, "AccessKeyId": "ASIA", "SecretAccessKey": "s", "Expiration": "2001-01-01T00:00:00Z",
        });
        let (key, error) = printed(&Secret::from_value("${exec:aws}", output.to_string())).unwrap_err();
        assert_eq!(key, "identity.process");
        let error = error.to_string();
        assert!(error.starts_with("the printed keys expired at 2001-01-01T00:00:00.000Z"), "{error}");
    }

    #[test]
    fn a_wrong_identity_is_reported_at_its_key() {
        for (identity, own, key) in [
            (json!({}), None, "identity"),
            (json!({}), Some(own()), "identity"),
            (json!({ "role": ROLE }), None, "identity"),
            (json!({ "instance": true, "container": true }), None, "identity"),
            (json!({ "instance": true }), Some(own()), "identity"),
            (json!({ "web_identity": true }), None, "identity.role"),
            (json!({ "web_identity": true, "role": ROLE }), None, "identity.token_file"),
            (json!({ "instance": true, "token_file": "/t" }), None, "identity.token_file"),
            (json!({ "instance": true, "external_id": "ab" }), None, "identity.external_id"),
            (json!({ "instance": true, "sts_url": "https://a" }), None, "identity.sts_url"),
            (json!({ "instance": true, "session_name": "ab" }), None, "identity.session_name"),
            (json!({ "role": ROLE, "metadata_host": "a" }), Some(own()), "identity.metadata_host"),
            (json!({ "instance": true, "metadata_host": "a/b" }), None, "identity.metadata_host"),
            (json!({ "container": true }), None, "identity.container"),
            (json!({ "process": "${env:PATH}" }), None, "identity.process"),
            (json!({ "role": "reader" }), Some(own()), "identity.role"),
            (json!({ "role": ROLE, "external_id": "a b" }), Some(own()), "identity.external_id"),
            (json!({ "role": ROLE, "session_name": "a/b" }), Some(own()), "identity.session_name"),
            (json!({ "role": ROLE, "sts_url": "sts.test" }), Some(own()), "identity.sts_url"),
            (json!({ "role": ROLE, "sts_url": "https://a b/" }), Some(own()), "identity.sts_url"),
        ] {
            let (found, error) = keys(&identity, own, &[]).unwrap_err();
            assert_eq!(found, key, "{identity}: {error}");
        }
    }

    #[test]
    fn variables_of_another_machine_are_not_missed() {
        egret_config::without_secrets(|| {
            for identity in [json!({ "web_identity": true }), json!({ "container": true })] {
                assert!(keys(&identity, None, &[]).is_ok(), "{identity}");
            }
            let process = json!({ "process": "${exec:none}", "role": ROLE });
            assert!(keys(&process, None, &[]).is_ok());
        });
    }
}
