//! Home: each project at a glance.

use maud::{Markup, html};

use crate::parts;
use crate::parts::{clipped, page};

/// Width and height of the small chart, in its own units.
const WIDTH: usize = 140;
const HEIGHT: i64 = 48;

/// Overview of a project.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The id.
    pub id: i64,
    /// The name.
    pub name: String,
    /// Events of each of the last 14 days in the project's zone, today last.
    pub days: Vec<i64>,
    /// Events a week ago, from the beginning of the day to the same time of day.
    pub week_ago: i64,
}

/// The card of a project.
pub fn card(summary: &Summary) -> Markup {
    let today = summary.days.last().copied().unwrap_or_default();
    let id = summary.id;
    html! {
        article class="card" {
            h2 { a href=(page(id, "activity/live")) { (clipped(&summary.name, 200)) } }
            @if summary.days.iter().all(|count| *count == 0) {
                p class="quiet" { "No events within two weeks. What is sent appears here, and in charts, funnels and flags." }
                p { a class="button main" href=(page(id, "onboarding")) { "Send the first event" } }
            } @else {
                div class="figure" { (parts::number(today)) }
                p class="quiet" { "events today; " (parts::number(summary.week_ago)) " at this time a week ago" }
                (bars(&summary.days))
            }
        }
    }
}

/// Bars of days, the last of them marked.
pub fn bars(days: &[i64]) -> Markup {
    let most = days.iter().copied().max().unwrap_or_default().max(1);
    let step = WIDTH / days.len().max(1);
    html! {
        svg class="bars" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
            aria-label=(format!("Events of the last {} days", days.len())) {
            @for (at, count) in days.iter().enumerate() {
                @let height = (*count).clamp(0, most).saturating_mul(HEIGHT) / most;
                rect x=(at * step) y=(HEIGHT - height) width=(step.saturating_sub(2)) height=(height)
                    class=[(at + 1 == days.len()).then_some("now")] {
                    title { (parts::number(*count)) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::bars;

    #[test]
    fn bars_are_in_proportion_and_within_their_frame() {
        let shown = bars(&[0, 10, 20]).0;
        for part in ["height=\"0\"", "height=\"24\"", "height=\"48\"", "class=\"now\""] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        for days in [&[][..], &[0], &[i64::MAX, -5]] {
            let shown = bars(days).0;
            assert!(!shown.contains("height=\"-"), "{shown}");
        }
    }
}
