//! The steps by which keys of AWS are fetched: the request of each one, and what its response leads to.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use egret_aws::{AccessKey, HeaderSignature, SignableRequest, Signer, percent_encode, sha256};
use egret_clock::Timestamp;
use egret_config::{SECRET_BYTES_MAX, Secret, read_file};
use egret_http1::is_field_value;
use egret_message::Origin;
use zeroize::Zeroizing;

use super::is_of_container;
use super::keys::{TemporaryKeys, sts_code};
use crate::token::endpoint::{TokenEndpoint, message};
use crate::token::response::{KeyService, TokenError, is_sendable};

/// Path of a session at the instance metadata service (`IMDSv2`).
const SESSION_PATH: &str = "/latest/api/token";
/// Path of the name of the machine's role, and of the keys below it.
const ROLE_PATH: &str = "/latest/meta-data/iam/security-credentials/";
/// The fields of a session at the service: its token, and the lifetime that is asked for.
const SESSION_FIELD: &str = "X-aws-ec2-metadata-token";
const SESSION_LIFE_FIELD: &str = "X-aws-ec2-metadata-token-ttl-seconds";
/// Lifetime of a session, in seconds: enough for the three requests of a fetch.
const SESSION_LIFE_S: &str = "300";
/// Maximum length of a role's name, in bytes, as IAM has it.
const NAME_BYTES_MAX: usize = 64;
/// The media type of requests to STS.
const FORM: &str = "application/x-www-form-urlencoded";

/// A compiled identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AwsSource {
    pub region: String,
    /// The service that requests are signed for.
    pub service: String,
    pub first: KeyStep,
    /// `true` if the first step is taken with keys that a program has printed.
    pub is_printed: bool,
    pub role: Option<Arc<AwsRole>>,
}

impl AwsSource {
    /// `true` if nothing differs, or only the keys that a program has printed.
    pub fn is_same_identity(&self, before: &Self) -> bool {
        let first = if self.is_printed && before.is_printed { &self.first } else { &before.first };
        Self { first: first.clone(), ..before.clone() } == *self
    }
}

/// A role that STS lets an identity assume.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AwsRole {
    pub endpoint: TokenEndpoint,
    /// The region that requests to the endpoint are signed for.
    pub region: String,
    pub arn: String,
    pub session_name: String,
    pub external_id: Option<String>,
}

/// The proof that the credentials endpoint of a container asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ContainerProof {
    None,
    Given(Secret),
    /// In a file, which is read for each request.
    File(PathBuf),
}

/// A request for keys, or for something that they are asked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyStep {
    /// A session at the instance metadata service.
    Session(TokenEndpoint),
    /// The name of the machine's role, asked in a session.
    RoleName(TokenEndpoint, Secret),
    /// The keys of the machine's role of that name.
    RoleKeys(TokenEndpoint, Secret, String),
    /// The keys of a container.
    Container(TokenEndpoint, ContainerProof),
    /// The keys of a role, for the token in a file, which is read for each request.
    WebIdentity(Arc<AwsRole>, PathBuf),
    /// The keys of a role, asked with other keys.
    AssumeRole(Arc<AwsRole>, Box<AccessKey>),
}

/// The result of a response.
#[derive(Debug)]
pub(crate) enum KeyAnswer {
    /// One more request.
    Next(KeyStep),
    Keys(TemporaryKeys),
}

impl KeyStep {
    /// The endpoint that the request is sent to.
    pub fn endpoint(&self) -> &TokenEndpoint {
        match self {
            Self::Session(endpoint)
            | Self::RoleName(endpoint, _)
            | Self::RoleKeys(endpoint, ..)
            | Self::Container(endpoint, _) => endpoint,
            Self::WebIdentity(role, _) | Self::AssumeRole(role, _) => &role.endpoint,
        }
    }

    /// The service at that endpoint.
    pub fn service(&self) -> KeyService {
        match self {
            Self::Session(_) | Self::RoleName(..) | Self::RoleKeys(..) => KeyService::Instance,
            Self::Container(..) => KeyService::Container,
            Self::WebIdentity(..) | Self::AssumeRole(..) => KeyService::Sts,
        }
    }

    /// `true` if the endpoint is a service of this machine. A host that is called over TLS is one only if its
    /// address says so.
    pub fn is_of_machine(&self) -> bool {
        let endpoint = self.endpoint();
        self.service() != KeyService::Sts && (!endpoint.tls || is_of_container(&endpoint.authority))
    }

    /// Returns the whole request. One that is signed is valid from `now` on.
    pub fn request(&self, now: Timestamp) -> Result<Zeroizing<Vec<u8>>, TokenError> {
        let endpoint = self.endpoint();
        Ok(match self {
            Self::Session(_) => {
                let fields = [(SESSION_LIFE_FIELD, SESSION_LIFE_S), ("Content-Length", "0")];
                message("PUT", SESSION_PATH, endpoint, &fields, b"")
            }
            Self::RoleName(_, session) => {
                message("GET", ROLE_PATH, endpoint, &[(SESSION_FIELD, session.expose())], b"")
            }
            Self::RoleKeys(_, session, name) => {
                let path = format!("{ROLE_PATH}{name}");
                message("GET", &path, endpoint, &[(SESSION_FIELD, session.expose())], b"")
            }
            Self::Container(_, proof) => {
                let proof = proof.value()?;
                let field = proof.as_ref().map(|proof| ("Authorization", proof.as_str()));
                message("GET", &endpoint.target, endpoint, field.as_slice(), b"")
            }
            Self::WebIdentity(role, file) => {
                let token = text_of(file)?;
                role.post(
                    &role.form("AssumeRoleWithWebIdentity", &[("WebIdentityToken", token.as_str())]),
                    &[],
                )
            }
            Self::AssumeRole(role, key) => {
                let external_id = role.external_id.as_deref().map(|id| ("ExternalId", id));
                let form = role.form("AssumeRole", external_id.as_slice());
                let HeaderSignature { date, authorization } = role.signature(&form, key, now)?;
                let mut fields = vec![("X-Amz-Date", &*date), ("Authorization", &*authorization)];
                let token = key.session_token.as_ref();
                fields.extend(token.map(|token| ("X-Amz-Security-Token", token.expose())));
                role.post(&form, &fields)
            }
        })
    }

    /// Reads the response, which arrived at `now`. The keys of a machine assume the `role`, if there is one.
    pub fn answered(
        self,
        role: Option<&Arc<AwsRole>>,
        status: u16,
        body: &[u8],
        now: Timestamp,
    ) -> Result<KeyAnswer, TokenError> {
        let service = self.service();
        match status {
            200 => {}
            300..=399 => return Err(TokenError::Redirected(status)),
            _ => {
                let code = if service == KeyService::Sts { sts_code(body) } else { None };
                return Err(TokenError::KeysRefused(service, status, code));
            }
        }
        let keys = match self {
            Self::Session(endpoint) => {
                let session = read_session(body).ok_or(TokenError::NoKeys(service))?;
                return Ok(KeyAnswer::Next(Self::RoleName(endpoint, session)));
            }
            Self::RoleName(endpoint, session) => {
                let name = read_role_name(body).ok_or(TokenError::NoKeys(service))?;
                return Ok(KeyAnswer::Next(Self::RoleKeys(endpoint, session, name)));
            }
            Self::RoleKeys(..) | Self::Container(..) => {
                let keys = TemporaryKeys::of_service(body, service)?;
                if let Some(role) = role {
                    return Ok(KeyAnswer::Next(Self::AssumeRole(Arc::clone(role), Box::new(keys.key))));
                }
                keys
            }
            Self::WebIdentity(..) => TemporaryKeys::assumed(body, "AssumeRoleWithWebIdentity")?,
            Self::AssumeRole(..) => TemporaryKeys::assumed(body, "AssumeRole")?,
        };
        if keys.expires_at.is_some_and(|expires_at| expires_at <= now) {
            return Err(TokenError::KeysExpired(service));
        }
        Ok(KeyAnswer::Keys(keys))
    }
}

impl ContainerProof {
    /// Returns the value of `Authorization`, if there is one.
    fn value(&self) -> Result<Option<Zeroizing<String>>, TokenError> {
        let proof = match self {
            Self::None => return Ok(None),
            Self::Given(proof) => Zeroizing::new(proof.expose().to_owned()),
            Self::File(path) => text_of(path)?,
        };
        let is_sendable = is_field_value(proof.as_bytes());
        if is_sendable { Ok(Some(proof)) } else { Err(TokenError::IdentityFile) }
    }
}

impl AwsRole {
    /// Returns the form of a request to assume the role, with these further parameters.
    fn form(&self, action: &str, more: &[(&str, &str)]) -> Zeroizing<Vec<u8>> {
        let parameters = [
            ("Action", action),
            ("Version", "2011-06-15"),
            ("RoleArn", &*self.arn),
            ("RoleSessionName", &*self.session_name),
        ];
        let parameters = || parameters.iter().chain(more);
        // At most three bytes for each one, and all memory at once: growing would leave a copy of the secret.
        let bytes_max: usize = parameters().map(|(name, value)| 3 * (name.len() + value.len()) + 2).sum();
        let mut form = Zeroizing::new(Vec::with_capacity(bytes_max));
        for (name, value) in parameters() {
            if !form.is_empty() {
                form.push(b'&');
            }
            percent_encode(name.as_bytes(), &mut form);
            form.push(b'=');
            percent_encode(value.as_bytes(), &mut form);
        }
        form
    }

    /// Signs a form with this key.
    fn signature(&self, form: &[u8], key: &AccessKey, now: Timestamp) -> Result<HeaderSignature, TokenError> {
        let TokenEndpoint { tls, authority, target } = &self.endpoint;
        // The gateway sends the host in this form.
        let origin = Origin::parse(*tls, authority.as_bytes()).map_err(|_| TokenError::Unsigned)?;
        let (host, digest) = (origin.host_field(), sha256(form));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let request = SignableRequest {
            method: b"POST",
            host: &host,
            path: path.as_bytes(),
            query: query.as_bytes(),
            fields: &[(b"content-type", FORM.as_bytes())],
            payload: digest.as_bytes(),
            sends_payload: false,
        };
        Ok(Signer::new(key.clone(), &self.region, "sts").sign(now, &request))
    }

    /// Returns a request with this form, and with these fields besides those that describe it.
    fn post(&self, form: &[u8], fields: &[(&str, &str)]) -> Zeroizing<Vec<u8>> {
        let length = form.len().to_string();
        let mut all = vec![("Content-Type", FORM), ("Content-Length", &*length)];
        all.extend_from_slice(fields);
        message("POST", &self.endpoint.target, &self.endpoint, &all, form)
    }
}

/// Reads a file with a token, without the line ends at its end.
fn text_of(path: &Path) -> Result<Zeroizing<String>, TokenError> {
    // Small files of this machine, once for each fetch.
    let bytes = read_file(path, SECRET_BYTES_MAX).map_err(|_| TokenError::IdentityFile)?;
    let text = str::from_utf8(&bytes).map_err(|_| TokenError::IdentityFile)?.trim_ascii_end();
    if text.is_empty() { Err(TokenError::IdentityFile) } else { Ok(Zeroizing::new(text.to_owned())) }
}

/// Returns the token of a session.
fn read_session(body: &[u8]) -> Option<Secret> {
    let session = str::from_utf8(body).ok().filter(|text| is_sendable(text))?;
    Some(Secret::from_value("the session at the metadata service", session.to_owned()))
}

/// Returns the name of a machine's role. It becomes a part of a path.
fn read_role_name(body: &[u8]) -> Option<String> {
    let name = str::from_utf8(body).ok()?.trim_ascii();
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte))
        && !matches!(name, "." | "..");
    is_name.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const KEYS: &str = r#"{"Code":"Success","AccessKeyId":"ASIA","SecretAccessKey":"hunter2","Token":"t","Expiration":"2027-01-15T09:00:00Z"}"#;

    fn endpoint(url: &str) -> TokenEndpoint {
        TokenEndpoint::parse(url).unwrap()
    }

    fn secret(value: &str) -> Secret {
        Secret::from_value("a test", value.to_owned())
    }

    fn role(external_id: Option<&str>) -> Arc<AwsRole> {
        Arc::new(AwsRole {
            endpoint: endpoint("https://STS.eu-west-1.amazonaws.com:443"),
            region: "eu-west-1".to_owned(),
            arn: "arn:aws:iam::1:role/a".to_owned(),
            session_name: "egret".to_owned(),
            external_id: external_id.map(str::to_owned),
        })
    }

    fn sent(step: &KeyStep) -> String {
        String::from_utf8(step.request(NOW).unwrap().to_vec()).unwrap()
    }

    fn next(step: KeyStep, role: Option<&Arc<AwsRole>>, body: &str) -> KeyStep {
        match step.answered(role, 200, body.as_bytes(), NOW) {
            Ok(KeyAnswer::Next(step)) => step,
            other => panic!("{other:?}"),
        }
    }

    fn refused(step: &KeyStep, status: u16, body: &str) -> TokenError {
        step.clone().answered(None, status, body.as_bytes(), NOW).unwrap_err()
    }

    #[test]
    fn keys_of_a_machine_are_asked_in_a_session() {
        let step = KeyStep::Session(endpoint("http://169.254.169.254"));
        let host = "Host: 169.254.169.254\r\nUser-Agent: egret\r\nX-aws-ec2-metadata-token";
        assert_eq!(
            sent(&step),
            format!("PUT /latest/api/token HTTP/1.1\r\n{host}-ttl-seconds: 300\r\nContent-Length: 0\r\n\r\n")
        );
        let path = "/latest/meta-data/iam/security-credentials/";
        let step = next(step, None, "s3ssion==");
        assert_eq!(sent(&step), format!("GET {path} HTTP/1.1\r\n{host}: s3ssion==\r\n\r\n"));
        let step = next(step, None, "reader+1\n");
        assert_eq!(sent(&step), format!("GET {path}reader+1 HTTP/1.1\r\n{host}: s3ssion==\r\n\r\n"));
        assert!(!format!("{step:?}").contains("s3ssion"), "{step:?}");
        let Ok(KeyAnswer::Keys(keys)) = step.clone().answered(None, 200, KEYS.as_bytes(), NOW) else {
            panic!()
        };
        assert_eq!(keys.key.id.expose(), "ASIA");
        let KeyStep::AssumeRole(_, key) = next(step, Some(&role(None)), KEYS) else { panic!() };
        assert_eq!(*key, keys.key);
    }

    #[test]
    fn a_response_that_leads_nowhere_is_an_error() {
        let service = endpoint("http://169.254.169.254");
        let name = KeyStep::RoleName(service.clone(), secret("s"));
        for wrong in ["", "a b", "a/b", "..", "a\r\nb", "\u{e4}", &"a".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!(refused(&name, 200, wrong), TokenError::NoKeys(KeyService::Instance), "{wrong}");
        }
        let session = KeyStep::Session(service.clone());
        for wrong in ["", "a b", "a\r\nX-Smuggled: 1"] {
            assert_eq!(refused(&session, 200, wrong), TokenError::NoKeys(KeyService::Instance), "{wrong}");
        }
        assert_eq!(
            refused(&session, 404, "hunter2"),
            TokenError::KeysRefused(KeyService::Instance, 404, None)
        );
        assert_eq!(refused(&session, 302, ""), TokenError::Redirected(302));
        let keys = KeyStep::RoleKeys(service, secret("s"), "a".to_owned());
        let old = KEYS.replace("2027", "2026");
        assert_eq!(refused(&keys, 200, &old), TokenError::KeysExpired(KeyService::Instance));
        let denied = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>hunter2</Message></Error></ErrorResponse>";
        let assumed = KeyStep::WebIdentity(role(None), PathBuf::new());
        let expected = TokenError::KeysRefused(KeyService::Sts, 403, Some("AccessDenied"));
        assert_eq!(refused(&assumed, 403, denied), expected);
    }

    #[test]
    fn a_role_is_assumed_by_a_signed_request() {
        let key =
            AccessKey { id: secret("AKID"), secret: secret("hunter2"), session_token: Some(secret("t")) };
        let step = KeyStep::AssumeRole(role(Some("a/b")), Box::new(key.clone()));
        let body = "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fa\
                    &RoleSessionName=egret&ExternalId=a%2Fb";
        let signature = Signer::new(key, "eu-west-1", "sts").sign(
            NOW,
            &SignableRequest {
                method: b"POST",
                // As it is sent.
                host: b"sts.eu-west-1.amazonaws.com",
                path: b"/",
                query: b"",
                fields: &[(b"content-type", FORM.as_bytes())],
                payload: sha256(body.as_bytes()).as_bytes(),
                sends_payload: false,
            },
        );
        let (head, sent_body) =
            sent(&step).split_once("\r\n\r\n").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert_eq!(sent_body, body);
        for line in [
            "POST / HTTP/1.1".to_owned(),
            format!("Content-Type: {FORM}"),
            format!("Content-Length: {}", body.len()),
            "X-Amz-Date: 20270115T080000Z".to_owned(),
            format!("Authorization: {}", signature.authorization),
            "X-Amz-Security-Token: t".to_owned(),
        ] {
            assert!(head.split("\r\n").any(|found| found == line), "{line} in {head}");
        }
        assert!(!head.contains("hunter2") && !head.contains("Accept:"), "{head}");
    }

    #[test]
    fn files_with_tokens_are_read_for_each_request() {
        let file = std::env::temp_dir().join(format!("egret-identity-{}", std::process::id()));
        let web = KeyStep::WebIdentity(role(None), file.clone());
        let container =
            KeyStep::Container(endpoint("http://169.254.170.23/v1"), ContainerProof::File(file.clone()));
        assert_eq!(web.request(NOW).unwrap_err(), TokenError::IdentityFile);
        for token in ["first", "second+/"] {
            std::fs::write(&file, format!("{token}\n")).unwrap();
            let encoded = token.replace('+', "%2B").replace('/', "%2F");
            let sent_form = sent(&web);
            assert!(sent_form.ends_with(&format!("&WebIdentityToken={encoded}")), "{sent_form}");
            assert!(!sent_form.contains("Authorization"), "{sent_form}");
            assert!(sent(&container).contains(&format!("\r\nAuthorization: {token}\r\n")));
        }
        std::fs::write(&file, "a\r\nX-Smuggled: 1").unwrap();
        assert_eq!(container.request(NOW).unwrap_err(), TokenError::IdentityFile);
        std::fs::remove_file(&file).unwrap();
        let open = KeyStep::Container(endpoint("http://169.254.170.2/v2/a"), ContainerProof::None);
        assert_eq!(sent(&open), "GET /v2/a HTTP/1.1\r\nHost: 169.254.170.2\r\nUser-Agent: egret\r\n\r\n");
    }
}
