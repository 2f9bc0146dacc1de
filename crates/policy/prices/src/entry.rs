//! Reads `LiteLLM`'s JSON into the members of each model, numbers as they are written.

use egret_json::tokenizer::{JsonError, Sink, Tokenizer};

/// Maximum number of models.
const MODELS_MAX: usize = 100_000;

/// Maximum length of a text in a member, in bytes. Longer ones are cut.
const TEXT_BYTES_MAX: usize = 256;

/// A model as the source has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Name of the model.
    pub name: String,
    /// Members that are numbers, as they are written.
    pub numbers: Vec<(String, String)>,
    /// Name of the provider.
    pub provider: String,
}

/// The reader of the models.
#[derive(Debug, Default)]
struct ModelEntries {
    entries: Vec<Entry>,
    /// Number of containers that are open: in the second, members of a model follow.
    depth: usize,
    name: String,
    text: Vec<u8>,
    is_text: bool,
    is_list: bool,
    has_too_many: bool,
}

/// The reason why the source cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The source is not JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The source is not an object of models.
    #[error("not an object with a member for each model")]
    NotModels,
    /// There are too many models.
    #[error("more than {MODELS_MAX} models")]
    TooMany,
}

/// Reads the models.
pub fn read(json: &[u8]) -> Result<Vec<Entry>, EntryError> {
    let mut entries = ModelEntries::default();
    let mut tokenizer = Tokenizer::new();
    tokenizer.push(json, &mut entries)?;
    tokenizer.finish(&mut entries)?;
    match entries {
        ModelEntries { is_list: true, .. } => Err(EntryError::NotModels),
        ModelEntries { has_too_many: true, .. } => Err(EntryError::TooMany),
        ModelEntries { entries, .. } if entries.is_empty() => Err(EntryError::NotModels),
        ModelEntries { entries, .. } => Ok(entries),
    }
}

impl Sink for ModelEntries {
    fn open(&mut self, is_object: bool) {
        self.depth += 1;
        self.is_list |= self.depth == 1 && !is_object;
        if self.depth == 2 && is_object {
            if self.entries.len() == MODELS_MAX {
                self.has_too_many = true;
            } else {
                self.entries.push(Entry { name: self.name.clone(), ..Entry::default() });
            }
        }
    }

    fn close(&mut self, _: bool) {
        self.depth -= 1;
    }

    fn comma(&mut self) {}

    fn name(&mut self, name: &str) {
        if self.depth <= 2 {
            name.clone_into(&mut self.name);
        }
    }

    fn begin_text(&mut self) {
        self.is_text = self.depth == 2 && self.name == "litellm_provider";
        self.text.clear();
    }

    fn text(&mut self, piece: &[u8]) {
        if self.is_text && self.text.len() + piece.len() <= TEXT_BYTES_MAX {
            self.text.extend_from_slice(piece);
        }
    }

    fn end_text(&mut self) {
        if let Some(entry) = self.entries.last_mut().filter(|_| self.is_text) {
            entry.provider = String::from_utf8_lossy(&self.text).into_owned();
        }
    }

    fn number(&mut self, number: &[u8]) {
        if let Some(entry) = self.entries.last_mut().filter(|_| self.depth == 2) {
            entry.numbers.push((self.name.clone(), String::from_utf8_lossy(number).into_owned()));
        }
    }

    fn word(&mut self, _: &'static str) {}
}
