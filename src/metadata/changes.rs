//! What each commit has changed, for other servers on the same PostgreSQL database: [`Part`], and the rows of the table
//! `changed_parts`. Which parts a write changes is found by `snapshot/parts`.
//!
//! A number of `revision` without a row may have changed anything: a server of an older version has raised it, a whole
//! store was moved in, or the row is so old that it was removed.

use std::collections::BTreeSet;

use crate::connection::Conn;
use crate::error::MetadataError;
use crate::sql;
use weir_event::id::ProjectId;

/// Numbers whose rows are kept. A server looks once a second, and one that is further behind reads everything.
const NUMBERS_KEPT: i64 = 1000;

/// The number of [`Part::Common`]; projects have ids from 1.
const COMMON: i64 = 0;

/// A part of a snapshot that is read by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// What belongs to no project: organizations, users, keys, rights.
    Common,
    /// Everything of a project.
    Project(ProjectId),
}

/// Notes that the commit which raises the revision to `number` changes these parts.
pub(super) async fn note(
    connection: &mut Conn,
    number: i64,
    parts: &BTreeSet<Part>,
) -> Result<(), MetadataError> {
    for part in parts {
        let part = match part {
            Part::Common => COMMON,
            Part::Project(project) => project.0,
        };
        let insert = sql::query("INSERT INTO changed_parts (number, part) VALUES ($1, $2)");
        insert.bind(number).bind(part).execute(connection).await?;
    }
    let old = sql::query("DELETE FROM changed_parts WHERE number <= $1");
    old.bind(number.saturating_sub(NUMBERS_KEPT)).execute(connection).await?;
    Ok(())
}

/// What has changed from the revision `known` to the revision `now`; `None` if that may be anything.
pub(super) async fn between(
    connection: &mut Conn,
    known: i64,
    now: i64,
) -> Result<Option<BTreeSet<Part>>, MetadataError> {
    let passed = now.saturating_sub(known);
    if !(0..=NUMBERS_KEPT).contains(&passed) {
        return Ok(None);
    }
    let select = "SELECT number, part FROM changed_parts WHERE number > $1 AND number <= $2";
    let select = sql::query_as(select).bind(known).bind(now);
    let rows: Vec<(i64, i64)> = select.fetch_all(connection).await?;
    let numbers: BTreeSet<i64> = rows.iter().map(|(number, _)| *number).collect();
    let parts = rows.into_iter().map(|(_, part)| match part {
        COMMON => Part::Common,
        project => Part::Project(ProjectId(project)),
    });
    let is_whole = i64::try_from(numbers.len()) == Ok(passed);
    Ok(is_whole.then(|| parts.collect()))
}
