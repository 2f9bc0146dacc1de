//! How the gateways of the model share the units, as seen from outside.

/// Looks in one time over which shares are averaged; a gateway looks each 5 ms.
const LOOKS: u64 = 400;

/// The units that each gateway holds, and those that are used.
#[derive(Debug, Default)]
pub struct Shares {
    sums: Vec<u64>,
    looks: u64,
    used: u64,
    looks_in_all: u64,
    /// The largest distance of a gateway's mean hold from the fair share.
    pub distance_max: f64,
}

impl Shares {
    /// Notes the units held by each gateway at one moment, and the units in use.
    pub fn note(&mut self, held: &[u64], used: u64, limit: u64) {
        self.sums.resize(held.len(), 0);
        for (sum, held) in self.sums.iter_mut().zip(held) {
            *sum += held;
        }
        self.looks += 1;
        self.looks_in_all += 1;
        self.used += used;
        if self.looks == LOOKS {
            let fair = limit as f64 / held.len() as f64;
            let distances = self.sums.iter().map(|sum| (*sum as f64 / LOOKS as f64 - fair).abs());
            self.distance_max = distances.fold(self.distance_max, f64::max);
            self.sums.clear();
            self.looks = 0;
        }
    }

    /// Mean number of units in use.
    pub fn used(&self) -> f64 {
        self.used as f64 / self.looks_in_all as f64
    }
}
