//! Temporary keys of AWS, as its services and the programs of users write them. Each part is validated, and
//! none is ever shown.

use egret_aws::{AccessKey, is_scope_part, xml_texts};
use egret_clock::Timestamp;
use egret_config::Secret;
use serde::Deserialize;

use crate::token::response::{KeyService, TokenError, is_sendable, object, time};
use crate::token::wiped::WipedText;

/// Maximum length of the id of a key, in bytes, as IAM has it.
const ID_BYTES_MAX: usize = 128;
/// The version of the output of a program that AWS has defined.
const PROGRAM_VERSION: u64 = 1;

/// The codes that services give for a refusal. Others are not shown.
const CODES: [&str; 21] = [
    "AccessDenied",
    "AccessDeniedException",
    "AssumeRoleUnauthorizedAccess",
    "ExpiredToken",
    "ExpiredTokenException",
    "Failed",
    "IDPCommunicationError",
    "IDPRejectedClaim",
    "IncompleteSignature",
    "InternalFailure",
    "InvalidClientTokenId",
    "InvalidIdentityToken",
    "InvalidParameterValue",
    "MissingAuthenticationToken",
    "RegionDisabledException",
    "RequestExpired",
    "ServiceUnavailable",
    "SignatureDoesNotMatch",
    "Throttling",
    "ValidationError",
    "ValidationException",
];

/// Keys, and the time at which they expire, if that is known. They are replaced together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemporaryKeys {
    pub key: AccessKey,
    pub expires_at: Option<Timestamp>,
}

/// The members of keys in JSON that are used; all others are ignored. A duplicate member makes them
/// malformed.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct KeyMembers {
    version: Option<u64>,
    /// `Success`, from the metadata service.
    code: Option<String>,
    access_key_id: Option<WipedText>,
    secret_access_key: Option<WipedText>,
    /// The session token, from a service.
    token: Option<WipedText>,
    /// The session token, from a program.
    session_token: Option<WipedText>,
    expiration: Option<String>,
}

impl TemporaryKeys {
    /// Reads the output of a program (`credential_process`); `None` if it is something else.
    pub fn of_program(output: &Secret) -> Option<Self> {
        let members: KeyMembers = object(output.expose().as_bytes())?;
        let KeyMembers { version, access_key_id, secret_access_key, session_token, expiration, .. } = members;
        if version != Some(PROGRAM_VERSION) {
            return None;
        }
        let (WipedText(id), WipedText(secret)) = (access_key_id?, secret_access_key?);
        let token = session_token.as_ref().map(|WipedText(token)| token.as_str());
        Self::new([&id, &secret], token, expiration.as_deref(), "identity.process")
    }

    /// Reads the response of the metadata service, or of the credentials endpoint of a container.
    pub(super) fn of_service(body: &[u8], service: KeyService) -> Result<Self, TokenError> {
        let members: KeyMembers = object(body).ok_or(TokenError::NoKeys(service))?;
        let KeyMembers { code, access_key_id, secret_access_key, token, expiration, .. } = members;
        if let Some(code) = code.filter(|code| code != "Success") {
            return Err(TokenError::KeysRefused(service, 200, known_code(&code)));
        }
        let (Some(WipedText(id)), Some(WipedText(secret))) = (access_key_id, secret_access_key) else {
            return Err(TokenError::NoKeys(service));
        };
        let token = token.as_ref().map(|WipedText(token)| token.as_str());
        Self::new([&id, &secret], token, expiration.as_deref(), "identity").ok_or(TokenError::NoKeys(service))
    }

    /// Reads the response of STS to this action.
    pub(super) fn assumed(body: &[u8], action: &str) -> Result<Self, TokenError> {
        let keys = || {
            let path = |name| format!("{action}Response/{action}Result/Credentials/{name}");
            let paths = ["AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"].map(path);
            let texts = xml_texts(str::from_utf8(body).ok()?, paths.each_ref().map(String::as_str)).ok()?;
            let [id, secret, token, expiration] = texts;
            let expiration = expiration.as_ref().map(|text| text.as_str());
            Self::new([&id?, &secret?], Some(&token?), expiration, "role")
        };
        keys().ok_or(TokenError::NoKeys(KeyService::Sts))
    }

    /// Returns keys of these parts: the id and the secret, the session token, and the time of expiry as in
    /// RFC 3339. `None` if a part is not valid. `source` is shown in place of the secrets.
    fn new(
        [id, secret]: [&str; 2],
        token: Option<&str>,
        expiration: Option<&str>,
        source: &str,
    ) -> Option<Self> {
        let is_id = id.len() <= ID_BYTES_MAX && is_scope_part(id);
        if !is_id || !is_sendable(secret) || !token.is_none_or(is_sendable) {
            return None;
        }
        let expires_at = match expiration {
            Some(text) => Some(time(text)?),
            None => None,
        };
        let secret_of = |part: &str| Secret::from_value(source, part.to_owned());
        let session_token = token.map(secret_of);
        let key = AccessKey { id: secret_of(id), secret: secret_of(secret), session_token };
        Some(Self { key, expires_at })
    }
}

/// Returns the code of an error of STS, if it is a known one.
pub(super) fn sts_code(body: &[u8]) -> Option<&'static str> {
    let [code] = xml_texts(str::from_utf8(body).ok()?, ["ErrorResponse/Error/Code"]).ok()?;
    known_code(&code?)
}

fn known_code(code: &str) -> Option<&'static str> {
    CODES.into_iter().find(|known| *known == code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const INSTANCE: KeyService = KeyService::Instance;

    fn json_with(change: &Value) -> Vec<u8> {
        let mut keys = json!({
            "Code": "Success", "AccessKeyId": "ASIAEXAMPLE", "SecretAccessKey": "hunter2/+=", "Token": "t//==",
            "Expiration": "2027-01-15T08:00:00Z", "Type": "AWS-HMAC", "LastUpdated": "2027-01-15T02:00:00Z",
        });
        keys.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        keys.to_string().into_bytes()
    }

    fn parts(keys: &TemporaryKeys) -> [&str; 3] {
        let AccessKey { id, secret, session_token } = &keys.key;
        [id.expose(), secret.expose(), session_token.as_ref().map_or("", Secret::expose)]
    }

    #[test]
    fn a_service_gives_keys_with_their_end() {
        let keys = TemporaryKeys::of_service(&json_with(&json!({})), INSTANCE).unwrap();
        assert_eq!(parts(&keys), ["ASIAEXAMPLE", "hunter2/+=", "t//=="]);
        assert_eq!(keys.expires_at, Some(Timestamp::from_secs(1_800_000_000)));
        assert!(!format!("{keys:?}").contains("hunter2"), "{keys:?}");
        let keys =
            TemporaryKeys::of_service(&json_with(&json!({ "Expiration": null, "Token": null })), INSTANCE)
                .unwrap();
        assert_eq!((keys.expires_at, keys.key.session_token), (None, None));
    }

    #[test]
    fn keys_that_cannot_be_used_are_refused() {
        for change in [
            json!({ "AccessKeyId": null }),
            json!({ "AccessKeyId": "a/b" }),
            json!({ "AccessKeyId": "A".repeat(ID_BYTES_MAX + 1) }),
            json!({ "SecretAccessKey": "" }),
            json!({ "SecretAccessKey": "a\r\nb" }),
            json!({ "SecretAccessKey": 5 }),
            json!({ "Token": "a b" }),
            json!({ "Expiration": "soon" }),
            json!({ "Expiration": 1_800_000_000 }),
        ] {
            let error = TemporaryKeys::of_service(&json_with(&change), INSTANCE).unwrap_err();
            assert_eq!(error, TokenError::NoKeys(INSTANCE), "{change}");
        }
        for body in
            ["", "<html>", "[]", "null", r#"{"AccessKeyId":"a","AccessKeyId":"b","SecretAccessKey":"c"}"#]
        {
            assert!(TemporaryKeys::of_service(body.as_bytes(), INSTANCE).is_err(), "{body}");
        }
        for (code, known) in
            [("AssumeRoleUnauthorizedAccess", Some("AssumeRoleUnauthorizedAccess")), ("hunter2", None)]
        {
            let error =
                TemporaryKeys::of_service(&json_with(&json!({ "Code": code })), INSTANCE).unwrap_err();
            assert_eq!(error, TokenError::KeysRefused(INSTANCE, 200, known));
        }
    }

    #[test]
    fn a_program_gives_keys_in_its_own_form() {
        let of = |change: &Value| {
            let mut printed = json!({ "Version": 1, "AccessKeyId": "AKID", "SecretAccessKey": "s" });
            printed.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            TemporaryKeys::of_program(&Secret::from_value("${exec:aws}", printed.to_string()))
        };
        assert_eq!(parts(&of(&json!({})).unwrap()), ["AKID", "s", ""]);
        let keys = of(&json!({ "SessionToken": "t", "Expiration": "2027-01-15T09:00:00+01:00" })).unwrap();
        assert_eq!((parts(&keys)[2], keys.expires_at), ("t", Some(Timestamp::from_secs(1_800_000_000))));
        for change in [json!({ "Version": 2 }), json!({ "Version": null }), json!({ "AccessKeyId": null })] {
            assert_eq!(of(&change), None, "{change}");
        }
    }

    fn assumed(action: &str, keys: &str) -> String {
        format!(
            "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result>\
             <AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/egret</Arn></AssumedRoleUser>\
             <Credentials>{keys}</Credentials></{action}Result>\
             <ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></{action}Response>"
        )
    }

    const ASSUMED: &str = "<AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
                           <SessionToken>t</SessionToken><Expiration>2027-01-15T08:00:00Z</Expiration>";

    #[test]
    fn sts_gives_keys_of_a_role() {
        for action in ["AssumeRole", "AssumeRoleWithWebIdentity"] {
            let keys = TemporaryKeys::assumed(assumed(action, ASSUMED).as_bytes(), action).unwrap();
            assert_eq!(parts(&keys), ["ASIA", "s", "t"]);
            assert_eq!(keys.expires_at, Some(Timestamp::from_secs(1_800_000_000)));
        }
        let no_token = ASSUMED.replace("SessionToken", "Other");
        let twice = format!("{ASSUMED}{ASSUMED}");
        for (action, body) in [
            ("AssumeRole", assumed("AssumeRole", &no_token)),
            ("AssumeRole", assumed("AssumeRole", &twice)),
            ("AssumeRole", assumed("GetSessionToken", ASSUMED)),
            ("AssumeRole", "<html>hunter2</html>".to_owned()),
        ] {
            assert_eq!(
                TemporaryKeys::assumed(body.as_bytes(), action),
                Err(TokenError::NoKeys(KeyService::Sts)),
                "{body}"
            );
        }
        let refusal = |code: &str| {
            sts_code(format!("<ErrorResponse><Error><Code>{code}</Code></Error></ErrorResponse>").as_bytes())
        };
        assert_eq!([refusal("AccessDenied"), refusal("hunter2")], [Some("AccessDenied"), None]);
    }

    proptest! {
        #[test]
        fn any_body_gives_usable_keys_or_an_error(body: Vec<u8>, id in ".{0,9}", token in ".{0,9}") {
            let change = json!({ "AccessKeyId": id, "Token": token });
            for body in [body, json_with(&change)] {
                let keys = [TemporaryKeys::of_service(&body, INSTANCE), TemporaryKeys::assumed(&body, "AssumeRole")];
                for keys in keys.into_iter().flatten() {
                    let [id, secret, _] = parts(&keys);
                    prop_assert!(is_scope_part(id) && is_sendable(secret));
                }
            }
        }
    }
}
