//! Funnels: steps, conversion by interval, and how long it took.

use maud::html;
use serde_json::Value;

use crate::chart::bars::bars;
use crate::chart::funnel::{Part, Step, before, funnel, share};
use crate::chart::series::{Frame, Series, Unit};
use crate::chart::table::{Cell, Table};
use crate::chart::{figure, series, table};
use crate::insight::answer::{Shown, value_name, values};
use crate::insight::links::Links;
use crate::insight::trends;
use crate::state::insight::Options;
use crate::state::point::Point;

/// The chart and the table of an answer.
pub(super) fn shown(results: &Value, links: &Links<'_>) -> Shown {
    match &links.question.options {
        Options::Funnel { shown: "trends", .. } => trends::shown(results, links),
        Options::Funnel { shown: "time_to_convert", .. } => times(results),
        _ => steps(results, links),
    }
}

/// The steps of each value of the breakdown; of one that has no name without a breakdown.
fn parts(results: &Value) -> Vec<&[Value]> {
    let list = results.as_array().map(Vec::as_slice).unwrap_or_default();
    match list.first() {
        Some(Value::Array(_)) => {
            list.iter().filter_map(|own| own.as_array().map(Vec::as_slice)).collect()
        }
        Some(_) => vec![list],
        None => Vec::new(),
    }
}

fn steps(results: &Value, links: &Links<'_>) -> Shown {
    let parts = parts(results);
    let count = parts.iter().map(|own| own.len()).max().unwrap_or(0);
    let name = |step: &Value| {
        let text =
            |name: &str| step.get(name).and_then(Value::as_str).filter(|own| !own.is_empty());
        text("custom_name").or_else(|| text("name")).unwrap_or("").to_owned()
    };
    let step = |at: usize| {
        let own = parts.iter().filter_map(|part| part.get(at));
        let name = own.clone().next().map(name).unwrap_or_default();
        let is_optional = links.question.series.get(at).is_some_and(|own| own.is_optional);
        Step {
            name: if is_optional { format!("{name} (optional)") } else { name },
            is_optional,
            parts: own.map(|step| part(step, at, links)).collect(),
        }
    };
    let steps: Vec<Step> = (0..count).map(step).collect();
    let table = table(&steps);
    let is_empty = steps.iter().flat_map(|step| &step.parts).all(|part| part.count == 0);
    Shown { chart: funnel(&steps, "Funnel"), table, is_table: false, is_empty }
}

fn part(step: &Value, at: usize, links: &Links<'_>) -> Part {
    let value = values(step.get("breakdown_value"));
    let name = match step.get("breakdown") {
        Some(Value::String(name)) if !name.is_empty() => value_name(name).to_owned(),
        // Funnels have one text for an empty value and for none.
        _ if !value.is_empty() && value.iter().all(String::is_empty) => "(none)".to_owned(),
        _ => value.iter().map(|own| value_name(own)).collect::<Vec<_>>().join(" · "),
    };
    let place = i16::try_from(at + 1).unwrap_or(i16::MAX);
    let persons = |step: i16| {
        links.persons(&Point { step: Some(step), value: value.clone(), ..Point::default() })
    };
    let count = step.get("count").and_then(Value::as_u64).unwrap_or(0);
    Part {
        name,
        count,
        median_seconds: step.get("median_conversion_time").and_then(Value::as_f64),
        link: if count > 0 { persons(place) } else { None },
        left_link: if at > 0 { persons(-place) } else { None },
    }
}

fn table(steps: &[Step]) -> Table {
    let has_parts = steps.iter().any(|step| step.parts.len() > 1);
    let head = ["Step", "Event", "Value", "Came", "Of all", "Of the step before", "Median time"];
    let head = head.iter().filter(|name| has_parts || **name != "Value");
    let mut rows = Vec::new();
    for (step, number) in steps.iter().zip(0_usize..) {
        for (part, at) in step.parts.iter().zip(0_usize..) {
            let count = |step: Option<&Step>| {
                step.and_then(|step| step.parts.get(at)).map_or(0, |part| part.count)
            };
            let before = before(steps, number).map_or(part.count, |own| count(Some(own)));
            let percent = |of: u64| Cell::number(share(part.count, of), Unit::Percent, None);
            let mut row = vec![Cell::text((number + 1).to_string()), Cell::text(step.name.clone())];
            if has_parts {
                row.push(Cell::text(part.name.clone()));
            }
            row.push(Cell::number(part.count as f64, Unit::Count, part.link.clone()));
            row.push(percent(count(steps.first())));
            row.push(percent(before));
            row.push(Cell::number_if(part.median_seconds, Unit::Seconds, None));
            rows.push(row);
        }
    }
    Table {
        caption: "Funnel".to_owned(),
        head: head.map(|name| (*name).to_owned()).collect(),
        rows,
    }
}

/// How long it took, as a histogram.
fn times(results: &Value) -> Shown {
    let bins = results.get("bins").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let bin = |bin: &Value| Some((bin.get(0)?.as_f64()?, bin.get(1)?.as_f64()?));
    let bins: Vec<(f64, f64)> = bins.iter().filter_map(bin).collect();
    let labels = bins.iter().map(|(from, _)| figure::duration(*from)).collect();
    let frame = Frame::new("Time to convert", labels);
    let points = bins.iter().map(|(_, count)| series::Point::of(*count)).collect();
    let persons = Series { name: "Persons".to_owned(), points, ..Series::default() };
    let average = results.get("average_conversion_time").and_then(Value::as_f64);
    let series = [persons];
    let chart = html! {
        @if let Some(average) = average { p class="quiet" { "On average after " (figure::duration(average)) "." } }
        (bars(&series, &frame, true))
    };
    let table = table::of_series(&series, &frame, "From");
    Shown { chart, table, is_table: false, is_empty: bins.is_empty() }
}
