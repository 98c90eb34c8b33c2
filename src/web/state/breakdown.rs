//! Breakdown of series: [`Breakdown`], in an address as `by1.key`, `by1.of` and so on.

use crate::state::parameters::{Parameters, Printer, Wrong};

/// Most properties that are combined.
pub const KEYS_MAX: usize = 3;

/// Owner of the property; the first is the default.
pub const OWNERS: [&str; 8] =
    ["event", "person", "cohort", "group0", "group1", "group2", "group3", "group4"];

/// A breakdown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// The properties, or one cohort each, with their owners; empty without a breakdown.
    pub keys: Vec<(&'static str, String)>,
    /// Most values that have a series of their own.
    pub limit: Option<u16>,
    /// Whether all other values are omitted.
    pub is_other_hidden: bool,
}

impl Breakdown {
    /// Whether series are split by cohorts.
    pub fn is_by_cohorts(&self) -> bool {
        self.keys.first().is_some_and(|(owner, _)| *owner == "cohort")
    }

    /// Takes it from parameters.
    ///
    /// # Errors
    ///
    /// A part of it is malformed, or cohorts are combined with properties.
    pub fn parse(parameters: &mut Parameters) -> Result<Self, Wrong> {
        let mut keys = Vec::new();
        for number in 1..=KEYS_MAX {
            let owner = parameters.choice(&format!("by{number}.of"), &OWNERS)?.unwrap_or("event");
            let name = format!("by{number}.key");
            let Some(key) = parameters.take(&name)? else { continue };
            if owner == "cohort" && key != "all" && key.parse::<u32>().is_err() {
                return Err(Wrong::new(name, "Expected the id of a cohort, or all."));
            }
            keys.push((owner, key));
        }
        let cohorts = keys.iter().filter(|(owner, _)| *owner == "cohort").count();
        if cohorts > 0 && cohorts < keys.len() {
            let detail = "Split by cohorts, or by properties: not by both at once.";
            return Err(Wrong::new("by1.of", detail));
        }
        let limit = parameters.number("by.limit")?;
        let is_other_hidden = parameters.truth("by.hide_other")?;
        Ok(match keys.is_empty() {
            true => Self::default(),
            false => Self { keys, limit, is_other_hidden },
        })
    }

    /// Adds it to an address.
    pub fn print(&self, printer: &mut Printer) {
        for ((owner, key), number) in self.keys.iter().zip(1..) {
            let owner = Some(owner).filter(|owner| **owner != "event");
            printer.add(&format!("by{number}.of"), owner);
            printer.add(&format!("by{number}.key"), Some(key));
        }
        printer.add("by.limit", self.limit);
        printer.truth("by.hide_other", self.is_other_hidden);
    }
}
