//! Next events of the persons behind a step of a funnel: [`events`].

use maud::{Markup, html};

use crate::chart::bars::{Lying, lying};
use crate::chart::series::Unit;
use crate::parts::{clipped, page, query};

/// Longest names of events, in characters.
const NAME_MAX_CHARS: usize = 80;

/// The next events by their share of the persons. `step` is the step that all of them did, and whether they dropped off
/// after it; `persons` is how many were read, and `is_part` whether there are more that were not read.
pub fn events(
    project: i64,
    (step, have_left): (&str, bool),
    (events, persons, is_part): (&[(String, u64)], usize, bool),
) -> Markup {
    let told: u64 = events.iter().map(|(_, count)| count).sum();
    let persons = u64::try_from(persons).unwrap_or(u64::MAX);
    let share = |count: u64| count as f64 / persons.max(1) as f64 * 100.0;
    let row = |(name, count): &(String, u64)| Lying {
        name: clipped(name, NAME_MAX_CHARS),
        value: share(*count),
        link: Some(format!("{}?{}", page(project, "activity/explore"), query(&[("event", name)]))),
        ..Lying::default()
    };
    let mut rows: Vec<Lying> = events.iter().map(row).collect();
    let rest = persons.saturating_sub(told);
    if rest > 0 {
        rows.push(Lying {
            name: "nothing, or something rarer".to_owned(),
            value: share(rest),
            colour: 9,
            ..Lying::default()
        });
    }
    html! {
        section class="card" id="next" {
            h2 { @if have_left { "What they did instead" } @else { "What they did next" } }
            p class="quiet" {
                "The first event after their last " b { bdi { (clipped(step, NAME_MAX_CHARS)) } } ", in percent of "
                @if is_part { "the first " } (persons) @if persons == 1 { " person." } @else { " persons." }
            }
            (lying(&rows, "Next events", Unit::Percent))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::events;

    #[test]
    fn shares_are_of_all_persons() {
        let told = [("<b>".to_owned(), 3), ("back".to_owned(), 1)];
        let shown = events(1, ("added", true), (&told, 8, false)).0;
        for part in
            ["What they did instead", "37.5", "12.5", "50\u{202f}%", "&lt;b&gt;", "8 persons"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let shown = events(1, ("added", false), (&told, 4, true)).0;
        assert!(shown.contains("the first 4 persons") && !shown.contains("rarer"), "{shown}");
    }
}
