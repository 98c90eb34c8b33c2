//! Bar charts: grouped or stacked above and below zero ([`bars`]), and horizontal, one per row ([`lying`]).

use maud::{Markup, html};

use crate::chart::figure;
use crate::chart::plot::{TOP_PX, columns, plot};
use crate::chart::scale::{Scale, digits, percent};
use crate::chart::series::{Frame, Series, Unit};

/// Part of a place's width that its bars take.
const FILLED: f64 = 0.72;

/// A bar: from one number to another.
#[derive(Clone, Copy, Debug)]
struct Bar {
    series: usize,
    from: f64,
    to: f64,
}

/// Bars for each place: stacked, the positive ones upwards and the negative ones downwards, or side by side.
pub fn bars(series: &[Series], frame: &Frame, is_stacked: bool) -> Markup {
    let places = frame.labels.len();
    let of = |place: usize| {
        let (mut above, mut below) = (0.0, 0.0);
        let values = series.iter().enumerate().filter_map(|(at, own)| Some((at, own.at(place)?)));
        let bar = |(series, value): (usize, f64)| {
            if !is_stacked {
                return Bar { series, from: 0.0, to: value };
            }
            let base = if value < 0.0 { &mut below } else { &mut above };
            let from = *base;
            *base += value;
            Bar { series, from, to: *base }
        };
        values.map(bar).collect::<Vec<_>>()
    };
    let scale = Scale::of((0..places).flat_map(of).map(|bar| bar.to), frame.height_px);
    let side_by_side = if is_stacked { 1 } else { series.len().max(1) };
    let marks = columns(frame, &scale, series, |place| {
        html! {
            @for bar in of(place) {
                @if let Some(own) = series.get(bar.series) {
                    (mark(own, bar, (place, side_by_side), (frame, &scale)))
                }
            }
        }
    });
    plot(frame, &scale, series, &marks)
}

fn mark(
    series: &Series,
    bar: Bar,
    (place, side_by_side): (usize, usize),
    (frame, scale): (&Frame, &Scale),
) -> Markup {
    let places = frame.labels.len();
    let width = FILLED / side_by_side as f64;
    let at = if side_by_side > 1 { bar.series as f64 } else { 0.0 };
    let x = place as f64 + (1.0 - FILLED) / 2.0 + at * width;
    let (one, other) = (scale.y(bar.from), scale.y(bar.to));
    let is_open = frame.is_open(place) && !series.is_previous;
    let class = if is_open { "bar unfinished " } else { "bar " };
    let rect = html! {
        rect class={ (class) (series.class()) } x=(percent(x, places as f64)) width=(percent(width, places as f64))
            y=(digits(one.min(other) + TOP_PX)) height=(digits((one - other).abs())) {}
    };
    match series.points.get(place).and_then(|point| point.link.as_ref()) {
        Some(link) => html! { a href=(link) tabindex="-1" aria-hidden="true" { (rect) } },
        None => rect,
    }
}

/// A horizontal bar in a row of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lying {
    /// Name of the row.
    pub name: String,
    /// Length of the bar.
    pub value: f64,
    /// The value of the previous period.
    pub before: Option<f64>,
    /// Index of its colour.
    pub colour: usize,
    /// URL of the details behind the bar.
    pub link: Option<String>,
}

/// A table with a bar in each row, so it needs no separate table below it.
pub fn lying(rows: &[Lying], title: &str, unit: Unit) -> Markup {
    let finite = |value: f64| if value.is_finite() { value.abs() } else { 0.0 };
    let longest = rows
        .iter()
        .flat_map(|row| [Some(row.value), row.before])
        .flatten()
        .map(finite)
        .fold(0.0, f64::max);
    html! {
        table class="lying" {
            caption class="unseen" { (title) }
            tbody {
                @for row in rows {
                    @let class = Series { colour: row.colour, ..Series::default() }.class();
                    tr {
                        th scope="row" { bdi { (row.name) } }
                        td class="lying-bar" {
                            svg height="18" aria-hidden="true" {
                                @if let Some(before) = row.before {
                                    rect class={ "bar previous " (class) } y="1" height="16"
                                        width=(percent(finite(before), longest)) rx="2" {}
                                }
                                rect class={ "bar " (class) } y="4" height="10" rx="2"
                                    width=(percent(finite(row.value), longest)) {}
                            }
                        }
                        td class="number" {
                            @let shown = figure::text(row.value, unit);
                            @if let Some(link) = &row.link { a href=(link) { (shown) } } @else { (shown) }
                        }
                        @if let Some(before) = row.before {
                            td class="number before" { (figure::text(before, unit)) " before" }
                        }
                    }
                }
            }
        }
    }
}
