//! Results of paths as bands between steps.

use crate::chart::sankey::{Link, sankey};
use crate::chart::series::Unit;
use crate::chart::table::{Cell, Table};
use crate::insight::answer::Shown;
use crate::insight::links;
use crate::insight::links::Links;
use crate::state::insight::Options;
use crate::state::point::Point;
use weir_api::insights::paths::Edge;

const MILLIS_PER_SECOND: f64 = 1000.0;

/// The chart and the table of a result.
pub(super) fn shown(answers: &[Edge], links: &Links<'_>) -> Shown {
    let edges: Vec<(Link, f64)> = answers.iter().filter_map(|edge| read(edge, links)).collect();
    let bands: Vec<Link> = edges.iter().map(|(link, _)| link.clone()).collect();
    // A node links to the query for the paths that start there.
    let from = |place: usize, name: &str| {
        let mut question = links.question.clone();
        let Options::Paths { start, .. } = &mut question.options else { return None };
        *start = Some(name.to_owned());
        (place > 1 && links.has_address()).then(|| links::question(links.project, &question))
    };
    let row = |(link, millis): &(Link, f64)| {
        vec![
            Cell::text(link.from.0.to_string()),
            Cell::text(link.from.1.clone()),
            Cell::text(link.to.1.clone()),
            Cell::number(link.count as f64, Unit::Count, link.link.clone()),
            Cell::number((millis / MILLIS_PER_SECOND).round(), Unit::Seconds, None),
        ]
    };
    let head = ["Step", "From", "To", "Times", "Mean time"];
    let table = Table {
        caption: "Paths as a table".to_owned(),
        head: head.iter().map(|name| (*name).to_owned()).collect(),
        rows: edges.iter().map(row).collect(),
    };
    Shown {
        chart: sankey(&bands, "Paths", from),
        table,
        is_table: false,
        is_empty: edges.is_empty(),
    }
}

/// An edge, and its average duration in milliseconds.
fn read(edge: &Edge, links: &Links<'_>) -> Option<(Link, f64)> {
    let key = |text: &str| {
        let (place, name) = text.split_once('_')?;
        Some((place.parse().ok()?, name.to_owned()))
    };
    let Edge { average_conversion_time, source, target, value } = edge;
    let point =
        Point { start: Some(source.clone()), end: Some(target.clone()), ..Point::default() };
    let link =
        Link { from: key(source)?, to: key(target)?, count: *value, link: links.persons(&point) };
    Some((link, *average_conversion_time))
}
