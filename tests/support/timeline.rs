//! Time that a scenario lets pass, and the figures that it prints meanwhile.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The figures of a scenario, printed with the elapsed time.
#[derive(Debug)]
pub struct Timeline {
    name: String,
    began: Instant,
}

impl Timeline {
    /// Begins.
    pub fn new(name: impl Display) -> Self {
        Self { name: name.to_string(), began: Instant::now() }
    }

    /// Prints a line with the elapsed time.
    pub fn say(&self, line: impl Display) {
        println!("{:>6.1} s  {}: {line}", self.began.elapsed().as_secs_f64(), self.name);
    }
}

/// Lets time pass, which is what these scenarios are about.
pub fn pass(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}
