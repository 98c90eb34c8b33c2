//! Lists the persons or groups behind a step of paths: those that went from a node to another one, or ended at one.

use crate::paths::answer::Walks;
use crate::paths::items::Items;
use crate::paths::walk::Step;
use crate::paths::{Key, Paths};
use crate::ranked::Ranked;
use crate::{Actor, InsightError, ProjectSettings};
use weir_query::events::histories::{Fold, Row};
use weir_query::kernel::engine::Engine;
use weir_query::kernel::error::QueryError;
use weir_query::kernel::interner::Interner;
use weir_query::persons::people::Part;

impl Paths {
    /// The persons or groups that took the steps selected by the keys of the request, the most frequent first; one
    /// more than `part` has is returned if there are more. Without keys, all that took two steps.
    pub async fn actors(
        &self,
        engine: &Engine,
        owner: &ProjectSettings,
        part: Part,
    ) -> Result<Vec<Actor>, InsightError> {
        let events = self.steps(engine, owner).await?;
        let mut walks = self.walks(engine)?;
        let mut node = |key: &Option<Key>| match key {
            Some(Key { place, item }) => Ok(Some((*place, walks.items.number(item)?))),
            None => Ok::<_, QueryError>(None),
        };
        let keys = &self.keys;
        let asked = PathKeys {
            start: node(&keys.start)?,
            end: node(&keys.end)?,
            dropoff: node(&keys.dropoff)?,
        };
        let fold = Finding { walks, asked, ranked: Ranked::new(part, self.selection.unit) };
        let found = engine.histories(events, self.rows(), fold).await?;
        Ok(found.ranked.into_actors())
    }
}

/// A position in a path, from 1 on, and the number of the item there.
type PathItem = (usize, u32);

/// The keys of the request, with their items as numbers.
#[derive(Clone, Copy, Debug)]
struct PathKeys {
    start: Option<PathItem>,
    end: Option<PathItem>,
    dropoff: Option<PathItem>,
}

impl PathKeys {
    /// How often a path takes the selected step.
    fn times(self, path: &[Step]) -> usize {
        let is = |(place, item): PathItem| {
            let step = place.checked_sub(1).and_then(|at| path.get(at));
            step.is_some_and(|step| step.item == item)
        };
        if !self.dropoff.is_none_or(|last| last.0 == path.len() && is(last)) {
            return 0;
        }
        match (self.start, self.end) {
            (Some(start), Some(end)) => {
                usize::from(start.0.checked_add(1) == Some(end.0) && is(start) && is(end))
            }
            (Some(start), None) => usize::from(start.0 < path.len() && is(start)),
            (None, Some(end)) => usize::from(is(end)),
            (None, None) if self.dropoff.is_some() => 1,
            (None, None) => path.len().saturating_sub(1),
        }
    }
}

/// Collects the actors that took the selected step.
#[derive(Debug)]
struct Finding {
    walks: Walks,
    asked: PathKeys,
    ranked: Ranked,
}

impl Fold for Finding {
    fn begin(&mut self, texts: &Interner) -> Result<(), QueryError> {
        self.walks.items.begin(texts)
    }

    #[expect(clippy::cast_precision_loss, reason = "a number that is shown")]
    fn actor(&mut self, actor: &str, rows: &[Row], texts: &Interner) -> Result<(), QueryError> {
        let Self { walks, asked, ranked } = self;
        let mut times = 0;
        walks.each(rows, texts, |path, _: &Items| {
            times += asked.times(path);
            Ok(())
        })?;
        if times > 0 {
            ranked.add(actor, times as f64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{PathKeys, Step};

    #[test]
    fn keys_name_steps_of_a_path() {
        let path: Vec<Step> = [5, 6, 7].into_iter().map(|item| Step { at: 0, item }).collect();
        for (start, end, dropoff, times) in [
            (Some((1, 5)), Some((2, 6)), None, 1),
            (Some((1, 5)), Some((3, 7)), None, 0),
            (Some((1, 6)), Some((2, 6)), None, 0),
            (Some((2, 6)), None, None, 1),
            (Some((3, 7)), None, None, 0),
            (None, Some((1, 5)), None, 1),
            (None, Some((4, 5)), None, 0),
            (None, None, Some((3, 7)), 1),
            (None, None, Some((2, 6)), 0),
            (None, Some((2, 6)), Some((3, 7)), 1),
            (None, Some((2, 6)), Some((3, 6)), 0),
            (Some((usize::MAX, 5)), Some((0, 5)), None, 0),
            (None, None, None, 2),
        ] {
            let asked = PathKeys { start, end, dropoff };
            assert_eq!(asked.times(&path), times, "{asked:?}");
        }
    }
}
