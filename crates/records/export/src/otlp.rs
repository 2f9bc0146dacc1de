//! Encodes spans and metrics as OTLP (OpenTelemetry protocol 1.x) in protocol buffers.
//!
//! Each span and each metric is encoded as a message of its own, so they can be queued individually. A
//! request combines any number of them. Field numbers are those of `opentelemetry/proto`, which never change.

/// First byte of a queued span.
pub const SPAN: u8 = b's';
/// First byte of a queued metric.
pub const METRIC: u8 = b'm';

/// Wire types of protocol buffers.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// Writes the fields of one message.
#[derive(Debug)]
struct FieldWriter<'a>(&'a mut Vec<u8>);

impl FieldWriter<'_> {
    fn tag(&mut self, field: u64, wire: u64) {
        varint(field << 3 | wire, self.0);
    }

    fn number(&mut self, field: u64, number: u64) {
        self.tag(field, VARINT);
        varint(number, self.0);
    }

    fn fixed64(&mut self, field: u64, number: u64) {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u64, number: u32) {
        self.tag(field, FIXED32);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn double(&mut self, field: u64, number: f64) {
        self.fixed64(field, number.to_bits());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.tag(field, LENGTH);
        varint(bytes.len() as u64, self.0);
        self.0.extend_from_slice(bytes);
    }

    /// Writes a text field. An empty text is left out, which means the same.
    fn text(&mut self, field: u64, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut FieldWriter<'_>)) {
        let mut inner = Vec::new();
        write(&mut FieldWriter(&mut inner));
        self.bytes(field, &inner);
    }

    fn fixed64s(&mut self, field: u64, numbers: impl ExactSizeIterator<Item = u64>) {
        self.tag(field, LENGTH);
        varint(numbers.len() as u64 * 8, self.0);
        for number in numbers {
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn attribute(&mut self, field: u64, name: &str, value: AttributeValue<'_>) {
        self.message(field, |pair| {
            pair.text(1, name);
            pair.message(2, |any| match value {
                AttributeValue::Text(text) => any.bytes(1, text.as_bytes()),
                AttributeValue::Flag(flag) => any.number(2, u64::from(flag)),
                AttributeValue::Number(number) => any.number(3, number),
            });
        });
    }
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}

/// Value of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeValue<'a> {
    /// A text.
    Text(&'a str),
    /// A boolean.
    Flag(bool),
    /// An integer below 2^63.
    Number(u64),
}

/// Name and value of an attribute.
pub type Attribute<'a> = (&'a str, AttributeValue<'a>);

/// The side of a call that a span describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// The called side.
    Server,
    /// The calling side.
    Client,
}

/// One span of a trace.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// Id of its trace.
    pub trace_id: [u8; 16],
    /// Id of the span.
    pub span_id: [u8; 8],
    /// Id of its parent span, if any.
    pub parent_id: Option<[u8; 8]>,
    /// `tracestate` as received.
    pub trace_state: &'a str,
    /// Flags of `traceparent`.
    pub flags: u8,
    /// Name to display.
    pub name: &'a str,
    /// Side of the call.
    pub kind: SpanKind,
    /// Start, in microseconds since 1970.
    pub start_us: u64,
    /// End, in microseconds since 1970.
    pub end_us: u64,
    /// Attributes of the span.
    pub attributes: &'a [Attribute<'a>],
    /// `true` if the call failed.
    pub is_error: bool,
}

/// Appends an encoded span.
pub fn write_span(span: &Span<'_>, out: &mut Vec<u8>) {
    let mut message = FieldWriter(out);
    message.bytes(1, &span.trace_id);
    message.bytes(2, &span.span_id);
    message.text(3, span.trace_state);
    if let Some(parent) = &span.parent_id {
        message.bytes(4, parent);
    }
    message.text(5, span.name);
    message.number(
        6,
        match span.kind {
            SpanKind::Server => 2,
            SpanKind::Client => 3,
        },
    );
    message.fixed64(7, nanos(span.start_us));
    message.fixed64(8, nanos(span.end_us));
    for (name, value) in span.attributes {
        message.attribute(9, name, *value);
    }
    if span.is_error {
        message.message(15, |status| status.number(3, 2));
    }
    message.fixed32(16, u32::from(span.flags));
}

fn nanos(us: u64) -> u64 {
    us.saturating_mul(1_000)
}

/// A metric and its data points.
#[derive(Debug, Clone, Copy)]
pub struct Metric<'a> {
    /// Name of the metric.
    pub name: &'a str,
    /// Description for people.
    pub description: &'a str,
    /// Unit (UCUM), such as `s`; empty if there is none.
    pub unit: &'a str,
    /// Kind of metric.
    pub kind: MetricKind,
    /// Start of counting, in microseconds since 1970.
    pub start_us: u64,
    /// Time of the reading, in microseconds since 1970.
    pub time_us: u64,
    /// Data points.
    pub points: &'a [Point<'a>],
}

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that goes up and down.
    Gauge,
    /// A sum that goes up and down.
    UpDownCounter,
    /// A value that only goes up.
    Counter,
    /// Counts per bucket.
    Histogram,
}

/// A data point of a metric.
#[derive(Debug, Clone)]
pub struct Point<'a> {
    /// Attributes that distinguish it from the other points.
    pub attributes: Vec<Attribute<'a>>,
    /// Value of the point.
    pub value: PointValue<'a>,
}

/// Value of a data point.
#[derive(Debug, Clone, Copy)]
pub enum PointValue<'a> {
    /// A number.
    Number(f64),
    /// A histogram: upper bounds of its buckets, counts per bucket (one more than bounds), and the sum of all
    /// values.
    Histogram(&'a [f64], &'a [u64], f64),
}

/// Appends an encoded metric. Counts are cumulative.
pub fn write_metric(metric: &Metric<'_>, out: &mut Vec<u8>) {
    const CUMULATIVE: u64 = 2;
    let mut message = FieldWriter(out);
    message.text(1, metric.name);
    message.text(2, metric.description);
    message.text(3, metric.unit);
    let field = match metric.kind {
        MetricKind::Gauge => 5,
        MetricKind::Counter | MetricKind::UpDownCounter => 7,
        MetricKind::Histogram => 9,
    };
    message.message(field, |data| {
        for point in metric.points {
            data.message(1, |data| write_point(metric, point, data));
        }
        if metric.kind != MetricKind::Gauge {
            data.number(2, CUMULATIVE);
        }
        if metric.kind == MetricKind::Counter {
            data.number(3, 1);
        }
    });
}

fn write_point(metric: &Metric<'_>, point: &Point<'_>, data: &mut FieldWriter<'_>) {
    data.fixed64(2, nanos(metric.start_us));
    data.fixed64(3, nanos(metric.time_us));
    let attributes = match point.value {
        PointValue::Number(number) => {
            data.double(4, number);
            7
        }
        PointValue::Histogram(bounds, counts, sum) => {
            data.fixed64(4, counts.iter().sum());
            data.double(5, sum);
            data.fixed64s(6, counts.iter().copied());
            data.fixed64s(7, bounds.iter().map(|bound| bound.to_bits()));
            9
        }
    };
    for (name, value) in &point.attributes {
        data.attribute(attributes, name, *value);
    }
}

/// Encodes a request with spans, for `/v1/traces`, or with metrics, for `/v1/metrics`. Both have the same
/// structure. `resource` describes their source; `version` is the version of Egret.
pub fn request<'a>(
    parts: impl IntoIterator<Item = &'a [u8]>,
    resource: &[Attribute<'_>],
    version: &str,
) -> Vec<u8> {
    let mut request = Vec::new();
    FieldWriter(&mut request).message(1, |of_resource| {
        of_resource.message(1, |message| {
            for (name, value) in resource {
                message.attribute(1, name, *value);
            }
        });
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.text(1, "egret");
                scope.text(2, version);
            });
            for part in parts {
                of_scope.bytes(2, part);
            }
        });
    });
    request
}

/// Returns the number of parts that a collector rejected, and the reason. Returns `None` if it accepted all,
/// or if its response cannot be parsed.
pub fn rejected(response: &[u8]) -> Option<(u64, String)> {
    let partial = fields(response).find_map(|(field, value)| match value {
        Read::Bytes(bytes) if field == 1 => Some(bytes),
        _ => None,
    })?;
    let (mut count, mut why) = (0, String::new());
    for (field, value) in fields(partial) {
        match (field, value) {
            (1, Read::Number(number)) => count = number,
            (2, Read::Bytes(bytes)) => why = String::from_utf8_lossy(bytes).into_owned(),
            _ => {}
        }
    }
    (count > 0).then_some((count, why))
}

/// A parsed value.
enum Read<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the fields of a message up to the first malformed one.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, Read<'_>)> {
    std::iter::from_fn(move || {
        let tag = read_varint(&mut message)?;
        let value = match tag & 7 {
            VARINT => Read::Number(read_varint(&mut message)?),
            FIXED64 => Read::Bytes(message.split_off(..8)?),
            LENGTH => {
                let length = usize::try_from(read_varint(&mut message)?).ok()?;
                Read::Bytes(message.split_off(..length)?)
            }
            FIXED32 => Read::Bytes(message.split_off(..4)?),
            _ => return None,
        };
        Some((tag >> 3, value))
    })
}

fn read_varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = message.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_span_is_written_as_others_write_it() {
        let span = Span {
            trace_id: [1; 16],
            span_id: [2; 8],
            parent_id: Some([3; 8]),
            trace_state: "a=b",
            flags: 1,
            name: "GET",
            kind: SpanKind::Client,
            start_us: 1,
            end_us: 300,
            attributes: &[
                ("n", AttributeValue::Number(300)),
                ("t", AttributeValue::Text("")),
                ("f", AttributeValue::Flag(true)),
            ],
            is_error: true,
        };
        let mut bytes = Vec::new();
        write_span(&span, &mut bytes);
        // Tag, length, value. The end-to-end tests decode such messages with the OpenTelemetry library.
        let expected: Vec<u8> = [
            &[0x0a, 16][..],
            &[1; 16],
            &[0x12, 8],
            &[2; 8],
            b"\x1a\x03a=b",
            &[0x22, 8],
            &[3; 8],
            b"\x2a\x03GET",
            &[0x30, 3],
            &[0x39, 0xe8, 3, 0, 0, 0, 0, 0, 0],
            &[0x41, 0xe0, 0x93, 4, 0, 0, 0, 0, 0],
            b"\x4a\x08\x0a\x01n\x12\x03\x18\xac\x02",
            b"\x4a\x07\x0a\x01t\x12\x02\x0a\x00",
            b"\x4a\x07\x0a\x01f\x12\x02\x10\x01",
            b"\x7a\x02\x18\x02",
            b"\x85\x01\x01\x00\x00\x00",
        ]
        .concat();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_response_says_what_was_not_taken() {
        assert_eq!(rejected(b""), None);
        assert_eq!(rejected(b"\x0a\x00"), None);
        assert_eq!(rejected(b"\x0a\x08\x08\x05\x12\x04full"), Some((5, "full".to_owned())));
        assert_eq!(rejected(b"\x0a\xff"), None);
        assert_eq!(rejected(b"<html>"), None);
    }

    proptest! {
        #[test]
        fn no_answer_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = rejected(&bytes);
        }

        #[test]
        fn a_number_is_read_as_it_was_written(number: u64) {
            let mut bytes = Vec::new();
            varint(number, &mut bytes);
            let mut rest = &bytes[..];
            prop_assert_eq!(read_varint(&mut rest), Some(number));
            prop_assert!(rest.is_empty());
        }
    }
}
