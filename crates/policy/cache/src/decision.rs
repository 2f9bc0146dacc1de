//! The decisions about requests and about the provider's responses.

use super::conditional::Validators;
use super::fwd::FwdReason;
use super::not_stored::NotStored;
use super::reply::Reply;
use super::stored::Stored;

/// A stored response, with the length of its body if the body is complete.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The stored response.
    pub stored: &'a Stored,
    /// Length of the body, in bytes.
    pub len: Option<u64>,
}

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Serve this response.
    Serve(Reply),
    /// Serve this stale response, and revalidate in the background for later requests.
    ServeStale(Reply, Option<Validation>),
    /// Ask the provider if the stored response is still valid.
    Validate(Validation),
    /// Forward the request to the provider.
    Forward(FwdReason),
    /// Respond with 504: the client accepts only a stored response, and there is none.
    OnlyIfCached,
}

/// The validation of a stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validation {
    /// Index of the response among the candidates.
    pub candidate: usize,
    /// The validators to send in place of the client's conditions.
    pub validators: Validators,
    /// The reason for the request to the provider.
    pub forward: FwdReason,
}

/// The decision about a provider's response, and about the stored responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The action for the response.
    pub action: Action,
    /// Indexes of the candidates to remove.
    pub removed: Vec<usize>,
}

impl Verdict {
    /// Returns `true` if the response also replaces stored responses that could not be read.
    pub fn is_newer(&self, status: u16) -> bool {
        matches!(self.action, Action::Store(..)) || describes_resource(status)
    }
}

/// Returns `true` if a response with that status describes the current state of the resource, including its
/// absence.
pub(super) const fn describes_resource(status: u16) -> bool {
    matches!(status, 200..=205 | 207..=399 | 404 | 410)
}

/// The action for a provider's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Forward it, and store this once the whole body has arrived. The number is its remaining freshness, in
    /// seconds.
    Store(Box<Stored>, i64),
    /// Forward it without storing it.
    Pass(NotStored),
    /// Forward it, and update the candidate with that index.
    PassAndUpdate(usize, Box<Stored>),
    /// Update the candidate, and serve it instead.
    Update(Box<Stored>, Reply),
    /// Serve this stale response instead.
    ServeStale(Reply),
    /// Discard it, and repeat the request without the cache's own conditions.
    Again,
}

impl Decision {
    /// Returns `true` if a stored response is served.
    pub fn is_served(&self) -> bool {
        matches!(self, Self::Serve(_) | Self::ServeStale(..))
    }
}
