//! Operations on documents.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::accounts::UserId;
use crate::activity::{Logged, Verb};
use crate::documents::{
    Document, DocumentKey, DocumentText, FIELDS_MAX_BYTES, Kind, TAGS_MAX, VIEWS_MAX, rows,
};
use crate::entity::Stored;
use crate::error::MetadataError;
use crate::tags::normal_tags;
use crate::violation::Violation;
use crate::{Metadata, Write, sql};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

impl Metadata {
    /// Creates a document.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a project or user, [`MetadataError::Rejected`] if the fields are too
    /// long, or the project has too many of the kind.
    pub async fn create_document(
        &self,
        project: ProjectId,
        user: UserId,
        kind: Kind,
        fields: Map<String, Value>,
    ) -> Result<Arc<Document>, MetadataError> {
        let mut write = self.begin().await?;
        let document = write.create_document(project, user, kind, fields).await?;
        write.publish_document(document).await
    }

    /// Creates insights, all or none.
    ///
    /// # Errors
    ///
    /// As [`Metadata::create_document`].
    pub async fn create_insights(
        &self,
        project: ProjectId,
        user: UserId,
        all: Vec<Map<String, Value>>,
    ) -> Result<Vec<Document>, MetadataError> {
        let mut write = self.begin().await?;
        let mut made = Vec::with_capacity(all.len());
        for fields in all {
            made.push(write.create_document(project, user, Kind::Insight, fields).await?);
        }
        write.commit_unseen().await?;
        Ok(made)
    }

    /// Changes the given fields of a document, deletes or restores it.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a document in the project, others as
    /// [`Metadata::create_document`].
    pub async fn update_document(
        &self,
        user: UserId,
        key: DocumentKey,
        fields: Map<String, Value>,
        deleted: Option<bool>,
    ) -> Result<Arc<Document>, MetadataError> {
        let edit = |document: &mut Document, _: &mut [Document]| {
            document.fields.extend(fields);
            document.deleted = deleted.unwrap_or(document.deleted);
            Ok(())
        };
        self.edit_documents(user, key, Vec::new(), edit).await
    }

    /// Changes a document, and others together with it, none of which is an action; those of `others` that are not
    /// there are left out. `edit` gets them as they are now; it changes fields, and whether they are deleted.
    ///
    /// # Errors
    ///
    /// Those of `edit`, and as [`Metadata::update_document`].
    pub async fn edit_documents(
        &self,
        user: UserId,
        key: DocumentKey,
        others: Vec<(Kind, i64)>,
        edit: impl FnOnce(&mut Document, &mut [Document]) -> Result<(), MetadataError> + Send,
    ) -> Result<Arc<Document>, MetadataError> {
        let mut write = self.begin().await?;
        write.user(user)?;
        let before = rows::by_id(write.connection(), key).await?;
        let before = before.ok_or(MetadataError::NotFound("document"))?;
        let others_before = write.documents(key.project, others).await?;
        let (mut after, mut others) = (before.clone(), others_before.clone());
        edit(&mut after, &mut others)?;
        for (before, after) in others_before.iter().zip(&mut others) {
            write.change_document(user, before, after).await?;
        }
        write.change_document(user, &before, &mut after).await?;
        write.publish_document(after).await
    }

    /// A document of the project, deleted or not.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without one, [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn document(
        &self,
        project: ProjectId,
        kind: Kind,
        id: i64,
    ) -> Result<Document, MetadataError> {
        let key = DocumentKey { project, kind, id };
        let found = rows::by_id(&mut self.shared.db.reader().await?, key).await?;
        found.ok_or(MetadataError::NotFound("document"))
    }

    /// A document of the project, deleted or not, with its fields as they are stored.
    ///
    /// # Errors
    ///
    /// As [`Metadata::document`].
    pub async fn document_text(
        &self,
        project: ProjectId,
        kind: Kind,
        id: i64,
    ) -> Result<DocumentText, MetadataError> {
        let found = self.document_texts(project, kind, vec![id]).await?;
        found.into_iter().next().ok_or(MetadataError::NotFound("document"))
    }

    /// The documents of the project that have one of these ids, deleted or not, in the order of the ids; each once.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn document_texts(
        &self,
        project: ProjectId,
        kind: Kind,
        mut ids: Vec<i64>,
    ) -> Result<Vec<DocumentText>, MetadataError> {
        let mut seen = HashSet::with_capacity(ids.len());
        ids.retain(|id| seen.insert(*id));
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found = rows::by_ids(&mut self.shared.db.reader().await?, project, kind, &ids).await?;
        let mut found: HashMap<i64, DocumentText> =
            found.into_iter().map(|one| (one.head.id, one)).collect();
        Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
    }

    /// All documents of a kind in the project that are not deleted, newest first, without their fields.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`], [`MetadataError::Corrupt`].
    pub async fn document_heads(
        &self,
        project: ProjectId,
        kind: Kind,
    ) -> Result<Vec<Document>, MetadataError> {
        rows::heads(&mut self.shared.db.reader().await?, project, kind).await
    }

    /// Notes that a user looked at a document now.
    ///
    /// # Errors
    ///
    /// [`MetadataError::NotFound`] without such a document in the project.
    pub async fn view_document(&self, user: UserId, key: DocumentKey) -> Result<(), MetadataError> {
        let mut write = self.begin().await?;
        write.user(user)?;
        let found = rows::by_id(write.connection(), key).await?;
        found.ok_or(MetadataError::NotFound("document"))?;
        let DocumentKey { project, kind, id } = key;
        sql::query(
            "INSERT INTO document_views (project_id, kind, user_id, document_id, viewed_at)
             VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (kind, user_id, document_id) DO UPDATE SET viewed_at = $5",
        )
        .bind(project.0)
        .bind(kind.name())
        .bind(user.0)
        .bind(id)
        .bind(self.now().0)
        .execute(write.connection())
        .await?;
        sql::query(
            "DELETE FROM document_views
             WHERE project_id = $1 AND kind = $2 AND user_id = $3 AND document_id NOT IN
             (SELECT document_id FROM document_views
              WHERE project_id = $1 AND kind = $2 AND user_id = $3
              ORDER BY viewed_at DESC, document_id DESC LIMIT $4)",
        )
        .bind(project.0)
        .bind(kind.name())
        .bind(user.0)
        .bind(VIEWS_MAX)
        .execute(write.connection())
        .await?;
        write.commit_unseen().await
    }

    /// The ids of documents that a user looked at, the last one first, and when.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Database`].
    pub async fn viewed_documents(
        &self,
        project: ProjectId,
        user: UserId,
        kind: Kind,
    ) -> Result<Vec<(i64, UnixMicros)>, MetadataError> {
        let rows: Vec<(i64, i64)> = sql::query_as(
            "SELECT document_id, viewed_at FROM document_views
             WHERE project_id = $1 AND kind = $2 AND user_id = $3
             ORDER BY viewed_at DESC, document_id DESC",
        )
        .bind(project.0)
        .bind(kind.name())
        .bind(user.0)
        .fetch_all(&mut self.shared.db.reader().await?)
        .await?;
        Ok(rows.into_iter().map(|(id, at)| (id, UnixMicros(at))).collect())
    }
}

impl Write {
    /// Those of these documents that are there, each once; those of a kind are read at once.
    async fn documents(
        &mut self,
        project: ProjectId,
        mut wanted: Vec<(Kind, i64)>,
    ) -> Result<Vec<Document>, MetadataError> {
        let mut seen = HashSet::with_capacity(wanted.len());
        wanted.retain(|one| seen.insert(*one));
        let mut found = HashMap::with_capacity(wanted.len());
        for kind in Kind::ALL {
            let ids = wanted.iter().filter(|(own, _)| *own == kind).map(|(_, id)| *id);
            let ids: Vec<i64> = ids.collect();
            if ids.is_empty() {
                continue;
            }
            for one in rows::by_ids(self.connection(), project, kind, &ids).await? {
                found.insert((kind, one.head.id), one.whole()?);
            }
        }
        Ok(wanted.iter().filter_map(|one| found.remove(one)).collect())
    }

    async fn create_document(
        &mut self,
        project: ProjectId,
        user: UserId,
        kind: Kind,
        mut fields: Map<String, Value>,
    ) -> Result<Document, MetadataError> {
        normalise(&mut fields)?;
        self.base.project(project).ok_or(MetadataError::NotFound("project"))?;
        self.user(user)?;
        self.check_room(project, kind).await?;
        let now = self.shared.clock.now();
        let document = Document {
            kind,
            id: rows::next_id(self.connection(), kind).await?,
            project,
            created_by: Some(user),
            created_at: now,
            updated_by: Some(user),
            updated_at: now,
            fields,
            ..Document::default()
        };
        rows::put(self.connection(), &document).await?;
        self.log(project, Some(user), document.entry(Verb::Created, Vec::new())).await?;
        Ok(document)
    }

    /// Writes and logs what is changed of a document, if anything is.
    async fn change_document(
        &mut self,
        user: UserId,
        before: &Document,
        after: &mut Document,
    ) -> Result<(), MetadataError> {
        normalise(&mut after.fields)?;
        let (project, kind) = (after.project, after.kind);
        let Some(change) = after.changed(before) else { return Ok(()) };
        if before.deleted && !after.deleted {
            self.check_room(project, kind).await?;
        }
        after.updated_by = Some(user);
        after.updated_at = self.shared.clock.now();
        rows::put(self.connection(), after).await?;
        if after.deleted {
            rows::purge(self.connection(), project, kind).await?;
        }
        self.log(project, Some(user), change).await
    }

    /// Checks that the project may have one more document of the kind.
    async fn check_room(&mut self, project: ProjectId, kind: Kind) -> Result<(), MetadataError> {
        if rows::count(self.connection(), project, kind).await? < kind.per_project_max() {
            return Ok(());
        }
        let (most, name) = (kind.per_project_max(), kind.name());
        Err(Violation::general(format!("A project has at most {most} {name}s.")).into())
    }

    /// Commits a document that was written in this transaction.
    async fn publish_document(self, document: Document) -> Result<Arc<Document>, MetadataError> {
        let document = Arc::new(document);
        match document.kind {
            Kind::Action => {
                let action = Arc::clone(&document);
                self.commit_with(|next| next.put_action(action)).await?;
            }
            Kind::Insight | Kind::Annotation | Kind::Dashboard => self.commit_unseen().await?,
        }
        Ok(document)
    }
}

/// Normalises the tags, and checks the size of fields.
fn normalise(fields: &mut Map<String, Value>) -> Result<(), Violation> {
    if let Some(Value::Array(tags)) = fields.get_mut("tags") {
        let texts = tags.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let texts = normal_tags(texts);
        if texts.len() > TAGS_MAX {
            let detail = format!("Ensure this field has no more than {TAGS_MAX} elements.");
            return Err(Violation { code: "max_length", detail, attr: Some("tags") });
        }
        *tags = texts.into_iter().map(Value::from).collect();
    }
    let bytes = Stored::store(fields).len();
    if bytes > FIELDS_MAX_BYTES {
        let detail =
            format!("All fields together have {bytes} bytes, more than {FIELDS_MAX_BYTES}.");
        return Err(Violation::general(detail));
    }
    Ok(())
}
