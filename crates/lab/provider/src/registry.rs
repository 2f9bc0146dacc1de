//! The single definition of the provider's endpoints. Routes, the page at `/` and the handbook's table are
//! made from it.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;

use crate::endpoint::Endpoint;
use crate::error::ProviderError;
use crate::respond::html_escaped;
use crate::state::SharedState;
use crate::{
    auth, cache, content, cookies, echo, grpc, injected_fault, inspect, llm, pace, page, redirect, stateful,
    status, websocket,
};

/// A group of related endpoints.
struct EndpointGroup {
    name: &'static str,
    endpoints: &'static [Endpoint],
}

const GROUPS: &[EndpointGroup] = &[
    EndpointGroup { name: "Request echo", endpoints: echo::ENDPOINTS },
    EndpointGroup { name: "Parts of the request, and the provider", endpoints: inspect::ENDPOINTS },
    EndpointGroup { name: "Status codes", endpoints: status::ENDPOINTS },
    EndpointGroup { name: "Redirects", endpoints: redirect::ENDPOINTS },
    EndpointGroup { name: "Delays and pace", endpoints: pace::ENDPOINTS },
    EndpointGroup { name: "Content", endpoints: content::ENDPOINTS },
    EndpointGroup { name: "Caching and ranges", endpoints: cache::ENDPOINTS },
    EndpointGroup { name: "Cookies", endpoints: cookies::ENDPOINTS },
    EndpointGroup { name: "Authentication", endpoints: auth::ENDPOINTS },
    EndpointGroup { name: "Pages and images", endpoints: page::ENDPOINTS },
    EndpointGroup { name: "Language models", endpoints: llm::ENDPOINTS },
    EndpointGroup { name: "gRPC", endpoints: grpc::ENDPOINTS },
    EndpointGroup { name: "WebSocket", endpoints: websocket::ENDPOINTS },
    EndpointGroup { name: "Connection faults", endpoints: injected_fault::ENDPOINTS },
    EndpointGroup { name: "Stateful endpoints", endpoints: stateful::ENDPOINTS },
];

/// Creates a router with all endpoints.
pub(crate) fn router(state: Arc<SharedState>) -> Router {
    let mut router = Router::new();
    for endpoint in GROUPS.iter().flat_map(|group| group.endpoints) {
        router = router.route(endpoint.path, (endpoint.route)());
    }
    router
        .method_not_allowed_fallback(|| async { ProviderError::method_not_allowed() })
        .fallback(|| async { ProviderError::not_found() })
        .with_state(state)
}

/// The handbook's table, in Markdown.
pub(crate) fn table() -> String {
    let mut text = String::new();
    for (index, group) in GROUPS.iter().enumerate() {
        let parted = if index == 0 { "" } else { "\n" };
        let _ = write!(
            text,
            "{parted}### {}\n\n| method | path | parameters | response |\n| --- | --- | --- | --- |\n",
            group.name
        );
        for Endpoint { methods, path, parameters, about, .. } in group.endpoints {
            let _ = writeln!(text, "| {methods} | `{}` | {parameters} | {about} |", shown(path));
        }
    }
    text
}

/// The same table as HTML, with a link to each example.
pub(crate) fn rows(prefix: &str) -> String {
    let mut text = String::new();
    for group in GROUPS {
        let _ = write!(text, "<h2>{}</h2>\n<table>\n", html_escaped(group.name));
        for Endpoint { methods, path, parameters, about, example, .. } in group.endpoints {
            let _ = writeln!(
                text,
                "<tr><td>{}<td><a href=\"{}\"><code>{}</code></a><td>{}<td>{}",
                html_escaped(methods),
                html_escaped(&format!("{prefix}{example}")),
                html_escaped(&shown(path)),
                code(parameters),
                code(about)
            );
        }
        text.push_str("</table>\n");
    }
    text
}

/// Formats a path for people.
fn shown(path: &str) -> String {
    path.replace("{*rest}", "...")
}

/// Converts Markdown's code spans to HTML.
fn code(markdown: &str) -> String {
    let parts = html_escaped(markdown);
    let tags = ["<code>", "</code>"].into_iter().cycle();
    let mut parts = parts.split('`');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.zip(tags).fold(first, |text, (part, tag)| text + tag + part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_says_what_it_is_and_shows_an_example() {
        let mut paths = std::collections::BTreeSet::new();
        for endpoint in GROUPS.iter().flat_map(|group| group.endpoints) {
            assert!(!endpoint.about.is_empty() && !endpoint.methods.is_empty(), "{}", endpoint.path);
            let fixed = endpoint.path.split('{').next().unwrap_or_default();
            assert!(endpoint.example.starts_with(fixed), "{}", endpoint.path);
            assert!(paths.insert(endpoint.path), "{} occurs twice", endpoint.path);
            assert!(!format!("{}{}", endpoint.parameters, endpoint.about).contains('|'), "{}", endpoint.path);
        }
    }

    #[test]
    fn the_handbook_has_the_table_as_it_is() {
        let handbook = include_str!("../../../../docs/reference/provider.md");
        assert!(handbook.contains(&table()), "stale: put in what `egret reference provider` prints");
    }

    #[test]
    fn code_spans_become_tags() {
        assert_eq!(code("`a` < `b`, c"), "<code>a</code> &lt; <code>b</code>, c");
    }
}
