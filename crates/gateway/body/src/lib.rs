//! Bodies on their way from one leg to the other.

mod fault;
mod pipe;
mod stage;
mod stored_source;

pub use fault::FaultedBody;
pub use pipe::{Begun, Kept, Pipe, PipeError, Shared};
pub use stage::{Progress, Stages, Storing, Tap};
pub use stored_source::{Lead, StoredSource};
