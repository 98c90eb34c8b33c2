//! The rows of a query as a chart: numeric columns are series, another column gives the labels of the horizontal axis,
//! and further ones split the series.

use maud::{Markup, html};
use serde_json::Value;

use crate::chart::bars::bars;
use crate::chart::line::lines;
use crate::chart::series::{Frame, Point, Series};
use crate::parts::{clipped, plain};
use crate::state::saved_sql::Chart;
use weir_api::query::Rows;

/// Most rows, places and series of a chart.
const ROWS_MAX: usize = 5000;
const PLACES_MAX: usize = 1000;
const SERIES_MAX: usize = 20;

/// Longest names of places and series, in characters.
const NAME_MAX_CHARS: usize = 60;

/// The chart of a result. `None` without a numeric column, or without another column for the labels.
pub fn chart(answer: &Rows, kind: &Chart) -> Option<Markup> {
    let (labels, series, is_cut) = drawn(answer)?;
    let frame = Frame::new("Rows of the query", labels);
    Some(html! {
        @if kind.name == "bars" { (bars(&series, &frame, false)) } @else { (lines(&series, &frame, false)) }
        @if is_cut { p class="quiet" { "Not all of the rows fit into the chart; the table has them." } }
    })
}

/// The labels, the series, and whether some of them are left out.
fn drawn(answer: &Rows) -> Option<(Vec<String>, Vec<Series>, bool)> {
    let Rows { columns: names, results: all, .. } = answer;
    let rows = all.get(..ROWS_MAX).unwrap_or(all);
    let cell =
        |row: usize, column: usize| rows.get(row).and_then(|row: &Vec<Value>| row.get(column));
    let are = |column: usize, is: &dyn Fn(&Value) -> bool| {
        let mut values = (0..rows.len()).filter_map(|row| cell(row, column));
        let mut some = values.by_ref().filter(|value| !value.is_null());
        some.next().is_some_and(is) && some.all(is)
    };
    let (mut numbers, others): (Vec<usize>, Vec<usize>) =
        (0..names.len()).partition(|column| are(*column, &Value::is_number));
    let time = others.iter().copied().find(|column| are(*column, &is_time));
    let place = match time.or_else(|| others.first().copied()) {
        Some(place) => place,
        // All columns are numeric: the first gives the labels.
        None if numbers.len() > 1 => numbers.remove(0),
        None => return None,
    };
    if numbers.is_empty() {
        return None;
    }
    let text = |row: usize, column: usize| cell(row, column).map(plain).unwrap_or_default();
    let mut places: Vec<String> = Vec::new();
    for row in 0..rows.len() {
        let own = text(row, place);
        if !places.contains(&own) && places.len() < PLACES_MAX {
            places.push(own);
        }
    }
    if time == Some(place) {
        // Texts of times sort chronologically.
        places.sort_unstable();
    }
    let mut series: Vec<Series> = Vec::new();
    let mut is_cut = rows.len() < all.len();
    for row in 0..rows.len() {
        let own = text(row, place);
        let Some(at) = places.iter().position(|place| *place == own) else {
            is_cut = true;
            continue;
        };
        let split = others.iter().filter(|column| **column != place).map(|at| text(row, *at));
        let split: Vec<String> = split.collect();
        for column in &numbers {
            let number = names.get(*column).filter(|_| numbers.len() > 1 || split.is_empty());
            let name = split.iter().chain(number).cloned().collect::<Vec<_>>().join(" · ");
            let name = clipped(&name, NAME_MAX_CHARS);
            let value = cell(row, *column).and_then(Value::as_f64);
            is_cut |= !put(&mut series, name, (at, places.len()), value);
        }
    }
    let labels = places.iter().map(|place| label(place, time.is_some())).collect();
    Some((labels, series, is_cut))
}

/// Sets a value of the series with this name; `false` if there are too many series. The last of several values at one
/// place wins.
fn put(
    series: &mut Vec<Series>,
    name: String,
    (at, places): (usize, usize),
    value: Option<f64>,
) -> bool {
    let own = match series.iter().position(|own| own.name == name) {
        Some(own) => own,
        None if series.len() >= SERIES_MAX => return false,
        None => {
            let colour = series.len();
            let points = vec![Point::default(); places];
            series.push(Series { name, colour, points, ..Series::default() });
            colour
        }
    };
    if let Some(point) = series.get_mut(own).and_then(|own| own.points.get_mut(at)) {
        point.value = value;
    }
    true
}

fn is_time(value: &Value) -> bool {
    let Some(text) = value.as_str() else { return false };
    let day = text.get(..10).unwrap_or_default();
    chrono::NaiveDate::parse_from_str(day, "%Y-%m-%d").is_ok()
}

/// Short label of a place: for times the date, and the time unless it is midnight.
fn label(place: &str, is_time: bool) -> String {
    if !is_time {
        return clipped(place, NAME_MAX_CHARS);
    }
    let (day, rest) = place.split_at(place.len().min(10));
    let clock = rest.get(1..6).unwrap_or_default();
    if clock.is_empty() || clock == "00:00" { day.to_owned() } else { format!("{day} {clock}") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{chart, drawn};
    use crate::state::saved_sql::CHARTS;
    use weir_api::query::Rows;

    /// The name and the points of a series.
    type Drawn = (String, Vec<Option<f64>>);

    fn rows(columns: Value, results: Value) -> Rows {
        Rows::of(columns, Value::Null, results)
    }

    fn of(columns: Value, results: Value) -> Option<(Vec<String>, Vec<Drawn>)> {
        let (labels, series, _) = drawn(&rows(columns, results))?;
        let values = series.into_iter().map(|own| {
            let points = own.points.iter().map(|point| point.value).collect();
            (own.name, points)
        });
        Some((labels, values.collect()))
    }

    #[test]
    fn times_are_places_in_their_order_and_texts_split() {
        let rows = json!([
            ["A", "2026-11-02T00:00:00", "pro", 5],
            ["A", "2026-11-01T00:00:00", "pro", 3],
            ["B", "2026-11-02T06:30:00", null, 1.5],
        ]);
        let (labels, series) = of(json!(["series", "bucket", "split", "value"]), rows).unwrap();
        assert_eq!(labels, ["2026-11-01", "2026-11-02", "2026-11-02 06:30"]);
        let expected = [
            ("A · pro".to_owned(), vec![Some(3.0), Some(5.0), None]),
            ("B · ".to_owned(), vec![None, None, Some(1.5)]),
        ];
        assert_eq!(series, expected);
    }

    #[test]
    fn each_column_of_numbers_is_a_series() {
        let rows = json!([["x", 1, 2], ["y", null, 4]]);
        let (labels, series) = of(json!(["event", "events", "persons"]), rows).unwrap();
        assert_eq!(labels, ["x", "y"]);
        assert_eq!(series[0], ("events".to_owned(), vec![Some(1.0), None]));
        assert_eq!(series[1], ("persons".to_owned(), vec![Some(2.0), Some(4.0)]));
        let (labels, series) = of(json!(["n", "count"]), json!([[1, 10], [2, 20]])).unwrap();
        assert_eq!((labels.len(), series.len()), (2, 1));
    }

    #[test]
    fn rows_without_numbers_have_no_chart_and_none_breaks_it() {
        for (columns, results) in [
            (json!([]), json!([])),
            (json!(["a"]), json!([[1]])),
            (json!(["a", "b"]), json!([["x", "y"]])),
            (json!(["a", "b"]), json!([["x", null]])),
        ] {
            assert_eq!(of(columns, results), None);
        }
        let many: Vec<Value> =
            (0..3000).map(|at| json!([format!("<b>{at}"), at % 40, at])).collect();
        let answer = rows(json!(["a", "b", "c"]), json!(many));
        for kind in &CHARTS {
            let shown = chart(&answer, kind).unwrap().0;
            assert!(!shown.contains("<b>") && !shown.contains("NaN"), "{kind:?}");
        }
    }
}
