//! A small line in a row of text: [`spark`].

use maud::{Markup, html};

use crate::chart::scale::{Scale, digits};

/// Its height in pixels.
const HEIGHT_PX: u16 = 24;

/// A line through numbers, without axes; `title` describes them. With fewer than two numbers nothing is drawn.
pub fn spark(values: &[f64], title: &str) -> Markup {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let scale = Scale::of(finite(), HEIGHT_PX - 2);
    let point = |(value, at): (f64, usize)| format!("{at} {}", digits(scale.y(value) + 1.0));
    let points: Vec<String> = finite().zip(0..).map(point).collect();
    let last = points.len().saturating_sub(1);
    html! {
        svg class="spark" height=(HEIGHT_PX) viewBox={ "0 0 " (last.max(1)) " " (HEIGHT_PX) } role="img"
            preserveAspectRatio="none" aria-label=(title) {
            title { (title) }
            @if last > 0 { path class="line s0" d={ "M" (points.join("L")) } {} }
        }
    }
}
