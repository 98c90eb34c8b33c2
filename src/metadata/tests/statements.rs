//! Every statement in the source, prepared by both databases.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::postgres::PgTypeInfo;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqlSafeStr};

use super::*;
use crate::accounts::{KeyRow, Project};
use crate::activity::{Entry, EntryText};
use crate::annotations::Notes;
use crate::cohorts::StoredCohort;
use crate::definitions::EventDefinition;
use crate::documents::shares::Share;
use crate::documents::shares::passwords::SharePassword;
use crate::documents::{Document, DocumentText};
use crate::early_access::EarlyAccessFeature;
use crate::entity::{selecting, written};
use crate::flag_rights::ResourceAccess;
use crate::flag_settings::FlagSettings;
use crate::group_types::GroupType;
use crate::members::Organization;
use crate::promotions::{PromotedOfEvents, PromotedOfPersons};
use crate::properties::{PropertyDefinition, PropertyKind};
use crate::roles::{Role, RoleAccess, RoleMember};
use crate::schedules::{ScheduledChange, Timing};
use crate::sessions::Session;
use crate::tests::place::Database;
use crate::warnings::DayOfWarnings;

/// Files with statements of one database.
const OF_ONE: [&str; 4] = ["db.rs", "disk.rs", "postgres.rs", "transfer.rs"];

/// The types of values.
const TYPES: [&str; 3] = ["INT8", "TEXT", "BOOL"];

/// Goal: no statement is in the SQL of one database only. Method: the string literals of all files that
/// begin as a statement are prepared by both, and so are those that follow from declarations. PostgreSQL cannot
/// tell all types of values from the text; if it asks for them, there must be some with which it takes the
/// statement. Beginnings of statements that are put together are left out: tests that run on both databases run
/// these.
#[tokio::test]
async fn every_statement_is_taken_by_both_databases() {
    let file = Bench::at(Backend::file()).await;
    let database = Database::new().await;
    database.open(Clock::test(START)).await.expect("open").close().await;
    let mut postgres = database.connect().await;
    let path = format!("sqlite://{}", file.place.path().display());
    let mut sqlite = sqlx::SqliteConnection::connect(&path).await.expect("a connection");
    let sources: Vec<String> =
        sources().iter().map(|path| std::fs::read_to_string(path).expect("a file")).collect();
    let (written, selected) = of_declarations(&sources);
    assert!(selected.len() > 30, "{} selected", selected.len());
    let statements: Vec<String> = sources.iter().flat_map(|source| statements(source)).collect();
    assert!(statements.len() + selected.len() > 110, "{} statements", statements.len());
    for statement in statements.into_iter().chain(written).chain(selected) {
        let text = AssertSqlSafe(statement.clone()).into_sql_str();
        if let Err(error) = sqlite.prepare(text).await {
            panic!("SQLite: {statement}: {error}");
        }
        if let Err(error) = prepare(&mut postgres, &statement).await {
            panic!("PostgreSQL: {statement}: {error}");
        }
    }
}

/// For each of these types its name, how a statement that selects it begins, and the statements that write it.
macro_rules! declared {
    (rows { $($row:ident,)+ } parts { $($part:ident,)+ }) => {
        [
            $((stringify!($row), selecting::<$row>(), written::<$row>()),)+
            $((stringify!($part), selecting::<$part>(), Vec::new()),)+
        ]
    };
}

/// The statements that follow from declarations: those that write, and those that select.
fn of_declarations(sources: &[String]) -> (Vec<String>, Vec<String>) {
    let all = declared! {
        rows {
            DayOfWarnings, DocumentText, EarlyAccessFeature, EntryText, EventDefinition, FlagSettings, GroupType, Notes,
            KeyRow, Organization, Project, PromotedOfEvents, PromotedOfPersons, PropertyDefinition, ResourceAccess, Role,
            RoleAccess, RoleMember, ScheduledChange, Session, Share, SharePassword, StoredCohort, StoredFlag, User,
        }
        parts { Document, Entry, PropertyKind, Timing, }
    };
    let mut names: Vec<&str> = all.iter().map(|(name, ..)| *name).collect();
    let mut expected: Vec<&str> = sources.iter().flat_map(|source| declarations(source)).collect();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected, "this test has other types than the sources");
    let mut selected = Vec::new();
    for (name, rest) in sources.iter().flat_map(|source| selects(source)) {
        // What `Definition` is generic over.
        let generic = ["EventDefinition", "PropertyDefinition"];
        let names = if name == "D" { generic.to_vec() } else { vec![name.as_str()] };
        for name in names {
            let (_, begin, _) = all.iter().find(|(own, ..)| *own == name).expect(name);
            selected.push(format!("{begin} {rest}"));
        }
    }
    (all.into_iter().flat_map(|(.., written)| written).collect(), selected)
}

/// The types of a source text that have columns.
fn declarations(source: &str) -> Vec<&str> {
    source
        .lines()
        .filter_map(|line| {
            if let Some(by_hand) = line.strip_prefix("impl Columns for ") {
                return by_hand.split(' ').next();
            }
            let (name, table) = line.trim_start().strip_prefix("pub struct ")?.split_once(' ')?;
            ["in \"", "of \""].iter().any(|has| table.starts_with(has)).then_some(name)
        })
        .collect()
}

/// What the calls of `select` in a source text select, and the rest of their statements.
fn selects(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (before, literal) in literals(source) {
        let Some(before) = before.trim_end().strip_suffix("::select(") else { continue };
        let start = before.rfind(|c: char| !c.is_alphanumeric()).map_or(0, |index| index + 1);
        found.push((before[start..].to_owned(), literal));
    }
    let calls = source.matches("::select(").count();
    assert_eq!(found.len(), calls, "a call without its text: {found:?}");
    found
}

/// Prepares with types that it infers, or any.
async fn prepare(connection: &mut PgConnection, statement: &str) -> Result<(), sqlx::Error> {
    let text = || AssertSqlSafe(statement.to_owned()).into_sql_str();
    let Err(error) = connection.prepare(text()).await else { return Ok(()) };
    let count = (1..).take_while(|number| statement.contains(&format!("${number}"))).count();
    assert!(count <= 7, "too many values to try all types: {statement}: {error}");
    for mut choice in 0..TYPES.len().pow(u32::try_from(count).expect("a small number")) {
        let types: Vec<PgTypeInfo> = (0..count)
            .map(|_| {
                let chosen = TYPES[choice % TYPES.len()];
                choice /= TYPES.len();
                PgTypeInfo::with_name(chosen)
            })
            .collect();
        if connection.prepare_with(text(), &types).await.is_ok() {
            return Ok(());
        }
    }
    Err(error)
}

/// The files that contain statements.
fn sources() -> Vec<PathBuf> {
    let root = PathBuf::from_str(env!("CARGO_MANIFEST_DIR")).expect("a path");
    let mut found = Vec::new();
    find(&root, &mut found);
    assert!(found.len() > 40, "{found:?}");
    found
}

fn find(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        match path.is_dir() {
            _ if name == "tests" || name == "tests.rs" || OF_ONE.contains(&name) => {}
            true => find(&path, found),
            false => found.push(path),
        }
    }
}

/// The string literals of a source text that are statements.
fn statements(source: &str) -> Vec<String> {
    let verbs = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH "];
    let mut found = Vec::new();
    for (before, literal) in literals(source) {
        let is_part = |start| before.trim_end().ends_with(start);
        let is_whole = !["Builder::new(", "format!("].into_iter().any(is_part);
        if is_whole && verbs.iter().any(|verb| literal.starts_with(verb)) {
            found.push(literal);
        }
    }
    found
}

/// The string literals of a source text, each with the code between it and the one before. Comments and tests are none of it.
fn literals(source: &str) -> Vec<(String, String)> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    let (mut before, mut rest) = (String::new(), source);
    while let Some(character) = rest.chars().next() {
        let next = &rest[character.len_utf8()..];
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, next)| next);
        } else if rest.starts_with("'\"'") || rest.starts_with("b'\"'") {
            rest = &rest[3..];
        } else if character == '"' {
            let (literal, after) = literal(next);
            found.push((std::mem::take(&mut before), literal));
            rest = after;
        } else {
            before.push(character);
            rest = next;
        }
    }
    found
}

/// A literal up to its closing quote, and what follows.
fn literal(text: &str) -> (String, &str) {
    let mut literal = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return (literal, &text[index + 1..]),
            '\\' => match characters.next() {
                Some((_, 'n')) => literal.push('\n'),
                Some((_, '\n')) => {
                    let indent = characters.as_str();
                    let skipped = indent.len() - indent.trim_start().len();
                    for _ in 0..indent[..skipped].chars().count() {
                        characters.next();
                    }
                }
                Some((_, escaped)) => literal.push(escaped),
                None => {}
            },
            other => literal.push(other),
        }
    }
    (literal, "")
}

#[test]
fn statements_are_found_in_a_source_text() {
    let source = r#"
        // "SELECT 0"
        let a = query("SELECT a \
            FROM t");
        let b = "no SELECT"; let c = Builder::new("SELECT part"); format!("SELECT {part}");
        let d = '"'; const E: &str = "DELETE FROM \"t\"
            WHERE a";
"#;
    let expected = ["SELECT a FROM t", "DELETE FROM \"t\"\n            WHERE a"];
    assert_eq!(statements(source), expected);
}

#[test]
fn declarations_and_what_selects_them_are_found() {
    let source = r#"
entity! {
    /// pub struct No in "comments" {
    pub struct Role in "roles" {
}
    pub struct Timing of "scheduled_changes" {}
pub struct Other { a: &'static str }
impl Columns for Kind {
    let a = Role::select("WHERE id = $1").bind(1); D::select(
        "",
    )
"#;
    assert_eq!(declarations(source), ["Role", "Timing", "Kind"]);
    let expected = [("Role", "WHERE id = $1"), ("D", "")];
    assert_eq!(selects(source), expected.map(|(name, rest)| (name.to_owned(), rest.to_owned())));
}
