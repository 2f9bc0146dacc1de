//! Quotas: named allowances that remedies draw from.
//!
//! A quota counts per group. Each group's usage has its own lock, held for one decision. A call that draws
//! from a quota with ancestors locks its group in each of them, always child before parent. It charges all of
//! them or none while it holds all locks, so no other call ever sees a partial charge.
//!
//! The crate reads no clock and knows no remedy, no socket and no file. Callers pass the time, all from the
//! same clock. See [`Quota::take`] for the effect of setting that clock.

mod advice;
mod alerts;
mod backing;
mod blocks;
mod calendar;
mod config;
mod correction;
mod expressions;
mod grant;
mod group;
mod group_kind;
mod group_set;
mod groups;
mod handed_state;
mod learn;
mod lease;
mod meter;
mod quota;
mod quotas;
mod refusal;
mod share;
mod status;
mod validate;

pub use advice::{advise, longest_cool_down};
pub use alerts::{Alert, AlertCount, AlertSink};
pub use backing::Stores;
pub use config::{
    AdaptiveConfig, CostConfig, GroupBy, GroupByError, LearnConfig, LearnFrom, LearnHeaders, OnLeave,
    OnStoreError, Overshoot, Percent, PercentError, Period, QuotaConfig, QuotaConfigs, QuotaKind, QuotaUnit,
    RenewalConfig, ShareDefault, ShareDefaultError, SharesConfig, SpilloverConfig, StoreKind, UsageCost,
    UsageReport, WindowStart,
};
pub use expressions::QuotaExpressions;
pub use grant::{Grant, Permit, Redraw, SecondDraw};
pub use handed_state::{Balance, GroupId, Lending, QuotaState};
pub use learn::{Learned, ProviderReaders, ReportReader};
pub use meter::LoadSign;
pub use quota::{Forecast, Quota};
pub use quotas::{Inheritance, Quotas};
pub use refusal::{Refusal, Why};
pub use status::{GroupSnapshot, QuotaSnapshot, QuotaStatus, SharedSnapshot};
pub use validate::validate;

#[cfg(test)]
mod handed_tests;
#[cfg(test)]
mod share_tests;
#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod tests;
