//! Counters of a run: times, status codes, bytes and failures, each recorded in constant time.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use egret_items::words;
use hdrhistogram::Histogram;

/// Longest time that the histogram distinguishes: one hour, in microseconds.
const LONGEST_US: u64 = 3_600_000_000;

/// Maximum number of causes told apart in a thread. Texts of the system are few.
const CAUSES_MAX: usize = 32;

/// Significant digits of a percentile.
const DIGITS: u8 = 3;

/// A series of times in microseconds. Percentiles have three significant digits; the other figures are exact.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    histogram: Histogram<u64>,
    sum: u64,
    squares: f64,
    min: u64,
    max: u64,
}

impl Default for Series {
    fn default() -> Self {
        // The bounds are valid constants, so the fallback is never used.
        let histogram = Histogram::new_with_bounds(1, LONGEST_US, DIGITS)
            .or_else(|_| Histogram::new(DIGITS))
            .unwrap_or_else(|_| unreachable!("{DIGITS} digits are allowed"));
        Self { histogram, sum: 0, squares: 0.0, min: u64::MAX, max: 0 }
    }
}

impl Series {
    /// Adds a time.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "an hour in microseconds is far below 2^53")]
    pub fn record(&mut self, us: u64) {
        self.histogram.saturating_record(us);
        self.sum += us;
        self.squares += us as f64 * us as f64;
        self.min = self.min.min(us);
        self.max = self.max.max(us);
    }

    /// Adds `count` times of zero.
    pub fn record_zeros(&mut self, count: u64) {
        if count > 0 {
            self.histogram.saturating_record_n(0, count);
            self.min = 0;
        }
    }

    /// Adds all times of another series.
    pub fn add(&mut self, other: &Self) {
        // Cannot fail: both have the same bounds.
        let _ = self.histogram.add(&other.histogram);
        self.sum += other.sum;
        self.squares += other.squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Returns these times without those of another series, all of which are among them. Minimum and maximum
    /// have three significant digits then.
    pub fn without(&self, others: &Self) -> Self {
        let mut rest = self.clone();
        if others.count() > 0 {
            // Cannot fail: both have the same bounds.
            let _ = rest.histogram.subtract(&others.histogram);
            rest.sum -= others.sum;
            rest.squares -= others.squares;
            rest.min = rest.histogram.min().max(self.min);
            rest.max = rest.histogram.max().min(self.max);
        }
        rest
    }

    /// Number of recorded times.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The shortest time; 0 if the series is empty.
    pub fn min(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.min }
    }

    /// The longest time; 0 if the series is empty.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean; 0 if the series is empty.
    #[expect(clippy::cast_precision_loss, reason = "sums stay below 2^53 for centuries of exchanges")]
    pub fn mean(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum as f64 / self.count() as f64 }
    }

    /// The standard deviation of the sample; 0 if it has fewer than two times.
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    pub fn deviation(&self) -> f64 {
        let count = self.count();
        if count < 2 {
            return 0.0;
        }
        let mean = self.mean();
        let spread = (self.squares - mean * mean * count as f64) / (count - 1) as f64;
        spread.max(0.0).sqrt()
    }

    /// The percentile by nearest rank: the shortest time that at least `percent` of the times do not exceed.
    /// 0 if the series is empty; exact at both ends.
    pub fn percentile(&self, percent: f64) -> u64 {
        if self.count() == 0 || percent <= 0.0 {
            return self.min();
        }
        // The histogram returns the upper bound of a bucket, which may exceed every recorded time.
        self.histogram.value_at_quantile(percent / 100.0).clamp(self.min, self.max)
    }

    /// The time at a position in the sorted times, counted from 0, as ab indexes its array.
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    pub fn at_rank(&self, rank: u64) -> u64 {
        let count = self.count();
        if count == 0 {
            return 0;
        }
        // Aims at the middle of the rank, so rounding cannot select a neighbour.
        self.percentile((rank.min(count - 1) as f64 + 0.5) / count as f64 * 100.0)
    }

    /// The recorded times, rounded up to three digits, in ascending order with the number of each.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> {
        let each = self.histogram.iter_recorded();
        each.map(|step| {
            (step.value_iterated_to().clamp(self.min(), self.max), step.count_since_last_iteration())
        })
    }

    /// The underlying histogram.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }
}

words! {
    /// A kind of failure of an exchange. Its name is that in reports.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Fault: name {
        /// No connection could be made.
        Connect => "connect",
        /// The request could not be sent completely.
        Send => "send",
        /// The connection broke before the response was complete.
        Receive => "receive",
        /// The connection was closed before the response was complete.
        Closed => "closed",
        /// The exchange took longer than allowed.
        Timeout => "timeout",
        /// The response is not HTTP/1.1.
        Protocol => "protocol",
        /// The body's length differs from that of the first response.
        Length => "length",
        /// A check rejected the response.
        Check => "check",
    }
}

/// The cause of a failure: its kind, and the system's or TLS's words where there are some.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FailureCause {
    fault: Fault,
    text: String,
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.fault.name(), self.text)
    }
}

/// One exchange, for outputs that list each one.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "the unit")]
pub(crate) struct Sample {
    /// Start of the exchange since the start of counting, in microseconds.
    pub start_us: u64,
    /// Time to connect; 0 on a kept connection.
    pub connect_us: u32,
    /// Time from start to end.
    pub total_us: u32,
    /// Time from the start of sending to the first byte of the response.
    pub wait_us: u32,
}

/// The times of one exchange, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExchangeTimes {
    /// Time to connect; `None` on a kept connection.
    pub connect: Option<u64>,
    /// Time from the start of sending to the first byte of the response.
    pub wait: u64,
    /// Time from start to end.
    pub total: u64,
    /// `true` for a response with a status of 2xx.
    pub is_2xx: bool,
}

/// The counters of a run or of one thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// Total times on kept connections. They have no connect time, so one record serves two series.
    kept: Series,
    /// Total times of exchanges that opened a connection.
    fresh: Series,
    /// The same times without the connect time.
    fresh_processing: Series,
    connect: Series,
    waiting: Series,
    /// Total times of exchanges without a 2xx response.
    not_2xx: Series,
    /// Times by target; empty if there is only one.
    by_target: Vec<Series>,
    statuses: Vec<u64>,
    faults: [u64; Fault::ALL.len()],
    causes: BTreeMap<FailureCause, u64>,
    /// Exchanges that ended, successfully or not.
    pub done: u64,
    /// Failed exchanges, each counted once.
    pub failed: u64,
    /// Responses after which the connection was kept open.
    pub keep_alive: u64,
    /// Connections that resumed a TLS session.
    pub resumed: u64,
    /// Exchanges started again because the kept connection had been closed in the meantime, or their stream
    /// was refused or not processed.
    pub retried: u64,
    /// Exchanges in progress when the time was over.
    pub unfinished: u64,
    /// Exchanges that were due but never sent, because no connection was free.
    pub unsent: u64,
    /// Bytes of responses received, heads included.
    pub bytes_received: u64,
    /// Bytes of bodies received.
    pub bytes_body: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Delay between due time and sending of exchanges of the open model for which a connection was free.
    pub lateness: Series,
    /// Delays of events of streams, if they are measured.
    pub event_delays: Series,
    /// The individual exchanges, if requested.
    pub samples: Vec<Sample>,
    samples_max: usize,
}

impl Tally {
    /// Creates empty counters that store up to `samples_max` individual exchanges.
    pub fn new(targets: usize, samples_max: usize) -> Self {
        Self {
            by_target: if targets > 1 { vec![Series::default(); targets] } else { Vec::new() },
            statuses: vec![0; 1000],
            samples_max,
            ..Self::default()
        }
    }

    /// Adds the times of an exchange.
    #[inline]
    pub fn record(&mut self, target: usize, start: Duration, times: ExchangeTimes) {
        match times.connect {
            None => self.kept.record(times.total),
            Some(connect) => {
                self.fresh.record(times.total);
                self.fresh_processing.record(times.total.saturating_sub(connect));
                self.connect.record(connect);
            }
        }
        self.waiting.record(times.wait);
        if !times.is_2xx {
            self.not_2xx.record(times.total);
        }
        if let Some(series) = self.by_target.get_mut(target) {
            series.record(times.total);
        }
        if self.samples.len() < self.samples_max {
            self.samples.push(Sample {
                start_us: micros(start),
                connect_us: narrow(times.connect.unwrap_or(0)),
                total_us: narrow(times.total),
                wait_us: narrow(times.wait),
            });
        }
    }

    /// Counts a status code.
    #[inline]
    pub fn status(&mut self, status: u16) {
        if let Some(count) = self.statuses.get_mut(usize::from(status)) {
            *count += 1;
        }
    }

    /// Counts a failure with the text of its cause.
    pub fn fault(&mut self, fault: Fault, text: String) {
        self.faults[fault as usize] += 1;
        let cause = FailureCause { fault, text };
        if let Some(count) = self.causes.get_mut(&cause) {
            *count += 1;
        } else if self.causes.len() < CAUSES_MAX {
            self.causes.insert(cause, 1);
        }
    }

    /// The causes of failures, with their numbers.
    pub fn causes(&self) -> impl Iterator<Item = (&FailureCause, u64)> {
        self.causes.iter().map(|(cause, count)| (cause, *count))
    }

    /// Number of failures of this kind.
    pub fn faults(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    /// Adds the counters of another tally.
    pub fn add(&mut self, other: &Self) {
        self.kept.add(&other.kept);
        self.fresh.add(&other.fresh);
        self.fresh_processing.add(&other.fresh_processing);
        self.connect.add(&other.connect);
        self.waiting.add(&other.waiting);
        self.not_2xx.add(&other.not_2xx);
        self.lateness.add(&other.lateness);
        self.event_delays.add(&other.event_delays);
        for (series, more) in self.by_target.iter_mut().zip(&other.by_target) {
            series.add(more);
        }
        for (count, more) in self.statuses.iter_mut().zip(&other.statuses) {
            *count += more;
        }
        for (count, more) in self.faults.iter_mut().zip(&other.faults) {
            *count += more;
        }
        for (cause, count) in &other.causes {
            *self.causes.entry(cause.clone()).or_default() += count;
        }
        self.done += other.done;
        self.failed += other.failed;
        self.keep_alive += other.keep_alive;
        self.resumed += other.resumed;
        self.retried += other.retried;
        self.unfinished += other.unfinished;
        self.unsent += other.unsent;
        self.bytes_received += other.bytes_received;
        self.bytes_body += other.bytes_body;
        self.bytes_sent += other.bytes_sent;
        self.samples.extend(&other.samples);
    }

    /// Times from start to end.
    pub fn total(&self) -> Series {
        let mut total = self.kept.clone();
        total.add(&self.fresh);
        total
    }

    /// Times from start to end of the responses with a status of 2xx.
    pub fn total_2xx(&self) -> Series {
        self.total().without(&self.not_2xx)
    }

    /// Times from the established connection to the end.
    pub fn processing(&self) -> Series {
        let mut processing = self.kept.clone();
        processing.add(&self.fresh_processing);
        processing
    }

    /// Connect times of the connections made.
    pub fn connect(&self) -> &Series {
        &self.connect
    }

    /// Connect times with a zero for each exchange on a kept connection, as ab counts them.
    pub fn connect_with_zeros(&self) -> Series {
        let mut connect = self.connect.clone();
        connect.record_zeros(self.kept.count());
        connect
    }

    /// Times from the start of sending to the first byte of the response.
    pub fn waiting(&self) -> &Series {
        &self.waiting
    }

    /// Total times by target; empty if there is only one.
    pub fn by_target(&self) -> &[Series] {
        &self.by_target
    }

    /// Received status codes and the number of responses with each.
    pub fn statuses(&self) -> impl Iterator<Item = (usize, u64)> {
        self.statuses.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }

    /// Responses whose status is not 2xx.
    pub fn non_2xx(&self) -> u64 {
        self.statuses().filter(|(status, _)| status / 100 != 2).map(|(_, count)| count).sum()
    }
}

/// Converts to microseconds, rounded.
#[inline]
pub(crate) fn micros(time: Duration) -> u64 {
    time.as_secs() * 1_000_000 + u64::from((time.subsec_nanos() + 500) / 1_000)
}

fn narrow(us: u64) -> u32 {
    u32::try_from(us).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use egret_measure::statistics::real;
    use proptest::prelude::*;

    use super::*;

    fn series(times: impl IntoIterator<Item = u64>) -> Series {
        let mut series = Series::default();
        times.into_iter().for_each(|us| series.record(us));
        series
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let series = series(1..=100);
        for (percent, us) in [(0.0, 1), (1.0, 1), (50.0, 50), (99.0, 99), (99.1, 100), (100.0, 100)] {
            assert_eq!(series.percentile(percent), us, "{percent} %");
        }
        assert_eq!((series.at_rank(0), series.at_rank(50), series.at_rank(1_000)), (1, 51, 100));
    }

    #[test]
    fn mean_deviation_and_ends_are_exact() {
        let series = series([10, 20, 30, 123_457]);
        assert_eq!((series.min(), series.max()), (10, 123_457));
        assert!((series.mean() - 30_879.25).abs() < 1e-9);
        assert!((series.deviation() - 61_718.500_5).abs() < 0.01, "{}", series.deviation());
        assert_eq!(series.percentile(100.0), 123_457, "not the top of its bucket");
    }

    #[test]
    fn of_nothing_everything_is_zero() {
        let series = Series::default();
        assert_eq!((series.min(), series.max(), series.percentile(50.0), series.at_rank(0)), (0, 0, 0, 0));
        assert!(series.mean().abs() < f64::EPSILON && series.deviation().abs() < f64::EPSILON);
    }

    #[test]
    fn kept_connections_count_as_connected_in_no_time() {
        let mut tally = Tally::new(1, 0);
        let times = ExchangeTimes { connect: Some(40), wait: 50, total: 100, is_2xx: true };
        tally.record(0, Duration::ZERO, times);
        tally.record(0, Duration::ZERO, ExchangeTimes { connect: None, total: 60, ..times });
        assert_eq!(tally.connect().count(), 1);
        let connect = tally.connect_with_zeros();
        assert_eq!((connect.min(), connect.max(), connect.count()), (0, 40, 2));
        assert_eq!((tally.total().max(), tally.processing().max()), (100, 60));
    }

    #[test]
    fn quick_refusals_do_not_flatter_the_times_of_2xx() {
        let mut tally = Tally::new(1, 0);
        let mut record = |total, is_2xx| {
            let times = ExchangeTimes { connect: (total % 2 == 0).then_some(1), wait: 1, total, is_2xx };
            tally.record(0, Duration::ZERO, times);
        };
        (0..900).for_each(|_| record(10, false));
        (101..=200).for_each(|total| record(total, true));
        let served = tally.total_2xx();
        assert_eq!((served.count(), served.min(), served.max()), (100, 101, 200));
        assert_eq!((served.percentile(50.0), served.percentile(99.0)), (150, 199));
        assert!((served.mean() - 150.5).abs() < 1e-9);
        let mut others = Tally::new(1, 0);
        others.record(0, Duration::ZERO, ExchangeTimes { connect: None, wait: 1, total: 9, is_2xx: false });
        others.add(&tally);
        assert_eq!((others.total().count(), others.total_2xx().count()), (1_001, 100));
    }

    #[test]
    fn two_tallies_add_up() {
        let mut all = Tally::new(2, 10);
        let mut one = Tally::new(2, 10);
        let times = ExchangeTimes { connect: None, wait: 5, total: 6, is_2xx: false };
        one.record(1, Duration::from_secs(1), times);
        one.status(503);
        one.fault(Fault::Check, "rejected".to_owned());
        one.done = 1;
        all.add(&one);
        all.add(&one);
        assert_eq!((all.done, all.non_2xx(), all.faults(Fault::Check), all.samples.len()), (2, 2, 2, 2));
        assert_eq!((all.by_target()[0].count(), all.by_target()[1].count()), (0, 2));
    }

    #[test]
    fn microseconds_are_rounded() {
        assert_eq!(micros(Duration::from_nanos(1_499)), 1);
        assert_eq!(micros(Duration::from_nanos(1_500)), 2);
        assert_eq!(micros(Duration::new(3, 999_999_999)), 4_000_000);
    }

    proptest! {
        #[test]
        fn a_percentile_is_that_of_the_sorted_times_to_three_digits(
            mut times in prop::collection::vec(1_u64..10_000_000, 1..300),
            percent in 0.0..=100.0_f64,
        ) {
            let series = series(times.iter().copied());
            times.sort_unstable();
            let exact = egret_measure::statistics::percentile(&times, percent).unwrap();
            let found = series.percentile(percent);
            // Rounding may select a neighbour where the percentage is a boundary between two ranks.
            let near = |exact: u64| found.abs_diff(exact) * 1_000 <= exact.max(1_000);
            let next = times[times.partition_point(|time| *time <= exact).min(times.len() - 1)];
            prop_assert!(near(exact) || near(next), "{found} is neither {exact} nor {next}");
            prop_assert!((times[0]..=times[times.len() - 1]).contains(&found));
        }

        #[test]
        fn two_series_together_are_one_of_all_their_times(
            one in prop::collection::vec(0_u64..1_000_000, 0..100),
            other in prop::collection::vec(0_u64..1_000_000, 0..100),
        ) {
            let mut sum = series(one.iter().copied());
            sum.add(&series(other.iter().copied()));
            let all = series(one.iter().chain(&other).copied());
            prop_assert_eq!((sum.count(), sum.min(), sum.max()), (all.count(), all.min(), all.max()));
            prop_assert!((sum.mean() - all.mean()).abs() < 1e-6 && (sum.deviation() - all.deviation()).abs() < 1e-3);
            prop_assert_eq!(sum.percentile(90.0), all.percentile(90.0));
        }

        #[test]
        fn the_deviation_is_that_of_the_sample(times in prop::collection::vec(0_u64..100_000, 2..100)) {
            let values: Vec<f64> = times.iter().map(|us| real(*us)).collect();
            let exact = egret_measure::statistics::standard_deviation(&values).unwrap();
            prop_assert!((series(times).deviation() - exact).abs() < 1e-3 * exact.max(1.0));
        }
    }

    #[test]
    fn a_time_beyond_an_hour_counts_as_the_longest() {
        let series = series([1, 2 * LONGEST_US]);
        assert_eq!((series.count(), series.max()), (2, 2 * LONGEST_US));
        assert!(series.percentile(100.0) >= LONGEST_US / 1_000 * 999);
    }

    #[test]
    fn individual_exchanges_are_kept_up_to_their_number() {
        let mut tally = Tally::new(1, 2);
        for start in 1..=3 {
            let total = u64::from(u32::MAX) + 1;
            let times = ExchangeTimes { connect: Some(5), wait: 7, total, is_2xx: true };
            tally.record(0, Duration::from_millis(start), times);
        }
        let [first, second] = &tally.samples[..] else { panic!("{:?}", tally.samples) };
        assert_eq!((first.start_us, second.start_us), (1_000, 2_000));
        assert_eq!((first.connect_us, first.wait_us, first.total_us), (5, 7, u32::MAX));
        assert_eq!(tally.total().count(), 3);
    }

    #[test]
    fn statuses_are_listed_in_order_and_impossible_ones_ignored() {
        let mut tally = Tally::new(1, 0);
        for status in [503, 200, 200, 301, 1_000, 65_535] {
            tally.status(status);
        }
        assert_eq!(tally.statuses().collect::<Vec<_>>(), [(200, 2), (301, 1), (503, 1)]);
        assert_eq!(tally.non_2xx(), 2);
    }
}
