//! The query of an insight page: [`Question`].

use crate::state::breakdown::Breakdown;
use crate::state::exclusion::Exclusion;
use crate::state::filters;
use crate::state::filters::Filter;
use crate::state::parameters::{Parameters, Printer, Wrong};
use crate::state::range::Range;
use crate::state::series::{Event, LETTERS, Series};
use weir_api::nodes::insights::Display;

/// Lengths of intervals.
pub const INTERVALS: [&str; 5] = ["minute", "hour", "day", "week", "month"];

/// Displays of trends; the first is the default.
pub const TRENDS_SHOWN: [&str; 10] = [
    "line",
    "area",
    "bars",
    "stacked",
    "cumulative",
    "number",
    "totals",
    "pie",
    "countries",
    "table",
];

/// The same as the API calls it; lines have no name.
pub(super) const DISPLAYS: [(&str, Display); 9] = [
    ("area", Display::AreaGraph),
    ("bars", Display::UnstackedBar),
    ("stacked", Display::Bar),
    ("cumulative", Display::Cumulative),
    ("number", Display::BoldNumber),
    ("totals", Display::BarValue),
    ("pie", Display::Pie),
    ("countries", Display::WorldMap),
    ("table", Display::Table),
];

/// Displays of funnels; the first is the default.
pub const FUNNELS_SHOWN: [&str; 3] = ["steps", "trends", "time_to_convert"];

/// Displays of retention; the first is the default.
pub const RETENTION_SHOWN: [&str; 2] = ["percent", "count"];

/// The orders of steps; the first is the default.
pub const ORDERS: [&str; 3] = ["ordered", "strict", "unordered"];

/// Units of the conversion window of a funnel; days are the default.
pub const WINDOW_UNITS: [&str; 6] = ["day", "second", "minute", "hour", "week", "month"];

/// The step whose breakdown value counts; the first is the default.
pub const ATTRIBUTIONS: [&str; 3] = ["first_touch", "last_touch", "all_events"];

/// Which of a person's start events put it into a row of a retention; the first is the default.
pub const RETENTION_TYPES: [&str; 3] = ["recurring", "first_time", "first_ever_occurrence"];

/// Events that are steps of paths.
pub const PATH_EVENTS: [&str; 3] = ["$pageview", "$screen", "custom_event"];

/// Statuses of persons in an interval of a lifecycle.
pub const STATUSES: [&str; 4] = ["new", "returning", "resurrecting", "dormant"];

/// Operators that compare the number of events that an interval of stickiness needs.
pub const CRITERIA: [&str; 3] = ["gte", "lte", "exact"];

/// Intervals of a retention whose address does not give their number.
const RETENTION_INTERVALS: u16 = 7;

/// Most values of a list parameter.
const LIST_MAX: usize = 26;

/// Kinds of insights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers by interval.
    Trends,
    /// How many do one step after another.
    Funnel,
    /// How many come back.
    Retention,
    /// Which step follows which.
    Paths,
    /// New, returning and dormant persons.
    Lifecycle,
    /// Number of intervals in which persons do something.
    Stickiness,
}

impl Kind {
    /// All kinds, as navigation shows them.
    pub const ALL: [Self; 6] = [
        Self::Trends,
        Self::Funnel,
        Self::Retention,
        Self::Paths,
        Self::Lifecycle,
        Self::Stickiness,
    ];

    /// Its part of an address.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trends => "trends",
            Self::Funnel => "funnel",
            Self::Retention => "retention",
            Self::Paths => "paths",
            Self::Lifecycle => "lifecycle",
            Self::Stickiness => "stickiness",
        }
    }

    /// Display name.
    pub fn title(self) -> &'static str {
        match self {
            Self::Trends => "Trends",
            Self::Funnel => "Funnel",
            Self::Retention => "Retention",
            Self::Paths => "Paths",
            Self::Lifecycle => "Lifecycle",
            Self::Stickiness => "Stickiness",
        }
    }

    /// The API's kind of its query.
    pub fn query(self) -> &'static str {
        match self {
            Self::Trends => "TrendsQuery",
            Self::Funnel => "FunnelsQuery",
            Self::Retention => "RetentionQuery",
            Self::Paths => "PathsQuery",
            Self::Lifecycle => "LifecycleQuery",
            Self::Stickiness => "StickinessQuery",
        }
    }

    /// Most series or steps.
    pub fn series_max(self) -> usize {
        match self {
            Self::Trends | Self::Stickiness => LETTERS.len(),
            Self::Funnel => 20,
            Self::Retention => 2,
            Self::Lifecycle => 1,
            Self::Paths => 0,
        }
    }
}

/// The query of an insight page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Date range of the events.
    pub range: Range,
    /// Length of an interval: one of [`INTERVALS`].
    pub interval: Option<&'static str>,
    /// Conditions on all events.
    pub filters: Vec<Filter>,
    /// Whether events of test accounts are left out.
    pub is_without_tests: bool,
    /// The group type that is counted instead of persons.
    pub group: Option<u8>,
    /// The series or steps; for retention the event with which persons begin, and the one with which they return.
    pub series: Vec<Series>,
    /// The options of the kind.
    pub options: Options,
}

/// Options that only one kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Options {
    /// Of trends.
    Trends {
        /// The breakdown.
        breakdown: Breakdown,
        /// `previous`, or how long before the other period is, such as `-1w`.
        compare: Option<String>,
        /// One of [`TRENDS_SHOWN`].
        shown: &'static str,
        /// Formulas over the letters of series.
        formulas: Vec<String>,
        /// Number of intervals of the moving average.
        smoothing: Option<u16>,
    },
    /// Of funnels.
    Funnel {
        /// The breakdown.
        breakdown: Breakdown,
        /// One of [`ATTRIBUTIONS`].
        attribution: &'static str,
        /// One of [`FUNNELS_SHOWN`].
        shown: &'static str,
        /// One of [`ORDERS`].
        order: &'static str,
        /// Conversion window: most time for all steps.
        window: Option<u32>,
        /// One of [`WINDOW_UNITS`].
        window_unit: &'static str,
        /// Events that must not happen between steps.
        exclusions: Vec<Exclusion>,
    },
    /// Of retention.
    Retention {
        /// One of [`RETENTION_SHOWN`].
        shown: &'static str,
        /// One of [`RETENTION_TYPES`].
        type_: &'static str,
        /// Number of intervals.
        intervals: Option<u16>,
        /// Whether a person who returns counts in all intervals before, too.
        is_cumulative: bool,
        /// Number of events that a return requires.
        occurrences: Option<u32>,
    },
    /// Of paths.
    Paths {
        /// Some of [`PATH_EVENTS`]; empty means all.
        include: Vec<&'static str>,
        /// The first step of the paths.
        start: Option<String>,
        /// The last step of the paths.
        end: Option<String>,
        /// Most steps of a path.
        steps: Option<u16>,
        /// Most edges that are shown.
        edges: Option<u16>,
        /// Smallest number of persons of an edge.
        least: Option<u32>,
        /// Patterns with `*`; all steps that match one count as one step.
        groupings: Vec<String>,
        /// Steps that are omitted.
        exclude: Vec<String>,
    },
    /// Of lifecycles.
    Lifecycle {
        /// Some of [`STATUSES`]; empty means all.
        only: Vec<&'static str>,
    },
    /// Of stickiness.
    Stickiness {
        /// As for trends.
        compare: Option<String>,
        /// Number of intervals that are merged into one.
        interval_count: Option<u16>,
        /// Whether a person also counts for all smaller numbers of intervals.
        is_cumulative: bool,
        /// The number of events that an interval needs: one of [`CRITERIA`], and the number.
        criteria: Option<(&'static str, u32)>,
    },
}

impl Question {
    /// The query of an address without parameters.
    pub fn new(kind: Kind) -> Self {
        Self {
            range: Range::default(),
            interval: None,
            filters: Vec::new(),
            is_without_tests: false,
            group: None,
            series: Vec::new(),
            options: Options::new(kind),
        }
    }

    /// A query of another kind with the same dates, events and filters.
    #[must_use]
    pub fn of_kind(&self, kind: Kind) -> Self {
        let series = self.series.iter().filter(|series| series.event != Event::All);
        let series = series.take(kind.series_max()).map(|series| Series {
            name: series.name.clone(),
            filters: series.filters.clone(),
            ..Series::of(series.event.clone())
        });
        Self {
            range: self.range.clone(),
            filters: self.filters.clone(),
            is_without_tests: self.is_without_tests,
            series: series.collect(),
            ..Self::new(kind)
        }
    }

    /// The kind of insight.
    pub fn kind(&self) -> Kind {
        match &self.options {
            Options::Trends { .. } => Kind::Trends,
            Options::Funnel { .. } => Kind::Funnel,
            Options::Retention { .. } => Kind::Retention,
            Options::Paths { .. } => Kind::Paths,
            Options::Lifecycle { .. } => Kind::Lifecycle,
            Options::Stickiness { .. } => Kind::Stickiness,
        }
    }

    /// Display name of its date range.
    pub fn range_text(&self) -> String {
        match (&self.options, &self.range.from) {
            (Options::Retention { intervals, .. }, None) => {
                let interval = self.interval.unwrap_or("day");
                format!("last {} {interval}s", intervals.unwrap_or(RETENTION_INTERVALS))
            }
            _ => self.range.text(),
        }
    }

    /// Reads the query string of an address.
    ///
    /// # Errors
    ///
    /// A parameter is unknown, malformed or given twice.
    pub fn parse(kind: Kind, query: &str) -> Result<Self, Wrong> {
        let mut parameters = Parameters::parse(query)?;
        let question = Self::take(kind, &mut parameters)?;
        parameters.finish()?;
        Ok(question)
    }

    /// Takes the query from parameters, among which may be others.
    ///
    /// # Errors
    ///
    /// A parameter is malformed or given twice.
    pub fn take(kind: Kind, parameters: &mut Parameters) -> Result<Self, Wrong> {
        let mut series = Vec::new();
        for letter in LETTERS.iter().take(kind.series_max()) {
            series.extend(Series::parse(parameters, letter)?);
        }
        Ok(Self {
            range: Range::parse(parameters)?,
            interval: match kind {
                Kind::Paths => None,
                _ => parameters.choice("interval", &INTERVALS)?,
            },
            filters: filters::parse(parameters, "")?,
            is_without_tests: parameters.truth("without_tests")?,
            group: parameters.number("group")?,
            series,
            options: Options::take(kind, parameters)?,
        })
    }

    /// The query string of its address.
    pub fn print(&self) -> String {
        let mut printer = Printer::default();
        self.add_to(&mut printer);
        printer.finish()
    }

    /// Adds it to an address.
    pub fn add_to(&self, printer: &mut Printer) {
        for (series, letter) in self.series.iter().zip(LETTERS) {
            series.print(printer, letter);
        }
        self.range.print(printer);
        printer.add("interval", self.interval);
        filters::print(&self.filters, printer, "");
        printer.truth("without_tests", self.is_without_tests);
        printer.add("group", self.group);
        self.options.print(printer);
    }
}

impl Options {
    /// The options of an address without parameters.
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Trends => Self::Trends {
                breakdown: Breakdown::default(),
                compare: None,
                shown: "line",
                formulas: Vec::new(),
                smoothing: None,
            },
            Kind::Funnel => Self::Funnel {
                breakdown: Breakdown::default(),
                attribution: "first_touch",
                shown: "steps",
                order: "ordered",
                window: None,
                window_unit: "day",
                exclusions: Vec::new(),
            },
            Kind::Retention => Self::Retention {
                shown: "percent",
                type_: "recurring",
                intervals: None,
                is_cumulative: false,
                occurrences: None,
            },
            Kind::Paths => Self::Paths {
                include: Vec::new(),
                start: None,
                end: None,
                steps: None,
                edges: None,
                least: None,
                groupings: Vec::new(),
                exclude: Vec::new(),
            },
            Kind::Lifecycle => Self::Lifecycle { only: Vec::new() },
            Kind::Stickiness => Self::Stickiness {
                compare: None,
                interval_count: None,
                is_cumulative: false,
                criteria: None,
            },
        }
    }

    fn take(kind: Kind, parameters: &mut Parameters) -> Result<Self, Wrong> {
        Ok(match kind {
            Kind::Trends => Self::Trends {
                breakdown: Breakdown::parse(parameters)?,
                compare: parameters.take("compare")?,
                shown: parameters.choice("show", &TRENDS_SHOWN)?.unwrap_or("line"),
                formulas: list(parameters, "formula")?,
                smoothing: parameters.number("smoothing")?,
            },
            Kind::Funnel => Self::Funnel {
                breakdown: Breakdown::parse(parameters)?,
                attribution: parameters
                    .choice("attribution", &ATTRIBUTIONS)?
                    .unwrap_or("first_touch"),
                shown: parameters.choice("show", &FUNNELS_SHOWN)?.unwrap_or("steps"),
                order: parameters.choice("order", &ORDERS)?.unwrap_or("ordered"),
                window: parameters.number("window")?,
                window_unit: parameters.choice("window.unit", &WINDOW_UNITS)?.unwrap_or("day"),
                exclusions: Exclusion::parse_all(parameters)?,
            },
            Kind::Retention => Self::Retention {
                shown: parameters.choice("show", &RETENTION_SHOWN)?.unwrap_or("percent"),
                type_: parameters.choice("type", &RETENTION_TYPES)?.unwrap_or("recurring"),
                intervals: parameters.number("intervals")?,
                is_cumulative: parameters.truth("cumulative")?,
                occurrences: parameters.number("occurrences")?,
            },
            Kind::Paths => Self::Paths {
                include: words(parameters, "include", &PATH_EVENTS)?,
                start: parameters.take("start")?,
                end: parameters.take("end")?,
                steps: parameters.number("steps")?,
                edges: parameters.number("edges")?,
                least: parameters.number("least")?,
                groupings: list(parameters, "pattern")?,
                exclude: list(parameters, "exclude")?,
            },
            Kind::Lifecycle => Self::Lifecycle { only: words(parameters, "only", &STATUSES)? },
            Kind::Stickiness => Self::Stickiness {
                compare: parameters.take("compare")?,
                interval_count: parameters.number("interval.count")?,
                is_cumulative: parameters.truth("cumulative")?,
                criteria: criteria(parameters)?,
            },
        })
    }

    fn print(&self, printer: &mut Printer) {
        let unless = |word: &&'static str, usual: &str| Some(*word).filter(|own| *own != usual);
        match self {
            Self::Trends { breakdown, compare, shown, formulas, smoothing } => {
                breakdown.print(printer);
                printer.add("compare", compare.as_ref());
                printer.add("show", unless(shown, "line"));
                printer.add_all("formula", formulas);
                printer.add("smoothing", *smoothing);
            }
            Self::Funnel {
                breakdown,
                attribution,
                shown,
                order,
                window,
                window_unit,
                exclusions,
            } => {
                breakdown.print(printer);
                printer.add("attribution", unless(attribution, "first_touch"));
                printer.add("show", unless(shown, "steps"));
                printer.add("order", unless(order, "ordered"));
                printer.add("window", *window);
                printer.add("window.unit", unless(window_unit, "day"));
                for (exclusion, number) in exclusions.iter().zip(1..) {
                    exclusion.print(printer, number);
                }
            }
            Self::Retention { shown, type_, intervals, is_cumulative, occurrences } => {
                printer.add("show", unless(shown, "percent"));
                printer.add("type", unless(type_, "recurring"));
                printer.add("intervals", *intervals);
                printer.truth("cumulative", *is_cumulative);
                printer.add("occurrences", *occurrences);
            }
            Self::Paths { include, start, end, steps, edges, least, groupings, exclude } => {
                printer.add_all("include", include);
                printer.add("start", start.as_ref());
                printer.add("end", end.as_ref());
                printer.add("steps", *steps);
                printer.add("edges", *edges);
                printer.add("least", *least);
                printer.add_all("pattern", groupings);
                printer.add_all("exclude", exclude);
            }
            Self::Lifecycle { only } => printer.add_all("only", only),
            Self::Stickiness { compare, interval_count, is_cumulative, criteria } => {
                printer.add("compare", compare.as_ref());
                printer.add("interval.count", *interval_count);
                printer.truth("cumulative", *is_cumulative);
                printer.add("criteria", criteria.map(|(operator, _)| operator));
                printer.add("criteria.value", criteria.map(|(_, value)| value));
            }
        }
    }
}

fn list(parameters: &mut Parameters, name: &str) -> Result<Vec<String>, Wrong> {
    let list = parameters.take_all(name);
    if list.len() > LIST_MAX {
        return Err(Wrong::new(name, format!("Expected at most {LIST_MAX} of these.")));
    }
    Ok(list)
}

/// The selected words of a parameter, in the order of `all`.
fn words(
    parameters: &mut Parameters,
    name: &str,
    all: &[&'static str],
) -> Result<Vec<&'static str>, Wrong> {
    let given = parameters.take_all(name);
    if given.iter().any(|word| !all.contains(&word.as_str())) {
        return Err(Wrong::new(name, format!("Expected some of {}.", all.join(", "))));
    }
    Ok(all.iter().copied().filter(|word| given.iter().any(|own| own == word)).collect())
}

fn criteria(parameters: &mut Parameters) -> Result<Option<(&'static str, u32)>, Wrong> {
    let operator = parameters.choice("criteria", &CRITERIA)?.unwrap_or("gte");
    Ok(parameters.number("criteria.value")?.map(|value| (operator, value)))
}
