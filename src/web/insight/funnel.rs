//! Results of funnels: steps, conversion by interval, and time to convert.

use maud::html;

use crate::chart::bars::bars;
use crate::chart::funnel::{Part, Step, before, funnel, share};
use crate::chart::series::{Frame, Series, Unit};
use crate::chart::table::{Cell, Table};
use crate::chart::{figure, series, table};
use crate::insight::answer::{Shown, value_name, values};
use crate::insight::links::Links;
use crate::insight::trends;
use crate::state::point::Point;
use weir_api::insights::funnel;
use weir_api::insights::funnel::{Conversion, Funnel, Steps, Times};
use weir_api::insights::series::{Day, Series as Answered};
use weir_api::insights::value::{BreakdownValue, Number};

/// The chart and the table of a result.
pub(super) fn shown(answer: &Funnel, links: &Links<'_>) -> Shown {
    match answer {
        Funnel::Steps(Steps::All(all)) => steps(&[all], links),
        Funnel::Steps(Steps::ByValue(parts)) => {
            steps(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>(), links)
        }
        Funnel::Trends(all) => trends::shown(&all.iter().map(by_time).collect::<Vec<_>>(), links),
        Funnel::Times(own) => times(own),
    }
}

/// Conversion as a series of values.
fn by_time(own: &Conversion) -> Answered {
    Answered {
        breakdown_value: own.breakdown_value.clone(),
        data: own.data.iter().copied().map(Number).collect(),
        days: own.days.iter().cloned().map(Day::Beginning).collect(),
        ..Answered::default()
    }
}

/// The steps of each breakdown value; without a breakdown, of one that has no name.
fn steps(parts: &[&[funnel::Step]], links: &Links<'_>) -> Shown {
    let count = parts.iter().map(|own| own.len()).max().unwrap_or(0);
    let name = |step: &funnel::Step| {
        let custom = step.custom_name.as_ref().filter(|own| !own.is_empty());
        custom.unwrap_or(&step.name).clone()
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

fn part(step: &funnel::Step, at: usize, links: &Links<'_>) -> Part {
    let value = values(step.breakdown_value.as_ref());
    let name = match &step.breakdown {
        Some(BreakdownValue::One(name)) if !name.is_empty() => value_name(name).to_owned(),
        // Funnels have the same text for an empty value and for a missing one.
        _ if !value.is_empty() && value.iter().all(String::is_empty) => "(none)".to_owned(),
        _ => value.iter().map(|own| value_name(own)).collect::<Vec<_>>().join(" · "),
    };
    let place = i16::try_from(at + 1).unwrap_or(i16::MAX);
    let persons = |step: i16| {
        links.persons(&Point { step: Some(step), value: value.clone(), ..Point::default() })
    };
    Part {
        name,
        count: step.count,
        median_seconds: step.median_conversion_time,
        link: if step.count > 0 { persons(place) } else { None },
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

/// The time to convert, as a histogram.
fn times(Times { average_conversion_time, bins }: &Times) -> Shown {
    let labels = bins.iter().map(|(from, _)| figure::duration(*from)).collect();
    let frame = Frame::new("Time to convert", labels);
    let points = bins.iter().map(|(_, count)| series::Point::of(*count as f64)).collect();
    let persons = Series { name: "Persons".to_owned(), points, ..Series::default() };
    let series = [persons];
    let chart = html! {
        @if let Some(average) = average_conversion_time { p class="quiet" { "On average after " (figure::duration(*average)) "." } }
        (bars(&series, &frame, true))
    };
    let table = table::of_series(&series, &frame, "From");
    Shown { chart, table, is_table: false, is_empty: bins.is_empty() }
}
