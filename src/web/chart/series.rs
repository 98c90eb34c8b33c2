//! Input of charts: [`Series`] of [`Point`]s, and the [`Frame`] around them.

use std::borrow::Cow;

/// Larger values are not drawn: sums of them would exceed the range of `f64`.
const NUMBER_MAX: f64 = 1e300;

/// Number of colour classes; more series begin again with the first.
const COLOURS: usize = 10;

/// One value of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// The value; `None` where there is none. One that is not finite, or beyond 10^300, counts as none.
    pub value: Option<f64>,
    /// URL of the details behind it: a path of this server.
    pub link: Option<String>,
}

impl Point {
    /// A number without a link.
    pub fn of(value: f64) -> Self {
        Self { value: Some(value), link: None }
    }

    /// The value, if it can be drawn on an axis.
    pub fn finite(&self) -> Option<f64> {
        self.value.filter(|value| value.abs() <= NUMBER_MAX)
    }
}

/// A named sequence of values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Index of its colour.
    pub colour: usize,
    /// Whether it is the comparison period's series.
    pub is_previous: bool,
    /// One for each place of the axis.
    pub points: Vec<Point>,
}

impl Series {
    /// The classes of its marks.
    pub fn class(&self) -> String {
        let previous = if self.is_previous { " previous" } else { "" };
        format!("s{}{previous}", self.colour % COLOURS)
    }

    /// Display name in legends and tables, the period included.
    pub fn title(&self) -> Cow<'_, str> {
        match self.is_previous {
            true => Cow::Owned(format!("{} (previous)", self.name)),
            false => Cow::Borrowed(&self.name),
        }
    }

    /// The number at a place, if there is one.
    pub fn at(&self, place: usize) -> Option<f64> {
        self.points.get(place).and_then(Point::finite)
    }
}

/// Title, axis labels and size of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Description of the chart, for those who cannot see it.
    pub title: String,
    /// The places of the horizontal axis, such as days.
    pub labels: Vec<String>,
    /// Height of the plot in pixels, without the labels below it.
    pub height_px: u16,
    /// Unit of the values.
    pub unit: Unit,
    /// Whether the last place is a time that is not over yet: its numbers still grow.
    pub is_unfinished: bool,
}

impl Frame {
    /// A frame of the usual height.
    pub fn new(title: impl Into<String>, labels: Vec<String>) -> Self {
        Self {
            title: title.into(),
            labels,
            height_px: 260,
            unit: Unit::Count,
            is_unfinished: false,
        }
    }

    /// Whether a place is a time that is not over yet.
    pub fn is_open(&self, place: usize) -> bool {
        self.is_unfinished && place + 1 == self.labels.len()
    }

    /// The label of a place.
    pub fn label(&self, place: usize) -> &str {
        self.labels.get(place).map_or("", String::as_str)
    }
}

/// Unit of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// A count.
    #[default]
    Count,
    /// Percent.
    Percent,
    /// A duration.
    Seconds,
}
