//! Presets: what is known of the APIs of well-known providers.
//!
//! A preset is a file in `data/`, with the sources of its facts and the date on which they were read. It says
//! where the API is, how it takes a credential, in which fields it states its limits, which refusals time
//! ends, and what it does with a repeated call. Remedies ask for these facts by provider. A key of the config
//! wins, but `retry` obeys the provider's own advice.

mod facts;
mod name;
mod page;
mod refusal;

pub use facts::{Counted, Credential, LimitFields, Preset, PresetTimeouts, UsageFacts, Wait};
pub use name::PresetName;
pub use page::reference;
pub use refusal::{REFUSAL_BYTES_MAX, Refusal, RefusalDocument, RefusalRule, RetryAdvice};
