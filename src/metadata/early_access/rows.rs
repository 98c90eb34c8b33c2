//! Early access features as rows. SQL only.

use uuid::Uuid;

use crate::accounts::UserId;
use crate::connection::Conn;
use crate::early_access::{EarlyAccessFeature, Stage};
use crate::error::MetadataError;
use crate::flags::FlagId;
use crate::{disk, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

const TABLE: &str = "early_access_features";

/// Inserts a feature.
pub(super) async fn insert(
    connection: &mut Conn,
    feature: &EarlyAccessFeature,
) -> Result<(), MetadataError> {
    sql::query(
        "INSERT INTO early_access_features
         (id, project_id, flag_id, name, description, stage, documentation_url, payload, created_by,
          created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(feature.id.to_string())
    .bind(feature.project.0)
    .bind(feature.flag.0)
    .bind(&feature.name)
    .bind(&feature.description)
    .bind(feature.stage.name())
    .bind(&feature.documentation_url)
    .bind(feature.payload.to_string())
    .bind(feature.created_by.map(|user| user.0))
    .bind(feature.created_at.0)
    .execute(connection)
    .await?;
    Ok(())
}

/// Overwrites the fields of a feature that can change.
pub(super) async fn update(
    connection: &mut Conn,
    feature: &EarlyAccessFeature,
) -> Result<(), MetadataError> {
    sql::query(
        "UPDATE early_access_features
         SET name = $1, description = $2, stage = $3, documentation_url = $4, payload = $5
         WHERE id = $6",
    )
    .bind(&feature.name)
    .bind(&feature.description)
    .bind(feature.stage.name())
    .bind(&feature.documentation_url)
    .bind(feature.payload.to_string())
    .bind(feature.id.to_string())
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes a feature.
pub(super) async fn delete(connection: &mut Conn, id: Uuid) -> Result<(), MetadataError> {
    let delete = sql::query("DELETE FROM early_access_features WHERE id = $1");
    delete.bind(id.to_string()).execute(connection).await?;
    Ok(())
}

/// Reads the features of one project or of all.
pub(crate) async fn all(
    connection: &mut Conn,
    only: Option<ProjectId>,
) -> Result<Vec<EarlyAccessFeature>, MetadataError> {
    let select = "SELECT * FROM early_access_features
         WHERE (CAST($1 AS BIGINT) IS NULL OR project_id = $1)";
    let select = sql::query_as(select).bind(only.map(|project| project.0));
    let rows: Vec<FeatureRow> = select.fetch_all(connection).await?;
    rows.into_iter().map(EarlyAccessFeature::try_from).collect()
}

#[derive(sqlx_macros::FromRow)]
struct FeatureRow {
    id: String,
    project_id: i64,
    flag_id: i64,
    name: String,
    description: String,
    stage: String,
    documentation_url: String,
    payload: String,
    created_by: Option<i64>,
    created_at: i64,
}

impl TryFrom<FeatureRow> for EarlyAccessFeature {
    type Error = MetadataError;

    fn try_from(row: FeatureRow) -> Result<Self, MetadataError> {
        let unknown = || MetadataError::Corrupt { table: TABLE, problem: "stage".to_owned() };
        Ok(Self {
            id: disk::from_uuid(TABLE, &row.id)?,
            project: ProjectId(row.project_id),
            flag: FlagId(row.flag_id),
            name: row.name,
            description: row.description,
            stage: Stage::parse(&row.stage).ok_or_else(unknown)?,
            documentation_url: row.documentation_url,
            payload: disk::from_json(TABLE, &row.payload)?,
            created_by: row.created_by.map(UserId),
            created_at: UnixMicros(row.created_at),
        })
    }
}
