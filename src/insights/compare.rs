//! Comparison of an insight with another period: [`Compare`].

use crate::date_range::DateRange;
use crate::interval::Interval;
use crate::selection::Dates;
use crate::{InsightError, ProjectSettings};
use weir_api::insights::series::Period;
use weir_api::node::NodeError;
use weir_api::nodes::base::CompareFilter;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::view::View;

/// The periods of a comparison, in the order of [`Compare::ranges`].
pub const PERIODS: [Period; 2] = [Period::Current, Period::Previous];

const UNIX_EPOCH: chrono::NaiveDateTime = chrono::DateTime::UNIX_EPOCH.naive_utc();

/// The period that the current one is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// None.
    Nothing,
    /// The period of the same length immediately before.
    Previous,
    /// The period shifted back by this duration, such as `-1w`.
    Before(String),
}

impl Compare {
    /// Parses a `compareFilter`.
    ///
    /// # Errors
    ///
    /// `compare_to` is not a duration.
    pub fn of(sent: CompareFilter) -> Result<Self, NodeError> {
        if !sent.compare {
            return Ok(Self::Nothing);
        }
        let Some(duration) = sent.compare_to else { return Ok(Self::Previous) };
        if DateRange::shift(UNIX_EPOCH, &duration).is_none() {
            let detail = "Expected a duration such as -1w.";
            return Err(NodeError::new("compareFilter.compare_to", detail));
        }
        Ok(Self::Before(duration))
    }

    /// The date ranges: the current one, and the one it is compared with, if there is one.
    ///
    /// # Errors
    ///
    /// A date is malformed; see [`InsightError`].
    pub async fn ranges(
        &self,
        engine: &Engine,
        (view, owner): (&View, &ProjectSettings),
        dates: &Dates,
        interval: Interval,
    ) -> Result<Vec<DateRange>, InsightError> {
        let current = dates.range(engine, (view, owner), interval).await?;
        let is_by_day = !matches!(interval, Interval::Hour | Interval::Minute);
        let other = match self {
            Self::Nothing => None,
            Self::Before(duration) => current.before(duration),
            Self::Previous => {
                // As in PostHog: the last 7 days are 8 with today, and weeks are compared day by day.
                let from = dates.from.as_deref().unwrap_or("-7d");
                let is_weeks = DateRange::is_whole_weeks(from) && dates.to.is_none();
                let extra_days = u64::from(is_weeks && interval != Interval::Month);
                Some(current.previous(is_by_day, extra_days))
            }
        };
        Ok(std::iter::once(current).chain(other).collect())
    }
}
