//! Time and random numbers: the two inputs that a test has to control.
//!
//! Code that depends on time gets it as a parameter: a [`Moment`] of the monotonic clock or a [`Timestamp`]
//! since 1970. The room never waits and knows no message. The formats in which HTTP and its neighbours write
//! time have a module each.

mod boot;
mod calendar;
pub mod cookie_date;
pub mod http_date;
mod moment;
mod random;
pub mod retry_after;
pub mod rfc3339;
#[cfg(feature = "simulated")]
pub mod simulated;
mod timestamp;

pub use boot::{begin_turn, boot_us, turned_boot_us};
pub use calendar::CivilTime;
pub use moment::Moment;
pub use random::{Random, folded, mixed, unit_interval};
pub use timestamp::{Clock, Timestamp, system_time};

/// `true` if time and chance are those of a simulated world, which no build for use may have.
pub const IS_SIMULATED: bool = cfg!(feature = "simulated");

/// `true` where the simulation has planted a defect of this name. In all other builds it is `false`, and
/// nothing of it is compiled.
#[cfg(not(feature = "simulated"))]
#[macro_export]
macro_rules! planted {
    ($defect:ident) => {
        false
    };
}

/// `true` if the simulation has planted this defect, one of [`simulated::Defect`].
#[cfg(feature = "simulated")]
#[macro_export]
macro_rules! planted {
    ($defect:ident) => {
        $crate::simulated::is_planted($crate::simulated::Defect::$defect)
    };
}
