//! Time that a scenario lets pass, and the figures that it prints meanwhile.

use std::fmt::Display;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The figures of a scenario, printed with the elapsed time. It panics at its end if one of them is not as
/// claimed: so the reader sees all of them.
#[derive(Debug)]
pub struct Timeline {
    name: String,
    began: Instant,
    failures: Mutex<Vec<String>>,
}

impl Timeline {
    /// Begins.
    pub fn new(name: impl Display) -> Self {
        Self { name: name.to_string(), began: Instant::now(), failures: Mutex::default() }
    }

    /// Prints a line with the elapsed time.
    pub fn say(&self, line: impl Display) {
        println!("{:>6.1} s  {}: {line}", self.began.elapsed().as_secs_f64(), self.name);
    }

    /// Prints a figure, and fails at the end unless `is_so`.
    pub fn claim(&self, is_so: bool, figure: impl Display) {
        self.say(format!("{figure}{}", if is_so { "" } else { "  <-- FAILED" }));
        if !is_so {
            self.failures.lock().unwrap().push(figure.to_string());
        }
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        let failures = self.failures.lock().unwrap();
        assert!(failures.is_empty() || std::thread::panicking(), "{}: {}", self.name, failures.join("; "));
        drop(failures);
        self.say("ends");
    }
}

/// The number of events in each second.
#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
pub fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// Lets time pass, which is what these scenarios are about.
pub fn pass(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}
