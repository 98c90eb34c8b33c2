//! Properties of events and of persons that projects promote to columns of their table: [`PromotedProperty`]. The columns of
//! a table are those of all projects together, at most [`PROMOTIONS_MAX`], and each has one type, for good: a promotion of it
//! with another type is refused, also by another project, and also after the last one has ended, because files have the column
//! still.

use std::collections::BTreeMap;

use crate::accounts::check_length;
use crate::connection::Conn;
use crate::entity::{Columns, Entity, entity, stored};
use crate::error::MetadataError;
use crate::sql::Query;
use crate::violation::Violation;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::promotion::{KEY_MAX_CHARS, PROMOTIONS_MAX, PromotedTable, Promotion};
use weir_event::schema::{PropertyType, promoted_column_name};

mod operations;

/// Properties of events with a column of another name, which every event has.
const ELSEWHERE: [(&str, &str); 10] = [
    ("$session_id", "session_id"),
    ("$window_id", "window_id"),
    ("$ip", "ip"),
    ("$elements", "elements_chain"),
    ("$elements_chain", "elements_chain"),
    ("$group_0", "group_0"),
    ("$group_1", "group_1"),
    ("$group_2", "group_2"),
    ("$group_3", "group_3"),
    ("$group_4", "group_4"),
];

stored! {
    PropertyType as String: |kind| kind.name().to_owned(), |name| {
        PropertyType::named(&name).ok_or_else(|| format!("no type of a column: {name}"))
    };
}

entity! {
    /// A property of events that a project has promoted, as a row.
    pub struct PromotedOfEvents in "promoted_properties" {
        /// The project.
        project: ProjectId as "project_id" [key],
        /// The key of the property.
        key: String [key],
        /// The type of its column.
        kind: PropertyType [once],
        /// When it was promoted.
        created_at: UnixMicros [once],
    }
}

entity! {
    /// The same of persons.
    pub struct PromotedOfPersons in "promoted_person_properties" {
        /// The project.
        project: ProjectId as "project_id" [key],
        /// The key of the property.
        key: String [key],
        /// The type of its column.
        kind: PropertyType [once],
        /// When it was promoted.
        created_at: UnixMicros [once],
    }
}

/// A property that a project has promoted.
#[derive(Clone, Debug, PartialEq)]
pub struct PromotedProperty {
    /// The project.
    pub project: ProjectId,
    /// The table that has the column.
    pub table: PromotedTable,
    /// The key of the property.
    pub key: String,
    /// The type of its column.
    pub kind: PropertyType,
    /// When it was promoted.
    pub created_at: UnixMicros,
}

impl From<PromotedOfEvents> for PromotedProperty {
    fn from(row: PromotedOfEvents) -> Self {
        let PromotedOfEvents { project, key, kind, created_at } = row;
        Self { project, table: PromotedTable::Events, key, kind, created_at }
    }
}

impl From<PromotedOfPersons> for PromotedProperty {
    fn from(row: PromotedOfPersons) -> Self {
        let PromotedOfPersons { project, key, kind, created_at } = row;
        Self { project, table: PromotedTable::Persons, key, kind, created_at }
    }
}

impl PromotedProperty {
    /// Inserts its row.
    fn insert(&self) -> Query {
        let Self { project, table, ref key, kind, created_at } = *self;
        let key = key.clone();
        match table {
            PromotedTable::Events => PromotedOfEvents { project, key, kind, created_at }.insert(),
            PromotedTable::Persons => PromotedOfPersons { project, key, kind, created_at }.insert(),
        }
    }

    /// Removes its row.
    fn delete(&self) -> Query {
        let Self { project, table, ref key, kind, created_at } = *self;
        let key = key.clone();
        match table {
            PromotedTable::Events => PromotedOfEvents { project, key, kind, created_at }.delete(),
            PromotedTable::Persons => PromotedOfPersons { project, key, kind, created_at }.delete(),
        }
    }

    /// Whether it is this property of this table.
    pub(super) fn is_of(&self, table: PromotedTable, key: &str) -> bool {
        self.table == table && self.key == key
    }

    /// The property and the type of its column.
    pub fn promotion(&self) -> Promotion {
        Promotion { key: self.key.as_str().into(), kind: self.kind }
    }
}

/// The promoted properties of a project, by table and key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Promotions {
    pub(super) rows: Vec<PromotedProperty>,
    /// Their columns in the same order, but those that the table of every server has by now.
    columns: BTreeMap<PromotedTable, Vec<Promotion>>,
}

impl Promotions {
    pub(super) fn new(mut rows: Vec<PromotedProperty>) -> Self {
        rows.sort_by(|a, b| (a.table, &a.key).cmp(&(b.table, &b.key)));
        let mut columns: BTreeMap<_, Vec<_>> = BTreeMap::new();
        // A later version may have a column of its own for a key.
        for own in rows.iter().filter(|own| !own.table.is_fixed(&own.key)) {
            columns.entry(own.table).or_default().push(own.promotion());
        }
        Self { rows, columns }
    }

    /// The columns of a table.
    pub(super) fn columns(&self, table: PromotedTable) -> &[Promotion] {
        self.columns.get(&table).map_or(&[], |own| own)
    }
}

/// A promotion that is asked for.
#[derive(Clone, Debug)]
pub struct NewPromotion {
    /// The table that is to have the column.
    pub table: PromotedTable,
    /// The key of the property.
    pub key: String,
    /// The type of the column.
    pub kind: PropertyType,
    /// The column that the table has for it already, whoever made that.
    pub stored: Option<StoredColumn>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredColumn {
    /// Its name, which may differ in case from that of the promotion.
    pub name: String,
    /// The name of its type: that of a [`PropertyType`], or another one.
    pub kind: String,
}

/// Checks the key of a property that is to get a column of a table.
///
/// # Errors
///
/// It is empty, too long, a part of addresses that clients leave out, has control characters, or has a column that every
/// row of the table has.
pub fn check_key(table: PromotedTable, key: &str) -> Result<(), Violation> {
    if key.is_empty() {
        return Err(Violation::blank("key"));
    }
    check_length("key", key, KEY_MAX_CHARS)?;
    if matches!(key, "." | "..") {
        return Err(of_key("Clients leave this key out of addresses, so it cannot have a column."));
    }
    if key.chars().any(char::is_control) {
        return Err(of_key("A key with control characters cannot have a column."));
    }
    let fixed = table.is_fixed(key).then(|| promoted_column_name(key));
    let elsewhere = match table {
        PromotedTable::Events => ELSEWHERE.iter().find(|(own, _)| *own == key),
        PromotedTable::Persons => None,
    };
    match fixed.or_else(|| elsewhere.map(|(_, column)| (*column).to_owned())) {
        Some(column) => Err(of_key(format!("The property {key} has a column already, {column}."))),
        None => Ok(()),
    }
}

/// Checks a promotion against the `columns` of its table that are promoted already.
fn check_column(new: &NewPromotion, columns: &[Promotion]) -> Result<(), Violation> {
    let name = promoted_column_name(&new.key);
    let wanted = name.to_lowercase();
    let fixed =
        new.table.fixed().iter().map(|(key, kind)| (promoted_column_name(key), kind.name()));
    let promoted = columns.iter().map(|own| (own.column(), own.kind.name()));
    let stored = new.stored.iter().map(|own| (own.name.clone(), own.kind.as_str()));
    for (own, kind) in fixed.chain(promoted).chain(stored) {
        // Readers of the files do not tell names apart that differ in case alone.
        if own != name && own.to_lowercase() == wanted {
            let detail = format!("The column {name} would differ in case alone from {own}.");
            return Err(of_key(detail));
        }
        if own == name && kind != new.kind.name() {
            let detail = format!("The column {name} is {kind}, and stays it.");
            return Err(Violation { code: "invalid_input", detail, attr: Some("type") });
        }
    }
    let is_known = columns.iter().any(|own| *own.key == *new.key);
    if !is_known && columns.len() >= PROMOTIONS_MAX {
        let detail = format!(
            "The projects of a server promote at most {PROMOTIONS_MAX} properties of {}.",
            new.table.name()
        );
        return Err(Violation::general(detail));
    }
    Ok(())
}

fn of_key(detail: impl Into<String>) -> Violation {
    Violation { code: "invalid_input", detail: detail.into(), attr: Some("key") }
}

/// Reads the promoted properties of one project or of all, by project.
pub(super) async fn all(
    connection: &mut Conn,
    only: Option<ProjectId>,
) -> Result<Vec<PromotedProperty>, MetadataError> {
    let only = only.map(|project| project.0);
    let of_events = PromotedOfEvents::select(
        "WHERE (CAST($1 AS BIGINT) IS NULL OR project_id = $1) ORDER BY project_id, key",
    );
    let of_events = of_events.bind(only).fetch_all(&mut *connection).await?;
    let of_persons = PromotedOfPersons::select(
        "WHERE (CAST($1 AS BIGINT) IS NULL OR project_id = $1) ORDER BY project_id, key",
    );
    let of_persons = of_persons.bind(only).fetch_all(connection).await?;
    let mut all: Vec<PromotedProperty> = of_events.into_iter().map(Into::into).collect();
    all.extend(of_persons.into_iter().map(PromotedProperty::from));
    all.sort_by_key(|own| own.project);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::{NewPromotion, StoredColumn, check_column, check_key};
    use weir_event::promotion::PromotedTable::{Events, Persons};
    use weir_event::promotion::{KEY_MAX_CHARS, PROMOTIONS_MAX, Promotion};
    use weir_event::schema::PropertyType;

    #[test]
    fn keys_are_checked() {
        let long = "x".repeat(KEY_MAX_CHARS);
        for key in ["plan", "$plan", "a b", " ", "ü", "P", long.as_str()] {
            assert_eq!(check_key(Events, key), Ok(()), "{key}");
        }
        for key in ["plan", "$os", "price", "$ip", "$group_4", long.as_str()] {
            assert_eq!(check_key(Persons, key), Ok(()), "{key}");
        }
        for key in ["", ".", "..", "a\0b"] {
            assert!(check_key(Persons, key).is_err(), "{key:?}");
        }
        let too_long = "ü".repeat(KEY_MAX_CHARS + 1);
        for (key, detail) in [
            ("", "This field may not be blank."),
            (too_long.as_str(), "Ensure this field has no more than 200 characters."),
            ("a\0b", "A key with control characters cannot have a column."),
            ("a\nb", "A key with control characters cannot have a column."),
            ("$os", "The property $os has a column already, p_$os."),
            ("price", "The property price has a column already, p_price."),
            ("$ip", "The property $ip has a column already, ip."),
            (
                "$elements_chain",
                "The property $elements_chain has a column already, elements_chain.",
            ),
            ("$group_4", "The property $group_4 has a column already, group_4."),
        ] {
            let violation = check_key(Events, key).expect_err(key);
            assert_eq!((violation.detail.as_str(), violation.attr), (detail, Some("key")));
        }
    }

    fn column(key: &str, kind: PropertyType) -> Promotion {
        Promotion { key: key.into(), kind }
    }

    fn new(key: &str, kind: PropertyType) -> NewPromotion {
        NewPromotion { table: Events, key: key.to_owned(), kind, stored: None }
    }

    #[test]
    fn a_column_keeps_its_type_and_its_case() {
        use PropertyType::{Boolean, Double, Text};

        let columns = [column("plan", Text), column("seats", Double)];
        let checked = |new: &NewPromotion| check_column(new, &columns).map_err(|own| own.detail);
        assert_eq!(checked(&new("plan", Text)), Ok(()));
        assert_eq!(checked(&new("paid", Boolean)), Ok(()));
        let stays = Err("The column p_plan is text, and stays it.".to_owned());
        assert_eq!(checked(&new("plan", Double)), stays);
        let case = |name: &str, own: &str| {
            Err(format!("The column {name} would differ in case alone from {own}."))
        };
        assert_eq!(checked(&new("Plan", Text)), case("p_Plan", "p_plan"));
        assert_eq!(checked(&new("$OS", Text)), case("p_$OS", "p_$os"));
        let of_persons = |key: &str| NewPromotion { table: Persons, ..new(key, Text) };
        assert_eq!(checked(&of_persons("$OS")), Ok(()));
        assert_eq!(checked(&of_persons("Plan")), case("p_Plan", "p_plan"));
        let stored = |name: &str, kind: &str| {
            let stored = StoredColumn { name: name.to_owned(), kind: kind.to_owned() };
            checked(&NewPromotion { stored: Some(stored), ..new("paid", Boolean) })
        };
        assert_eq!(stored("p_paid", "boolean"), Ok(()));
        let stays = Err("The column p_paid is number, and stays it.".to_owned());
        assert_eq!(stored("p_paid", "number"), stays);
        assert_eq!(stored("p_Paid", "boolean"), case("p_paid", "p_Paid"));
    }

    #[test]
    fn there_are_so_many_columns() {
        let columns: Vec<Promotion> =
            (0..PROMOTIONS_MAX).map(|at| column(&format!("k{at}"), PropertyType::Text)).collect();
        assert!(check_column(&new("k7", PropertyType::Text), &columns).is_ok());
        assert!(check_column(&new("more", PropertyType::Text), &columns[1..]).is_ok());
        for table in [Events, Persons] {
            let more = NewPromotion { table, ..new("more", PropertyType::Text) };
            let violation = check_column(&more, &columns);
            let of = table.name();
            let detail = format!("The projects of a server promote at most 50 properties of {of}.");
            assert_eq!(violation.map_err(|own| own.detail), Err(detail));
        }
    }
}
