//! Values that are excluded from obfuscation, named by exact paths: `request.headers.content-type`,
//! `response.body.$.items[*].id`.
//!
//! Paths name single values. A path to an object excludes nothing within it, so fields that a provider adds
//! later stay obfuscated until they are excluded explicitly.
//!
//! | path | value |
//! | --- | --- |
//! | `request.headers.NAME`, `response.headers.NAME` | a header field; case does not matter |
//! | `request.query.NAME` | a parameter of the URL, decoded |
//! | `request.cookies.NAME`, `response.cookies.NAME` | a cookie |
//! | `request.path[1]`, `request.path[*]` | one segment of the path, counted from 0, or all segments |
//! | `request.body.$.a.b[0]`, `response.body.$.a[*]['b c'].*` | a leaf of a JSON body; a form field is `$.NAME`; `$` alone is a body that is not JSON or a form |

use std::collections::BTreeSet;

/// Maximum number of paths.
pub const PATHS_MAX: usize = 256;

/// Maximum number of steps in a path into a body.
pub const STEPS_MAX: usize = 32;

/// The values of an exchange that are not obfuscated.
#[derive(Debug, Clone, Default)]
pub struct Exclusions {
    pub(crate) request: MessageExclusions,
    pub(crate) response: MessageExclusions,
}

/// The values of one message that are not obfuscated.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessageExclusions {
    /// Names in lower case.
    headers: BTreeSet<String>,
    query: BTreeSet<String>,
    cookies: BTreeSet<String>,
    segments: BTreeSet<usize>,
    all_segments: bool,
    pub(crate) body: BodyPaths,
}

/// Paths of body leaves.
#[derive(Debug, Clone, Default)]
pub(crate) struct BodyPaths(Vec<Vec<PathStep>>);

/// One step of a path into a body.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PathStep {
    Name(String),
    AnyName,
    Index(usize),
    AnyIndex,
}

/// An invalid path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}`: {mistake}")]
pub struct ExclusionError {
    /// The path as given.
    pub path: String,
    /// The mistake.
    pub mistake: PathMistake,
}

/// The mistake in a path. Its message says what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathMistake {
    /// There are more than [`PATHS_MAX`] paths.
    #[error("more than {PATHS_MAX} paths")]
    TooManyPaths,
    /// It is a path of neither a request nor a response.
    #[error("a path must begin with `request.` or `response.`")]
    NoMessage,
    /// It is a path to this part of a message, which is unknown.
    #[error("unknown part `{0}` of a message: expected `headers`, `query`, `cookies`, `path` or `body`")]
    UnknownPart(String),
    /// It is a path to the path or query of a response.
    #[error("a response has no path or query")]
    OfRequestsOnly,
    /// It has no name after this part.
    #[error("expected a name: `{0}.NAME`")]
    NoName(&'static str),
    /// It has no index of a segment.
    #[error("expected an index: `path[0]` is the first segment, `path[*]` all segments")]
    Segment,
    /// It leads into a body without beginning at its root.
    #[error("a path into a body must begin with `body.$`")]
    NoRoot,
    /// It has more than [`STEPS_MAX`] steps.
    #[error("a path has at most {STEPS_MAX} steps")]
    TooManySteps,
    /// A step has no name after its dot.
    #[error("expected a name after `.`")]
    NoStepName,
    /// A step is neither a name nor an index.
    #[error("expected `.NAME`, `['NAME']`, `[INDEX]`, `[*]` or `.*`")]
    Step,
    /// A name in quotes does not end.
    #[error("missing closing quote")]
    Quote,
    /// A name in quotes is not followed by a bracket.
    #[error("expected `]` after the name")]
    BracketAfterName,
    /// A bracket is not closed.
    #[error("missing closing bracket")]
    Bracket,
    /// There is something else than an index in brackets.
    #[error("expected an index, `*`, or a name in quotes")]
    Index,
}

impl Exclusions {
    /// Compiles paths. Returns the errors of all invalid paths.
    pub fn compile<'a>(paths: impl IntoIterator<Item = &'a str>) -> Result<Self, Vec<ExclusionError>> {
        let (mut exclusions, mut errors) = (Self::default(), Vec::new());
        for (index, path) in paths.into_iter().enumerate() {
            let inserted =
                if index < PATHS_MAX { exclusions.insert(path) } else { Err(PathMistake::TooManyPaths) };
            if let Err(mistake) = inserted {
                errors.push(ExclusionError { path: path.to_owned(), mistake });
                if index >= PATHS_MAX {
                    break;
                }
            }
        }
        if errors.is_empty() { Ok(exclusions) } else { Err(errors) }
    }

    fn insert(&mut self, path: &str) -> Result<(), PathMistake> {
        let (side, rest, is_request) = if let Some(rest) = path.strip_prefix("request.") {
            (&mut self.request, rest, true)
        } else if let Some(rest) = path.strip_prefix("response.") {
            (&mut self.response, rest, false)
        } else {
            return Err(PathMistake::NoMessage);
        };
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        match (rest.split_at(end), is_request) {
            (("headers", name), _) => side.headers.insert(named(name, "headers")?.to_ascii_lowercase()),
            (("cookies", name), _) => side.cookies.insert(named(name, "cookies")?),
            (("query", name), true) => side.query.insert(named(name, "query")?),
            (("path", segment), true) => match segment_of(segment)? {
                Some(index) => side.segments.insert(index),
                None => std::mem::replace(&mut side.all_segments, true),
            },
            (("query" | "path", _), false) => return Err(PathMistake::OfRequestsOnly),
            (("body", steps), _) => return side.body.insert(steps),
            ((part, _), _) => return Err(PathMistake::UnknownPart(part.to_owned())),
        };
        Ok(())
    }
}

impl MessageExclusions {
    pub(crate) fn header(&self, name: &str) -> bool {
        !self.headers.is_empty() && self.headers.contains(&name.to_ascii_lowercase())
    }

    pub(crate) fn query(&self, name: &str) -> bool {
        self.query.contains(name)
    }

    pub(crate) fn cookie(&self, name: &str) -> bool {
        self.cookies.contains(name)
    }

    /// Returns `true` if the position of a path segment matters.
    pub(crate) fn has_segments(&self) -> bool {
        self.all_segments || !self.segments.is_empty()
    }

    pub(crate) fn segment(&self, index: usize) -> bool {
        self.all_segments || self.segments.contains(&index)
    }
}

/// Parses the name after the dot. It may contain any characters and reaches to the end.
fn named(rest: &str, part: &'static str) -> Result<String, PathMistake> {
    match rest.strip_prefix('.') {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(PathMistake::NoName(part)),
    }
}

/// Parses the index in brackets. `None` means all.
fn segment_of(rest: &str) -> Result<Option<usize>, PathMistake> {
    let inner = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).ok_or(PathMistake::Segment)?;
    if inner == "*" { Ok(None) } else { Ok(Some(index(inner).ok_or(PathMistake::Segment)?)) }
}

fn index(digits: &str) -> Option<usize> {
    let is_index =
        digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| is_index)
}

impl BodyPaths {
    fn insert(&mut self, path: &str) -> Result<(), PathMistake> {
        let mut rest = path.strip_prefix(".$").ok_or(PathMistake::NoRoot)?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = step(rest)?;
            steps.push(step);
            rest = after;
        }
        if steps.len() > STEPS_MAX {
            return Err(PathMistake::TooManySteps);
        }
        self.0.push(steps);
        Ok(())
    }

    /// Returns `true` if the whole body is excluded, as one value.
    pub(crate) fn root(&self) -> bool {
        self.0.iter().any(Vec::is_empty)
    }

    /// Returns `true` if a form field is excluded.
    pub(crate) fn field(&self, name: &str) -> bool {
        self.0.iter().any(|steps| match &**steps {
            [PathStep::AnyName] => true,
            [PathStep::Name(step)] => step == name,
            _ => false,
        })
    }
}

/// Parses one step. Also returns the rest of the path.
fn step(rest: &str) -> Result<(PathStep, &str), PathMistake> {
    if let Some(rest) = rest.strip_prefix('.') {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        return match rest.split_at(end) {
            ("", _) => Err(PathMistake::NoStepName),
            ("*", after) => Ok((PathStep::AnyName, after)),
            (name, after) => Ok((PathStep::Name(name.to_owned()), after)),
        };
    }
    let Some(rest) = rest.strip_prefix('[') else {
        return Err(PathMistake::Step);
    };
    for quote in ['\'', '"'] {
        if let Some(quoted) = rest.strip_prefix(quote) {
            // Names have no escapes: a name with both kinds of quotes cannot be written.
            let (name, after) = quoted.split_once(quote).ok_or(PathMistake::Quote)?;
            let after = after.strip_prefix(']').ok_or(PathMistake::BracketAfterName)?;
            return Ok((PathStep::Name(name.to_owned()), after));
        }
    }
    let (inner, after) = rest.split_once(']').ok_or(PathMistake::Bracket)?;
    match (inner, index(inner)) {
        ("*", _) => Ok((PathStep::AnyIndex, after)),
        (_, Some(index)) => Ok((PathStep::Index(index), after)),
        _ => Err(PathMistake::Index),
    }
}

/// The position of a rewriter in a body, tracked as far as paths lead there.
#[derive(Debug)]
pub(crate) struct PathCursor<'a> {
    paths: &'a BodyPaths,
    /// For each open container: the start of its paths in `open`, and the number of its elements so far.
    containers: Vec<(usize, usize)>,
    /// Paths that lead to the open containers.
    open: Vec<usize>,
    /// Paths that lead to the next value.
    here: Vec<usize>,
}

impl<'a> PathCursor<'a> {
    /// Returns a cursor before the outermost value.
    pub(crate) fn new(paths: &'a BodyPaths) -> Self {
        Self { paths, containers: Vec::new(), open: Vec::new(), here: (0..paths.0.len()).collect() }
    }

    /// Returns `true` if the next value is an excluded leaf.
    pub(crate) fn is_named(&self) -> bool {
        self.here.iter().any(|path| self.paths.0[*path].len() == self.containers.len())
    }

    pub(crate) fn enter(&mut self, is_object: bool) {
        self.containers.push((self.open.len(), 0));
        self.open.append(&mut self.here);
        if !is_object {
            self.element();
        }
    }

    pub(crate) fn leave(&mut self) {
        if let Some((start, _)) = self.containers.pop() {
            self.open.truncate(start);
        }
        self.here.clear();
    }

    pub(crate) fn member(&mut self, name: &str) {
        self.follow(|step| match step {
            PathStep::Name(step) => step == name,
            PathStep::AnyName => true,
            PathStep::Index(_) | PathStep::AnyIndex => false,
        });
    }

    /// Moves to the next element of a list.
    pub(crate) fn element(&mut self) {
        let Some((_, count)) = self.containers.last_mut() else { return };
        let at = *count;
        *count += 1;
        self.follow(|step| match step {
            PathStep::Index(index) => *index == at,
            PathStep::AnyIndex => true,
            PathStep::Name(_) | PathStep::AnyName => false,
        });
    }

    fn follow(&mut self, is_step: impl Fn(&PathStep) -> bool) {
        let Some((start, _)) = self.containers.last() else { return };
        let depth = self.containers.len() - 1;
        let leads = |path: &usize| self.paths.0[*path].get(depth).is_some_and(&is_step);
        self.here.clear();
        self.here.extend(self.open[*start..].iter().copied().filter(leads));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_what_they_say() {
        let exclusions = Exclusions::compile([
            "request.headers.Content-Type",
            "request.query.page",
            "request.query.filter[a.b]",
            "request.cookies.theme",
            "request.path[1]",
            "response.headers.x.y",
            "response.body.$.id",
        ])
        .unwrap();
        let Exclusions { request, response } = &exclusions;
        assert!(
            request.header("content-type")
                && request.header("CONTENT-TYPE")
                && !response.header("content-type")
        );
        assert!(request.query("page") && request.query("filter[a.b]") && !request.query("Page"));
        assert!(request.cookie("theme") && !response.cookie("theme"));
        assert!(request.segment(1) && !request.segment(0) && !request.segment(11));
        assert!(response.header("x.y") && response.body.field("id") && !response.body.field("i"));
    }

    #[test]
    fn a_malformed_path_is_refused_with_what_was_expected() {
        for (path, expected) in [
            ("", "must begin with `request.` or `response.`"),
            ("requests.path[1]", "must begin with"),
            ("request", "must begin with"),
            ("request.", "unknown part ``"),
            ("request.header.a", "unknown part `header` of a message: expected `headers`"),
            ("request.headers", "expected a name: `headers.NAME`"),
            ("request.headers.", "expected a name"),
            ("request.headers[0]", "expected a name"),
            ("request.path", "expected an index"),
            ("request.path[a]", "expected an index"),
            ("request.path[01]", "expected an index"),
            ("request.path[1", "expected an index"),
            ("request.path[-1]", "expected an index"),
            ("response.path[0]", "a response has no path or query"),
            ("response.query.a", "a response has no path or query"),
            ("request.body", "must begin with `body.$`"),
            ("request.body.a", "must begin with `body.$`"),
            ("request.body.$a", "`.NAME`, `['NAME']`"),
            ("request.body.$.", "expected a name after `.`"),
            ("request.body.$..a", "expected a name after `.`"),
            ("request.body.$.a[", "missing closing bracket"),
            ("request.body.$.a[b]", "expected an index, `*`, or a name in quotes"),
            ("request.body.$['a", "missing closing quote"),
            ("request.body.$['a'b", "expected `]`"),
        ] {
            let errors = Exclusions::compile([path]).unwrap_err();
            assert!(errors.len() == 1 && errors[0].path == path, "{errors:?}");
            assert!(errors[0].to_string().contains(expected), "{}", errors[0]);
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_and_paths_are_limited() {
        assert_eq!(Exclusions::compile(["a", "request.path[0]", "b"]).unwrap_err().len(), 2);
        assert!(Exclusions::compile(vec!["request.path[0]"; PATHS_MAX]).is_ok());
        assert_eq!(Exclusions::compile(vec!["request.path[0]"; PATHS_MAX + 9]).unwrap_err().len(), 1);
        let long = format!("request.body.${}", ".a".repeat(STEPS_MAX + 1));
        assert!(Exclusions::compile([&*long]).unwrap_err()[0].to_string().contains("at most"));
    }
}
