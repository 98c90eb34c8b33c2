//! Documents as rows. SQL only.

use crate::connection::Conn;
use crate::documents::{Document, DocumentKey, DocumentText, Kind};
use crate::entity::{Columns, Entity};
use crate::error::MetadataError;
use crate::sql;
use weir_event::id::ProjectId;

/// Most values of one statement; SQLite takes 32,766, PostgreSQL 65,535.
const BINDS_MAX: usize = 10_000;

/// The id for the next document of a kind.
pub(crate) async fn next_id(connection: &mut Conn, kind: Kind) -> Result<i64, MetadataError> {
    let next = "SELECT COALESCE(MAX(id), 0) + 1 FROM (
               SELECT MAX(id) AS id FROM documents WHERE kind = $1
               UNION ALL SELECT highest FROM used_ids WHERE name = 'documents/' || $1) AS ids";
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
    DocumentText::of(document).put().execute(connection).await?;
    Ok(())
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
    let select = DocumentText::select("WHERE kind = $1 AND id = $2 AND project_id = $3")
        .bind(key.kind.name())
        .bind(key.id)
        .bind(key.project.0);
    let found: Option<DocumentText> = select.fetch_optional(connection).await?;
    found.map(|found| found.whole()).transpose()
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
        let mut select = DocumentText::selecting("WHERE kind = ");
        select.push_bind(kind.name()).push(" AND project_id = ").push_bind(project.0);
        select.push(" AND id IN ").push_list(some.iter().copied());
        found.extend(select.build_as::<DocumentText>().fetch_all(connection).await?);
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
    let select = DocumentText::select(
        "WHERE project_id = $1 AND kind = $2 AND id < $3 AND NOT deleted
         AND ($4 = '%' OR fields LIKE $4)
         ORDER BY id DESC LIMIT $5",
    )
    .bind(project.0)
    .bind(kind.name());
    Ok(select.bind(before).bind(like).bind(limit).fetch_all(connection).await?)
}

/// Reads all documents of a kind of a project that are not deleted, largest id first, without their fields.
pub(super) async fn heads(
    connection: &mut Conn,
    project: ProjectId,
    kind: Kind,
) -> Result<Vec<Document>, MetadataError> {
    let select =
        Document::select("WHERE project_id = $1 AND kind = $2 AND NOT deleted ORDER BY id DESC");
    Ok(select.bind(project.0).bind(kind.name()).fetch_all(connection).await?)
}

/// Reads the documents of a kind that are not deleted, of one project or of all.
pub(crate) async fn live(
    connection: &mut Conn,
    kind: Kind,
    only: Option<ProjectId>,
) -> Result<Vec<Document>, MetadataError> {
    let select = DocumentText::select(
        "WHERE kind = $1 AND (CAST($2 AS BIGINT) IS NULL OR project_id = $2) AND NOT deleted",
    )
    .bind(kind.name())
    .bind(only.map(|project| project.0));
    let found: Vec<DocumentText> = select.fetch_all(connection).await?;
    // Each text is freed once its document was read: together they may be 64 MB for a project.
    found.into_iter().map(|text| text.whole()).collect()
}
