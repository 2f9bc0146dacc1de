//! Masks secrets that a provider sends back. They are masked while the response arrives, before remedies,
//! caches, diagnoses or the client see any of it.

use std::sync::Arc;

use egret_accounts::{Applied, SecretPatterns, hides_echoes};
use egret_http1::{KnownField, ResponseFraming, Span};
use egret_message::Fields;

use crate::exchange::call::{Exchange, Stop};
use crate::exchange::state::ResponseState;
use crate::failure::{ErrorKind, Failure};

/// Fields removed from the request, because a partial body may begin or end within a secret.
const PART_FIELDS: [&[u8]; 2] = [b"range", b"if-range"];

impl Exchange<'_> {
    /// Prepares the masking of the response to the request that is about to be sent, if it is configured.
    /// Asks the provider for a response that can be masked: complete and without a content coding.
    pub(super) fn prepare_echoes(&mut self, applied: Option<&mut Applied>) -> Result<(), Stop> {
        let echoes = self.echoes()?;
        let Some(flow_run) = &mut self.flow_run else { return Ok(()) };
        if let (Some(applied), true) = (applied, echoes.is_some()) {
            applied.fields.set(b"accept-encoding", b"identity");
            for name in PART_FIELDS {
                applied.fields.remove(name);
            }
        }
        flow_run.echoes = echoes;
        Ok(())
    }

    /// Returns the secrets to mask in the response to the request that is about to be sent.
    fn echoes(&self) -> Result<Option<Arc<SecretPatterns>>, Stop> {
        let is_wanted = self.flow_run.as_ref().is_some_and(|flow_run| flow_run.draft.call.masks_echoes);
        let Some(account) = self.account().filter(|_| is_wanted) else { return Ok(None) };
        account.echoes().map_err(|why| {
            let detail = format!("the secrets of the account {} cannot be masked: {why}", account.name());
            Stop::Failure(Failure::new(ErrorKind::AccountUnavailable, detail))
        })
    }

    /// Masks the head of the received response. Fails if its body could not be masked.
    pub(super) fn mask_response_head(&mut self) -> Result<(), Failure> {
        if self.flow_run.as_ref().is_none_or(|flow_run| flow_run.echoes.is_none()) {
            return Ok(());
        }
        let ResponseState { output, response, .. } = &*self.state.response_state;
        let has_body = !matches!(response.framing, ResponseFraming::None | ResponseFraming::Length(0));
        let fields = Fields::received(&response.fields, output.filled());
        let what = match response.status {
            101 => "switches protocols",
            206 if has_body => "is partial content",
            _ if has_body && fields.is_encoded() => "has a content coding that was not requested",
            _ if has_body && fields.all(b"content-type").any(hides_echoes) => {
                "has a charset that is not based on ASCII"
            }
            _ => {
                self.mask_fields();
                return Ok(());
            }
        };
        let detail = format!(
            "the provider's response {what}, so the account's secrets cannot be masked in it (`mask_echoes`)"
        );
        Err(Failure::new(ErrorKind::EchoUnreadable, detail))
    }

    /// Masks field values and the reason phrase of the held response. Fields that frame the message stay.
    pub(super) fn mask_fields(&mut self) {
        let Some(echoes) = self.flow_run.as_ref().and_then(|flow_run| flow_run.echoes.clone()) else {
            return;
        };
        let ResponseState { output, response, .. } = &mut *self.state.response_state;
        let bytes = output.filled_mut();
        let mut mask = |span: Span| echoes.mask(&mut bytes[span.range()]);
        mask(response.reason);
        for field in &response.fields {
            if !matches!(field.known, KnownField::ContentLength | KnownField::TransferEncoding) {
                mask(field.value);
            }
        }
    }
}
