//! The four forms of a request target (RFC 9112 §3.2).

use super::authority::AuthoritySpan;
use super::error::HeadError;
use super::method::Method;
use crate::span::Span;
use crate::syntax::is_target;

/// The form of a request target.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`
    #[default]
    Origin,
    /// `scheme://host[:port]/path?query`, as sent to a forward proxy.
    Absolute,
    /// `host:port`, only and always with CONNECT.
    Authority,
    /// `*`, only with OPTIONS.
    Asterisk,
}

/// Checks `target` and returns its form, and the position of its authority if it has one.
pub(super) fn check(method: Method, target: &[u8]) -> Result<(TargetForm, Option<Span>), HeadError> {
    if !is_target(target) {
        return Err(HeadError::Target);
    }
    match (method, target) {
        (Method::Connect, _) => check_authority_form(target),
        (_, [b'/', ..]) => Ok((TargetForm::Origin, None)),
        (Method::Options, b"*") => Ok((TargetForm::Asterisk, None)),
        _ => check_absolute_form(target),
    }
}

fn check_authority_form(target: &[u8]) -> Result<(TargetForm, Option<Span>), HeadError> {
    match AuthoritySpan::parse(target) {
        Some(AuthoritySpan { port: Some(_), .. }) => {
            Ok((TargetForm::Authority, Some(Span::new(0, target.len()))))
        }
        _ => Err(HeadError::TargetForm),
    }
}

fn check_absolute_form(target: &[u8]) -> Result<(TargetForm, Option<Span>), HeadError> {
    let scheme = target.iter().position(|&byte| byte == b':').ok_or(HeadError::TargetForm)?;
    let is_scheme = target[0].is_ascii_alphabetic()
        && target[..scheme].iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    if !is_scheme || !target[scheme..].starts_with(b"://") {
        return Err(HeadError::TargetForm);
    }
    let start = scheme + 3;
    let len = target[start..].iter().position(|byte| b"/?".contains(byte)).unwrap_or(target.len() - start);
    let authority = Span::new(start, start + len);
    // User information in a target is an error as well (RFC 9110 §4.2.4); it is not part of a valid authority
    // here.
    match AuthoritySpan::parse(authority.of(target)) {
        Some(_) => Ok((TargetForm::Absolute, Some(authority))),
        None => Err(HeadError::TargetForm),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Checked = Result<(TargetForm, Option<&'static str>), HeadError>;

    #[test]
    fn forms_of_targets_rfc_9112_section_3_2() {
        use HeadError::{Target, TargetForm as Form};
        use Method::{Connect, Get, Options};
        use TargetForm::{Absolute, Asterisk, Authority, Origin};
        let rows: &[(Method, &str, Checked)] = &[
            (Get, "/", Ok((Origin, None))),
            (Get, "/a?b[]=c&d=%7B", Ok((Origin, None))),
            (Get, "//evil/x", Ok((Origin, None))),
            (Options, "*", Ok((Asterisk, None))),
            (Get, "http://h", Ok((Absolute, Some("h")))),
            (Get, "HTTP://h:81/p?q", Ok((Absolute, Some("h:81")))),
            (Get, "https://[::1]?q", Ok((Absolute, Some("[::1]")))),
            (Connect, "h:443", Ok((Authority, Some("h:443")))),
            (Get, "*", Err(Form)),
            (Get, "h:443", Err(Form)),
            (Get, "path", Err(Form)),
            (Get, "http:/h", Err(Form)),
            (Get, "http://", Err(Form)),
            (Get, "http:///p", Err(Form)),
            (Get, "://h", Err(Form)),
            (Get, "1http://h", Err(Form)),
            (Get, "http://user:secret@h/", Err(Form)),
            (Connect, "h", Err(Form)),
            (Connect, "/", Err(Form)),
            (Connect, "u@h:443", Err(Form)),
            (Connect, "h:443/", Err(Form)),
            (Connect, "http://h:443", Err(Form)),
            (Connect, "*", Err(Form)),
            (Get, "/a\"b", Err(Target)),
            (Get, "/a<b", Err(Target)),
            (Get, "/a>b", Err(Target)),
            (Get, "/a|b", Err(Target)),
            (Get, "/a{b", Err(Target)),
            (Get, "/a}b", Err(Target)),
            (Get, "/a\\b", Err(Target)),
            (Get, "/a^b", Err(Target)),
            (Get, "/a`b", Err(Target)),
            (Get, "/a#b", Err(Target)),
            (Get, "/\u{e9}", Err(Target)),
        ];
        for (method, target, expected) in rows {
            let shown = check(*method, target.as_bytes())
                .map(|(form, authority)| (form, authority.map(|span| &target[span.range()])));
            assert_eq!(shown, *expected, "{target}");
        }
    }
}
