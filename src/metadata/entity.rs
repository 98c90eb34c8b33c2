//! Entities: structs whose fields are the columns of a table. [`entity!`] declares one: its fields, the columns that
//! hold them, which of these change, which the activity log compares, and which a client may change. Statements, the
//! reading of rows, logged fields and patches all follow from the declaration, so that a new column is one line there,
//! besides its migration.
//!
//! [`Stored`] is how a type of fields is held by a column. Statements that select are written where they are needed, and
//! select `*`: a row is read by the names of its columns.

use serde_json::{Map, Value};
use sqlx::{AssertSqlSafe, ColumnIndex, Decode, Type};
use uuid::Uuid;

use crate::connection::Conn;
use crate::error::MetadataError;
use crate::sql::{Bind, Query, query, query_scalar};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::json;

/// A type that a column holds.
pub(super) trait Stored: Sized {
    /// What both databases have of it: `i64`, `bool`, `String`, or an option of one.
    type Raw: Into<Bind> + Into<Value>;

    fn store(&self) -> Self::Raw;

    /// The inverse of [`Stored::store`]; `None` for what it never returns.
    fn restore(raw: Self::Raw) -> Option<Self>;

    /// The value in the activity log.
    fn shown(&self) -> Value {
        self.store().into()
    }
}

/// A column: its name, and what it is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    name: &'static str,
    is_key: bool,
    is_once: bool,
    logged: Option<&'static str>,
}

/// A column and the value of one row in it.
#[derive(Debug)]
pub(super) struct Cell {
    column: Column,
    value: Bind,
    shown: Option<Value>,
}

impl Column {
    /// A column that an update overwrites.
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, is_key: false, is_once: false, logged: None }
    }

    /// It is part of the primary key.
    pub(super) const fn key(self) -> Self {
        Self { is_key: true, is_once: true, ..self }
    }

    /// It is written when the row is inserted, and never again.
    pub(super) const fn once(self) -> Self {
        Self { is_once: true, ..self }
    }

    /// The activity log compares it.
    pub(super) const fn logged(self) -> Self {
        self.logged_as(self.name)
    }

    /// The activity log compares it, under another name.
    pub(super) const fn logged_as(self, name: &'static str) -> Self {
        Self { logged: Some(name), ..self }
    }

    /// The cell of a row that has this value.
    pub(super) fn of(self, value: &impl Stored) -> Cell {
        let shown = self.logged.map(|_| value.shown());
        Cell { column: self, value: value.store().into(), shown }
    }
}

/// A struct whose fields are columns of a table; see [`entity!`].
pub(super) trait Entity: Sized {
    const TABLE: &'static str;

    /// Its row, in the order of the declaration.
    fn cells(&self) -> Vec<Cell>;

    /// The names of its columns, for a statement that selects no others.
    fn columns(&self) -> String {
        joined(self.cells().iter().map(|cell| cell.column.name.to_owned()))
    }

    /// Inserts the row.
    fn insert(&self) -> Query {
        let cells = self.cells();
        statement(inserting::<Self>(&cells), cells)
    }

    /// Inserts the row, unless an index refuses it because of another one.
    fn insert_new(&self) -> Query {
        let cells = self.cells();
        statement(format!("{} ON CONFLICT DO NOTHING", inserting::<Self>(&cells)), cells)
    }

    /// Inserts the row, or overwrites the one with its key.
    fn put(&self) -> Query {
        let cells = self.cells();
        let keys = cells.iter().filter(|cell| cell.column.is_key).map(|cell| cell.column.name);
        let changing = cells.iter().filter(|cell| !cell.column.is_once);
        let changing = changing.map(|cell| format!("{0} = excluded.{0}", cell.column.name));
        let text = format!(
            "{} ON CONFLICT ({}) DO UPDATE SET {}",
            inserting::<Self>(&cells),
            joined(keys.map(str::to_owned)),
            joined(changing)
        );
        statement(text, cells)
    }

    /// Overwrites the row.
    fn update(&self) -> Query {
        let (once, changing): (Vec<_>, Vec<_>) =
            self.cells().into_iter().partition(|cell| cell.column.is_once);
        let keys: Vec<Cell> = once.into_iter().filter(|cell| cell.column.is_key).collect();
        let set = assigned(1, &changing, ", ");
        let is_row = assigned(changing.len() + 1, &keys, " AND ");
        let text = format!("UPDATE {} SET {set} WHERE {is_row}", Self::TABLE);
        statement(text, changing.into_iter().chain(keys))
    }

    /// Removes the row.
    fn delete(&self) -> Query {
        let keys: Vec<Cell> = self.cells().into_iter().filter(|cell| cell.column.is_key).collect();
        let is_row = assigned(1, &keys, " AND ");
        statement(format!("DELETE FROM {} WHERE {is_row}", Self::TABLE), keys)
    }

    /// The values of the columns that the activity log compares.
    fn logged_cells(&self) -> Map<String, Value> {
        let named = |cell: Cell| Some((cell.column.logged?.to_owned(), cell.shown?));
        self.cells().into_iter().filter_map(named).collect()
    }
}

/// Changes to an entity; see [`entity!`].
pub(super) trait Patch<E> {
    /// The entity with the changes.
    fn applied(self, to: E) -> E;

    /// Leaves every field unchanged for which `is_kept` returns false; it gets the name of the field and its new value as
    /// the activity log shows it.
    fn retain(&mut self, is_kept: impl FnMut(&'static str, Value) -> bool);
}

/// The statement that inserts a row of these cells.
fn inserting<E: Entity>(cells: &[Cell]) -> String {
    let names = joined(cells.iter().map(|cell| cell.column.name.to_owned()));
    let numbers = joined((1..=cells.len()).map(|number| format!("${number}")));
    format!("INSERT INTO {} ({names}) VALUES ({numbers})", E::TABLE)
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// `name = $number` for each of the cells.
fn assigned(first: usize, cells: &[Cell], separator: &str) -> String {
    let parts = (first..).zip(cells);
    let parts = parts.map(|(number, cell)| format!("{} = ${number}", cell.column.name));
    parts.collect::<Vec<_>>().join(separator)
}

/// The id for a new row: the largest one plus one.
///
/// Safe because the transaction holds the write lock from its start, so no two inserts see the same
/// maximum. It keeps the ids small, dense and the same on every replay of the same calls.
pub(super) async fn next_id<E: Entity>(connection: &mut Conn) -> Result<i64, MetadataError> {
    let next = format!("SELECT COALESCE(MAX(id), 0) + 1 FROM {}", E::TABLE);
    Ok(query_scalar(AssertSqlSafe(next)).fetch_one(connection).await?)
}

/// The statement of a text that consists of names of columns.
fn statement(text: String, cells: impl IntoIterator<Item = Cell>) -> Query {
    let statement = query(AssertSqlSafe(text));
    cells.into_iter().fold(statement, |statement, cell| statement.bind(cell.value))
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
    T::restore(row.try_get(column)?).ok_or_else(|| corrupt(table, column))
}

/// The error of a column with a value that is none of its type.
pub(super) fn corrupt(table: &'static str, column: &'static str) -> sqlx::Error {
    let problem = format!("the column {column}");
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
macro_rules! entity {
    (
        $(#[$about:meta])*
        pub struct $entity:ident in $table:literal {
            $(
                $(#[$field_about:meta])*
                $field:ident: $type:ty $(as $column:literal)? $([$($mark:ident $(($shown:literal))?),+])?,
            )*
        }
        $(parts { $($(#[$part_about:meta])* $part:ident: $part_type:ty,)+ })?
        $(apart { $($(#[$other_about:meta])* $other:ident: $other_type:ty,)+ })?
        $(
            $(#[$patch_about:meta])*
            pub struct $patch:ident {
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

        impl $crate::entity::Entity for $entity {
            const TABLE: &'static str = $table;

            fn cells(&self) -> Vec<$crate::entity::Cell> {
                use $crate::entity::{Cell, Column};
                let cells: Vec<Cell> = vec![
                    $(
                        Column::new($crate::entity::name!($field $($column)?))
                            $($(.$mark($($shown)?))+)?.of(&self.$field),
                    )*
                    $($(
                        Column::new($crate::entity::name!($patched $($patched_column)?))
                            $($(.$patched_mark($($patched_shown)?))+)?.of(&self.$patched),
                    )*)?
                ];
                $($(let cells: Vec<Cell> = cells.into_iter().chain($crate::entity::Entity::cells(&self.$part)).collect();)+)?
                cells
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

                fn retain(&mut self, mut is_kept: impl FnMut(&'static str, serde_json::Value) -> bool) {
                    $(
                        let shown = self.$patched.as_ref().map($crate::entity::Stored::shown);
                        if shown.is_some_and(|value| !is_kept(stringify!($patched), value)) {
                            self.$patched = None;
                        }
                    )*
                }
            }
        )?
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

/// Declares how columns hold types: `type as raw: |value| raw, |raw| option of the value;`.
macro_rules! stored {
    ($($type:ty as $raw:ty: |$value:ident| $store:expr, |$cell:ident| $restore:expr;)+) => {$(
        impl $crate::entity::Stored for $type {
            type Raw = $raw;

            fn store(&self) -> $raw {
                let $value = self;
                $store
            }

            fn restore($cell: $raw) -> Option<Self> {
                $restore
            }
        }
    )+};
}

/// Declares an enumeration that the API and columns have by the names of its values.
macro_rules! named {
    (
        $(#[$about:meta])*
        pub enum $enum:ident { $($(#[$value_about:meta])* $value:ident = $name:literal,)+ }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $enum {
            $($(#[$value_about])* $value,)+
        }

        impl $enum {
            /// All of them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// Their names in the API and in the store.
            pub const NAMES: [&'static str; Self::ALL.len()] = [$($name),+];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }

            /// The one with this name.
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|own| own.name() == name)
            }
        }

        $crate::entity::stored! {
            $enum as String: |own| own.name().to_owned(), |name| Self::parse(&name);
        }
    };
}

pub(super) use {entity, name, named, stored};

stored! {
    i64 as i64: |value| *value, |raw| Some(raw);
    bool as bool: |value| *value, |raw| Some(raw);
    String as String: |value| value.clone(), |raw| Some(raw);
    ProjectId as i64: |id| id.0, |raw| Some(Self(raw));
    Uuid as String: |uuid| uuid.to_string(), |raw| Self::parse_str(&raw).ok();
}

/// A nullable column.
impl<T: Stored> Stored for Option<T>
where
    Option<T::Raw>: Into<Bind>,
{
    type Raw = Option<T::Raw>;

    fn store(&self) -> Self::Raw {
        self.as_ref().map(T::store)
    }

    fn restore(raw: Self::Raw) -> Option<Self> {
        match raw {
            Some(raw) => T::restore(raw).map(Some),
            None => Some(None),
        }
    }

    fn shown(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::shown)
    }
}

impl Stored for UnixMicros {
    type Raw = i64;

    fn store(&self) -> i64 {
        self.0
    }

    fn restore(raw: i64) -> Option<Self> {
        Some(Self(raw))
    }

    fn shown(&self) -> Value {
        self.to_rfc3339().into()
    }
}

/// Types that a column holds as JSON text.
macro_rules! stored_as_json {
    ($($type:ty),+) => {$(
        impl Stored for $type {
            type Raw = String;

            fn store(&self) -> String {
                self.shown().to_string()
            }

            fn restore(raw: String) -> Option<Self> {
                json::restore(raw.as_bytes()).ok()
            }

            fn shown(&self) -> Value {
                self.clone().into()
            }
        }
    )+};
}

stored_as_json!(Value, Map<String, Value>, Vec<String>);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Entity, Patch};
    use crate::roles::{Role, RolePatch};
    use crate::schedules::ScheduledChange;

    #[test]
    fn statements_follow_from_the_declaration() {
        let role = Role::default();
        let insert = "INSERT INTO roles (id, organization, created_by, created_at, name, \
                      feature_flags_access_level) VALUES ($1, $2, $3, $4, $5, $6)";
        assert_eq!(role.insert().text(), insert);
        assert_eq!(role.insert_new().text(), format!("{insert} ON CONFLICT DO NOTHING"));
        let put = "ON CONFLICT (id) DO UPDATE SET name = excluded.name, feature_flags_access_level \
                   = excluded.feature_flags_access_level";
        assert_eq!(role.put().text(), format!("{insert} {put}"));
        let update = "UPDATE roles SET name = $1, feature_flags_access_level = $2 WHERE id = $3";
        assert_eq!(role.update().text(), update);
        assert_eq!(role.delete().text(), "DELETE FROM roles WHERE id = $1");
        let columns = ScheduledChange::default().columns();
        assert!(columns.ends_with(
            "payload, scheduled_at, is_recurring, recurrence_interval, cron_expression, end_date"
        ));
    }

    #[test]
    fn a_patch_changes_what_it_has() {
        let role = Role { name: "a".to_owned(), created_at: 7, ..Role::default() };
        let mut patch =
            RolePatch { name: Some("b".to_owned()), feature_flags_access_level: Some(1) };
        patch.retain(|name, value| name != "name" || value != json!("b"));
        let after = patch.applied(role.clone());
        assert_eq!(after, Role { feature_flags_access_level: 1, ..role });
        let logged = after.logged_cells().into_iter().collect::<Vec<_>>();
        let expected = [("feature_flags_access_level", json!(1)), ("name", json!("a"))]
            .map(|(n, v)| (n.to_owned(), v));
        assert_eq!(logged, expected);
    }
}
