//! The writer of Prometheus text.

use std::fmt::{self, Write};

use egret_observe::stats::Count;

/// Label names and values of one sample.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// The individual counts of a histogram's buckets.
#[derive(Debug)]
pub(super) struct Buckets<'a> {
    /// Upper bounds as they are printed, without that of the last bucket.
    pub bounds: Vec<String>,
    /// One count more than there are bounds.
    pub counts: &'a [u64],
}

/// The same for durations.
#[derive(Debug, Clone, Copy)]
pub(super) struct DurationBuckets<'a> {
    /// Upper bounds, in microseconds.
    pub bounds_us: &'a [u64],
    /// One count more than there are bounds.
    pub counts: &'a [u64],
}

/// Writes the three kinds of lines. All samples of a family must be written together after its HELP and TYPE.
#[derive(Debug)]
pub(super) struct MetricsText(String);

impl MetricsText {
    /// Creates an empty text with room for the metrics of a small config.
    pub fn new() -> Self {
        Self(String::with_capacity(16 << 10))
    }

    /// Returns the finished text.
    pub fn into_string(self) -> String {
        self.0
    }

    /// Begins a family.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// Writes a counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    /// Writes a gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    /// Writes a counter with one label, whose values are the names of the counts.
    pub fn counts(&mut self, name: &str, help: &str, label: &'static str, counts: &[Count]) {
        self.family(name, "counter", help);
        for count in counts {
            self.sample(name, &[(label, count.name)], count.count);
        }
    }

    /// Writes a histogram of durations.
    pub fn histogram(&mut self, name: &str, labels: Labels<'_>, buckets: DurationBuckets<'_>, sum_us: u64) {
        let bounds = buckets.bounds_us.iter().map(|bound_us| Seconds(*bound_us).to_string()).collect();
        self.buckets(name, labels, Buckets { bounds, counts: buckets.counts }, Seconds(sum_us));
    }

    /// Writes a histogram whose last bucket is unbounded. The output has cumulated counts.
    pub fn buckets(
        &mut self,
        name: &str,
        labels: Labels<'_>,
        Buckets { bounds, counts }: Buckets<'_>,
        sum: impl fmt::Display,
    ) {
        let bucket = format!("{name}_bucket");
        let mut seen = 0;
        for (bound, count) in bounds.into_iter().chain(["+Inf".to_owned()]).zip(counts) {
            seen += count;
            self.sample(&bucket, &[labels, &[("le", &bound)]].concat(), seen);
        }
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, seen);
    }

    /// Writes the line of one sample.
    pub fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl fmt::Display) {
        self.line(format_args!("{name}{} {value}", Braced(labels)));
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

/// Formats labels as they follow a name: `{a="1",b="2"}`; writes nothing if there are none.
struct Braced<'a>(Labels<'a>);

impl fmt::Display for Braced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}=\"{}\"", if index == 0 { '{' } else { ',' }, Escaped(value))?;
        }
        if self.0.is_empty() { Ok(()) } else { f.write_char('}') }
    }
}

/// Formats a label value: backslash, quote and line feed are escaped, other characters are kept.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                _ => f.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// Formats whole microseconds as seconds, exactly and without trailing zeros.
pub(super) struct Seconds(pub u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if micros == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{micros:06}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}
