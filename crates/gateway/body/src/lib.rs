//! Bodies on their way from one leg to the other.

mod beginning;
mod fault;
mod filling;
mod gathered;
mod head_mask;
mod pipe;
mod stage;
mod stored_source;

pub use beginning::{Awaited, Beginning};
pub use fault::FaultedBody;
pub use filling::Filling;
pub use gathered::{Gathered, GatheredBody, Gathering};
pub use head_mask::mask_fields;
pub use pipe::{Begun, Kept, Pipe, PipeError, Shared};
pub use stage::{Stages, Storing, StreamProgress, Tap};
pub use stored_source::{Lead, StoredSource};
