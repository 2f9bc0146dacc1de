//! The figures of a response so far, as the provider reports them, and the rules that make sums of them.

use std::str;

use egret_json::decimal;
use egret_message::Fields;

use crate::json::Sink;
use crate::names::{EntrySlot, Family, Flag, Node, SLOTS, Slot, Text, Use};
use crate::record::{CacheWrites, UsageDialect, UsageRecord, UsageSource};

/// Fields of Bedrock's `InvokeModel`, with what they tell.
const BEDROCK_FIELDS: [(&[u8], Use); 4] = [
    (b"x-amzn-bedrock-input-token-count", Use::Sum(Slot::Input, Family::Invoke)),
    (b"x-amzn-bedrock-output-token-count", Use::Sum(Slot::Output, Family::Invoke)),
    (b"x-amzn-bedrock-cache-read-input-token-count", Use::Beside(Slot::CacheRead)),
    (b"x-amzn-bedrock-cache-write-input-token-count", Use::Beside(Slot::CacheWrite)),
];

/// The largest figure that is believed: it is exact in JSON, and sums of many do not overflow.
const FIGURE_MAX: u64 = 9_000_000_000_000_000;

/// A text that is kept without memory of its own.
#[derive(Debug, Clone, Copy)]
struct Short<const MAX: usize> {
    bytes: [u8; MAX],
    len: u8,
}

impl<const MAX: usize> Default for Short<MAX> {
    fn default() -> Self {
        Self { bytes: [0; MAX], len: 0 }
    }
}

impl<const MAX: usize> Short<MAX> {
    /// Keeps `text`, unless it is too long.
    fn set(&mut self, text: &[u8]) {
        if let (Some(place), Ok(len)) = (self.bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            place.copy_from_slice(text);
            self.len = len;
        }
    }

    /// Returns `true` if `text` is kept.
    fn is(&self, text: &[u8]) -> bool {
        self.bytes.get(..usize::from(self.len)) == Some(text)
    }

    fn text(&self) -> Option<Box<str>> {
        let text = str::from_utf8(self.bytes.get(..usize::from(self.len))?).ok()?;
        (!text.is_empty() && !text.contains(char::is_control)).then(|| text.into())
    }
}

/// Subject of an entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Label {
    #[default]
    Other,
    Compaction,
    Audio,
    Image,
    For5m,
    For1h,
}

/// An entry of a list, as far as it has been read.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    label: Label,
    figures: [u64; 4],
}

/// The figures of a response so far. The last value of each counts.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are noted independently")]
pub(crate) struct Tally {
    figures: [u64; SLOTS],
    /// A bit for each slot that has a figure.
    told: u32,
    family: Family,
    entry: Entry,
    model: Short<64>,
    tier: Short<16>,
    speed: Short<16>,
    /// A part was told under a name of those that sums exclude.
    has_beside: bool,
    /// A part was told under a name of those that sums include.
    has_inside: bool,
    /// An event or a document has a type of Anthropic's.
    is_anthropic: bool,
    /// A report of the whole call has begun.
    is_final: bool,
    /// The document under way is the last one that matters.
    ends_here: bool,
    /// The last document that matters has ended.
    has_ended: bool,
    has_error: bool,
}

impl Tally {
    /// Takes the figures that are told in the head of a response. Returns `true` if there is one.
    pub fn read_fields(&mut self, fields: Fields<'_>) -> bool {
        for (name, wanted) in BEDROCK_FIELDS {
            if let Some(value) = fields.get(name) {
                self.number(wanted, value.trim_ascii());
            }
        }
        self.is_final = self.told != 0;
        self.is_final
    }

    /// Notes an error that is told beside the documents.
    pub fn note_error(&mut self) {
        self.has_error = true;
    }

    fn get(&self, slot: Slot) -> u64 {
        if self.has(slot) { self.figures[slot as usize] } else { 0 }
    }

    fn has(&self, slot: Slot) -> bool {
        self.told & 1 << (slot as u32) != 0
    }

    fn set(&mut self, slot: Slot, figure: u64) {
        self.figures[slot as usize] = figure;
        self.told |= 1 << (slot as u32);
    }

    fn add(&mut self, slot: Slot, figure: u64) {
        self.set(slot, self.get(slot).saturating_add(figure).min(FIGURE_MAX));
    }

    /// Makes the record of the response. `is_whole` is `true` if all of it was read.
    pub fn record(&self, is_whole: bool) -> UsageRecord {
        let dialect = self.dialect();
        let writes = self.cache_writes();
        let read = self.get(Slot::CacheRead);
        let [input, output] = self.sums(dialect, read.saturating_add(writes.total()));
        let cache_read = read.min(input);
        let [input_audio, input_image] = self.parts(input, [Slot::InputAudio, Slot::InputImage]);
        let [output_audio, output_image] = self.parts(output, [Slot::OutputAudio, Slot::OutputImage]);
        let told = dialect.is_some()
            || [Slot::Searches, Slot::AudioMs, Slot::CostNano].into_iter().any(|slot| self.has(slot));
        UsageRecord {
            input,
            cache_read,
            cache_write: capped(writes, input - cache_read),
            input_audio,
            input_image,
            output,
            reasoning: self.get(Slot::Reasoning).min(output),
            output_audio,
            output_image,
            searches: self.get(Slot::Searches),
            audio_ms: self.get(Slot::AudioMs),
            cost_nano: self.has(Slot::CostNano).then(|| self.get(Slot::CostNano)),
            priced_nano: None,
            priced_by: None,
            model: self.model.text(),
            tier: self.tier.text(),
            speed: self.speed.text(),
            provider: None,
            dialect,
            source: match told {
                false => UsageSource::None,
                true if self.is_final && (is_whole || self.has_ended) => UsageSource::Reported,
                true => UsageSource::Partial,
            },
            has_error: self.has_error,
        }
    }

    fn dialect(&self) -> Option<UsageDialect> {
        Some(match self.family {
            Family::None => return None,
            Family::Ollama => UsageDialect::Ollama,
            Family::Tokens if self.is_anthropic || (self.has_beside && !self.has_inside) => {
                UsageDialect::Anthropic
            }
            Family::Tokens => UsageDialect::Responses,
            Family::Chat => UsageDialect::Chat,
            Family::Cohere => UsageDialect::Cohere,
            Family::Gemini => UsageDialect::Gemini,
            Family::Converse => UsageDialect::Converse,
            Family::Invoke => UsageDialect::Invoke,
        })
    }

    /// Returns the input and the output with all their parts. `cached` is what was read from caches and
    /// written to them.
    fn sums(&self, dialect: Option<UsageDialect>, cached: u64) -> [u64; 2] {
        let (input, output) = (self.get(Slot::Input), self.get(Slot::Output));
        let [input, output] = match dialect {
            Some(UsageDialect::Anthropic | UsageDialect::Converse | UsageDialect::Invoke) => [
                input.saturating_add(cached).saturating_add(self.get(Slot::ExtraInput)),
                output.saturating_add(self.get(Slot::ExtraOutput)),
            ],
            Some(UsageDialect::Gemini) => {
                let input = input.saturating_add(self.get(Slot::ToolInput));
                let output = if self.has(Slot::Total) {
                    self.get(Slot::Total).saturating_sub(input)
                } else {
                    output.saturating_add(self.get(Slot::Reasoning))
                };
                [input, output]
            }
            _ => [input, output],
        };
        [input.min(FIGURE_MAX), output.min(FIGURE_MAX)]
    }

    /// Returns what was written to caches. If the parts exceed their sum, the sum counts.
    fn cache_writes(&self) -> CacheWrites {
        let parts = CacheWrites {
            for_5m: self.get(Slot::CacheWrite5m),
            for_30m: self.get(Slot::CacheWrite30m),
            for_1h: self.get(Slot::CacheWrite1h),
            for_12h: self.get(Slot::CacheWrite12h),
            other: 0,
        };
        if !self.has(Slot::CacheWrite) {
            return parts;
        }
        let total = self.get(Slot::CacheWrite);
        capped(CacheWrites { other: total.saturating_sub(parts.total()), ..parts }, total)
    }

    /// Returns the figures of two parts that are at most `sum` together.
    fn parts(&self, sum: u64, [first, second]: [Slot; 2]) -> [u64; 2] {
        let first = self.get(first).min(sum);
        [first, self.get(second).min(sum - first)]
    }

    fn sum(&mut self, slot: Slot, family: Family, figure: u64) {
        if family < self.family {
            return;
        }
        self.family = family;
        self.set(slot, figure);
        // Bedrock reports at the end only.
        self.ends_here |= family >= Family::Converse;
    }

    fn note_type(&mut self, text: &[u8]) {
        self.has_error |= is_error(text);
        self.ends_here |= is_last(text);
        self.is_anthropic |= is_of_anthropic(text);
    }

    /// Returns `true` if a text of this kind would change nothing.
    pub fn has_text(&self, kind: Text, text: &[u8]) -> bool {
        match kind {
            Text::Model => self.model.is(text),
            Text::Tier => self.tier.is(text),
            Text::Speed => self.speed.is(text),
            Text::Type => !is_error(text) && !is_last(text) && (self.is_anthropic || !is_of_anthropic(text)),
            Text::Label => false,
        }
    }
}

/// Returns `true` for types of errors.
fn is_error(text: &[u8]) -> bool {
    matches!(text, b"error" | b"response.failed")
}

/// Returns `true` for types of the last documents that matter.
fn is_last(text: &[u8]) -> bool {
    matches!(
        text,
        b"message_stop"
            | b"message-end"
            | b"response.completed"
            | b"response.incomplete"
            | b"response.failed"
            | b"image_generation.completed"
            | b"transcript.text.done"
    )
}

/// Returns `true` for types of Anthropic's documents.
fn is_of_anthropic(text: &[u8]) -> bool {
    text == b"message" || text.starts_with(b"message_")
}

/// Returns `number` times 10^`places`, rounded up. Returns `None` if it is no figure.
fn figure(number: &[u8], places: i32) -> Option<u64> {
    decimal::whole(number, places).ok().map(|whole| whole.units).filter(|units| *units <= FIGURE_MAX)
}

/// Returns the parts, in order, as far as `sum` reaches.
fn capped(writes: CacheWrites, sum: u64) -> CacheWrites {
    let mut left = sum;
    let mut part = |figure: u64| {
        let figure = figure.min(left);
        left -= figure;
        figure
    };
    CacheWrites {
        for_5m: part(writes.for_5m),
        for_30m: part(writes.for_30m),
        for_1h: part(writes.for_1h),
        for_12h: part(writes.for_12h),
        other: part(writes.other),
    }
}

impl Sink for Tally {
    fn number(&mut self, wanted: Use, number: &[u8]) {
        let scale = match wanted {
            Use::Part(Slot::AudioMs) => 3,
            Use::Part(Slot::CostNano) => 9,
            _ => 0,
        };
        let Some(figure) = figure(number, scale) else { return };
        match wanted {
            Use::Sum(slot, family) => self.sum(slot, family, figure),
            Use::Part(slot) => self.set(slot, figure),
            Use::Beside(slot) => {
                self.has_beside = true;
                self.set(slot, figure);
            }
            Use::Inside(slot) => {
                self.has_inside = true;
                self.set(slot, figure);
            }
            Use::Entry(slot) => self.entry.figures[slot as usize] = figure,
            Use::Skip | Use::Counter | Use::Enter(_) | Use::Text(_) | Use::Flag(_) | Use::Document => {}
        }
    }

    fn text(&mut self, wanted: Use, text: &[u8]) {
        let Use::Text(kind) = wanted else { return };
        match kind {
            Text::Model => self.model.set(text),
            Text::Tier => self.tier.set(text),
            Text::Speed => self.speed.set(text),
            Text::Type => self.note_type(text),
            Text::Label => {
                self.entry.label = match text {
                    b"compaction" => Label::Compaction,
                    b"AUDIO" => Label::Audio,
                    b"IMAGE" => Label::Image,
                    b"5m" => Label::For5m,
                    b"1h" => Label::For1h,
                    _ => Label::Other,
                }
            }
        }
    }

    fn flag(&mut self, wanted: Use, first: u8) {
        match (wanted, first) {
            (Use::Flag(Flag::Done), b't') => (self.ends_here, self.is_final) = (true, true),
            (Use::Flag(Flag::Done), _) | (_, b'n') => {}
            _ => self.has_error = true,
        }
    }

    /// A document within a document is read where AWS has it, and nowhere else.
    fn base64(&mut self, _: &[u8]) {}

    fn open(&mut self, node: Node) {
        self.is_final |= node.is_report();
        let repeated: &[Slot] = match node {
            Node::Top => {
                self.ends_here = false;
                &[]
            }
            Node::Entry => {
                self.entry = Entry::default();
                &[]
            }
            Node::Iterations => &[Slot::ExtraInput, Slot::ExtraOutput],
            Node::InputModalities => &[Slot::InputAudio, Slot::InputImage],
            Node::OutputModalities => &[Slot::OutputAudio, Slot::OutputImage],
            Node::CacheDetails => &[Slot::CacheWrite5m, Slot::CacheWrite1h],
            _ => &[],
        };
        for slot in repeated {
            self.set(*slot, 0);
        }
    }

    fn close(&mut self, parent: Node, node: Node) {
        if node != Node::Entry {
            return;
        }
        let Entry { label, figures } = self.entry;
        let [input, read, written, output] =
            [EntrySlot::Input, EntrySlot::CacheRead, EntrySlot::CacheWrite, EntrySlot::Output]
                .map(|slot| figures[slot as usize]);
        match (parent, label) {
            // The other iterations are in the sums.
            (Node::Iterations, Label::Compaction) => {
                self.add(Slot::ExtraInput, input.saturating_add(read).saturating_add(written));
                self.add(Slot::ExtraOutput, output);
            }
            (Node::InputModalities, Label::Audio) => self.add(Slot::InputAudio, input),
            (Node::InputModalities, Label::Image) => self.add(Slot::InputImage, input),
            (Node::OutputModalities, Label::Audio) => self.add(Slot::OutputAudio, input),
            (Node::OutputModalities, Label::Image) => self.add(Slot::OutputImage, input),
            (Node::CacheDetails, Label::For5m) => self.add(Slot::CacheWrite5m, input),
            (Node::CacheDetails, Label::For1h) => self.add(Slot::CacheWrite1h, input),
            _ => {}
        }
    }

    fn end(&mut self) {
        self.has_ended |= self.ends_here;
    }

    fn done(&mut self) {
        self.has_ended = true;
    }
}

const _: () = assert!(size_of::<Tally>() <= 448);
