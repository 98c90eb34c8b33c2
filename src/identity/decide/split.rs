//! The rule by which one person becomes several: the way back from a merge.
//!
//! Which person is which follows from the distinct ids alone, as everywhere: the uuid of a person is
//! made from one of the ids it has. So the person keeps its uuid only if it keeps that id; otherwise
//! the uuid goes with the id, and the person takes the uuid of the id that it keeps.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::event::id::PersonId;
use crate::event::id::ProjectId;

/// Distinct ids of a person by position, that is in the order in which persons got them.
pub type Ids = BTreeMap<i64, Box<str>>;

/// What becomes of the person. Each of the other ids gets a person with the uuid made from it.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts {
    /// Position of the id that stays.
    pub kept: i64,
    /// The person's uuid afterwards, made from that id.
    pub uuid: Uuid,
}

/// Decides who keeps what. `None` if there is nothing to split, or `main` is none of `ids`.
pub fn parts(project: ProjectId, uuid: Uuid, ids: &Ids, main: Option<&str>) -> Option<Parts> {
    let own = |id: &str| PersonId::of(project, id).0;
    let kept = match main {
        Some(main) => ids.iter().find(|(_, id)| id.as_ref() == main),
        None => ids.iter().find(|(_, id)| own(id) == uuid).or_else(|| ids.first_key_value()),
    };
    let (kept, id) = kept?;
    (ids.len() > 1).then(|| Parts { kept: *kept, uuid: own(id) })
}

#[cfg(test)]
mod tests {
    use super::Ids;
    use super::Parts;
    use super::parts;
    use crate::event::id::PersonId;
    use crate::event::id::ProjectId;

    #[test]
    fn the_uuid_stays_with_the_id_it_was_made_from() {
        let project = ProjectId(1);
        let uuid = |id: &str| PersonId::of(project, id).0;
        let ids: Ids = [(3, "anon".into()), (5, "user".into()), (9, "late".into())].into();
        for (main, expected) in [
            (None, Some(("user", 5))),
            (Some("user"), Some(("user", 5))),
            (Some("anon"), Some(("anon", 3))),
            (Some("other"), None),
        ] {
            let expected = expected.map(|(id, kept)| Parts { kept, uuid: uuid(id) });
            assert_eq!(parts(project, uuid("user"), &ids, main), expected, "{main:?}");
        }
        let alone: Ids = [(3, "anon".into())].into();
        assert_eq!(parts(project, uuid("anon"), &alone, None), None);
        assert_eq!(parts(project, uuid("anon"), &Ids::new(), None), None);
    }
}
