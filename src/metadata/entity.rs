//! Entities: structs whose fields are the columns of a table. [`entity!`] declares one: its fields, the columns that
//! hold them, which of these change, which the activity log compares, and which a client may change. Statements, the
//! reading of rows, logged fields and patches all follow from the declaration, so that a new column is one line there,
//! besides its migration.
//!
//! [`Stored`] is how a type of fields is held by a column. What a statement that selects asks for is written where it is
//! needed; the columns come from the declaration ([`Columns::select`]), by whose names a row is read. None selects `*`:
//! another server may add a column, and PostgreSQL then refuses what was prepared for the columns of before.

use serde_json::{Map, Value};
use sqlx::{AssertSqlSafe, ColumnIndex, Decode, Type};

use crate::connection::Conn;
pub(super) use crate::entity::values::{Stored, named, named_item, named_items, stored};
use crate::error::MetadataError;
use crate::sql::{Bind, Builder, Query, QueryAs, Row, query, query_as, query_scalar};

mod values;

/// A column: its name, and what it is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    name: &'static str,
    is_key: bool,
    is_once: bool,
    is_unique: bool,
    logged: Option<&'static str>,
}

/// Which columns a statement needs the values of.
type IsAsked = fn(&Column) -> bool;

impl Column {
    /// A column that an update overwrites.
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, is_key: false, is_once: false, is_unique: false, logged: None }
    }

    /// It is part of the primary key.
    pub(super) const fn key(self) -> Self {
        Self { is_key: true, is_once: true, ..self }
    }

    /// It is written when the row is inserted, and never again.
    pub(super) const fn once(self) -> Self {
        Self { is_once: true, ..self }
    }

    /// No other row has its value, whatever the key is: [`Entity::insert_new`] asks for it.
    pub(super) const fn unique(self) -> Self {
        Self { is_unique: true, ..self }
    }

    /// The activity log compares it.
    pub(super) const fn logged(self) -> Self {
        self.logged_as(self.name)
    }

    /// The activity log compares it, under another name.
    pub(super) const fn logged_as(self, name: &'static str) -> Self {
        Self { logged: Some(name), ..self }
    }

    /// Appends the value of a row in it, if it is asked for.
    pub(super) fn store(self, value: &impl Stored, is_asked: IsAsked, to: &mut Vec<Bind>) {
        if is_asked(&self) {
            to.push(value.store().into());
        }
    }

    /// Adds the value of a row in it as the activity log shows it, if the log compares it.
    pub(super) fn log(self, value: &impl Stored, to: &mut Map<String, Value>) {
        if let Some(name) = self.logged {
            to.insert(name.to_owned(), value.shown());
        }
    }

    fn is_key(&self) -> bool {
        self.is_key
    }

    fn is_changing(&self) -> bool {
        !self.is_once
    }

    fn is_unique(&self) -> bool {
        self.is_unique
    }
}

/// A struct whose fields are columns of a table, all of them or some; see [`entity!`].
pub(super) trait Columns: Row {
    const TABLE: &'static str;

    /// Its columns in the order of the declaration, then those of each of its parts. Statements are made of them without a
    /// row, so that no value is serialized for the name of its column.
    const COLUMNS: &'static [Column];

    /// The values of those columns that are asked for, in the order of [`Columns::COLUMNS`].
    fn cells(&self, is_asked: IsAsked) -> Vec<Bind>;

    /// The values of the columns that the activity log compares.
    fn logged_cells(&self) -> Map<String, Value>;

    /// The names of its columns.
    fn columns() -> String {
        joined(names::<Self>(|_| true).map(str::to_owned))
    }

    /// Selects rows: its columns, and after the table what `rest` says.
    fn select(rest: &'static str) -> QueryAs<Self> {
        query_as(AssertSqlSafe(format!("{} {rest}", selecting::<Self>())))
    }

    /// As [`Columns::select`], for a statement that is put together.
    fn selecting(rest: &'static str) -> Builder {
        Builder::of(format!("{} {rest}", selecting::<Self>()))
    }
}

/// One whose fields are all columns of the table: a row. Only rows are written: what has a part of the columns would leave
/// the others out.
pub(super) trait Entity: Columns {
    /// Inserts the row.
    fn insert(&self) -> Query {
        statement(inserting::<Self>(), self.cells(|_| true))
    }

    /// Inserts the row, unless there is one with the same value in the columns marked as unique, or with its key if there are
    /// none. Whatever else is in the way is an error.
    fn insert_new(&self) -> Query {
        statement(inserting_new::<Self>(), self.cells(|_| true))
    }

    /// Inserts the row, or overwrites the one with its key.
    fn put(&self) -> Query {
        const { assert!(has_key::<Self>() && is_changed::<Self>(), "an insert is all there is") };
        statement(putting::<Self>(), self.cells(|_| true))
    }

    /// Overwrites the row.
    fn update(&self) -> Query {
        const { assert!(has_key::<Self>() && is_changed::<Self>(), "nothing to overwrite") };
        let mut values = self.cells(Column::is_changing);
        values.extend(self.cells(Column::is_key));
        statement(updating::<Self>(), values)
    }

    /// Removes the row.
    fn delete(&self) -> Query {
        const { assert!(has_key::<Self>(), "all rows would go") };
        statement(deleting::<Self>(), self.cells(Column::is_key))
    }
}

/// Changes to an entity; see [`entity!`].
pub(super) trait Patch<E> {
    /// The entity with the changes.
    fn applied(self, to: E) -> E;
}

/// The columns of all lists, of which there are `N`.
pub(super) const fn concat<const N: usize>(lists: &[&[Column]]) -> [Column; N] {
    let mut all = [Column::new(""); N];
    let (mut left, mut lists) = (all.as_mut_slice(), lists);
    while let [list, further @ ..] = lists {
        let mut list = *list;
        while let [column, after @ ..] = list {
            let [place, free @ ..] = left else { break };
            *place = *column;
            (list, left) = (after, free);
        }
        lists = further;
    }
    all
}

/// All statements that write rows, except [`Entity::put`] and [`Entity::update`] of what never changes.
#[cfg(test)]
pub(super) fn written<E: Entity>() -> Vec<String> {
    let mut all = vec![inserting::<E>(), inserting_new::<E>(), deleting::<E>()];
    if is_changed::<E>() {
        all.extend([putting::<E>(), updating::<E>()]);
    }
    all
}

const fn has_key<E: Entity>() -> bool {
    let mut columns = E::COLUMNS;
    while let [column, after @ ..] = columns {
        if column.is_key {
            return true;
        }
        columns = after;
    }
    false
}

/// Whether it has columns that an update overwrites.
const fn is_changed<E: Entity>() -> bool {
    let mut columns = E::COLUMNS;
    while let [column, after @ ..] = columns {
        if !column.is_once {
            return true;
        }
        columns = after;
    }
    false
}

/// The names of those columns that are asked for.
fn names<E: Columns>(is_asked: IsAsked) -> impl Iterator<Item = &'static str> {
    E::COLUMNS.iter().filter(move |column| is_asked(column)).map(|column| column.name)
}

/// The beginning of a statement that selects.
pub(super) fn selecting<E: Columns>() -> String {
    format!("SELECT {} FROM {}", E::columns(), E::TABLE)
}

fn inserting<E: Entity>() -> String {
    let numbers = (1..=names::<E>(|_| true).count()).map(|number| format!("${number}"));
    format!("INSERT INTO {} ({}) VALUES ({})", E::TABLE, E::columns(), joined(numbers))
}

fn inserting_new<E: Entity>() -> String {
    let unique: Vec<_> = names::<E>(Column::is_unique).collect();
    let unique = if unique.is_empty() { names::<E>(Column::is_key).collect() } else { unique };
    format!("{} ON CONFLICT ({}) DO NOTHING", inserting::<E>(), unique.join(", "))
}

fn putting<E: Entity>() -> String {
    let keys = joined(names::<E>(Column::is_key).map(str::to_owned));
    let changing = names::<E>(Column::is_changing).map(|name| format!("{name} = excluded.{name}"));
    format!("{} ON CONFLICT ({keys}) DO UPDATE SET {}", inserting::<E>(), joined(changing))
}

fn updating<E: Entity>() -> String {
    let set = assigned(1, names::<E>(Column::is_changing), ", ");
    let is_row = where_key::<E>(names::<E>(Column::is_changing).count() + 1);
    format!("UPDATE {} SET {set} WHERE {is_row}", E::TABLE)
}

fn deleting<E: Entity>() -> String {
    format!("DELETE FROM {} WHERE {}", E::TABLE, where_key::<E>(1))
}

/// The condition for the row with a key whose first value has the number `first`.
fn where_key<E: Entity>(first: usize) -> String {
    assigned(first, names::<E>(Column::is_key), " AND ")
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// `name = $number` for each of the names.
fn assigned(first: usize, names: impl Iterator<Item = &'static str>, separator: &str) -> String {
    let parts = (first..).zip(names).map(|(number, name)| format!("{name} = ${number}"));
    parts.collect::<Vec<_>>().join(separator)
}

/// An entity whose rows are numbered, in `id`, across all projects. Flags and documents are numbered by rules of their own, and what
/// has a UUID is not numbered.
pub(super) trait Numbered: Entity {}

/// The id for a new row: the largest one plus one, and above all that went with deleted projects. So the id of the newest
/// row is given again once that row alone is gone; where no id may be, the newest one stays.
///
/// Safe because the transaction holds the write lock from its start, so no two inserts see the same
/// maximum. It keeps the ids small, dense and the same on every replay of the same calls.
pub(super) async fn next_id<E: Numbered>(connection: &mut Conn) -> Result<i64, MetadataError> {
    let next = format!(
        "SELECT COALESCE(MAX(id), 0) + 1 FROM (
         SELECT MAX(id) AS id FROM {} UNION ALL SELECT highest FROM used_ids WHERE name = $1) AS ids",
        E::TABLE
    );
    Ok(query_scalar(AssertSqlSafe(next)).bind(E::TABLE).fetch_one(connection).await?)
}

/// The statement of a text that consists of names of columns.
fn statement(text: String, values: Vec<Bind>) -> Query {
    values.into_iter().fold(query(AssertSqlSafe(text)), Query::bind)
}

/// Reads a column of a row of `table`.
pub(super) fn read<'r, T, R>(
    row: &'r R,
    table: &'static str,
    column: &'static str,
) -> Result<T, sqlx::Error>
where
    T: Stored,
    T::Raw: Decode<'r, R::Database> + Type<R::Database>,
    R: sqlx::Row,
    &'static str: ColumnIndex<R>,
{
    T::restore(row.try_get(column)?).map_err(|cause| corrupt(table, column, &cause))
}

/// The error of a column with a value that is none of its type.
pub(super) fn corrupt(table: &'static str, column: &'static str, cause: &str) -> sqlx::Error {
    let problem = format!("the column {column}: {cause}");
    sqlx::Error::Decode(Box::new(MetadataError::Corrupt { table, problem }))
}

/// Declares an entity:
///
/// ```ignore
/// entity! {
///     /// What it is.
///     pub struct Feature in "features" {
///         /// Its id.
///         id: Uuid [key],
///         /// Its project.
///         project: ProjectId as "project_id" [once],
///     }
///     /// Fields of types with columns of their own.
///     parts { timing: Timing, }
///     /// Fields that the row does not have; a row is read with their default.
///     apart { members: Arc<[Uuid]>, }
///     /// What a client may change of it.
///     pub struct FeaturePatch {
///         /// Its name: a field of both structs.
///         name: String [logged],
///     }
///     /// Other fields of the patch.
///     with { is_final: bool, }
/// }
/// ```
///
/// A field is held by the column with its name, or by that after `as`. The marks are the methods of [`Column`].
///
/// `pub struct FeaturePatch: retain` also has a method that takes changes back.
///
/// `of` in place of `in` declares what has some of the columns of the table, such as a part: it can be read, and not written.
macro_rules! entity {
    (
        $(#[$about:meta])*
        pub struct $entity:ident $has:tt $table:literal {
            $(
                $(#[$field_about:meta])*
                $field:ident: $type:ty $(as $column:literal)? $([$($mark:ident $(($shown:literal))?),+])?,
            )*
        }
        $(parts { $($(#[$part_about:meta])* $part:ident: $part_type:ty,)+ })?
        $(apart { $($(#[$other_about:meta])* $other:ident: $other_type:ty,)+ })?
        $(
            $(#[$patch_about:meta])*
            pub struct $patch:ident $(: $patch_item:ident)? {
                $(
                    $(#[$patched_about:meta])*
                    $patched:ident: $patched_type:ty $(as $patched_column:literal)?
                    $([$($patched_mark:ident $(($patched_shown:literal))?),+])?,
                )*
            }
            $(with { $($(#[$more_about:meta])* $more:ident: $more_type:ty,)+ })?
        )?
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $entity {
            $($(#[$field_about])* pub $field: $type,)*
            $($($(#[$part_about])* pub $part: $part_type,)+)?
            $($($(#[$other_about])* pub $other: $other_type,)+)?
            $($($(#[$patched_about])* pub $patched: $patched_type,)*)?
        }

        $crate::entity::whole!($has $entity);

        impl $crate::entity::Columns for $entity {
            const TABLE: &'static str = $table;

            const COLUMNS: &'static [$crate::entity::Column] = {
                use $crate::entity::{Column, column, concat};
                const OWN: &[Column] = &[
                    $(column!($field [$($column)?] $($($mark $(($shown))?),+)?),)*
                    $($(column!(
                        $patched [$($patched_column)?] $($($patched_mark $(($patched_shown))?),+)?
                    ),)*)?
                ];
                const COUNT: usize = OWN.len() $($(+ <$part_type as $crate::entity::Columns>::COLUMNS.len())+)?;
                const ALL: [Column; COUNT] = concat(&[OWN, $($(<$part_type as $crate::entity::Columns>::COLUMNS,)+)?]);
                &ALL
            };

            fn cells(&self, is_asked: fn(&$crate::entity::Column) -> bool) -> Vec<$crate::sql::Bind> {
                let mut cells = Vec::new();
                $(
                    $crate::entity::column!($field [$($column)?] $($($mark $(($shown))?),+)?)
                        .store(&self.$field, is_asked, &mut cells);
                )*
                $($(
                    $crate::entity::column!(
                        $patched [$($patched_column)?] $($($patched_mark $(($patched_shown))?),+)?
                    )
                    .store(&self.$patched, is_asked, &mut cells);
                )*)?
                $($(cells.extend($crate::entity::Columns::cells(&self.$part, is_asked));)+)?
                cells
            }

            fn logged_cells(&self) -> serde_json::Map<String, serde_json::Value> {
                let mut logged = serde_json::Map::new();
                $(
                    $crate::entity::column!($field [$($column)?] $($($mark $(($shown))?),+)?)
                        .log(&self.$field, &mut logged);
                )*
                $($(
                    $crate::entity::column!(
                        $patched [$($patched_column)?] $($($patched_mark $(($patched_shown))?),+)?
                    )
                    .log(&self.$patched, &mut logged);
                )*)?
                $($(logged.extend($crate::entity::Columns::logged_cells(&self.$part));)+)?
                logged
            }
        }

        impl<'r, R: sqlx::Row> sqlx::FromRow<'r, R> for $entity
        where
            &'static str: sqlx::ColumnIndex<R>,
            i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
            bool: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
            String: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
        {
            fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
                use $crate::entity::{name, read};
                Ok(Self {
                    $($field: read(row, $table, name!($field $($column)?))?,)*
                    $($($part: sqlx::FromRow::from_row(row)?,)+)?
                    $($($other: Default::default(),)+)?
                    $($($patched: read(row, $table, name!($patched $($patched_column)?))?,)*)?
                })
            }
        }

        $(
            $(#[$patch_about])*
            #[derive(Clone, Debug, Default)]
            pub struct $patch {
                $($(#[$patched_about])* pub $patched: Option<$patched_type>,)*
                $($($(#[$more_about])* pub $more: $more_type,)+)?
            }

            impl $crate::entity::Patch<$entity> for $patch {
                fn applied(self, mut to: $entity) -> $entity {
                    $(if let Some(value) = self.$patched { to.$patched = value; })*
                    to
                }
            }

            $crate::entity::patch_item! { [$($patch_item)?] $patch { $($patched)* } }
        )?
    };
}

/// What a patch has besides, named after its colon.
macro_rules! patch_item {
    ([] $patch:ident { $($name:ident)* }) => {};
    ([retain] $patch:ident { $($name:ident)* }) => {
        impl $patch {
            /// Leaves every field unchanged for which `is_kept` returns false; it gets the name of the field and its new value
            /// as the activity log shows it.
            pub(crate) fn retain(
                &mut self,
                mut is_kept: impl FnMut(&'static str, serde_json::Value) -> bool,
            ) {
                $(
                    let shown = self.$name.as_ref().map($crate::entity::Stored::shown);
                    if shown.is_some_and(|value| !is_kept(stringify!($name), value)) {
                        self.$name = None;
                    }
                )*
            }
        }
    };
}

/// What is `in` a table has whole rows of it.
macro_rules! whole {
    (in $entity:ident) => {
        impl $crate::entity::Entity for $entity {}
    };
    (of $part:ident) => {};
}

/// The column of a field, with its marks.
macro_rules! column {
    ($field:ident [$($column:literal)?] $($mark:ident $(($shown:literal))?),*) => {
        $crate::entity::Column::new($crate::entity::name!($field $($column)?))
            $(.$mark($($shown)?))*
    };
}

/// The name of the column of a field.
macro_rules! name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $column:literal) => {
        $column
    };
}

pub(super) use {column, entity, name, patch_item, whole};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Columns, Entity, Patch, inserting_new};
    use crate::activity::EntryText;
    use crate::flags::FlagPatch;
    use crate::roles::{Role, RolePatch};
    use crate::schedules::ScheduledChange;

    #[test]
    fn statements_follow_from_the_declaration() {
        let role = Role::default();
        let insert = "INSERT INTO roles (id, organization, created_by, created_at, name, \
                      feature_flags_access_level) VALUES ($1, $2, $3, $4, $5, $6)";
        assert_eq!(role.insert().text(), insert);
        assert_eq!(role.insert_new().text(), format!("{insert} ON CONFLICT (id) DO NOTHING"));
        let insert_entry = inserting_new::<EntryText>();
        assert!(insert_entry.ends_with(" ON CONFLICT (id) DO NOTHING"), "{insert_entry}");
        let put = "ON CONFLICT (id) DO UPDATE SET name = excluded.name, feature_flags_access_level \
                   = excluded.feature_flags_access_level";
        assert_eq!(role.put().text(), format!("{insert} {put}"));
        let update = "UPDATE roles SET name = $1, feature_flags_access_level = $2 WHERE id = $3";
        assert_eq!(role.update().text(), update);
        assert_eq!(role.delete().text(), "DELETE FROM roles WHERE id = $1");
        let columns = ScheduledChange::columns();
        assert!(columns.ends_with(
            "payload, scheduled_at, is_recurring, recurrence_interval, cron_expression, end_date"
        ));
    }

    #[test]
    fn a_patch_changes_what_it_has() {
        let role = Role { name: "a".to_owned(), created_at: 7, ..Role::default() };
        let flag =
            FlagPatch { name: Some("b".to_owned()), deleted: Some(true), ..FlagPatch::default() };
        let mut kept = flag.clone();
        kept.retain(|name, value| name != "name" || value != json!("b"));
        assert_eq!((kept.name, kept.deleted), (None, flag.deleted));
        let patch = RolePatch { name: None, feature_flags_access_level: Some(1) };
        let after = patch.applied(role.clone());
        assert_eq!(after, Role { feature_flags_access_level: 1, ..role });
        let logged = after.logged_cells().into_iter().collect::<Vec<_>>();
        let expected = [("feature_flags_access_level", json!(1)), ("name", json!("a"))]
            .map(|(n, v)| (n.to_owned(), v));
        assert_eq!(logged, expected);
    }
}
