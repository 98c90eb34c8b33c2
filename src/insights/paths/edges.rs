//! Counts the transitions between steps of paths: [`Edges`], as many as fit in memory. If they do not fit, edges are
//! split in halves by hash: one half is counted in this scan, the other one in a later scan of its own.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use foldhash::quality::FixedState;

use crate::paths::items::Items;
use weir_api::insights::paths;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::slice::Slice;

/// Most distinct edges that one scan counts.
const EDGES_MAX: usize = 1 << 20;

/// Most scans of one query.
const SCANS_MAX: u64 = 16;

/// Initial capacity in edges.
const EDGES_MIN: usize = 1024;

/// A transition from a step to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Edge {
    /// The position of the step in its path, from 1 on.
    pub(super) place: usize,
    /// Its item.
    pub(super) from: u32,
    /// The item of the next one.
    pub(super) to: u32,
}

impl Edge {
    fn hash(self, items: &Items) -> u64 {
        FixedState::default().hash_one((self.place, items.hash(self.from), items.hash(self.to)))
    }
}

/// Count and total duration of an edge.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    count: u64,
    micros: i64,
}

/// Limits of the edges in a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// Most edges.
    pub(super) edges_max: usize,
    /// Least count of an edge.
    pub(super) count_min: u64,
    /// Greatest count of an edge.
    pub(super) count_max: u64,
}

/// Counts of the edges of one slice of the hash space.
#[derive(Debug)]
pub(super) struct Edges {
    totals: hashbrown::HashMap<Edge, Total, foldhash::fast::RandomState>,
    slice: Slice,
    /// The slices that are left to further scans.
    left: Vec<Slice>,
    most: usize,
    reservation: MemoryReservation,
}

impl Edges {
    pub(super) fn new(slice: Slice, reservation: MemoryReservation) -> Self {
        let totals = hashbrown::HashMap::default();
        Self { totals, slice, left: Vec::new(), most: EDGES_MAX, reservation }
    }

    /// Takes the slices that are left to further scans.
    pub(super) fn take_left(&mut self) -> Vec<Slice> {
        std::mem::take(&mut self.left)
    }

    /// Counts a transition that took this many microseconds.
    ///
    /// # Errors
    ///
    /// There are too many edges.
    pub(super) fn add(&mut self, edge: Edge, micros: i64, items: &Items) -> Result<(), QueryError> {
        let is_in = |slice: Slice| slice == Slice::ALL || slice.has(edge.hash(items));
        if !is_in(self.slice) {
            return Ok(());
        }
        if !self.totals.contains_key(&edge) {
            self.make_room(items)?;
            if !is_in(self.slice) {
                return Ok(());
            }
        }
        let total = self.totals.entry(edge).or_default();
        total.count += 1;
        total.micros = total.micros.saturating_add(micros);
        Ok(())
    }

    /// Frees capacity for one more edge: by growing the table, or else by halving the slice.
    fn make_room(&mut self, items: &Items) -> Result<(), QueryError> {
        while self.totals.len() >= self.most || self.reserve().is_err() {
            let Some([own, other]) = self.slice.halves(SCANS_MAX) else {
                return Err(QueryError::Memory(
                    "paths have too many different steps: ask for less time, or group them"
                        .to_owned(),
                ));
            };
            self.slice = own;
            self.left.push(other);
            self.totals.retain(|edge, _| own.has(edge.hash(items)));
        }
        Ok(())
    }

    fn reserve(&mut self) -> Result<(), DataFusionError> {
        let room = self.totals.capacity();
        if self.totals.len() < room {
            return Ok(());
        }
        // The hash table has 8/7 as many slots as its capacity, and a control byte for each.
        let bytes = |room: usize| room * 8 / 7 * (size_of::<(Edge, Total)>() + 1);
        let larger = (room * 2).max(EDGES_MIN);
        // While the table grows, the old and the new one exist together.
        self.reservation.try_resize(bytes(room + larger))?;
        self.totals.reserve(larger - self.totals.len());
        self.reservation.try_resize(bytes(self.totals.capacity()))
    }

    /// The most frequent edges within the limits.
    pub(super) fn counted(self, items: &Items, shown: Shown) -> Vec<Counted> {
        let is_shown = |total: &Total| (shown.count_min..=shown.count_max).contains(&total.count);
        let mut edges: Vec<(Edge, Total)> =
            self.totals.into_iter().filter(|(_, total)| is_shown(total)).collect();
        if let Some(last) = shown.edges_max.checked_sub(1).filter(|last| *last < edges.len()) {
            // Keeps edges that are as frequent as the last one within the limit, since ties are ordered by text: so
            // texts are built for few edges.
            let order = |(_, total): &(Edge, Total)| Reverse(total.count);
            let (_, (_, total), _) = edges.select_nth_unstable_by_key(last, order);
            let least = total.count;
            edges.retain(|(_, total)| total.count >= least);
        }
        let mut counted = Vec::with_capacity(edges.len().min(shown.edges_max));
        for (edge, Total { count, micros }) in edges {
            let source = key(edge.place, items.get(edge.from));
            let target = key(edge.place.saturating_add(1), items.get(edge.to));
            counted.push(Counted { source, target, count, micros });
            if counted.len() >= shown.edges_max.saturating_mul(2) {
                counted = first(counted, shown.edges_max);
            }
        }
        first(counted, shown.edges_max)
    }
}

/// The id of a node: the position and the item.
pub(super) fn key(place: usize, item: &str) -> String {
    format!("{place}_{item}")
}

/// An edge by its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    source: String,
    target: String,
    count: u64,
    micros: i64,
}

impl Counted {
    /// The edge in the form of the response.
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    pub(super) fn into_shown(self) -> paths::Edge {
        let mean = self.micros as f64 / self.count.max(1) as f64 / 1000.0;
        let Self { source, target, count, micros: _ } = self;
        paths::Edge { average_conversion_time: mean, source, target, value: count }
    }
}

/// The first edges in the order of responses: by descending count, then by nodes.
pub(super) fn first(mut edges: Vec<Counted>, most: usize) -> Vec<Counted> {
    edges.sort_by(|a, b| {
        b.count.cmp(&a.count).then_with(|| (&a.source, &a.target).cmp(&(&b.source, &b.target)))
    });
    edges.truncate(most);
    edges
}

/// The edges on paths from a first step.
pub(super) fn reachable(mut edges: Vec<Counted>) -> Vec<Counted> {
    let mut next: HashMap<&str, Vec<&str>> = HashMap::new();
    for edge in &edges {
        next.entry(&edge.source).or_default().push(&edge.target);
    }
    let mut left: Vec<&str> = next.keys().copied().filter(|key| key.starts_with("1_")).collect();
    let mut seen: HashSet<String> = left.iter().map(|key| (*key).to_owned()).collect();
    while let Some(key) = left.pop() {
        for target in next.get(key).into_iter().flatten() {
            if seen.insert((*target).to_owned()) {
                left.push(target);
            }
        }
    }
    edges.retain(|edge| seen.contains(&edge.source));
    edges
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::{Counted, Edge, Edges, Shown, Slice, first, key, reachable};
    use crate::paths::items::Items;
    use weir_query::kernel::error::QueryError;

    /// The edges of all scans, and how many scans it took.
    fn counted(
        taken: &[(usize, usize, usize, i64)],
        (most, bytes): (usize, usize),
        shown: Shown,
    ) -> Result<(Vec<Counted>, usize), QueryError> {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
        let free: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
        let (mut left, mut found, mut scans) = (vec![Slice::ALL], Vec::new(), 0);
        while let Some(slice) = left.pop() {
            scans += 1;
            let mut items =
                Items::new(Arc::default(), MemoryConsumer::new("items").register(&free));
            let mut edges = Edges::new(slice, MemoryConsumer::new("edges").register(&pool));
            edges.most = most;
            // Each scan reads the edges in another order.
            for at in 0..taken.len() {
                let (place, from, to, micros) = taken[(at * 7 + scans) % taken.len()];
                let from = items.number(&format!("item {from}"))?;
                let to = items.number(&format!("item {to}"))?;
                edges.add(Edge { place, from, to }, micros, &items)?;
            }
            left.extend(edges.take_left());
            found.extend(edges.counted(&items, shown));
        }
        Ok((first(found, shown.edges_max), scans))
    }

    #[test]
    fn several_scans_count_what_one_does() {
        let mut rng = StdRng::seed_from_u64(42);
        let mut longest = 0;
        for round in 0..60 {
            let taken: Vec<_> = (0..600)
                .map(|_| {
                    (
                        rng.random_range(1..12),
                        rng.random_range(0..6),
                        rng.random_range(0..6),
                        rng.random_range(0..99),
                    )
                })
                .collect();
            let shown = Shown {
                edges_max: rng.random_range(1..60),
                count_min: rng.random_range(0..3),
                count_max: [u64::MAX, 3][round % 2],
            };
            let mut plain: Vec<Counted> = Vec::new();
            for (place, from, to, micros) in &taken {
                let nodes =
                    (key(*place, &format!("item {from}")), key(place + 1, &format!("item {to}")));
                match plain
                    .iter_mut()
                    .find(|own| (&own.source, &own.target) == (&nodes.0, &nodes.1))
                {
                    Some(own) => (own.count, own.micros) = (own.count + 1, own.micros + micros),
                    None => plain.push(Counted {
                        source: nodes.0,
                        target: nodes.1,
                        count: 1,
                        micros: *micros,
                    }),
                }
            }
            plain.retain(|own| own.count >= shown.count_min && own.count <= shown.count_max);
            plain.sort_by_key(|own| (u64::MAX - own.count, own.source.clone(), own.target.clone()));
            plain.truncate(shown.edges_max);
            let (all, scans) = counted(&taken, (1 << 20, 1 << 20), shown).unwrap();
            assert_eq!((&all, scans), (&plain, 1));
            let (all, scans) =
                counted(&taken, (rng.random_range(60..400), 1 << 20), shown).unwrap();
            assert_eq!(all, plain);
            longest = longest.max(scans);
        }
        assert!(longest > 3, "{longest}");
    }

    #[test]
    fn too_many_edges_are_refused() {
        let taken: Vec<_> = (0..4000).map(|at| (1 + at % 9, at, at + 1, 5)).collect();
        let shown = Shown { edges_max: 50, count_min: 0, count_max: u64::MAX };
        let all = counted(&taken, (1 << 20, 1 << 20), shown).unwrap();
        let few = counted(&taken, (1 << 20, 110_000), shown).unwrap();
        assert_eq!((&few.0, all.1), (&all.0, 1));
        assert!(few.1 > 1, "{}", few.1);
        assert!(matches!(counted(&taken, (10, 1 << 20), shown), Err(QueryError::Memory(_))));
        assert!(matches!(counted(&taken, (1 << 20, 100), shown), Err(QueryError::Memory(_))));
    }

    #[test]
    fn what_no_first_step_leads_to_is_left_out() {
        let edge = |source: &str, target: &str| Counted {
            source: source.to_owned(),
            target: target.to_owned(),
            count: 1,
            micros: 0,
        };
        let edges = vec![
            edge("3_c", "4_d"),
            edge("1_a", "2_b"),
            edge("2_b", "3_c"),
            edge("2_x", "3_y"),
            edge("11_a", "12_b"),
        ];
        assert_eq!(reachable(edges.clone()), edges[..3]);
        assert!(reachable(edges[3..].to_vec()).is_empty());
    }
}
