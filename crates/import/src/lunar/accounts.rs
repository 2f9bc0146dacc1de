//! `accounts`: credentials, which Egret takes from the environment alone.

use std::collections::BTreeSet;

use crate::draft::SectionKind;
use crate::emit;
use crate::report::ItemOutcome;
use crate::source::{Mapping, YamlFile, cut};
use crate::yaml::{Node, text};

use super::shared::{Import, Use};

/// A value that may be a secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SecretValue {
    /// The word before the secret: `Bearer `.
    pub prefix: String,
    /// The environment variable with the secret.
    pub variable: String,
    /// `true` if the value stood in the file, so that the variable is new.
    pub is_new: bool,
}

/// Finds the environment variable of a value: that of its template, or a new one.
pub(super) fn secret_value(value: &str, name: &str) -> SecretValue {
    let (prefix, rest) = match value.trim().split_once(' ') {
        Some((word, rest)) if word.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            (format!("{word} "), rest.trim())
        }
        _ => (String::new(), value.trim()),
    };
    match template(rest) {
        Some(variable) => SecretValue { prefix, variable, is_new: false },
        None if rest.contains("${{") => {
            SecretValue { prefix: String::new(), variable: variable_name(name), is_new: true }
        }
        None => {
            // Any other first word may be part of the secret.
            let is_scheme = ["Bearer ", "Basic ", "Token "].contains(&prefix.as_str());
            let prefix = if is_scheme { prefix } else { String::new() };
            SecretValue { prefix, variable: variable_name(name), is_new: true }
        }
    }
}

/// The name in `${{NAME}}`.
pub(super) fn template(text: &str) -> Option<String> {
    let name = text.trim().strip_prefix("${{")?.strip_suffix("}}")?.trim();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| name.to_owned())
}

fn variable_name(name: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("LUNAR_{}", cut(name).chars().filter(|c| *c != '…').map(upper).collect::<String>())
}

/// The way in which an account proves itself.
enum Proof {
    /// A header field for each token.
    Mapping(Vec<(String, String)>),
    Basic(String, String),
    /// Members of a JSON body.
    Body(Vec<(String, String)>),
}

impl<'a> Import<'a> {
    pub(super) fn read_accounts(&mut self, root: &Mapping<'a>, file: &'a YamlFile) {
        let Some(accounts) = root.fields("accounts") else { return };
        for entry in accounts.all() {
            let mut fields = Mapping::of(&file.name, entry.node, self.findings);
            fields.at = entry.key_at;
            self.accounts.known.insert(entry.key.to_owned(), fields);
        }
    }

    /// Returns the remedies that make calls with one of these accounts. `providers` is `None` for every
    /// provider.
    pub(super) fn account_remedies(
        &mut self,
        remedy: &Mapping<'_>,
        names: &[String],
        providers: Option<&[String]>,
    ) -> (Vec<Node>, Vec<String>) {
        let mut used = Vec::new();
        let mut notes = Vec::new();
        let mut remedies = Vec::new();
        for name in names {
            let Some(account) = self.accounts.known.get(name) else {
                remedy.bad(remedy.at, format!("no account is called `{}`", cut(name)));
                continue;
            };
            match proof(account) {
                Proof::Body(members) => remedies.push(body_members(name, &members, &mut notes)),
                Proof::Mapping(_) | Proof::Basic(..) => used.push(self.use_account(name, providers)),
            }
        }
        match used.as_slice() {
            [] => {}
            [one] if names.len() == 1 => remedies.push(emit::authenticate(one)),
            several => remedies.push(emit::accounts(several)),
        }
        (remedies, notes)
    }

    fn use_account(&mut self, name: &str, providers: Option<&[String]>) -> String {
        if !self.accounts.uses.contains_key(name) {
            let egret = self.draft.name(SectionKind::Account, name);
            let new = Use { name: egret, providers: BTreeSet::new(), everywhere: false };
            self.accounts.uses.insert(name.to_owned(), new);
        }
        let Some(known) = self.accounts.uses.get_mut(name) else { return String::new() };
        match providers {
            Some(providers) => known.providers.extend(providers.iter().cloned()),
            None => known.everywhere = true,
        }
        known.name.clone()
    }

    /// Writes the accounts that are used, now that all of their providers are known.
    pub(super) fn finish_accounts(&mut self) {
        let all: BTreeSet<String> =
            self.draft.providers.iter().map(|provider| provider.name.clone()).collect();
        for (name, account) in std::mem::take(&mut self.accounts.known) {
            let what = format!("account `{}`", cut(&name));
            let verdict = match self.accounts.uses.get(&name) {
                Some(used) => {
                    let providers = if used.everywhere { &all } else { &used.providers };
                    let providers: Vec<String> = providers.iter().cloned().collect();
                    let (node, verdict) = account_node(&used.name, &account, &providers);
                    self.draft.accounts.extend(node.map(|node| (used.name.clone(), node)));
                    verdict
                }
                None if matches!(proof(&account), Proof::Body(_)) => ItemOutcome::Translated,
                None => ItemOutcome::Different("no remedy uses it, so it is left out".to_owned()),
            };
            account.done(what, verdict);
        }
    }
}

/// Members of a JSON body, as `o_auth` sets them.
fn body_members(account: &str, members: &[(String, String)], notes: &mut Vec<String>) -> Node {
    let mut changes = emit::Changes::default();
    for (name, value) in members {
        let is_public = ["grant_type", "client_id", "scope", "audience", "response_type", "redirect_uri"]
            .contains(&name.as_str());
        let value = match template(value) {
            Some(variable) => emit::environment(&variable),
            None if is_public => text(value),
            None => {
                let variable = variable_name(&format!("{account}_{name}"));
                notes.push(moved(&variable, name));
                emit::environment(&variable)
            }
        };
        changes.set_json.push((format!("/{}", name.replace('~', "~0").replace('/', "~1")), value));
    }
    changes.node("request")
}

fn moved(variable: &str, name: &str) -> String {
    format!(
        "the value of `{}` stood in the file; Egret takes secrets from the environment alone: set {variable}",
        cut(name)
    )
}

fn proof(account: &Mapping<'_>) -> Proof {
    let tokens = |fields: &Mapping<'_>| -> Vec<(String, String)> {
        let tokens = fields.each("tokens").into_iter().map(|token| match token.fields("header") {
            Some(header) => (header.required_text("name"), header.required_text("value")),
            None => (token.required_text("name"), token.required_text("value")),
        });
        tokens.collect()
    };
    let Some(authentication) = account.fields("authentication") else {
        return Proof::Mapping(tokens(account));
    };
    if let Some(basic) = authentication.fields("basic") {
        return Proof::Basic(basic.required_text("username"), basic.required_text("password"));
    }
    if let Some(body) = authentication.fields("o_auth") {
        return Proof::Body(tokens(&body));
    }
    Proof::Mapping(authentication.fields("api_key").map(|key| tokens(&key)).unwrap_or_default())
}

fn account_node(name: &str, account: &Mapping<'_>, providers: &[String]) -> (Option<Node>, ItemOutcome) {
    if providers.is_empty() {
        let reason = "a credential needs the provider that it is for, and the URLs name no single host: add one under \
                      `providers`, and the account under `accounts`";
        return (None, ItemOutcome::Lost(reason.to_owned()));
    }
    match proof(account) {
        Proof::Basic(user, password) => {
            let secret = secret_value(&password, &format!("{name}_password"));
            match template(&user) {
                Some(_) => {
                    let variable = variable_name(&format!("{name}_basic"));
                    let node = emit::account(providers, "authorization", "Basic ", &variable);
                    let note = format!(
                        "Egret's user is no template: set {variable} to the Base64 of `user:password`"
                    );
                    (Some(node.commented(note.clone())), ItemOutcome::Different(note))
                }
                None => noted(emit::basic_account(providers, &user, &secret.variable), &secret, "password"),
            }
        }
        Proof::Body(_) => (None, ItemOutcome::Translated),
        Proof::Mapping(tokens) => match tokens.as_slice() {
            [] => (None, ItemOutcome::Lost("it has no token".to_owned())),
            [(header, value), more @ ..] => {
                let secret = secret_value(value, &format!("{name}_{header}"));
                let node = emit::account(providers, header, &secret.prefix, &secret.variable);
                let (node, verdict) = noted(node, &secret, header);
                if more.is_empty() {
                    return (node, verdict);
                }
                let names: Vec<String> = more.iter().map(|(name, _)| format!("`{}`", cut(name))).collect();
                let reason = format!(
                    "an account has one credential: {} is set, {} is not; `transform` can set the others",
                    cut(header),
                    names.join(", ")
                );
                (node, ItemOutcome::Lost(reason))
            }
        },
    }
}

/// The account, with a note if its secret stood in the file.
fn noted(node: Node, secret: &SecretValue, name: &str) -> (Option<Node>, ItemOutcome) {
    if secret.is_new {
        let note = moved(&secret.variable, name);
        (
            Some(node.commented(format!("Set {} before the start.", secret.variable))),
            ItemOutcome::Different(note),
        )
    } else {
        (Some(node), ItemOutcome::Translated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_comes_from_the_environment() {
        let found = |value| {
            let SecretValue { prefix, variable, is_new } = secret_value(value, "a_x-key");
            (prefix, variable, is_new)
        };
        let row = |prefix: &str, variable: &str, is_new| (prefix.to_owned(), variable.to_owned(), is_new);
        assert_eq!(found("${{KEY}}"), row("", "KEY", false));
        assert_eq!(found("Bearer ${{ KEY }}"), row("Bearer ", "KEY", false));
        assert_eq!(found("Token abc"), row("Token ", "LUNAR_A_X_KEY", true));
        assert_eq!(found("abc"), row("", "LUNAR_A_X_KEY", true));
        assert_eq!(found("pass word"), row("", "LUNAR_A_X_KEY", true));
        assert_eq!(found("a${{KEY}}b"), row("", "LUNAR_A_X_KEY", true));
    }
}
