//! The users of a Unix socket that are a listener's clients.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use egret_config::{Problem, UnixName};

use crate::proven::{By, Proven};

/// Users that prove nothing: the one that the system shows in place of all users of other user namespaces,
/// such as containers, and the one that stands for none.
const NOBODY: [u32; 2] = [65_534, u32::MAX];

/// The clients of a listener by the numbers of their users.
pub(crate) struct Users(BTreeMap<u32, Arc<Proven>>);

impl Users {
    /// Compiles the `users` of the key `clients` at `at`. Two clients must not share one.
    pub fn compile(users: &BTreeMap<String, Vec<UnixName>>, at: &str, problems: &mut Vec<Problem>) -> Self {
        let mut by_number: BTreeMap<u32, Arc<Proven>> = BTreeMap::new();
        for (name, user) in users.iter().flat_map(|(name, users)| users.iter().map(move |user| (name, user)))
        {
            let mut report =
                |message: String| problems.push(Problem::new(format!("{at}.users.{name}"), message));
            match user.user() {
                Err(error) => report(error.to_string()),
                Ok(number) if NOBODY.contains(&number) => {
                    report(format!(
                        "the user {number} stands for users that the system does not know, so it proves nothing"
                    ));
                }
                Ok(number) => match by_number.entry(number) {
                    Entry::Vacant(place) => drop(place.insert(Proven::new(name, By::User(number)))),
                    Entry::Occupied(other) => {
                        report(format!(
                            "the user {number} is listed twice, here and for `{}`",
                            other.get().name()
                        ));
                    }
                },
            }
        }
        Self(by_number)
    }

    /// Returns the client that the user is.
    pub fn client(&self, user: u32) -> Option<&Arc<Proven>> {
        self.0.get(&user)
    }
}
