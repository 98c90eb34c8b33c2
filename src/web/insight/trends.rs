//! Results that are series of values: trends, lifecycles and stickiness, and trends of funnels.

use chrono::{Days, Months, NaiveDate, NaiveDateTime, TimeDelta};
use maud::{Markup, html};

use crate::chart::bars::{Lying, bars, lying};
use crate::chart::figure::{Figure, large};
use crate::chart::line::lines;
use crate::chart::pie::pie;
use crate::chart::series::{Frame, Point, Series, Unit};
use crate::chart::table::{Cell, Table};
use crate::chart::{figure, table};
use crate::insight::answer::{Shown, value_name, values};
use crate::insight::links::Links;
use crate::state::insight::Options;
use crate::state::point;
use weir_api::insights::series::{Period, Series as Answered, Status};
use weir_api::insights::value::Number;

/// Most series in a chart; the table has more.
const SERIES_MAX: usize = 30;

/// Most large numbers beside each other.
const FIGURES_MAX: usize = 12;

/// The chart and the table of a result.
pub(super) fn shown(answers: &[Answered], links: &Links<'_>) -> Shown {
    let form = match &links.question.options {
        Options::Trends { shown, .. } => *shown,
        Options::Lifecycle { .. } => "stacked",
        Options::Stickiness { .. } => "bars",
        _ => "line",
    };
    match form {
        "number" | "totals" | "pie" | "countries" | "table" => totals(answers, links, form),
        _ => {
            let series = all_series(answers, links);
            let days = answers.first().map(days).unwrap_or_default();
            let frame = frame(answers, links, &days);
            let drawn = series.get(..SERIES_MAX).unwrap_or(&series);
            let chart = match form {
                "area" => lines(drawn, &frame, true),
                "bars" => bars(drawn, &frame, false),
                "stacked" => bars(drawn, &frame, true),
                _ => lines(drawn, &frame, false),
            };
            let first = if matches!(links.question.options, Options::Stickiness { .. }) {
                "Active in"
            } else {
                "Beginning"
            };
            let table = table::of_series(&series, &frame, first);
            let chart = html! { (chart) (left_out(series.len())) };
            let mut numbers =
                series.iter().flat_map(|own| own.points.iter()).filter_map(Point::finite);
            let is_empty = numbers.all(|number| number == 0.0);
            Shown { chart, table, is_table: false, is_empty }
        }
    }
}

fn left_out(series: usize) -> Markup {
    let more = series.saturating_sub(SERIES_MAX);
    html! { @if more > 0 { p class="quiet" { (more) " more series are in the table only." } } }
}

/// The interval starts of a result, as texts.
fn days(answer: &Answered) -> Vec<String> {
    answer.days.iter().map(ToString::to_string).collect()
}

fn frame(answers: &[Answered], links: &Links<'_>, days: &[String]) -> Frame {
    let labels = match &links.question.options {
        Options::Stickiness { .. } => {
            answers.first().map(|answer| answer.labels.clone()).unwrap_or_default()
        }
        _ => days.iter().map(|day| label(day, links.question.interval)).collect(),
    };
    let mut frame = Frame::new(links.question.kind().title(), labels);
    let is_by_time = !matches!(&links.question.options, Options::Stickiness { .. });
    frame.is_unfinished = is_by_time
        && days.last().is_some_and(|day| is_unfinished(day, links.question.interval, &links.at));
    if matches!(links.question.options, Options::Funnel { .. }) {
        frame.unit = Unit::Percent;
    }
    frame
}

/// Whether the interval that begins at `day` was not over at a time.
fn is_unfinished(day: &str, interval: Option<&str>, at: &str) -> bool {
    const TIME: &str = "%Y-%m-%d %H:%M:%S";
    let time = |text: &str| {
        let date = || NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0);
        NaiveDateTime::parse_from_str(text, TIME).ok().or_else(date)
    };
    let end = |begin: NaiveDateTime| match interval.unwrap_or("day") {
        "minute" => begin.checked_add_signed(TimeDelta::minutes(1)),
        "hour" => begin.checked_add_signed(TimeDelta::hours(1)),
        "week" => begin.checked_add_days(Days::new(7)),
        "month" => begin.checked_add_months(Months::new(1)),
        _ => begin.checked_add_days(Days::new(1)),
    };
    match (time(day), time(at)) {
        (Some(begin), Some(at)) => begin <= at && end(begin).is_some_and(|end| at < end),
        _ => false,
    }
}

/// Short label of an interval.
fn label(day: &str, interval: Option<&str>) -> String {
    let date = NaiveDate::parse_from_str(day, "%Y-%m-%d");
    let time = || NaiveDateTime::parse_from_str(day, "%Y-%m-%d %H:%M:%S");
    match (interval, date) {
        (Some("month"), Ok(date)) => date.format("%b %Y").to_string(),
        (_, Ok(date)) => date.format("%-d %b").to_string(),
        (_, Err(_)) => match time() {
            Ok(time) => time.format("%-d %b %H:%M").to_string(),
            Err(_) => day.to_owned(),
        },
    }
}

/// Name, colour and mark of a series of a result.
struct Of {
    name: String,
    colour: usize,
    point: point::Point,
    has_persons: bool,
}

fn of(answer: &Answered, links: &Links<'_>) -> Of {
    let order = order(answer).unwrap_or(0);
    let value = values(answer.breakdown_value.as_ref());
    let status = answer.status.map(Status::name);
    let question = links.question;
    let has_formula =
        matches!(&question.options, Options::Trends { formulas, .. } if !formulas.is_empty());
    let name = match (&question.options, status) {
        (_, Some(status)) => status.to_owned(),
        (Options::Funnel { .. }, _) if value.is_empty() => "Conversion".to_owned(),
        (Options::Funnel { .. }, _) => named(&value),
        // The label in the result has ids and placeholders instead of display names.
        (Options::Trends { .. }, _) if !has_formula && !value.is_empty() => {
            match question.series.get(order).filter(|_| question.series.len() > 1) {
                Some(series) => format!("{} · {}", series.title(), named(&value)),
                None => named(&value),
            }
        }
        _ => answer.label.clone(),
    };
    let colour = Status::ALL.iter().position(|own| Some(*own) == answer.status);
    let point = point::Point {
        series: u16::try_from(order).ok().filter(|order| *order > 0),
        value,
        is_previous: is_previous(answer),
        status: status.map(str::to_owned),
        ..point::Point::default()
    };
    Of { name, colour: colour.unwrap_or(0), point, has_persons: !has_formula }
}

/// The index of the series that a result belongs to: its own, or that of its event.
fn order(answer: &Answered) -> Option<usize> {
    answer.order.or_else(|| answer.action.as_ref().map(|action| action.order))
}

/// Whether it belongs to the comparison period.
fn is_previous(answer: &Answered) -> bool {
    answer.compare_label == Some(Period::Previous)
}

fn named(value: &[String]) -> String {
    value.iter().map(|own| value_name(own)).collect::<Vec<_>>().join(" · ")
}

/// Gives each series a colour, and the same one to its counterpart of the other period.
fn coloured(answers: &[Answered], answer: &Answered, of: &mut Of) {
    let is_like = |other: &&Answered| {
        order(other) == order(answer)
            && other.breakdown_value == answer.breakdown_value
            && other.label == answer.label
    };
    if of.point.status.is_none() {
        let at = answers.iter().position(|other| is_like(&other));
        of.colour = at.unwrap_or(0);
    }
}

fn series(answer: &Answered, links: &Links<'_>) -> Series {
    let own = of(answer, links);
    let point = |(number, place): (&Number, usize)| {
        let day = answer.days.get(place).map(ToString::to_string);
        let point = point::Point { day, ..own.point.clone() };
        // There are no persons behind a zero.
        let is_linked = own.has_persons && number.0 != 0.0;
        let link = if is_linked { links.persons(&point) } else { None };
        Point { value: number.finite(), link }
    };
    Series {
        points: answer.data.iter().zip(0..).map(point).collect(),
        name: own.name,
        colour: own.colour,
        is_previous: own.point.is_previous,
    }
}

/// The series of a result, with a colour for each.
fn all_series(answers: &[Answered], links: &Links<'_>) -> Vec<Series> {
    let coloured = |answer: &Answered| {
        let mut own = of(answer, links);
        coloured(answers, answer, &mut own);
        Series { colour: own.colour, ..series(answer, links) }
    };
    answers.iter().map(coloured).collect()
}

/// One total over the whole range for each series.
fn totals(answers: &[Answered], links: &Links<'_>, form: &str) -> Shown {
    let number = |answer: &Answered| answer.aggregated_value.and_then(Number::finite);
    let before = |answer: &Answered| {
        let is_it = |other: &&Answered| {
            is_previous(other)
                && order(other) == order(answer)
                && other.breakdown_value == answer.breakdown_value
        };
        answers.iter().find(is_it).and_then(number)
    };
    let is_current = |answer: &&Answered| !is_previous(answer);
    let figure = |answer: &Answered| {
        let own = of(answer, links);
        let link = if own.has_persons { links.persons(&own.point) } else { None };
        let value = number(answer).unwrap_or(0.0);
        Figure { name: own.name, value, before: before(answer), unit: Unit::Count, link }
    };
    let figures: Vec<Figure> = answers.iter().filter(is_current).map(figure).collect();
    let title = links.question.kind().title();
    let table = of_figures(&figures, title);
    let chart = match form {
        "number" => html! {
            div class="figures" { @for figure in figures.iter().take(FIGURES_MAX) { (large(figure)) } }
        },
        "totals" | "pie" | "countries" => {
            let bar = |(own, colour): (&Figure, usize)| Lying {
                name: own.name.clone(),
                value: own.value,
                before: own.before,
                colour,
                link: own.link.clone(),
            };
            let bars: Vec<Lying> = figures.iter().zip(0..).map(bar).collect();
            if form == "pie" {
                pie(&bars, title, Unit::Count)
            } else {
                lying(&bars, title, Unit::Count)
            }
        }
        _ => table::table(&table),
    };
    let is_empty =
        figures.iter().all(|own| own.value == 0.0 && own.before.is_none_or(|own| own == 0.0));
    Shown { chart, table, is_table: !matches!(form, "number" | "pie"), is_empty }
}

fn of_figures(figures: &[Figure], title: &str) -> Table {
    let has_before = figures.iter().any(|own| own.before.is_some());
    let head = ["Series", "Total", "Before", "Change"].iter().map(|name| (*name).to_owned());
    let row = |own: &Figure| {
        let mut row =
            vec![Cell::text(own.name.clone()), Cell::number(own.value, own.unit, own.link.clone())];
        if has_before {
            let change = own.before.and_then(|before| figure::change(own.value, before));
            row.push(Cell::number_if(own.before, own.unit, None));
            row.push(Cell::number_if(change, Unit::Percent, None));
        }
        row
    };
    Table {
        caption: title.to_owned(),
        head: head.take(if has_before { 4 } else { 2 }).collect(),
        rows: figures.iter().map(row).collect(),
    }
}
