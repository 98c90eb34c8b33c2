//! Common parts of charts with two axes: axis lines and labels, a hover column for each place, the legend.

use maud::{Markup, html};

use crate::chart::figure;
use crate::chart::scale::{Scale, digits, percent};
use crate::chart::series::{Frame, Series};
use crate::parts::clipped;

/// Above the plot, for half a line of text.
pub(super) const TOP_PX: f64 = 10.0;

/// Below the plot, for the labels.
const BOTTOM_PX: f64 = 26.0;

/// Most labels below a chart; every second one is hidden on narrow screens, and three of four if they are long.
const LABELS_MAX: usize = 8;

/// Labels with more characters count as long: half as many fit beside each other.
const SHORT_MAX_CHARS: usize = 9;

/// Most characters of a label; the text of the hover column is not cut.
const LABEL_MAX_CHARS: usize = 18;

/// Up to this many places, each is about as wide as its label.
const WIDE_PLACES_MAX: usize = 12;

/// Beyond this part of the width a label may be cut off.
const LAST_PART: f64 = 0.95;

/// Beyond this many places there are neither columns nor marks: they would overlap. The table has the values.
pub(super) const PLACES_MAX: usize = 400;

/// Most series that the text of a hover column lists.
const TOLD_MAX: usize = 12;

/// The centre of a place, in percent of the width.
pub(super) fn middle(place: usize, places: usize) -> String {
    percent(place as f64 + 0.5, places as f64)
}

/// A chart: axes around `marks`, which are drawn in the coordinates of the plot.
pub(super) fn plot(frame: &Frame, scale: &Scale, series: &[Series], marks: &Markup) -> Markup {
    let height = scale.height_px() + TOP_PX + BOTTOM_PX;
    html! {
        figure class="chart" {
            div class="chart-box" {
                (vertical(frame, scale, height))
                svg class="chart-plot" height=(height) role="group" tabindex="0" aria-label=(frame.title) {
                    @for tick in scale.ticks() {
                        @let y = digits(scale.y(*tick) + TOP_PX);
                        line class=(if *tick == 0.0 { "zero" } else { "grid" }) x1="0" x2="100%" y1=(y) y2=(y) {}
                    }
                    (horizontal(frame, height))
                    (marks)
                }
            }
            @if series.len() > 1 { (legend(series)) }
        }
    }
}

/// The labels of the vertical axis, in an SVG of their own beside the plot, whose width is not known.
fn vertical(frame: &Frame, scale: &Scale, height: f64) -> Markup {
    html! {
        svg class="chart-axis" width="56" height=(height) aria-hidden="true" {
            @for tick in scale.ticks() {
                text x="48" y=(digits(scale.y(*tick) + TOP_PX)) dy="0.32em" text-anchor="end" {
                    (figure::short(*tick, frame.unit))
                }
            }
        }
    }
}

/// Labels of some of the places.
fn horizontal(frame: &Frame, height: f64) -> Markup {
    let places = frame.labels.len();
    let each = places.div_ceil(LABELS_MAX).max(1);
    let is_long = |label: &String| label.chars().count() > SHORT_MAX_CHARS;
    let narrow_each = if frame.labels.iter().step_by(each).any(is_long) { 4 } else { 2 };
    // A label near the right end is aligned to the end of its place, so that it is not cut off.
    let is_last =
        |place: usize| places > WIDE_PLACES_MAX && (place as f64 + 0.5) / places as f64 > LAST_PART;
    html! {
        g class="chart-labels" aria-hidden="true" {
            @for (place, shown) in (0..places).step_by(each).zip(0_usize..) {
                text class=[(shown % narrow_each != 0).then_some("wide")] y=(digits(height - 8.0))
                    x=(if is_last(place) { percent(place as f64 + 1.0, places as f64) } else { middle(place, places) })
                    text-anchor=(if is_last(place) { "end" } else { "middle" }) {
                    (clipped(frame.label(place), LABEL_MAX_CHARS))
                }
            }
        }
    }
}

/// A hover column for each place, whose text lists the values of all series there. `marks` draws its content.
pub(super) fn columns(
    frame: &Frame,
    scale: &Scale,
    series: &[Series],
    marks: impl Fn(usize) -> Markup,
) -> Markup {
    let places = frame.labels.len();
    html! {
        @if places <= PLACES_MAX {
            @for place in 0..places {
                g class="column" {
                    title { (told(frame, series, place)) }
                    rect class="hit" x=(percent(place as f64, places as f64)) width=(percent(1.0, places as f64))
                        y=(digits(TOP_PX)) height=(digits(scale.height_px())) {}
                    (marks(place))
                }
            }
        } @else {
            @for place in 0..places { (marks(place)) }
        }
    }
}

/// The values at a place, a line for each series.
fn told(frame: &Frame, series: &[Series], place: usize) -> String {
    let mut text = frame.label(place).to_owned();
    if frame.is_open(place) {
        text.push_str(" (not over yet)");
    }
    for own in series.iter().take(TOLD_MAX) {
        let number =
            own.at(place).map_or("–".to_owned(), |value| figure::text(value, frame.unit));
        text.push_str(&format!("\n{}: {number}", own.title()));
    }
    if let Some(more) = series.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
        text.push_str(&format!("\nand {more} more"));
    }
    text
}

/// The names of series beside their colours.
pub(super) fn legend(series: &[Series]) -> Markup {
    html! {
        figcaption {
            ul class="legend" {
                @for own in series {
                    li {
                        svg class="swatch" width="12" height="12" aria-hidden="true" {
                            rect class={ "fill " (own.class()) } width="12" height="12" rx="3" {}
                        }
                        bdi { (own.title()) }
                    }
                }
            }
        }
    }
}
