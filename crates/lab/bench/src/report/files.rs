//! Result files: ab's CSV of percentiles, ab's TSV of exchanges, and the histograms.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use egret_clock::CivilTime;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::run_report::{RunReport, ms};
use crate::tally::Series;

impl RunReport<'_> {
    /// Content of ab's `-e`: each percentage of exchanges from 0 to 100, and the time in milliseconds within
    /// which they were served.
    pub fn csv(&self) -> String {
        let total = self.outcome.tally.total();
        let mut text = "Percentage served,Time in ms\n".to_owned();
        for percent in 0..=100 {
            let us =
                if self.style.ab_compat { as_ab(&total, percent) } else { self.percentile(&total, percent) };
            #[expect(clippy::cast_precision_loss, reason = "an hour in microseconds is far below 2^53")]
            let _ = writeln!(text, "{percent},{:.3}", us as f64 / 1_000.0);
        }
        text
    }

    /// Content of ab's `-g`: each exchange, ordered by start time. With ab's compatibility, ordered by
    /// duration.
    pub fn tsv(&self, started: SystemTime) -> String {
        let started = started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut samples: Vec<_> = self.outcome.tally.samples.iter().collect();
        if self.style.ab_compat {
            samples.sort_by_key(|sample| sample.total_us);
        }
        let mut text = "starttime\tseconds\tctime\tdtime\tttime\twait\n".to_owned();
        for sample in samples {
            let at = (started + Duration::from_micros(sample.start_us)).as_secs();
            let [connect, total, wait] =
                [sample.connect_us, sample.total_us, sample.wait_us].map(|us| ms(u64::from(us)));
            let processing = total.saturating_sub(connect);
            let _ = writeln!(text, "{}\t{at}\t{connect}\t{processing}\t{total}\t{wait}", date(at));
        }
        text
    }

    /// The histograms as a log for the `HdrHistogram` tools (version 2, compressed): one line for each phase,
    /// times in microseconds.
    pub fn hdr(&self, started: SystemTime) -> String {
        let tally = &self.outcome.tally;
        let mut log = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        let mut builder = IntervalLogWriterBuilder::new();
        builder
            .add_comment("egret bench: times in microseconds; the tag names the phase")
            .with_start_time(started);
        // Writing to memory cannot fail.
        if let Ok(mut writer) = builder.begin_log_with(&mut log, &mut serializer) {
            let total = tally.total();
            for (name, series) in
                [("total", &total), ("first_byte", tally.waiting()), ("connect", tally.connect())]
            {
                let length = self.outcome.elapsed;
                let _ = writer.write_histogram(series.histogram(), Duration::ZERO, length, Tag::new(name));
            }
        }
        String::from_utf8_lossy(&log).into_owned()
    }
}

/// The time at the index that ab uses. An index after the end, which ab reads, yields the last time.
fn as_ab(total: &Series, percent: u64) -> u64 {
    let count = total.count();
    match percent {
        0 => total.min(),
        100 => total.max(),
        _ => total.at_rank((count * percent + 50) / 100),
    }
}

/// Formats a time as ab does, in UTC: `Wed Sep 07 18:09:44 2011`.
fn date(seconds: u64) -> String {
    let time = CivilTime::from_unix_seconds(seconds);
    let (weekday, month) = (time.weekday, time.month_name());
    let CivilTime { year, day, hour, minute, second, .. } = time;
    format!("{weekday} {month} {day:02} {hour:02}:{minute:02}:{second:02} {year}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_ab_does() {
        for (seconds, text) in [
            (0, "Thu Jan 01 00:00:00 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (1_315_418_984, "Wed Sep 07 18:09:44 2011"),
            (1_735_689_599, "Tue Dec 31 23:59:59 2024"),
            (1_795_308_876, "Sun Nov 22 00:54:36 2026"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn the_csv_of_ab_never_reads_behind_its_end() {
        let mut total = Series::default();
        (1..=10).for_each(|us| total.record(us));
        assert_eq!(
            (as_ab(&total, 0), as_ab(&total, 50), as_ab(&total, 99), as_ab(&total, 100)),
            (1, 6, 10, 10)
        );
    }
}
