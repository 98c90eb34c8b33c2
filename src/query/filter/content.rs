//! Contents of conditions, from which another process makes the same condition: [`ConditionContent`]. Of conditions on
//! persons and groups that is the set of those for whom they hold.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use weir_event::elements::criteria::Criteria;
use weir_event::predicate::Predicate;
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_event::schema::PropertyType;

/// What a condition tests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ConditionContent {
    /// The values of a column.
    Column(OfColumn),
    /// Rows of events.
    Events(OfEvents),
    /// The elements of events.
    Elements(Criteria),
    /// The sessions of events.
    Session(OfSession),
    /// The persons of events.
    Persons(OfPersons),
    /// The groups of events.
    Groups(OfGroups),
}

/// A predicate on the values of the column of a property.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OfColumn {
    /// The type of the column.
    pub(crate) kind: PropertyType,
    /// The predicate.
    pub(crate) predicate: Predicate,
    /// What dates are read by.
    pub(crate) now: Now,
    /// Whether it holds where the column is null.
    pub(crate) without: bool,
}

/// Filters on what the rows of events have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OfEvents {
    /// The filters.
    pub(crate) tree: Tree,
    /// What dates are read by.
    pub(crate) now: Now,
}

/// A predicate on a property of the sessions of events.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OfSession {
    /// The predicate, with the name of the property.
    pub(crate) predicate: Predicate,
    /// What dates are read by.
    pub(crate) now: Now,
}

/// Filters on the persons of events.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OfPersons {
    /// Whether they hold for nobody.
    pub(crate) holds_for_nobody: bool,
    /// The persons for whom that is the other way round.
    pub(crate) others: Uuids,
}

/// Filters on the groups of events, all of one type.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OfGroups {
    /// The filters, which hold for a group without properties or do not.
    pub(crate) tree: Tree,
    /// What dates are read by.
    pub(crate) now: Now,
    /// The keys of groups for which that is the other way round.
    pub(crate) others: Vec<String>,
}

/// Uuids, written as their bytes in Base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uuids(pub(crate) Vec<Uuid>);

impl Serialize for Uuids {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|uuid| *uuid.as_bytes()).collect();
        serializer.serialize_str(&STANDARD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Uuids {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)?;
        let (uuids, rest) = bytes.as_chunks();
        match rest {
            [] => Ok(Self(uuids.iter().map(|bytes| Uuid::from_bytes(*bytes)).collect())),
            _ => Err(D::Error::custom("a uuid has 16 bytes")),
        }
    }
}
