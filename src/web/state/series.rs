//! One series or step of an insight: [`Series`], in an address under a letter, such as `a`, `a.math` and `a.f1.key`.

use crate::state::filters;
use crate::state::filters::Filter;
use crate::state::parameters::{Parameters, Printer, Wrong};

/// Letters of series, which formulas use too.
pub const LETTERS: [&str; 26] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s",
    "t", "u", "v", "w", "x", "y", "z",
];

/// Aggregations, their display names, and whether they need a property; the first is the default.
pub const MATHS: [(&str, &str, bool); 24] = [
    ("total", "events", false),
    ("dau", "persons", false),
    ("weekly_active", "persons of the last 7 days", false),
    ("monthly_active", "persons of the last 30 days", false),
    ("unique_session", "sessions", false),
    ("unique_group", "groups", false),
    ("first_time_for_user", "persons for the first time", false),
    ("first_matching_event_for_user", "persons for the first time with the filters", false),
    ("sum", "sum of", true),
    ("avg", "mean of", true),
    ("min", "smallest of", true),
    ("max", "largest of", true),
    ("median", "median of", true),
    ("p75", "75th percentile of", true),
    ("p90", "90th percentile of", true),
    ("p95", "95th percentile of", true),
    ("p99", "99th percentile of", true),
    ("avg_count_per_actor", "events per person, mean", false),
    ("min_count_per_actor", "events per person, smallest", false),
    ("max_count_per_actor", "events per person, largest", false),
    ("median_count_per_actor", "events per person, median", false),
    ("p90_count_per_actor", "events per person, 90th percentile", false),
    ("p95_count_per_actor", "events per person, 95th percentile", false),
    ("p99_count_per_actor", "events per person, 99th percentile", false),
];

/// The events of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All: `*` in an address.
    All,
    /// Events of this name.
    Named(String),
    /// Events of an action: `action:7` in an address.
    Action(u32),
}

impl Event {
    /// Parses the value in an address. A name that would be read as something else has a backslash before it.
    ///
    /// # Errors
    ///
    /// The id of an action is not a number.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::All);
        }
        if let Some(id) = text.strip_prefix("action:") {
            let wrong = |_| "Expected the id of an action, such as action:7.".to_owned();
            return id.parse().map(Self::Action).map_err(wrong);
        }
        Ok(Self::Named(text.strip_prefix('\\').unwrap_or(text).to_owned()))
    }

    /// The value in an address.
    pub fn text(&self) -> String {
        match self {
            Self::All => "*".to_owned(),
            Self::Action(id) => format!("action:{id}"),
            Self::Named(name)
                if name == "*" || name.starts_with("action:") || name.starts_with('\\') =>
            {
                format!("\\{name}")
            }
            Self::Named(name) => name.clone(),
        }
    }

    /// Display name.
    pub fn title(&self) -> String {
        match self {
            Self::All => "All events".to_owned(),
            Self::Action(id) => format!("Action {id}"),
            Self::Named(name) => name.clone(),
        }
    }
}

/// A series, or a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Its events.
    pub event: Event,
    /// Name given by the user.
    pub name: Option<String>,
    /// Aggregation: one of [`MATHS`].
    pub math: &'static str,
    /// Property that is aggregated.
    pub math_property: Option<String>,
    /// Index of the group type that is counted.
    pub math_group: Option<u8>,
    /// Whether it is an optional step.
    pub is_optional: bool,
    /// Conditions on its events.
    pub filters: Vec<Filter>,
}

impl Series {
    /// A series that counts the events.
    pub fn of(event: Event) -> Self {
        Self {
            event,
            name: None,
            math: "total",
            math_property: None,
            math_group: None,
            is_optional: false,
            filters: Vec::new(),
        }
    }

    /// Takes the series of a letter, if it has an event.
    ///
    /// # Errors
    ///
    /// A part of it is malformed.
    pub fn parse(parameters: &mut Parameters, letter: &str) -> Result<Option<Self>, Wrong> {
        let maths = MATHS.map(|(math, _, _)| math);
        let name = |field: &str| format!("{letter}.{field}");
        let event = parameters.take(letter)?;
        let own = Self {
            event: Event::All,
            name: parameters.take(&name("name"))?,
            math: parameters.choice(&name("math"), &maths)?.unwrap_or("total"),
            math_property: parameters.take(&name("property"))?,
            math_group: parameters.number(&name("group"))?,
            is_optional: parameters.truth(&name("optional"))?,
            filters: filters::parse(parameters, &format!("{letter}."))?,
        };
        let Some(event) = event else { return Ok(None) };
        let event = Event::parse(&event).map_err(|detail| Wrong::new(letter, detail))?;
        Ok(Some(Self { event, ..own }))
    }

    /// Adds it to an address.
    pub fn print(&self, printer: &mut Printer, letter: &str) {
        let name = |field: &str| format!("{letter}.{field}");
        printer.add(letter, Some(self.event.text()).filter(|text| !text.is_empty()));
        printer.add(&name("name"), self.name.as_ref());
        printer.add(&name("math"), Some(self.math).filter(|math| *math != "total"));
        printer.add(&name("property"), self.math_property.as_ref());
        printer.add(&name("group"), self.math_group);
        printer.truth(&name("optional"), self.is_optional);
        filters::print(&self.filters, printer, &format!("{letter}."));
    }

    /// Display name.
    pub fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.event.title())
    }
}
