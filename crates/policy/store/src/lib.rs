//! What has to be remembered longer than an exchange: counts of windows that outlive the process, and [`entries`] that are stored in
//! memory and on a disk. It knows nothing of HTTP.
//!
//! A count is never read and written for a single call. Units are *lent*: a block of them is durably counted as used before the
//! first of them is, and those that turn out not to be used are given back. When the process dies in between, the count is too high by
//! what was lent, and never too low. Whoever needs units asks the [`Ledger`], which blocks nobody; a [`Clerk`] on a thread of its own
//! takes what was asked to a [`Store`], many at a time, and brings the answers.

pub mod entries;

mod file;
mod ledger;
mod private;
mod store;

pub use egret_clock::Moment;
pub use egret_clock::{Clock, Timestamp};
pub use file::FileStore;
pub use ledger::{Ask, Borrower, Clerk, Ledger, ledger};
pub use private::{is_symbolic_link, private_file};
pub use store::{Loan, Request, Store, StoreError, Window};
