//! Endpoints that answer at once with a chosen status or size: `/status/{code}`, `/bytes/{n}`.

use std::hash::{BuildHasher as _, RandomState};

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use serde::Deserialize;

use super::BODY_BYTES_MAX;
use super::error::ProviderError;

pub(super) fn routes() -> Router {
    Router::new().route("/status/{code}", any(status)).route("/bytes/{n}", get(bytes))
}

/// That status without content. 1xx is refused: it would not end the exchange.
async fn status(Path(code): Path<String>) -> Result<StatusCode, ProviderError> {
    let code: u16 =
        code.parse().map_err(|_| ProviderError::bad_request("invalid status code: not a number"))?;
    match StatusCode::from_u16(code) {
        Ok(_) if (100..200).contains(&code) => Err(ProviderError::bad_request(
            "invalid status code: an informational status does not end the exchange",
        )),
        Ok(status) if code < 600 => Ok(status),
        _ => Err(ProviderError::bad_request("invalid status code: write one from 200 to 599")),
    }
}

#[derive(Debug, Deserialize)]
struct BytesQuery {
    seed: Option<u64>,
}

/// That many bytes, the same for the same seed.
async fn bytes(
    Path(n): Path<String>,
    query: Result<Query<BytesQuery>, QueryRejection>,
) -> Result<Response, ProviderError> {
    let Query(query) = query.map_err(|rejection| ProviderError::bad_request(rejection.body_text()))?;
    let n = n.parse::<usize>().ok().filter(|n| *n <= BODY_BYTES_MAX).ok_or_else(|| {
        ProviderError::bad_request(format!("invalid number of bytes: write one from 0 to {BODY_BYTES_MAX}"))
    })?;
    let seed = query.seed.unwrap_or_else(|| RandomState::new().hash_one(n));
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], random_bytes(n, seed)).into_response())
}

/// Splitmix: well mixed, made for seeding, no secret.
fn random_bytes(n: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).to_le_bytes()
    });
    words.flatten().take(n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_depend_on_the_seed_alone() {
        assert_eq!(random_bytes(1_000, 7), random_bytes(1_000, 7));
        assert_eq!(random_bytes(1_000, 7)[..100], random_bytes(100, 7));
        assert_ne!(random_bytes(1_000, 7), random_bytes(1_000, 8));
    }
}
