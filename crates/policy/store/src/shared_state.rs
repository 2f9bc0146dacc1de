//! The ways in which a gateway shares state with the others of its cluster, as one parameter.

use std::sync::Arc;

use crate::marks::MarkSink;

/// The ways in which a gateway shares state with the others of its cluster: none of them without a cluster,
/// and while a config is only checked.
#[derive(Debug, Clone, Copy, Default)]
pub struct SharedState<'a> {
    /// Shares throttles and cool-downs.
    pub marks: Option<&'a Arc<dyn MarkSink>>,
}
