//! State that outlives an exchange: counts of quota windows that outlive the process, and [`entries`] stored
//! in memory and on disk. The crate knows no HTTP, no config and no remedy.
//!
//! A count is never read and written for a single call. Units are *lent*: a block of them is durably counted
//! as used before the first one is used, and unused units are returned. If the process dies in between, the
//! count is too high by the units lent, and never too low. A borrower asks the [`Ledger`], which never
//! blocks. A [`Clerk`] on its own thread sends the requests to a [`Store`] in batches, and delivers the
//! results.

pub mod coalescer;
pub mod entries;
pub mod marks;
pub mod shared;

mod file;
mod ledger;
mod shared_state;
mod store;
mod sync;

pub use file::FileStore;
pub use ledger::{Borrower, Clerk, Ledger, PendingLoan, ledger};
pub use shared_state::SharedState;
pub use store::{Loan, LoanRequest, Store, StoreError, Window};
