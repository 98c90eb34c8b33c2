//! Retention heat map: a table in which a cell is the darker, the larger the share that returned: [`heat`].

use maud::{Markup, html};

use crate::chart::figure;
use crate::chart::series::Unit;

/// Classes of cells: from 0 to 100 percent.
const STEPS: u8 = 10;

/// A row: the cohort that began in one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The interval.
    pub name: String,
    /// How many began, and how many of them returned in each interval after it, the first included; `None` for
    /// intervals that have not begun yet.
    pub counts: Vec<Option<u64>>,
    /// URL of the list of those who began.
    pub link: Option<String>,
    /// URLs of the lists of those who returned, by interval.
    pub links: Vec<Option<String>>,
}

impl Row {
    /// Share that returned, in percent of those who began.
    pub fn percent(&self, cell: usize) -> Option<f64> {
        let began = self.counts.first().copied().flatten()?;
        let back = self.counts.get(cell).copied().flatten()?;
        (began > 0).then(|| back as f64 / began as f64 * 100.0)
    }
}

/// Share that returned over all rows that have this interval, in percent of those who began in these rows.
pub fn mean(rows: &[Row], cell: usize) -> Option<f64> {
    let told = rows.iter().filter_map(|row| {
        Some((row.counts.get(cell).copied().flatten()?, row.counts.first().copied().flatten()?))
    });
    let (back, began) =
        told.fold((0_u64, 0_u64), |(a, b), (c, d)| (a.saturating_add(c), b.saturating_add(d)));
    (began > 0).then(|| back as f64 / began as f64 * 100.0)
}

/// The CSS class of a cell: the returned share in tenths, rounded up, so that any share above 0 has at least the first
/// shade.
fn class(percent: f64) -> String {
    let steps = f64::from(STEPS);
    let step = (percent / 100.0 * steps).ceil().clamp(0.0, steps);
    format!("heat h{step}")
}

/// The table. `intervals` are the column names; cells are percents, or counts.
pub fn heat(rows: &[Row], intervals: &[String], title: &str, is_percent: bool) -> Markup {
    let shown = |row: &Row, cell: usize| match (is_percent, row.percent(cell)) {
        (_, None) => String::new(),
        (true, Some(percent)) => figure::text((percent * 10.0).round() / 10.0, Unit::Percent),
        _ => row
            .counts
            .get(cell)
            .copied()
            .flatten()
            .map_or(String::new(), |count| figure::text(count as f64, Unit::Count)),
    };
    html! {
        div class="scroll" role="region" aria-label=(title) tabindex="0" {
            table class="retention" {
                thead {
                    tr {
                        th scope="col" { "Began" }
                        th scope="col" class="number" { "Size" }
                        @for name in intervals { th scope="col" class="part" { (name) } }
                    }
                }
                tbody {
                    tr class="mean" {
                        th scope="row" { "All" }
                        td class="number" { (figure::text(all(rows), Unit::Count)) }
                        @for cell in 0..intervals.len() {
                            td class="part" {
                                @if let Some(mean) = mean(rows, cell) {
                                    (figure::text((mean * 10.0).round() / 10.0, Unit::Percent))
                                }
                            }
                        }
                    }
                    @for row in rows {
                        tr {
                            th scope="row" { (row.name) }
                            td class="number" {
                                @let size = row.counts.first().copied().flatten().unwrap_or(0);
                                @let size = figure::text(size as f64, Unit::Count);
                                @if let Some(link) = &row.link { a href=(link) { (size) } } @else { (size) }
                            }
                            @for cell in 0..intervals.len() {
                                @let class = row.percent(cell).map_or("heat".to_owned(), class);
                                @let text = shown(row, cell);
                                td class=(class) {
                                    @match row.links.get(cell).and_then(Option::as_ref) {
                                        Some(link) => a href=(link) { (text) },
                                        None => (text),
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn all(rows: &[Row]) -> f64 {
    let began = rows.iter().filter_map(|row| row.counts.first().copied().flatten());
    began.fold(0_u64, u64::saturating_add) as f64
}
