//! What operators do to persons, as the log keeps it: an operation stands in the log among the
//! requests of senders and takes effect in its place, also in every replay.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | layout of this record: 2 (1 is a request, see `envelope`) |
//! | 8 | project, i64 |
//! | 8 | asked for at, microseconds since 1970, i64 |
//! | rest | [`Action`] as JSON |
//!
//! All numbers are little endian. Persons are named by their uuids, which mean the same whatever was
//! merged before, and not by their numbers, which a rebuilt identity store may give out differently.

use serde::Deserialize;
use serde::Serialize;
use serde_json::Map;
use serde_json::Value;
use uuid::Uuid;

use crate::clock::UnixMicros;
use crate::event::id::ProjectId;
use crate::identity::change::Extent;
use crate::identity::change::Op;
use crate::identity::change::OpKind;
use crate::identity::change::Update;
use crate::ingest::envelope::UnknownRecord;
use crate::ingest::prepare::Prepared;

/// First byte of such a record.
pub(super) const LAYOUT: u8 = 2;

/// An operation on persons of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The project.
    pub project: ProjectId,
    /// When it was asked for.
    pub at: UnixMicros,
    /// What is to be done.
    pub action: Action,
}

/// What is to be done. One that is here stays as it is for as long as logs may hold it.
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
    },
    /// See [`OpKind::Change`].
    ChangePerson {
        /// Uuid of the person.
        person: String,
        /// Properties to set.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        set: Map<String, Value>,
        /// Properties to remove.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unset: Vec<String>,
    },
    /// Persons without their events. See [`OpKind::Delete`].
    DeletePersons {
        /// Uuids of the persons.
        persons: Vec<String>,
    },
    /// All events of persons up to here. See [`OpKind::Delete`].
    DeleteEvents {
        /// Uuids of the persons.
        persons: Vec<String>,
        /// Whether the persons stay.
        keep_persons: bool,
    },
}

impl Operation {
    /// The record.
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![LAYOUT];
        record.extend(self.project.0.to_le_bytes());
        record.extend(self.at.0.to_le_bytes());
        // Text and options of text: there is nothing in it that JSON cannot say.
        record.extend(serde_json::to_vec(&self.action).unwrap_or_default());
        record
    }

    /// Reads a record.
    ///
    /// # Errors
    ///
    /// The record is no operation, or one of another version.
    pub fn decode(record: &[u8]) -> Result<Self, UnknownRecord> {
        let rest = record.strip_prefix(&[LAYOUT]).ok_or(UnknownRecord)?;
        let (project, rest) = rest.split_first_chunk().ok_or(UnknownRecord)?;
        let (at, action) = rest.split_first_chunk().ok_or(UnknownRecord)?;
        Ok(Self {
            project: ProjectId(i64::from_le_bytes(*project)),
            at: UnixMicros(i64::from_le_bytes(*at)),
            action: serde_json::from_slice(action).map_err(|_| UnknownRecord)?,
        })
    }

    /// Its effect: no rows, one op for each person.
    ///
    /// # Errors
    ///
    /// It names a person by something that is no uuid.
    pub fn prepare(self) -> Result<Prepared, UnknownRecord> {
        let uuid = |text: &str| Uuid::try_parse(text).map_err(|_| UnknownRecord);
        let kinds = match self.action {
            Action::SplitPerson { person, main_distinct_id } => {
                vec![OpKind::Split { person: uuid(&person)?, main: main_distinct_id }]
            }
            Action::ChangePerson { person, set, unset } => {
                let update = Update { set, unset, ..Update::default() };
                vec![OpKind::Change { person: uuid(&person)?, update }]
            }
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
        Ok(Prepared::without_rows(self.project, self.at, kinds.into_iter().map(op).collect()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;
    use serde_json::Value;

    use super::Action;
    use super::Operation;
    use crate::clock::UnixMicros;
    use crate::event::id::ProjectId;
    use crate::identity::change::Extent;
    use crate::identity::change::OpKind;

    #[test]
    fn records_read_back_and_others_are_refused() {
        let person = "1849e1c7-0485-59dc-9a2e-2746a4fbbcff";
        for main in [None, Some("caf\u{e9} \"x\"")] {
            let main = main.map(str::to_owned);
            let operation = Operation {
                project: ProjectId(7),
                at: UnixMicros(1_700_000_000_123_456),
                action: Action::SplitPerson {
                    person: person.to_owned(),
                    main_distinct_id: main.clone(),
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
            let OpKind::Split { person: uuid, main: kept } = &prepared.ops[0].kind else {
                panic!("{:?}", prepared.ops)
            };
            assert_eq!((uuid.to_string().as_str(), kept), (person, &main));
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
            let operation = Operation { project: ProjectId(7), at: UnixMicros(1), action };
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
        let of_later = [&[2; 17][..], br#"{"action":"of_a_later_version"}"#].concat();
        assert!(Operation::decode(&of_later).is_err());
    }
}
