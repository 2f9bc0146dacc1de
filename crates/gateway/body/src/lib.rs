//! Bodies on their way from one leg to the other.

mod beginning;
mod fault;
mod gathered;
mod pipe;
mod stage;
mod stored_source;

pub use beginning::{Awaited, Beginning};
pub use fault::FaultedBody;
pub use gathered::{Gathered, GatheredBody, Gathering};
pub use pipe::{Begun, Kept, Pipe, PipeError, Shared};
pub use stage::{Stages, Storing, StreamProgress, Tap};
pub use stored_source::{Lead, StoredSource};
