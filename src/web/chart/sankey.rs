//! Sankey diagram of paths: the steps of each place one below another, and bands between them as thick as the number of
//! persons who took them: [`sankey`].

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::chart::figure;
use crate::chart::scale::digits;
use crate::chart::series::Unit;

/// Distance from one column of nodes to the next.
const COLUMN_PX: f64 = 230.0;

/// The width of a node.
const NODE_PX: f64 = 10.0;

/// Gap between two nodes of a column, for the label.
const GAP_PX: f64 = 22.0;

/// The height of all persons who begin, without gaps.
const HEIGHT_PX: f64 = 320.0;

/// Most characters of a node's label; the tooltip has all.
const CHARS_MAX: usize = 26;

/// Number of persons who went from one node to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    /// The place, from 1 on, and the step there.
    pub from: (usize, String),
    /// The same of the next step.
    pub to: (usize, String),
    /// How many.
    pub count: u64,
    /// URL of the list of those persons.
    pub link: Option<String>,
}

/// A node, and its position.
#[derive(Clone, Debug)]
struct Node<'l> {
    name: &'l str,
    place: usize,
    count: u64,
    y: f64,
    /// Vertical offsets at which the next incoming band ends and the next outgoing one begins.
    into: f64,
    out: f64,
}

/// Positions of the nodes, and how many pixels one person is high.
#[derive(Debug)]
struct Layout<'l> {
    nodes: BTreeMap<(usize, &'l str), Node<'l>>,
    pixels_each: f64,
    height: f64,
    places: usize,
}

/// The chart. `links` are drawn in their order; those of many persons should come first.
pub fn sankey(links: &[Link], title: &str, to: impl Fn(usize, &str) -> Option<String>) -> Markup {
    let mut layout = Layout::of(links);
    let bands: Vec<Markup> = links.iter().filter_map(|link| layout.band(link)).collect();
    let width = COLUMN_PX * layout.places.max(1) as f64;
    html! {
        div class="scroll" role="region" aria-label=(title) tabindex="0" {
            svg class="sankey" width=(digits(width)) height=(digits(layout.height)) role="group" aria-label=(title) {
                @for band in &bands { (band) }
                @for node in layout.nodes.values() { (shown(node, layout.pixels_each, to(node.place, node.name))) }
            }
        }
    }
}

fn shown(node: &Node<'_>, pixels_each: f64, link: Option<String>) -> Markup {
    let x = COLUMN_PX * node.place.saturating_sub(1) as f64;
    let count = figure::text(node.count as f64, Unit::Count);
    let name: String = match node.name.chars().count() > CHARS_MAX {
        // URLs differ at their end, so they are cut at the front.
        true => {
            let skipped = node.name.chars().count() - CHARS_MAX;
            std::iter::once('…').chain(node.name.chars().skip(skipped)).collect()
        }
        false => node.name.to_owned(),
    };
    let inner = html! {
        title { (node.name) ": " (count) }
        rect class="node" x=(digits(x)) y=(digits(node.y)) width=(digits(NODE_PX)) rx="2"
            height=(digits((node.count as f64 * pixels_each).max(1.0))) {}
        text x=(digits(x)) y=(digits(node.y - 6.0)) { (name) " " tspan class="count" { (count) } }
    };
    match link {
        Some(link) => html! { a href=(link) { (inner) } },
        None => html! { g { (inner) } },
    }
}

impl<'l> Layout<'l> {
    fn of(links: &'l [Link]) -> Self {
        let mut nodes: BTreeMap<(usize, &str), (u64, u64)> = BTreeMap::new();
        for link in links {
            let from = nodes.entry((link.from.0, &link.from.1)).or_default();
            from.1 = from.1.saturating_add(link.count);
            let to = nodes.entry((link.to.0, &link.to.1)).or_default();
            to.0 = to.0.saturating_add(link.count);
        }
        let mut columns: BTreeMap<usize, Vec<(&str, u64)>> = BTreeMap::new();
        for ((place, name), (into, out)) in nodes {
            columns.entry(place).or_default().push((name, into.max(out)));
        }
        let sum = |column: &Vec<(&str, u64)>| {
            column.iter().map(|(_, count)| *count).fold(0, u64::saturating_add)
        };
        let most = columns.values().map(sum).max().unwrap_or(0);
        let pixels_each = if most == 0 { 0.0 } else { HEIGHT_PX / most as f64 };
        let mut layout = Self {
            nodes: BTreeMap::new(),
            pixels_each,
            height: GAP_PX,
            places: columns.keys().max().copied().unwrap_or(0),
        };
        for (place, mut column) in columns {
            column.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
            let mut y = GAP_PX;
            for (name, count) in column {
                let node = Node { name, place, count, y, into: y, out: y };
                y += (count as f64 * pixels_each).max(1.0) + GAP_PX;
                layout.nodes.insert((place, name), node);
            }
            layout.height = layout.height.max(y);
        }
        layout
    }

    /// A band, which takes its height from both nodes.
    fn band(&mut self, link: &'l Link) -> Option<Markup> {
        let thick = link.count as f64 * self.pixels_each;
        let from = self.nodes.get_mut(&(link.from.0, link.from.1.as_str()))?;
        let (x1, y1) = (COLUMN_PX * from.place.saturating_sub(1) as f64 + NODE_PX, from.out);
        from.out += thick;
        let to = self.nodes.get_mut(&(link.to.0, link.to.1.as_str()))?;
        let (x2, y2) = (COLUMN_PX * to.place.saturating_sub(1) as f64, to.into);
        to.into += thick;
        let middle = digits((x1 + x2) / 2.0);
        let half = thick / 2.0;
        let (start, end) = (digits(y1 + half), digits(y2 + half));
        let path =
            format!("M{} {start}C{middle} {start} {middle} {end} {} {end}", digits(x1), digits(x2));
        let count = figure::text(link.count as f64, Unit::Count);
        let band = html! {
            path class="band" d=(path) stroke-width=(digits(thick.max(1.0))) {
                title { (link.from.1) " → " (link.to.1) ": " (count) }
            }
        };
        Some(match &link.link {
            Some(link) => html! { a href=(link) tabindex="-1" { (band) } },
            None => band,
        })
    }
}
