//! Result of retention as a heat map.

use maud::html;

use crate::chart::heat::{Row, heat, mean};
use crate::chart::line::lines;
use crate::chart::series;
use crate::chart::series::{Frame, Series, Unit};
use crate::chart::table::{Cell, Table};
use crate::insight::answer::Shown;
use crate::insight::links::Links;
use crate::state::insight::Options;
use crate::state::point::Point;
use weir_api::insights::retention;

/// Characters of a date, and of a date with hours and minutes.
const DATE_CHARS: usize = 10;
const TIME_CHARS: usize = 16;

/// The chart and the table of a result.
pub(super) fn shown(answers: &[retention::Row], links: &Links<'_>) -> Shown {
    let chars = if links.question.interval == Some("hour") { TIME_CHARS } else { DATE_CHARS };
    let row = |(answer, at): (&retention::Row, usize)| {
        // Intervals after the last row have not begun, or are beyond the requested range.
        let count = |(value, cell): (&retention::Cell, usize)| {
            (at + cell < answers.len()).then_some(value.count)
        };
        let counts: Vec<Option<u64>> = answer.values.iter().zip(0..).map(count).collect();
        let date = answer.date.as_deref().unwrap_or_default();
        let point = Point { row: u16::try_from(at).ok(), ..Point::default() };
        let link = |(count, cell): (&Option<u64>, u16)| {
            let cell = Point { cell: Some(cell), ..point.clone() };
            count.filter(|count| *count > 0).and_then(|_| links.persons(&cell))
        };
        let cells = counts.iter().zip(0..).map(link).collect();
        let is_somebody = counts.first().copied().flatten().is_some_and(|count| count > 0);
        Row {
            name: date.chars().take(chars).collect::<String>().replace('T', " "),
            counts,
            link: if is_somebody { links.persons(&point) } else { None },
            links: cells,
        }
    };
    let rows: Vec<Row> = answers.iter().zip(0..).map(row).collect();
    let first = answers.first().into_iter().flat_map(|answer| &answer.values);
    let intervals: Vec<String> = first.map(|value| value.label.clone()).collect();
    let is_percent = !matches!(links.question.options, Options::Retention { shown: "count", .. });
    let table = table(&rows, &intervals);
    let chart = html! {
        (curve(&rows, &intervals))
        (heat(&rows, &intervals, "Retention", is_percent))
    };
    let is_empty = (0..intervals.len()).all(|cell| mean(&rows, cell).is_none());
    Shown { chart, table, is_table: true, is_empty }
}

/// The returned share over all rows, by interval.
fn curve(rows: &[Row], intervals: &[String]) -> maud::Markup {
    let point = |cell: usize| series::Point { value: mean(rows, cell), link: None };
    let points = (0..intervals.len()).map(point).collect();
    let series = Series { name: "Came back".to_owned(), points, ..Series::default() };
    let mut frame = Frame::new("Part that came back", intervals.to_vec());
    frame.unit = Unit::Percent;
    frame.height_px = 160;
    lines(&[series], &frame, true)
}

fn table(rows: &[Row], intervals: &[String]) -> Table {
    let head = ["Began".to_owned()].into_iter().chain(intervals.iter().cloned()).collect();
    let cells = |row: &Row| {
        let count =
            |own: &Option<u64>| Cell::number_if(own.map(|count| count as f64), Unit::Count, None);
        std::iter::once(Cell::text(row.name.clone())).chain(row.counts.iter().map(count)).collect()
    };
    Table { caption: "Retention".to_owned(), head, rows: rows.iter().map(cells).collect() }
}
