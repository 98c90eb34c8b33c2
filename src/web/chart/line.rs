//! Line and area charts: [`lines`].

use std::ops::Range;

use maud::{Markup, html};

use crate::chart::plot::{PLACES_MAX, TOP_PX, columns, middle, plot};
use crate::chart::scale::{Scale, digits};
use crate::chart::series::{Frame, Series};

/// Most marks of all series together; beyond it only lines are drawn.
const MARKS_MAX: usize = 2000;

/// A line for each series, with the area below it filled for an area chart. Missing values are gaps in the line.
pub fn lines(series: &[Series], frame: &Frame, is_area: bool) -> Markup {
    let places = frame.labels.len();
    let values = series.iter().flat_map(|own| (0..places).filter_map(|place| own.at(place)));
    let scale = Scale::of(values, frame.height_px);
    let has_marks = places <= PLACES_MAX && places.saturating_mul(series.len()) <= MARKS_MAX;
    let marks = html! {
        // SVG paths need numbers where marks may have percents, so the lines have a coordinate system of their own, in
        // which half a place is one unit.
        svg class="chart-lines" x="0" y=(digits(TOP_PX)) width="100%" height=(digits(scale.height_px()))
            viewBox={ "0 0 " (places.max(1) * 2) " " (digits(scale.height_px())) } preserveAspectRatio="none"
            aria-hidden="true" {
            // The first series is the most important one, so it is on top.
            @for own in series.iter().rev() {
                @if is_area { path class={ "area " (own.class()) } d=(path(own, 0..places, &scale, true)) {} }
                @let last = open_part(own, frame);
                path class={ "line " (own.class()) }
                    d=(path(own, 0..last.as_ref().map_or(places, |last| last.start + 1), &scale, false)) {}
                @if let Some(last) = last {
                    path class={ "line unfinished " (own.class()) } d=(path(own, last, &scale, false)) {}
                }
            }
        }
        @if has_marks { (columns(frame, &scale, series, |place| dots(series, (place, places), &scale))) }
    };
    plot(frame, &scale, series, &marks)
}

/// The marks at a place.
fn dots(series: &[Series], (place, places): (usize, usize), scale: &Scale) -> Markup {
    html! {
        @for own in series {
            @if let (Some(value), Some(point)) = (own.at(place), own.points.get(place)) {
                @let dot = html! {
                    circle class={ "dot " (own.class()) } cx=(middle(place, places))
                        cy=(digits(scale.y(value) + TOP_PX)) r="3" {}
                };
                @match &point.link {
                    Some(link) => { a href=(link) tabindex="-1" aria-hidden="true" { (dot) } },
                    None => { (dot) },
                }
            }
        }
    }
}

/// The last segment of the line if it leads to an interval that is not over yet. Series of the previous period have
/// none.
fn open_part(series: &Series, frame: &Frame) -> Option<Range<usize>> {
    let last = frame.labels.len().checked_sub(1).filter(|place| frame.is_open(*place))?;
    let before = last.checked_sub(1)?;
    let is_line = series.at(before).is_some() && series.at(last).is_some();
    (is_line && !series.is_previous).then_some(before..last + 1)
}

/// The line through the values; for an area closed along zero.
fn path(series: &Series, places: Range<usize>, scale: &Scale, is_area: bool) -> String {
    let zero = digits(scale.y(0.0));
    let mut path = String::new();
    // First and last place of the current segment without gaps.
    let mut part: Option<(usize, usize)> = None;
    let close = |path: &mut String, part: Option<(usize, usize)>| {
        let Some((first, last)) = part else { return };
        if is_area {
            path.push_str(&format!("L{} {zero}L{} {zero}Z", 2 * last + 1, 2 * first + 1));
        } else if first == last {
            // A segment of one point has no length; with a round line cap it is a dot.
            path.push_str("h0");
        }
    };
    for place in places {
        let Some(value) = series.at(place) else {
            close(&mut path, part.take());
            continue;
        };
        let command = if part.is_some() { 'L' } else { 'M' };
        path.push_str(&format!("{command}{} {}", 2 * place + 1, digits(scale.y(value))));
        part = Some((part.map_or(place, |(first, _)| first), place));
    }
    close(&mut path, part);
    path
}
