//! Static pages, documents and images, and the provider's start page.

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{any, get};

use crate::call::ProviderCall;
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::parameters::number;
use crate::redirect;
use crate::respond::{self, field_value};

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("GET", "/", || get(index)).about("A page that lists all endpoints."),
    Endpoint::new("any", "/html", || {
        any(|| async { respond::of(StatusCode::OK, respond::HTML, include_str!("assets/moby.html")) })
    })
    .about("A page with a passage by Melville."),
    Endpoint::new("any", "/json", || {
        any(|| async { respond::of(StatusCode::OK, respond::JSON, include_str!("assets/sample.json")) })
    })
    .about("A JSON document."),
    Endpoint::new("any", "/xml", || {
        const XML: HeaderValue = HeaderValue::from_static("application/xml");
        any(|| async { respond::of(StatusCode::OK, XML, include_str!("assets/sample.xml")) })
    })
    .about("An XML document."),
    Endpoint::new("any", "/robots.txt", || {
        any(|| async { respond::text(StatusCode::OK, "User-agent: *\nDisallow: /deny\n") })
    })
    .about("Disallows `/deny` for robots."),
    Endpoint::new("any", "/deny", || {
        any(|| async { respond::text(StatusCode::OK, "No robots in here, please.\n") })
    })
    .about("A page that robots should not request."),
    Endpoint::new("GET", "/encoding/utf8", || {
        get(|| async { respond::of(StatusCode::OK, respond::HTML, include_str!("assets/utf8.html")) })
    })
    .about("A page with non-ASCII text."),
    Endpoint::new("GET", "/forms/post", || get(form)).about("A form that submits to `/post`."),
    Endpoint::new("any", "/links/{n}", || any(links))
        .about("302 to the first of `n` pages that link to each other.")
        .parameters("`n` 0 to 256")
        .example("/links/5"),
    Endpoint::new("any", "/links/{n}/{offset}", || any(links_page))
        .about("One of these pages.")
        .parameters("`offset`, the page")
        .example("/links/5/2"),
    Endpoint::new("any", "/image", || any(accepted_image))
        .about("An image of a type in `Accept`, PNG by default. 415 if none is available."),
    Endpoint::new("any", "/image/{kind}", || any(image_of))
        .about("An image of this kind.")
        .parameters("`kind` `png`, `jpeg`, `webp` or `svg`")
        .example("/image/svg"),
];

/// Maximum number of links on a page.
const LINKS_MAX: usize = 256;

async fn index(call: ProviderCall) -> Response {
    let rows = call.state.endpoint_rows();
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Egret's provider</title>\n\
         <style>\n{}</style></head>\n<body>\n<h1>Egret's provider</h1>\n\
         <p>A test API that responds like httpbin, as slowly and as badly as requested.\n{rows}</body>\n</html>\n",
        include_str!("assets/page.css")
    );
    let policy =
        HeaderValue::from_static("default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self'");
    respond::with(respond::of(StatusCode::OK, respond::HTML, page), header::CONTENT_SECURITY_POLICY, policy)
}

async fn form(call: ProviderCall) -> Response {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>A form</title></head>\n<body>\n\
         <form method=\"post\" action=\"{}/post\">\n\
         <p><label>Name <input name=\"name\"></label>\n\
         <p><label>E-mail <input type=\"email\" name=\"email\"></label>\n\
         <p><label>Catch <select name=\"catch\"><option>carp<option>frog<option>shrimp</select></label>\n\
         <p><label><input type=\"checkbox\" name=\"dry\" value=\"yes\"> with dry feet</label>\n\
         <p><label>Remarks <textarea name=\"remarks\"></textarea></label>\n\
         <p><button>Send</button>\n</form>\n</body>\n</html>\n",
        call.state.options().prefix
    );
    respond::of(StatusCode::OK, respond::HTML, page)
}

fn link_count(n: &str) -> Result<usize, ProviderError> {
    number(n, 0..=LINKS_MAX).map_err(|error| ProviderError::parameter("link count", error))
}

async fn links(Path(n): Path<String>, call: ProviderCall) -> EndpointResult {
    link_count(&n)?;
    let query = call.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    Ok(redirect::to(StatusCode::FOUND, &format!("{}/links/{n}/0{query}", call.state.options().prefix)))
}

async fn links_page(Path((n, offset)): Path<(String, String)>, call: ProviderCall) -> EndpointResult {
    let count = link_count(&n)?;
    let offset: i64 = offset.parse().map_err(|_| ProviderError::parameter("offset", "not a whole number"))?;
    let prefix = &call.state.options().prefix;
    let link = |index: usize| {
        if usize::try_from(offset) == Ok(index) {
            format!("{index} ")
        } else {
            format!("<a href=\"{prefix}/links/{count}/{index}\">{index}</a> ")
        }
    };
    let links: String = (0..count).map(link).collect();
    let page = format!("<!doctype html>\n<title>Links</title>\n<p>{links}\n");
    Ok(respond::of(StatusCode::OK, respond::HTML, page))
}

async fn accepted_image(call: ProviderCall) -> EndpointResult {
    let accept = call.field(&header::ACCEPT);
    let accepts = |kind: &str| accept.contains(kind);
    let kind = if accept.is_empty() || accepts("image/*") || accepts("image/png") {
        "png"
    } else if accepts("image/webp") {
        "webp"
    } else if accepts("image/svg+xml") {
        "svg"
    } else if accepts("image/jpeg") {
        "jpeg"
    } else {
        return Err(ProviderError::of(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    };
    image(kind)
}

async fn image_of(Path(kind): Path<String>) -> EndpointResult {
    image(&kind)
}

fn image(kind: &str) -> EndpointResult {
    let (media_type, content): (_, &'static [u8]) = match kind {
        "png" => ("image/png", include_bytes!("assets/image.png")),
        "jpeg" => ("image/jpeg", include_bytes!("assets/image.jpeg")),
        "webp" => ("image/webp", include_bytes!("assets/image.webp")),
        "svg" => ("image/svg+xml", include_bytes!("assets/image.svg")),
        _ => return Err(ProviderError::of(StatusCode::NOT_FOUND)),
    };
    Ok(respond::of(StatusCode::OK, field_value(media_type), Bytes::from_static(content)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{get, get_with};

    #[tokio::test]
    async fn the_start_page_links_to_every_example() {
        let page = get("/").await;
        assert_eq!((page.status, page.field("content-type")), (200, "text/html; charset=utf-8"));
        assert!(page.field("content-security-policy").starts_with("default-src 'self'"));
        for endpoint in ENDPOINTS {
            assert!(page.text().contains(&format!("<a href=\"{}\">", endpoint.example)), "{}", endpoint.path);
        }
    }

    #[tokio::test]
    async fn pages_link_to_all_but_themselves() {
        let first = get("/links/3").await;
        assert_eq!((first.status, first.field("location")), (302, "/links/3/0"));
        let text = get("/links/3/1").await;
        let expected = "<p><a href=\"/links/3/0\">0</a> 1 <a href=\"/links/3/2\">2</a> \n";
        assert!(text.text().ends_with(expected), "{text:?}");
        for target in ["/links/257", "/links/-1", "/links/3/x"] {
            assert_eq!(get(target).await.status, 400, "{target}");
        }
    }

    #[tokio::test]
    async fn an_image_is_of_a_type_that_the_client_accepts() {
        for (accept, media_type, start) in [
            ("", "image/png", &b"\x89PNG"[..]),
            ("image/*", "image/png", b"\x89PNG"),
            ("image/webp, image/jpeg", "image/webp", b"RIFF"),
            ("image/svg+xml", "image/svg+xml", b"<"),
            ("image/jpeg", "image/jpeg", b"\xff\xd8"),
        ] {
            let image = get_with("/image", &[("accept", accept)]).await;
            assert_eq!(image.field("content-type"), media_type);
            assert!(image.content.starts_with(start), "{media_type}");
        }
        assert_eq!(get_with("/image", &[("accept", "text/html")]).await.status, 415);
        assert_eq!(get("/image/bmp").await.status, 404);
    }
}
