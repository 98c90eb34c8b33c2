//! Pie chart as a ring ([`pie`]), beside the names, numbers and shares of its parts.

use maud::{Markup, html};

use crate::chart::bars::Lying;
use crate::chart::figure;
use crate::chart::scale::digits;
use crate::chart::series::{Series, Unit};

/// Parts with a colour of their own; all others are merged into one.
const PARTS_MAX: usize = 9;

/// The ring: its centre and radius. Its circumference counts as 100.
const MIDDLE: &str = "50";
const RADIUS: &str = "36";

/// A ring of the parts, beside their numbers and names. Negative values and NaN have no part.
pub fn pie(rows: &[Lying], title: &str, unit: Unit) -> Markup {
    let size = |row: &Lying| if row.value.is_finite() { row.value.max(0.0) } else { 0.0 };
    // Each number is divided before summing: the sum may exceed the range of `f64`.
    let largest = rows.iter().map(size).fold(0.0, f64::max);
    let scaled = |row: &Lying| if largest > 0.0 { size(row) / largest } else { 0.0 };
    let whole: f64 = rows.iter().map(scaled).sum();
    let share = |row: &Lying| if whole > 0.0 { scaled(row) / whole * 100.0 } else { 0.0 };
    let (own, rest) = rows.split_at(rows.len().min(PARTS_MAX));
    let rest_share: f64 = rest.iter().map(share).sum();
    let rest_value: f64 = rest.iter().map(size).sum();
    let mut from = 0.0;
    let mut slices = Vec::new();
    for (share, colour) in own.iter().map(share).chain([rest_share]).zip(0..) {
        slices.push((share, from, class(colour)));
        from += share;
    }
    html! {
        div class="pie" {
            svg class="ring" viewBox="0 0 100 100" aria-hidden="true" {
                @for (share, from, class) in slices.iter().filter(|(share, ..)| *share > 0.0) {
                    circle class={ "slice " (class) } cx=(MIDDLE) cy=(MIDDLE) r=(RADIUS) pathLength="100"
                        stroke-dasharray=(format!("{} 100", digits(*share))) stroke-dashoffset=(digits(-from)) {}
                }
            }
            table class="lying" {
                caption class="unseen" { (title) }
                tbody {
                    @for (row, colour) in own.iter().zip(0..) {
                        (line((&row.name, colour), (row.value, share(row)), row.link.as_deref(), unit))
                    }
                    @if !rest.is_empty() {
                        (line((&format!("{} others", rest.len()), PARTS_MAX), (rest_value, rest_share), None, unit))
                    }
                }
            }
        }
    }
}

fn line(
    (name, colour): (&str, usize),
    (value, share): (f64, f64),
    link: Option<&str>,
    unit: Unit,
) -> Markup {
    let shown = figure::text(value, unit);
    html! {
        tr {
            th scope="row" {
                svg class="swatch" width="12" height="12" aria-hidden="true" {
                    rect class={ "fill " (class(colour)) } width="12" height="12" rx="3" {}
                }
                " " bdi { (name) }
            }
            td class="number" { @if let Some(link) = link { a href=(link) { (shown) } } @else { (shown) } }
            td class="number before" { (figure::text(share, Unit::Percent)) }
        }
    }
}

fn class(colour: usize) -> String {
    Series { colour, ..Series::default() }.class()
}
