//! Documents as rows. SQL only.

use serde_json::Map;

use crate::accounts::UserId;
use crate::connection::Conn;
use crate::documents::{Document, DocumentKey, DocumentText, Kind};
use crate::error::MetadataError;
use crate::sql::Builder;
use crate::{disk, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

const TABLE: &str = "documents";

/// Most values of one statement; SQLite takes 32,766, PostgreSQL 65,535.
const BINDS_MAX: usize = 10_000;

/// The id for the next document of a kind.
pub(crate) async fn next_id(connection: &mut Conn, kind: Kind) -> Result<i64, MetadataError> {
    let next = "SELECT COALESCE(MAX(id), 0) + 1 FROM documents WHERE kind = $1";
    Ok(sql::query_scalar(next).bind(kind.name()).fetch_one(connection).await?)
}

/// The number of documents of a kind in a project that are not deleted.
pub(super) async fn count(
    connection: &mut Conn,
    project: ProjectId,
    kind: Kind,
) -> Result<i64, MetadataError> {
    let count =
        "SELECT COUNT(*) FROM documents WHERE project_id = $1 AND kind = $2 AND NOT deleted";
    let count = sql::query_scalar(count).bind(project.0).bind(kind.name());
    Ok(count.fetch_one(connection).await?)
}

/// Writes a document, or overwrites the one with its id.
pub(crate) async fn put(connection: &mut Conn, document: &Document) -> Result<(), MetadataError> {
    sql::query(
        "INSERT INTO documents
         (kind, id, project_id, deleted, created_by, created_at, updated_by, updated_at, fields)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (kind, id) DO UPDATE SET
             deleted = $4, updated_by = $7, updated_at = $8, fields = $9",
    )
    .bind(document.kind.name())
    .bind(document.id)
    .bind(document.project.0)
    .bind(document.deleted)
    .bind(document.created_by.map(|user| user.0))
    .bind(document.created_at.0)
    .bind(document.updated_by.map(|user| user.0))
    .bind(document.updated_at.0)
    .bind(Fields(&document.fields).to_string())
    .execute(connection)
    .await?;
    Ok(())
}

/// The JSON text of fields.
pub(super) struct Fields<'f>(pub(super) &'f serde_json::Map<String, serde_json::Value>);

impl std::fmt::Display for Fields<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        serde_json::Value::Object(self.0.clone()).fmt(f)
    }
}

/// Permanently removes the deleted documents of a kind that are more than may be kept, oldest first.
pub(super) async fn purge(
    connection: &mut Conn,
    project: ProjectId,
    kind: Kind,
) -> Result<(), MetadataError> {
    sql::query(
        "DELETE FROM documents WHERE project_id = $1 AND kind = $2 AND deleted AND id NOT IN
         (SELECT id FROM documents WHERE project_id = $1 AND kind = $2 AND deleted
          ORDER BY updated_at DESC, id DESC LIMIT $3)",
    )
    .bind(project.0)
    .bind(kind.name())
    .bind(kind.per_project_max())
    .execute(&mut *connection)
    .await?;
    // Its id may be that of another one later, to which no old link may lead.
    sql::query(
        "DELETE FROM shares WHERE project_id = $1 AND kind = $2 AND document_id NOT IN
         (SELECT id FROM documents WHERE project_id = $1 AND kind = $2)",
    )
    .bind(project.0)
    .bind(kind.name())
    .execute(&mut *connection)
    .await?;
    sql::query(
        "DELETE FROM share_passwords WHERE project_id = $1 AND kind = $2 AND document_id NOT IN
         (SELECT id FROM documents WHERE project_id = $1 AND kind = $2)",
    )
    .bind(project.0)
    .bind(kind.name())
    .execute(connection)
    .await?;
    Ok(())
}

/// Reads one document of a project, deleted or not.
pub(crate) async fn by_id(
    connection: &mut Conn,
    key: DocumentKey,
) -> Result<Option<Document>, MetadataError> {
    let select = "SELECT * FROM documents WHERE kind = $1 AND id = $2 AND project_id = $3";
    let row: Option<Row> = sql::query_as(select)
        .bind(key.kind.name())
        .bind(key.id)
        .bind(key.project.0)
        .fetch_optional(connection)
        .await?;
    row.map(Document::try_from).transpose()
}

/// Reads those documents of a project that have one of these ids, deleted or not, in any order.
pub(super) async fn by_ids(
    connection: &mut Conn,
    project: ProjectId,
    kind: Kind,
    ids: &[i64],
) -> Result<Vec<DocumentText>, MetadataError> {
    let mut found = Vec::with_capacity(ids.len());
    for some in ids.chunks(BINDS_MAX) {
        let mut select = Builder::new("SELECT * FROM documents WHERE kind = ");
        select.push_bind(kind.name()).push(" AND project_id = ").push_bind(project.0);
        select.push(" AND id IN ").push_list(some.iter().copied());
        let rows: Vec<Row> = select.build_as().fetch_all(connection).await?;
        found.reserve(rows.len());
        for row in rows {
            found.push(DocumentText::try_from(row)?);
        }
    }
    Ok(found)
}

/// Reads documents of a project that are not deleted, with ids below `before`, largest first. `like` is a pattern of
/// `LIKE` for the text of their fields.
pub(super) async fn before(
    connection: &mut Conn,
    project: ProjectId,
    kind: Kind,
    before: i64,
    limit: u32,
    like: &str,
) -> Result<Vec<DocumentText>, MetadataError> {
    let rows: Vec<Row> = sql::query_as(
        "SELECT * FROM documents WHERE project_id = $1 AND kind = $2 AND id < $3 AND NOT deleted
         AND ($4 = '%' OR fields LIKE $4)
         ORDER BY id DESC LIMIT $5",
    )
    .bind(project.0)
    .bind(kind.name())
    .bind(before)
    .bind(like)
    .bind(limit)
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(DocumentText::try_from).collect()
}

/// Reads all documents of a kind of a project that are not deleted, largest id first, without their fields.
pub(super) async fn heads(
    connection: &mut Conn,
    project: ProjectId,
    kind: Kind,
) -> Result<Vec<Document>, MetadataError> {
    let rows: Vec<Row> = sql::query_as(
        "SELECT kind, id, project_id, deleted, created_by, created_at, updated_by, updated_at, '{}' AS fields
         FROM documents WHERE project_id = $1 AND kind = $2 AND NOT deleted ORDER BY id DESC",
    )
    .bind(project.0)
    .bind(kind.name())
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Document::try_from).collect()
}

/// Reads the documents of a kind that are not deleted, of one project or of all.
pub(crate) async fn live(
    connection: &mut Conn,
    kind: Kind,
    only: Option<ProjectId>,
) -> Result<Vec<Document>, MetadataError> {
    let select = "SELECT * FROM documents
         WHERE kind = $1 AND (CAST($2 AS BIGINT) IS NULL OR project_id = $2) AND NOT deleted";
    let select = sql::query_as(select).bind(kind.name()).bind(only.map(|project| project.0));
    let rows: Vec<Row> = select.fetch_all(connection).await?;
    rows.into_iter().map(Document::try_from).collect()
}

/// A kind as a table has it.
pub(super) fn kind(table: &'static str, name: &str) -> Result<Kind, MetadataError> {
    let unknown = || MetadataError::Corrupt { table, problem: "kind".to_owned() };
    Kind::parse(name).ok_or_else(unknown)
}

#[derive(sqlx_macros::FromRow)]
struct Row {
    kind: String,
    id: i64,
    project_id: i64,
    deleted: bool,
    created_by: Option<i64>,
    created_at: i64,
    updated_by: Option<i64>,
    updated_at: i64,
    fields: String,
}

impl TryFrom<Row> for DocumentText {
    type Error = MetadataError;

    fn try_from(row: Row) -> Result<Self, MetadataError> {
        let head = Document {
            kind: kind(TABLE, &row.kind)?,
            id: row.id,
            project: ProjectId(row.project_id),
            deleted: row.deleted,
            created_by: row.created_by.map(UserId),
            created_at: UnixMicros(row.created_at),
            updated_by: row.updated_by.map(UserId),
            updated_at: UnixMicros(row.updated_at),
            fields: Map::new(),
        };
        Ok(Self { head, text: row.fields.into() })
    }
}

impl TryFrom<Row> for Document {
    type Error = MetadataError;

    fn try_from(row: Row) -> Result<Self, MetadataError> {
        let DocumentText { head, text } = DocumentText::try_from(row)?;
        Ok(Self { fields: disk::from_json(TABLE, &text)?, ..head })
    }
}
