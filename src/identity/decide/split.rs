//! The rule of a split: one person becomes several, which undoes a merge.
//!
//! The uuids follow from the distinct ids alone, as everywhere: the uuid of a person is made from
//! one of its ids. So the person keeps its uuid only if it keeps that id. Otherwise the uuid goes
//! with the id, and the person gets the uuid of an id that it keeps.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use crate::change::Keep;
use crate::person::DistinctId;
use weir_event::id::{PersonId, ProjectId};

/// Distinct ids of a person by position, the order in which persons got them.
pub type Ids = BTreeMap<i64, DistinctId>;

/// The part that the person keeps. Each other id gets a person with the uuid made from the id.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts {
    /// Positions of the ids that the person keeps; at least one.
    pub kept: BTreeSet<i64>,
    /// The person's uuid afterwards, made from one of them.
    pub uuid: Uuid,
}

/// The split is impossible: a named id is not one of the person's, or no id would be kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Impossible;

/// Decides which ids the person keeps. `None` if it keeps all.
pub fn parts(
    project: ProjectId,
    uuid: Uuid,
    ids: &Ids,
    keep: &Keep,
) -> Result<Option<Parts>, Impossible> {
    let own = |id: &str| PersonId::of(project, id).0;
    let by_name: HashMap<&str, i64> = ids.iter().map(|(at, id)| (&*id.text, *at)).collect();
    let position = |name: &str| by_name.get(name).copied().ok_or(Impossible);
    let kept: BTreeSet<i64> = match keep {
        Keep::One(main) => [position(main)?].into(),
        Keep::Own => {
            let made_from = ids.iter().find(|(_, id)| own(&id.text) == uuid);
            let kept = made_from.or_else(|| ids.first_key_value());
            kept.map(|(position, _)| *position).into_iter().collect()
        }
        Keep::AllBut(leaving) => {
            let leaving = leaving.iter().map(|id| position(id));
            let leaving = leaving.collect::<Result<BTreeSet<_>, _>>()?;
            ids.keys().copied().filter(|position| !leaving.contains(position)).collect()
        }
    };
    if kept.is_empty() && !ids.is_empty() {
        return Err(Impossible);
    }
    if kept.len() == ids.len() {
        return Ok(None);
    }
    let staying = || kept.iter().filter_map(|position| ids.get(position));
    let made_from = staying().find(|id| own(&id.text) == uuid).or_else(|| staying().next());
    let uuid = made_from.map_or(uuid, |id| own(&id.text));
    Ok(Some(Parts { kept, uuid }))
}

#[cfg(test)]
mod tests {
    use super::{Ids, Impossible, Parts, parts};
    use crate::change::Keep;
    use crate::person::DistinctId;
    use weir_event::id::{PersonId, ProjectId};

    #[test]
    fn the_uuid_stays_with_the_id_it_was_made_from() {
        let project = ProjectId(1);
        let uuid = |id: &str| PersonId::of(project, id).0;
        let ids = |ids: &[(i64, &str)]| -> Ids {
            let id = |text: &str| DistinctId { text: text.into(), since: None };
            ids.iter().map(|(position, text)| (*position, id(text))).collect()
        };
        let alone = ids(&[(3, "anon")]);
        let ids = ids(&[(3, "anon"), (5, "user"), (9, "late")]);
        let one = |id: &str| Keep::One(id.to_owned());
        let all_but = |ids: &[&str]| Keep::AllBut(ids.iter().map(|id| (*id).to_owned()).collect());
        for (keep, expected) in [
            (Keep::Own, Ok(Some(("user", vec![5])))),
            (one("user"), Ok(Some(("user", vec![5])))),
            (one("anon"), Ok(Some(("anon", vec![3])))),
            (one("other"), Err(Impossible)),
            (all_but(&["late"]), Ok(Some(("user", vec![3, 5])))),
            (all_but(&["user", "user"]), Ok(Some(("anon", vec![3, 9])))),
            (all_but(&["user", "anon"]), Ok(Some(("late", vec![9])))),
            (all_but(&["user", "other"]), Err(Impossible)),
            (all_but(&["late", "user", "anon"]), Err(Impossible)),
            (all_but(&[]), Ok(None)),
        ] {
            let expected = expected.map(|parts| {
                parts.map(|(id, kept)| Parts { kept: kept.into_iter().collect(), uuid: uuid(id) })
            });
            assert_eq!(parts(project, uuid("user"), &ids, &keep), expected, "{keep:?}");
        }
        assert_eq!(parts(project, uuid("anon"), &alone, &Keep::Own), Ok(None));
        assert_eq!(parts(project, uuid("anon"), &alone, &one("anon")), Ok(None));
        assert_eq!(parts(project, uuid("anon"), &Ids::new(), &Keep::Own), Ok(None));
    }
}
