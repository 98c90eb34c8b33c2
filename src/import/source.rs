//! The systems that exports come from, one file each: [`Kind`] names them.

mod amplitude;
mod ga4;
mod generic;
mod goatcounter;
mod mixpanel;
mod plausible;
mod posthog;
mod segment;
mod umami;
mod user_agent;

use std::fmt;

use crate::mapping::{Options, Source};
use crate::read::Formats;

/// A system whose exports can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// PostHog, or Weir: batch exports, answers of the API of events, CSV of SQL.
    Posthog,
    /// Mixpanel: raw export of events, profiles.
    Mixpanel,
    /// Amplitude: archives of its export API.
    Amplitude,
    /// Segment: calls as its buckets have them.
    Segment,
    /// RudderStack: the same.
    Rudderstack,
    /// Google Analytics 4: tables in BigQuery.
    Ga4,
    /// Umami: its table of events.
    Umami,
    /// Plausible: its table of events.
    Plausible,
    /// GoatCounter: its export.
    Goatcounter,
    /// Events in the shape of capture, one JSON object a line.
    Jsonl,
    /// The same as columns of CSV.
    Csv,
    /// The same as columns of Parquet.
    Parquet,
}

impl Kind {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 12] = [
        ("posthog", Self::Posthog),
        ("mixpanel", Self::Mixpanel),
        ("amplitude", Self::Amplitude),
        ("segment", Self::Segment),
        ("rudderstack", Self::Rudderstack),
        ("ga4", Self::Ga4),
        ("umami", Self::Umami),
        ("plausible", Self::Plausible),
        ("goatcounter", Self::Goatcounter),
        ("jsonl", Self::Jsonl),
        ("csv", Self::Csv),
        ("parquet", Self::Parquet),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// By its name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// What reads its exports.
    pub fn source(self, options: &Options) -> Box<dyn Source> {
        match self {
            Self::Posthog => Box::new(posthog::Posthog::new(options)),
            Self::Mixpanel => Box::new(mixpanel::Mixpanel::new(options)),
            Self::Amplitude => Box::new(amplitude::Amplitude::new(options)),
            Self::Segment | Self::Rudderstack => {
                Box::new(segment::Segment::new(self.name(), options))
            }
            Self::Ga4 => Box::new(ga4::Ga4::new(options)),
            Self::Umami => Box::new(umami::Umami::new(options)),
            Self::Plausible => Box::new(plausible::Plausible::new(options)),
            Self::Goatcounter => Box::new(goatcounter::Goatcounter::new(options)),
            Self::Csv => Box::new(generic::Generic::new(Formats::Csv, options)),
            Self::Jsonl | Self::Parquet => Box::new(generic::Generic::new(Formats::Json, options)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
