//! Diagnoses: they see finished exchanges and cannot change them.
//!
//! [`Diagnosis`](diagnosis::Diagnosis) is the trait of all diagnoses. Each diagnosis is a file under `diagnoses/` and a line in its
//! registry. A worker writes a finished exchange into a [`Record`](record::Record); the diagnoses read it on a
//! thread of low priority.

pub mod diagnoses;
pub mod diagnosis;
pub mod discovered;
pub mod finished;
#[cfg(test)]
mod fixture;
pub mod observers;
pub mod record;
