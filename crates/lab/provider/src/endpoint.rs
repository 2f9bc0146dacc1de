//! The definition of one endpoint: its route, and what the handbook says of it.

use std::sync::Arc;

use axum::routing::MethodRouter;

use crate::state::SharedState;

/// An endpoint.
pub(crate) struct Endpoint {
    /// Accepted methods, as the handbook shows them.
    pub methods: &'static str,
    /// Path with parameters in braces.
    pub path: &'static str,
    /// Parameters with limits and defaults, in Markdown; empty if there are none.
    pub parameters: &'static str,
    /// Description of the response, in Markdown.
    pub about: &'static str,
    /// An example target.
    pub example: &'static str,
    /// Creates the route.
    pub route: fn() -> MethodRouter<Arc<SharedState>>,
}

impl Endpoint {
    /// Creates an endpoint without parameters, whose example is its path.
    pub const fn new(
        methods: &'static str,
        path: &'static str,
        route: fn() -> MethodRouter<Arc<SharedState>>,
    ) -> Self {
        Self { methods, path, parameters: "", about: "", example: path, route }
    }

    /// Sets the description.
    pub const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// Sets the parameters.
    pub const fn parameters(self, parameters: &'static str) -> Self {
        Self { parameters, ..self }
    }

    /// Sets the example.
    pub const fn example(self, example: &'static str) -> Self {
        Self { example, ..self }
    }
}
