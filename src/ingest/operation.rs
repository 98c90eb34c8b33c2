//! Log record of an operation: what an operator does to persons or groups. An operation has a log
//! sequence among the requests of senders and takes effect at that position, also in every replay.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | layout of this record: 4, or 2 without the user (1 and 3 are requests, see `log_record`) |
//! | 8 | project, i64 |
//! | 8 | requested at, microseconds since 1970, i64 |
//! | 8 | id of the user who requested it, i64; 0 for no user |
//! | rest | [`Action`] as JSON |
//!
//! All numbers are little endian. Persons are identified by uuids, which stay valid across merges. Their
//! numbers are not used: a rebuilt identity store may assign others.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::log_record::UnknownRecord;
use crate::prepared::Prepared;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::json;
use weir_identity::change::{Extent, GroupChange, Keep, Op, OpKind, Update};
use weir_metadata::accounts::UserId;

/// First byte of the record.
const LAYOUT: u8 = 4;

/// First byte of records of versions that did not store the user.
const LAYOUT_WITHOUT_USER: u8 = 2;

/// An operation on persons or a group of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The project.
    pub project: ProjectId,
    /// When it was requested.
    pub at: UnixMicros,
    /// The user who requested it.
    pub by: Option<UserId>,
    /// What to do.
    pub action: Action,
}

/// What to do. A variant must not change as long as logs may contain it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// See [`OpKind::Split`].
    SplitPerson {
        /// Uuid of the person.
        person: String,
        /// The distinct id that it keeps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        main_distinct_id: Option<String>,
        /// The distinct ids that are split off; without them all but one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        distinct_ids_to_split: Option<Vec<String>>,
    },
    /// See [`OpKind::Change`].
    ChangePerson {
        /// Uuid of the person.
        person: String,
        /// Properties to set.
        #[serde(default, skip_serializing_if = "Map::is_empty", deserialize_with = "json::object")]
        set: Map<String, Value>,
        /// Properties to remove.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unset: Vec<String>,
    },
    /// See [`OpKind::ChangeGroup`].
    ChangeGroup {
        /// Name of the group type.
        group_type: String,
        /// The group types of the project, by index: the identity store may not have applied a type that only
        /// `$groups` has used. Absent in records of older versions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        group_types: Vec<String>,
        /// Key of the group.
        key: String,
        /// Whether to create the group.
        #[serde(default)]
        is_new: bool,
        /// Properties to set.
        #[serde(default, skip_serializing_if = "Map::is_empty", deserialize_with = "json::object")]
        set: Map<String, Value>,
        /// Properties to remove.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unset: Vec<String>,
    },
    /// A server took over a log in a bucket. The record has no effect but its place in the log.
    TakeLog {
        /// Uuid of this opening of the log.
        writer: String,
    },
    /// Deletes persons, but not their events. See [`OpKind::Delete`].
    DeletePersons {
        /// Uuids of the persons.
        persons: Vec<String>,
    },
    /// Deletes all events of persons with a lower log sequence. See [`OpKind::Delete`].
    DeleteEvents {
        /// Uuids of the persons.
        persons: Vec<String>,
        /// Whether to keep the persons.
        keep_persons: bool,
    },
    /// Deletes the project. See [`OpKind::DeleteProject`].
    DeleteProject {},
}

impl Operation {
    /// Whether a record is an operation.
    pub(super) fn is_in(record: &[u8]) -> bool {
        matches!(record.first(), Some(&(LAYOUT | LAYOUT_WITHOUT_USER)))
    }

    /// Encodes the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![LAYOUT];
        record.extend(self.project.0.to_le_bytes());
        record.extend(self.at.0.to_le_bytes());
        record.extend(self.by.map_or(0, |user| user.0).to_le_bytes());
        // Only text and JSON values: always serializable.
        record.extend(serde_json::to_vec(&self.action).unwrap_or_default());
        record
    }

    /// Reads a record.
    ///
    /// # Errors
    ///
    /// The record is not an operation, or is of another version.
    pub fn decode(record: &[u8]) -> Result<Self, UnknownRecord> {
        let (layout, rest) = record.split_first().ok_or(UnknownRecord)?;
        let (project, rest) = rest.split_first_chunk().ok_or(UnknownRecord)?;
        let (at, rest) = rest.split_first_chunk().ok_or(UnknownRecord)?;
        let (by, action) = match *layout {
            LAYOUT => rest.split_first_chunk().ok_or(UnknownRecord)?,
            LAYOUT_WITHOUT_USER => (&[0; 8], rest),
            _ => return Err(UnknownRecord),
        };
        let by = i64::from_le_bytes(*by);
        Ok(Self {
            project: ProjectId(i64::from_le_bytes(*project)),
            at: UnixMicros(i64::from_le_bytes(*at)),
            by: (by != 0).then_some(UserId(by)),
            action: action_of(action).map_err(|_| UnknownRecord)?,
        })
    }

    /// Decodes its own `record`, as a replay will, and checks that the result is the same.
    ///
    /// # Errors
    ///
    /// A replay would reject the record, or do something else.
    pub(super) fn replayed(self, record: &[u8]) -> Result<Self, UnknownRecord> {
        Self::decode(record)
            .and_then(|read| if read == self { Ok(read) } else { Err(UnknownRecord) })
    }

    /// Prepares its effect: no rows, one op per person or group.
    ///
    /// # Errors
    ///
    /// A person's id is not a uuid.
    pub fn prepare(self) -> Result<Prepared, UnknownRecord> {
        let uuid = |text: &str| Uuid::try_parse(text).map_err(|_| UnknownRecord);
        let kinds = match self.action {
            Action::SplitPerson { person, main_distinct_id, distinct_ids_to_split } => {
                let keep = match (main_distinct_id, distinct_ids_to_split) {
                    (_, Some(leaving)) => Keep::AllBut(leaving),
                    (Some(main), None) => Keep::One(main),
                    (None, None) => Keep::Own,
                };
                vec![OpKind::Split { person: uuid(&person)?, keep }]
            }
            Action::ChangePerson { person, set, unset } => {
                let update = Update { set, unset, ..Update::default() };
                vec![OpKind::Change { person: uuid(&person)?, update }]
            }
            Action::ChangeGroup { group_type, group_types, key, is_new, set, unset } => {
                let change = GroupChange { group_type, key, is_new, set, unset };
                vec![OpKind::GroupTypes(group_types), OpKind::ChangeGroup(change)]
            }
            Action::TakeLog { .. } => Vec::new(),
            Action::DeleteProject {} => vec![OpKind::DeleteProject],
            Action::DeletePersons { persons } => {
                let extent = Extent::Person;
                let delete = |person: &String| Ok(OpKind::Delete { person: uuid(person)?, extent });
                persons.iter().map(delete).collect::<Result<_, _>>()?
            }
            Action::DeleteEvents { persons, keep_persons } => {
                let extent = if keep_persons { Extent::Events } else { Extent::Both };
                let delete = |person: &String| Ok(OpKind::Delete { person: uuid(person)?, extent });
                persons.iter().map(delete).collect::<Result<_, _>>()?
            }
        };
        let timestamp = self.at;
        let op = |kind| Op { distinct_id: String::new(), event_id: Uuid::nil(), timestamp, kind };
        let ops = kinds.into_iter().map(op).collect();
        Ok(Prepared { by: self.by, ..Prepared::without_rows(self.project, self.at, ops) })
    }
}

/// Reads an action. Values are restored as they were: nested one object deeper than in the request, and
/// without interpreting their keys.
fn action_of(text: &[u8]) -> Result<Action, serde_json::Error> {
    Action::deserialize(json::restore::<Value>(text)?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use serde_json::json;

    use super::{Action, Operation};
    use weir_base::clock::UnixMicros;
    use weir_event::id::ProjectId;
    use weir_identity::change::{Extent, GroupChange, Keep, OpKind};
    use weir_metadata::accounts::UserId;

    /// Goal: the immediate effect and the effect of a replay are the same.
    #[test]
    fn values_are_replayed_as_they_are_or_not_logged() {
        let nested = |depth: usize| (0..depth).fold(Value::from(0), |inside, _| json!([inside]));
        let record = |value: &Value| Operation {
            project: ProjectId(7),
            at: UnixMicros(1),
            by: None,
            action: Action::ChangePerson {
                person: "1849e1c7-0485-59dc-9a2e-2746a4fbbcff".to_owned(),
                set: Map::from_iter([("a".to_owned(), value.clone())]),
                unset: Vec::new(),
            },
        };
        let raw = "$serde_json::private::RawValue";
        for value in [
            json!({raw: "[1]"}),
            json!({raw: "not JSON"}),
            json!([{raw: {raw: "{}"}}]),
            json!([0.1, -0.0, 7.038531e-26, 1.7976931348623157e308, u64::MAX, i64::MIN, null]),
            nested(100),
            nested(127),
            nested(200),
        ] {
            let operation = record(&value);
            let read = operation.clone().replayed(&operation.encode()).unwrap();
            assert_eq!(read, operation, "{value}");
        }
        let (deep, other) = (record(&nested(300)), record(&json!(1)));
        assert!(deep.clone().replayed(&deep.encode()).is_err());
        assert!(deep.replayed(&other.encode()).is_err());
    }

    #[test]
    fn changes_of_groups_read_back() {
        for (is_new, unset) in [(true, vec![]), (false, vec!["age".to_owned()])] {
            let set = Map::from_iter([("plan".to_owned(), Value::from("pro"))]);
            let (group_type, key) = ("company".to_owned(), "acme".to_owned());
            let group_types = vec!["team".to_owned(), group_type.clone()];
            let action = Action::ChangeGroup {
                group_type: group_type.clone(),
                group_types: group_types.clone(),
                key: key.clone(),
                is_new,
                set: set.clone(),
                unset: unset.clone(),
            };
            let operation =
                Operation { project: ProjectId(7), at: UnixMicros(1), by: Some(UserId(1)), action };
            let read = Operation::decode(&operation.encode()).unwrap();
            assert_eq!(read, operation);
            let ops = read.prepare().unwrap().ops;
            let [types, op] = &ops[..] else { panic!("{ops:?}") };
            let OpKind::GroupTypes(named) = &types.kind else { panic!("{types:?}") };
            assert_eq!(*named, group_types);
            let OpKind::ChangeGroup(change) = &op.kind else { panic!("{op:?}") };
            assert_eq!(*change, GroupChange { group_type, key, is_new, set, unset });
        }
        let older = br#"{"action":"change_group","group_type":"company","key":"acme"}"#;
        let Ok(Action::ChangeGroup { group_types, .. }) = super::action_of(older) else {
            panic!("a record of an older version is read");
        };
        assert!(group_types.is_empty());
    }

    #[test]
    fn records_read_back_and_others_are_refused() {
        let person = "1849e1c7-0485-59dc-9a2e-2746a4fbbcff";
        let main = "caf\u{e9} \"x\"".to_owned();
        for (by, keep) in [
            (None, Keep::Own),
            (Some(UserId(3)), Keep::One(main.clone())),
            (Some(UserId(i64::MAX)), Keep::AllBut(vec![main, String::new()])),
        ] {
            let (main_distinct_id, distinct_ids_to_split) = match keep.clone() {
                Keep::Own => (None, None),
                Keep::One(id) => (Some(id), None),
                Keep::AllBut(ids) => (None, Some(ids)),
            };
            let operation = Operation {
                project: ProjectId(7),
                at: UnixMicros(1_700_000_000_123_456),
                by,
                action: Action::SplitPerson {
                    person: person.to_owned(),
                    main_distinct_id,
                    distinct_ids_to_split,
                },
            };
            let record = operation.encode();
            let read = Operation::decode(&record).unwrap();
            assert_eq!(read, operation);
            for cut in 0..record.len() {
                assert!(Operation::decode(&record[..cut]).is_err(), "cut at {cut}");
            }
            let prepared = read.prepare().unwrap();
            assert_eq!((prepared.rows, prepared.project, prepared.ops.len()), (0, ProjectId(7), 1));
            assert_eq!(prepared.by, by);
            let OpKind::Split { person: uuid, keep: kept } = &prepared.ops[0].kind else {
                panic!("{:?}", prepared.ops)
            };
            assert_eq!((uuid.to_string().as_str(), kept), (person, &keep));
        }
        let others = [
            Action::ChangePerson {
                person: person.to_owned(),
                set: Map::from_iter([("plan".to_owned(), Value::from("pro"))]),
                unset: vec!["age".to_owned()],
            },
            Action::DeletePersons { persons: vec![person.to_owned(); 2] },
            Action::DeleteEvents { persons: vec![person.to_owned(); 2], keep_persons: false },
            Action::DeleteEvents { persons: vec![person.to_owned(); 2], keep_persons: true },
        ];
        let mut extents = Vec::new();
        for action in others {
            let by = Some(UserId(1));
            let operation = Operation { project: ProjectId(7), at: UnixMicros(1), by, action };
            let read = Operation::decode(&operation.encode()).unwrap();
            assert_eq!(read, operation);
            let ops = read.prepare().unwrap().ops;
            match (&ops[0].kind, ops.len()) {
                (OpKind::Change { person: uuid, update }, 1) => {
                    assert_eq!(uuid.to_string(), person);
                    assert_eq!(
                        (&update.set["plan"], &update.unset[..]),
                        (&Value::from("pro"), &["age".to_owned()][..])
                    );
                }
                (OpKind::Delete { person: uuid, extent }, 2) => {
                    assert_eq!(uuid.to_string(), person);
                    extents.push(*extent);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(extents, [Extent::Person, Extent::Both, Extent::Events]);
        for (layout, head) in [(2, 16), (4, 24)] {
            let record = |action: &[u8]| [&[layout][..], &vec![7; head], action].concat();
            assert!(Operation::decode(&record(br#"{"action":"of_a_later_version"}"#)).is_err());
            let deletion = format!(r#"{{"action":"delete_persons","persons":["{person}"]}}"#);
            let read = Operation::decode(&record(deletion.as_bytes())).unwrap();
            assert_eq!(read.by, (layout == 4).then_some(UserId(0x0707_0707_0707_0707)));
        }
    }
}
