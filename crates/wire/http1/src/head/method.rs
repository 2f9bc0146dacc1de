//! Request methods that the gateway distinguishes (RFC 9110 §9, RFC 5789).

use egret_items::words;

use crate::syntax::token_len;

words! {
    /// The method of a request. Its name is as sent, or `other`.
    #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Method: name {
        /// `GET`
        #[default]
        Get => "GET",
        /// `HEAD`
        Head => "HEAD",
        /// `POST`
        Post => "POST",
        /// `PUT`
        Put => "PUT",
        /// `DELETE`
        Delete => "DELETE",
        /// `CONNECT`
        Connect => "CONNECT",
        /// `OPTIONS`
        Options => "OPTIONS",
        /// `TRACE`
        Trace => "TRACE",
        /// `PATCH`
        Patch => "PATCH",
        /// Any other name, including known names in other case, because methods are case-sensitive.
        Other => "other",
    }
}

impl Method {
    /// Returns the method that `line` begins with, and the length of its name, if a space follows it.
    #[inline]
    pub(super) fn at_start(line: &[u8]) -> Option<(Self, usize)> {
        match line {
            [b'G', b'E', b'T', b' ', ..] => Some((Self::Get, 3)),
            [b'P', b'O', b'S', b'T', b' ', ..] => Some((Self::Post, 4)),
            _ => Self::at_start_of_any(line),
        }
    }

    #[inline(never)]
    fn at_start_of_any(line: &[u8]) -> Option<(Self, usize)> {
        let len = token_len(line);
        let is_word = len > 0 && line.get(len) == Some(&b' ');
        is_word.then(|| (Self::of(&line[..len]), len))
    }

    /// Returns the method that `name` stands for.
    pub fn of(name: &[u8]) -> Self {
        match name {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            _ => Self::Other,
        }
    }

    /// Returns `true` if the method is safe (RFC 9110 §9.2.1). Unknown methods are not.
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }

    /// Returns `true` if the method is idempotent (RFC 9110 §9.2.2). Unknown methods are not.
    pub fn is_idempotent(self) -> bool {
        self.is_safe() || matches!(self, Self::Put | Self::Delete)
    }

    /// Position in [`ALL`](Self::ALL), for tables of counters.
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_indexes_agree() {
        for (index, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(method.index(), index);
            assert_eq!(Method::of(method.name().as_bytes()), method);
        }
    }

    #[test]
    fn methods_are_case_sensitive() {
        assert_eq!(Method::of(b"get"), Method::Other);
    }

    #[test]
    fn safe_and_idempotent_as_in_rfc_9110_section_9_2() {
        let names = |test: fn(Method) -> bool| -> Vec<_> {
            Method::ALL.into_iter().filter(|&method| test(method)).map(Method::name).collect()
        };
        assert_eq!(names(Method::is_safe), ["GET", "HEAD", "OPTIONS", "TRACE"]);
        assert_eq!(names(Method::is_idempotent), ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"]);
    }
}
