//! Views over the live files of a project for DuckDB, as a text of SQL: [`sql`]. They have the names of the server's
//! SQL, without quotes, and persons as of the files of the persons table, after merges and splits.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::live_files::{LiveFiles, LiveTables};
use weir_base::clock::UnixMicros;
use weir_event::dictionary;
use weir_event::dictionary::{Column, EVENTS, PERSON_DISTINCT_IDS, PERSONS, Table};
use weir_event::id::ProjectId;
use weir_event::promotion::PromotedTable;
use weir_query::dialect::sql_text::literal;

/// Most files that views name; a query would open each of them.
pub const FILES_MAX: usize = 20_000;

/// Words that DuckDB reserves, so that they would need quotes as names of columns.
#[rustfmt::skip]
pub const RESERVED: [&str; 75] = [
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "both", "case",
    "cast", "check", "collate", "column", "constraint", "create", "default", "deferrable", "desc",
    "describe", "distinct", "do", "else", "end", "except", "false", "fetch", "for", "foreign",
    "from", "group", "having", "in", "initially", "intersect", "into", "lambda", "lateral",
    "leading", "limit", "not", "null", "offset", "on", "only", "or", "order", "pivot",
    "pivot_longer", "pivot_wider", "placing", "primary", "qualify", "references", "returning",
    "select", "show", "some", "summarize", "symmetric", "table", "then", "to", "trailing", "true",
    "union", "unique", "unpivot", "using", "variadic", "when", "where", "window", "with",
];

/// Why there are no views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tables have {0} files with rows of the project, and views name {max} at most: read the Delta tables \
     (delta_scan in DuckDB)",
    max = FILES_MAX
)]
pub struct TooManyFiles(usize);

/// A text of SQL that creates the views `events`, `persons` and `person_distinct_ids` of a project.
///
/// # Errors
///
/// There are more than [`FILES_MAX`] files.
pub fn sql(
    project: ProjectId,
    tables: &LiveTables,
    now: UnixMicros,
) -> Result<String, TooManyFiles> {
    let count: usize = tables.tables.iter().map(|(_, live)| live.files.len()).sum();
    if count > FILES_MAX {
        return Err(TooManyFiles(count));
    }
    let none = LiveFiles::default();
    let live = |table: &Table| tables.of_table(table).unwrap_or(&none);
    let (events, persons, ids) = (live(&EVENTS), live(&PERSONS), live(&PERSON_DISTINCT_IDS));
    let mut out = head(project, tables, now);
    let of_persons = rows(&PERSONS, persons, project);
    let stored = match ids.version {
        Some(_) => rows(&PERSON_DISTINCT_IDS, ids, project),
        None => format!(
            "(\n  SELECT uuid AS person_id, version AS since, \
             unnest(from_json(distinct_ids, '[\"VARCHAR\"]')) AS distinct_id\n  FROM {of_persons}\n)"
        ),
    };
    // Files are as of different moments, so that a distinct id may be that of two persons.
    let newest = "max_by(person_id, epoch_us(coalesce(since, TIMESTAMPTZ '1970-01-01')))";
    let newest = if ids.version.is_some() { newest } else { "max_by(person_id, since)" };
    let query =
        format!("SELECT distinct_id, {newest} AS person_id\nFROM {stored}\nGROUP BY distinct_id");
    view(&mut out, &PERSON_DISTINCT_IDS, &query, &[]);
    let named = names(&PERSONS, &persons.more_columns);
    let shown = named.iter().map(|(column, name)| match name.as_str() {
        "id" => "uuid AS id".to_owned(),
        "number" => "id AS number".to_owned(),
        name => aliased(&column.name, name),
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    view(&mut out, &PERSONS, &format!("SELECT {shown}\nFROM {of_persons}"), &named);
    let named = names(&EVENTS, &events.more_columns);
    let mut shown = Vec::new();
    for (column, name) in &named {
        shown.push(match name.as_str() {
            "person_id" => "coalesce(ids.person_id, stored.person_id) AS person_id".to_owned(),
            name => format!("stored.{}", aliased(&column.name, name)),
        });
    }
    let stored = rows(&EVENTS, events, project);
    let query = format!(
        "SELECT\n  {}\nFROM {stored} AS stored\nLEFT JOIN person_distinct_ids AS ids ON ids.distinct_id = \
         stored.distinct_id",
        shown.join(",\n  ")
    );
    view(&mut out, &EVENTS, &query, &named);
    Ok(out)
}

fn head(project: ProjectId, tables: &LiveTables, now: UnixMicros) -> String {
    let versions = tables.tables.iter().map(|(table, live)| match live.version {
        Some(version) => format!("version {version} of {}", table.name),
        None => format!("no {}", table.name),
    });
    let versions = versions.collect::<Vec<_>>().join(", ");
    let mut head = format!(
        "-- Views of project {} for DuckDB, made by Weir at {} from {versions}.\n-- They name the files that were live \
         then. Make them again for newer events, and before `vacuum-grace` has removed\n-- files that were replaced \
         since.\n",
        project.0,
        now.to_rfc3339()
    );
    if tables.tables.iter().any(|(_, live)| live.place.starts_with("s3://")) {
        head.push_str("-- The files are in a bucket: INSTALL httpfs; LOAD httpfs; CREATE SECRET (TYPE s3, ...);\n");
    }
    head
}

/// The rows of a project in a table's files. Columns that no file has yet are NULL.
fn rows(table: &Table, live: &LiveFiles, project: ProjectId) -> String {
    let columns = columns_of(table, &live.more_columns);
    let typed = columns
        .iter()
        .map(|column| format!("CAST(NULL AS {}) AS {}", column.kind.sql(), quoted(&column.name)));
    let typed = typed.collect::<Vec<_>>().join(", ");
    let none = format!("SELECT {typed} WHERE false");
    if live.files.is_empty() {
        return format!("({none})");
    }
    let paths = live.files.iter().map(|file| literal(&file.path));
    let paths = paths.collect::<Vec<_>>().join(",\n    ");
    let own = format!("WHERE project_id = {}", project.0);
    let all = format!(
        "(\n  {none}\n  UNION ALL BY NAME\n  SELECT * FROM read_parquet([\n    {paths}\n  ], union_by_name = true, \
         hive_partitioning = false)\n  {own}\n)"
    );
    if table.name == EVENTS.name {
        return all;
    }
    // Files of persons have more columns, which are named here by none.
    let names = columns.iter().map(|column| quoted(&column.name)).collect::<Vec<_>>().join(", ");
    match live.more_columns.is_empty() {
        true => {
            let read = format!("read_parquet([\n    {paths}\n  ])");
            format!("(\n  SELECT {names} FROM {read}\n  {own}\n)")
        }
        false => format!("(SELECT {names} FROM {all})"),
    }
}

/// The columns of the data files of a table, with those that the table has beside.
fn columns_of(table: &Table, more: &[Column]) -> Vec<Column> {
    let schema = table.files_schema();
    let own = table.files_columns().filter(|own| schema.field_with_name(&own.name).is_ok());
    own.chain(more.iter().cloned()).collect()
}

/// The columns of the view of events or of persons, with their names in it.
///
/// A property is called by its key, without a leading `$` and with `_` for each character that would need quotes. If
/// that is the name of another column or a reserved word, it has the name of its column, written like this; if that is
/// taken as well, with a number. Columns of the table come first, then properties that every server promotes, those
/// without `$` before the others, then the rest in the order of the table: names stay when columns are added.
fn names(table: &Table, more: &[Column]) -> Vec<(Column, String)> {
    let columns: Vec<Column> = table.sql_columns().chain(more.iter().cloned()).collect();
    let fixed = PromotedTable::named(table.name).map(PromotedTable::fixed).unwrap_or_default();
    let rank = |column: &Column| {
        let Some(key) = dictionary::property_key(&column.name) else { return 0 };
        match fixed.iter().any(|(own, _)| *own == key) {
            true if key.starts_with('$') => 2,
            true => 1,
            false => 3,
        }
    };
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|at| columns.get(*at).map(rank));
    let (mut taken, mut named) = (BTreeSet::new(), vec![String::new(); columns.len()]);
    for at in order {
        let (Some(column), Some(place)) = (columns.get(at), named.get_mut(at)) else { continue };
        let candidates = match dictionary::property_key(&column.name) {
            None => vec![column.name.to_string()],
            Some(key) => {
                vec![cleaned(key.strip_prefix('$').unwrap_or(&key)), cleaned(&column.name)]
            }
        };
        let last = candidates.last().cloned().unwrap_or_default();
        let numbered = (2_u32..).map(|number| format!("{last}_{number}"));
        let is_free = |name: &String| is_plain(name) && !taken.contains(&name.to_lowercase());
        let name = candidates.into_iter().chain(numbered).find(is_free).unwrap_or_default();
        taken.insert(name.to_lowercase());
        *place = name;
    }
    columns.into_iter().zip(named).collect()
}

fn cleaned(text: &str) -> String {
    let is_kept = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.chars().map(|letter| if is_kept(letter) { letter } else { '_' }).collect()
}

/// Whether a name needs no quotes.
fn is_plain(name: &str) -> bool {
    let begins = |first: char| first.is_ascii_alphabetic() || first == '_';
    name.starts_with(begins)
        && cleaned(name) == name
        && !RESERVED.contains(&name.to_lowercase().as_str())
}

/// The name as it is written in SQL.
fn quoted(name: &str) -> String {
    match is_plain(name) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// A column as a view selects it under a name.
fn aliased(column: &str, name: &str) -> String {
    let stored = quoted(column);
    if stored == name { stored } else { format!("{stored} AS {name}") }
}

/// Adds a view with comments on it and its columns, which are those of SQL, or these with their names.
fn view(out: &mut String, table: &Table, query: &str, named: &[(Column, String)]) {
    let name = table.name;
    let _ = writeln!(out, "\nCREATE OR REPLACE VIEW {name} AS\n{query};");
    let _ = writeln!(out, "COMMENT ON VIEW {name} IS {};", literal(table.meaning));
    let own: Vec<(Column, String)> = match named.is_empty() {
        true => table.sql_columns().map(|own| (own.clone(), own.name.to_string())).collect(),
        false => named.to_vec(),
    };
    for (column, own) in own {
        // A view has what SQL has.
        let description = table.sql_description(&column.name);
        let description = description.unwrap_or_else(|| column.description());
        let _ = writeln!(out, "COMMENT ON COLUMN {name}.{own} IS {};", literal(&description));
    }
}

#[cfg(test)]
mod tests;
