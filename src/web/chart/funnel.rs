//! Funnel chart: steps one below another, with how many reached each and how many dropped off before the next:
//! [`funnel`].

use maud::{Markup, html};

use crate::chart::figure;
use crate::chart::scale::percent;
use crate::chart::series::{Series, Unit};

/// A step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Name of the step.
    pub name: String,
    /// Whether it may be skipped.
    pub is_optional: bool,
    /// One for each value of the breakdown, and one without it.
    pub parts: Vec<Part>,
}

/// The persons who reached a step, for one breakdown value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// The value of the breakdown; empty without it.
    pub name: String,
    /// How many reached it.
    pub count: u64,
    /// The median time from the required step before, in seconds.
    pub median_seconds: Option<f64>,
    /// URL of the list of those who reached the step.
    pub link: Option<String>,
    /// URL of the list of those who reached the required step before and not this one.
    pub left_link: Option<String>,
}

/// A part of a whole in percent; 0 if the whole is 0.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 }
}

/// The last required step before a place: whoever reached it could reach the step at that place.
pub fn before(steps: &[Step], place: usize) -> Option<&Step> {
    steps.iter().take(place).rfind(|step| !step.is_optional)
}

/// The chart.
pub fn funnel(steps: &[Step], title: &str) -> Markup {
    let part = |step: Option<&Step>, at: usize| {
        step.and_then(|step| step.parts.get(at)).map_or(0, |part| part.count)
    };
    html! {
        ol class="funnel" aria-label=(title) {
            @for (step, number) in steps.iter().zip(0_usize..) {
                @let before = before(steps, number);
                li class="step" {
                    p class="step-name" { span class="step-number" { (number + 1) } " " bdi { (step.name) } }
                    @for (own, at) in step.parts.iter().zip(0_usize..) {
                        @let first = part(steps.first(), at);
                        (row(own, at, (before.is_some(), first, part(before, at))))
                    }
                }
            }
        }
    }
}

/// One breakdown value of a step: the bar's length is the share of those who entered the funnel; the drop-off since the
/// step before is hatched.
fn row(own: &Part, at: usize, (is_later, first, before): (bool, u64, u64)) -> Markup {
    let class = Series { colour: at, ..Series::default() }.class();
    let shown = figure::text(own.count as f64, Unit::Count);
    let left = before.saturating_sub(own.count);
    html! {
        div class="step-part" {
            @if !own.name.is_empty() { p class="step-value" { bdi { (own.name) } } }
            svg class="step-bar" height="28" aria-hidden="true" {
                rect class="ground" width="100%" height="28" rx="4" {}
                @if is_later {
                    rect class="lost" width=(percent(before as f64, first as f64)) height="28" rx="4" {}
                }
                @let bar = html! {
                    rect class={ "bar " (class) } width=(percent(own.count as f64, first as f64)) height="28" rx="4" {}
                };
                @match &own.link {
                    Some(link) => { a href=(link) tabindex="-1" { (bar) } },
                    None => { (bar) },
                }
            }
            p class="step-told" {
                @if let Some(link) = &own.link { a href=(link) { (shown) } } @else { span { (shown) } }
                @if first > 0 { " · " (figure::text(share(own.count, first), Unit::Percent)) " of all" }
                @if is_later && before > 0 {
                    " · " (figure::text(share(own.count, before), Unit::Percent)) " of the step before"
                }
                @if left > 0 && is_later {
                    " · "
                    @let gone = format!("{} left", figure::text(left as f64, Unit::Count));
                    @if let Some(link) = &own.left_link { a class="left" href=(link) { (gone) } }
                    @else { span class="left" { (gone) } }
                }
                @if let Some(median) = own.median_seconds {
                    " · " (figure::duration(median)) " at the median"
                }
            }
        }
    }
}
