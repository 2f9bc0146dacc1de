//! The usage of a call, in one form for all providers.

/// The usage of a call. `input` and `output` are inclusive sums; their parts are disjoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of input, all parts included.
    pub input: u64,
    /// Input that was read from the provider's cache.
    pub cache_read: u64,
    /// Input that was written to the cache for the shortest time, five to thirty minutes.
    pub cache_write: u64,
    /// Input that was written to the cache for an hour.
    pub cache_write_1h: u64,
    /// Input that was written to the cache for twelve hours.
    pub cache_write_12h: u64,
    /// Input that is sound.
    pub input_audio: u64,
    /// Input that is an image.
    pub input_image: u64,
    /// Tokens of output, all parts included.
    pub output: u64,
    /// Output that the client does not see.
    pub reasoning: u64,
    /// Output that is sound.
    pub output_audio: u64,
    /// Output that is an image.
    pub output_image: u64,
}

/// The error for parts that exceed their sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// Parts of the input.
    #[error("the parts of the input are more than the input")]
    Input,
    /// Parts of the output.
    #[error("the parts of the output are more than the output")]
    Output,
}

impl Usage {
    /// The input that is in no other part.
    pub fn plain_input(&self) -> Result<u64, UsageError> {
        let parts = [
            self.cache_read,
            self.cache_write,
            self.cache_write_1h,
            self.cache_write_12h,
            self.input_audio,
            self.input_image,
        ];
        rest(self.input, &parts).ok_or(UsageError::Input)
    }

    /// The output that is in no other part.
    pub fn plain_output(&self) -> Result<u64, UsageError> {
        rest(self.output, &[self.reasoning, self.output_audio, self.output_image]).ok_or(UsageError::Output)
    }
}

fn rest(sum: u64, parts: &[u64]) -> Option<u64> {
    parts.iter().try_fold(sum, |rest, part| rest.checked_sub(*part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_in_no_part_are_plain() {
        let usage = Usage {
            input: 10,
            cache_read: 3,
            cache_write_1h: 2,
            output: 5,
            reasoning: 5,
            ..Usage::default()
        };
        assert_eq!((usage.plain_input(), usage.plain_output()), (Ok(5), Ok(0)));
        let broken = Usage { input: u64::MAX, cache_read: u64::MAX, cache_write: 1, reasoning: 1, ..usage };
        assert_eq!((broken.plain_input(), broken.plain_output()), (Err(UsageError::Input), Ok(4)));
    }
}
