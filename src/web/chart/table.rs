//! The numbers of a chart as a table: [`table`] is general, [`of_series`] builds it from the series of a chart.

use maud::{Markup, html};

use crate::chart::figure;
use crate::chart::series::{Frame, Series, Unit};

/// Most rows of a table; downloads have all.
pub const ROWS_MAX: usize = 400;

/// Most columns beside the first.
pub const COLUMNS_MAX: usize = 60;

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Its title.
    pub caption: String,
    /// The names of its columns; the first is that of the rows' names.
    pub head: Vec<String>,
    /// Its rows, of as many cells.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// The displayed text.
    pub text: String,
    /// URL of the details behind it.
    pub link: Option<String>,
    /// Whether it is a number, which is right-aligned.
    pub is_number: bool,
    /// The value in a file, instead of the text.
    pub raw: Option<String>,
}

impl Cell {
    /// A cell with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A cell with a number.
    pub fn number(value: f64, unit: Unit, link: Option<String>) -> Self {
        let raw = value.is_finite().then(|| value.to_string());
        Self { text: figure::text(value, unit), link, is_number: true, raw }
    }

    /// A numeric cell without a value.
    pub fn nothing() -> Self {
        Self { is_number: true, raw: Some(String::new()), ..Self::default() }
    }

    /// A cell with a number if there is one.
    pub fn number_if(value: Option<f64>, unit: Unit, link: Option<String>) -> Self {
        value.map_or_else(Self::nothing, |value| Self::number(value, unit, link))
    }
}

/// A table in a region that can be scrolled, by keyboard too.
pub fn table(table: &Table) -> Markup {
    let more_rows = table.rows.len().saturating_sub(ROWS_MAX);
    let more_columns = table.head.len().saturating_sub(COLUMNS_MAX + 1);
    html! {
        div class="scroll" role="region" aria-label=(table.caption) tabindex="0" {
            table class="data" {
                thead {
                    tr {
                        @for (name, at) in table.head.iter().take(COLUMNS_MAX + 1).zip(0_usize..) {
                            th scope="col" class=[is_of_numbers(table, at).then_some("number")] { bdi { (name) } }
                        }
                    }
                }
                tbody {
                    @for row in table.rows.iter().take(ROWS_MAX) {
                        tr { @for (cell, at) in row.iter().take(COLUMNS_MAX + 1).zip(0_usize..) { (shown(cell, at)) } }
                    }
                }
            }
        }
        @if more_rows > 0 || more_columns > 0 {
            p class="quiet" {
                "Not shown: "
                @if more_rows > 0 { (figure::text(more_rows as f64, Unit::Count)) " rows" }
                @if more_rows > 0 && more_columns > 0 { " and " }
                @if more_columns > 0 { (more_columns) " columns" }
                ". The CSV file has all."
            }
        }
    }
}

/// Whether a column is numeric, so that its heading is aligned with the numbers.
fn is_of_numbers(table: &Table, at: usize) -> bool {
    table.rows.first().and_then(|row| row.get(at)).is_some_and(|cell| cell.is_number)
}

fn shown(cell: &Cell, at: usize) -> Markup {
    let inner = html! {
        @match &cell.link {
            Some(link) => { a href=(link) { bdi { (cell.text) } } },
            None => { bdi { (cell.text) } },
        }
    };
    html! {
        @if at == 0 { th scope="row" { (inner) } }
        @else { td class=[cell.is_number.then_some("number")] { (inner) } }
    }
}

/// A table that is collapsed until a click opens it.
pub fn details(own: &Table) -> Markup {
    html! {
        details class="numbers" {
            summary { "Numbers as a table" }
            (table(own))
        }
    }
}

/// The values of series: a row for each place, so that few series of many days are narrow.
pub fn of_series(series: &[Series], frame: &Frame, first: &str) -> Table {
    let row = |place: usize| {
        let number = |own: &Series| {
            let link = own.points.get(place).and_then(|point| point.link.clone());
            Cell::number_if(own.at(place), frame.unit, link)
        };
        std::iter::once(Cell::text(frame.label(place))).chain(series.iter().map(number)).collect()
    };
    Table {
        caption: frame.title.clone(),
        head: std::iter::once(first.to_owned())
            .chain(series.iter().map(|own| own.title().into_owned()))
            .collect(),
        rows: (0..frame.labels.len()).map(row).collect(),
    }
}
