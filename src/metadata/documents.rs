//! Documents: what users of a project save beside events and that nothing but its readers interprets: actions,
//! insights, annotations and dashboards ([`Kind`]). A [`Document`] has an owner, times and named fields; which
//! fields, and which values they take, is decided by whoever reads the request. `operations` stores them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::accounts::UserId;
use crate::activity::{Logged, Scope, Subject};
use crate::entity::{Columns, Stored, entity, named, stored};
use crate::error::MetadataError;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::json;

pub mod batches;
mod operations;
pub(super) mod rows;
pub mod shares;

/// Longest fields of one document, in bytes of their JSON text.
pub const FIELDS_MAX_BYTES: usize = 64 << 10;

/// Memory of a document besides its fields.
const HEAD_BYTES: usize = 256;

/// Most tags of one document.
pub const TAGS_MAX: usize = 100;

/// Most documents of a kind that one user's last views are kept of, in a project.
const VIEWS_MAX: u32 = 50;

named! {
    /// What a document is.
    #[derive(Default, Hash)]
    pub enum Kind: ALL, Stored {
        /// A named set of events.
        #[default]
        Action = "action",
        /// A saved insight.
        Insight = "insight",
        /// A note at a point in time.
        Annotation = "annotation",
        /// A board of insights and texts.
        Dashboard = "dashboard",
    }
}

/// Which document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DocumentKey {
    /// The project that it belongs to.
    pub project: ProjectId,
    /// What it is.
    pub kind: Kind,
    /// Its id, unique within its kind.
    pub id: i64,
}

stored! { Arc<str> as String: |text| text.as_ref().to_owned(), |text| Ok(text.into()); }

entity! {
    /// A document as stored.
    #[derive(Default)]
    pub struct Document of "documents" {
        /// What it is.
        kind: Kind [key],
        /// Its id, unique within its kind. Positive.
        id: i64 [key],
        /// The project that it belongs to.
        project: ProjectId as "project_id" [once],
        /// Whether it was deleted; it can be restored.
        deleted: bool [logged],
        /// The user who created it.
        created_by: Option<UserId> [once],
        /// Time of creation.
        created_at: UnixMicros [once],
        /// The user of the last change.
        updated_by: Option<UserId>,
        /// Time of the last change.
        updated_at: UnixMicros,
    }
    apart {
        /// Its fields; a [`DocumentText`] has them as its row does.
        fields: Map<String, Value>,
    }
}

entity! {
    /// A document with its fields as they are stored. Parsed, they take several times the memory.
    pub struct DocumentText in "documents" {
        /// The text of a JSON object with all of them.
        text: Arc<str> as "fields",
    }
    parts {
        /// The document without its fields.
        head: Document,
    }
}

impl DocumentText {
    /// The text of a document.
    pub fn of(document: &Document) -> Self {
        let text = Stored::store(&document.fields).into();
        Self { head: document.without_fields(), text }
    }

    /// The document with those of its fields that have one of these names.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Corrupt`].
    pub fn with(&self, names: &[Box<str>]) -> Result<Document, MetadataError> {
        let read = json::read_members(self.text.as_bytes(), names);
        let fields = read.or_else(|_| {
            // Nested deeper than what can be written now.
            let mut all: Map<String, Value> = json::restore(self.text.as_bytes())?;
            all.retain(|name, _| names.iter().any(|own| **own == **name));
            Ok(all)
        });
        Ok(Document { fields: fields.map_err(corrupt)?, ..self.head.without_fields() })
    }

    /// The document with all of its fields.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Corrupt`].
    pub fn whole(&self) -> Result<Document, MetadataError> {
        let fields = json::restore(self.text.as_bytes()).map_err(corrupt)?;
        Ok(Document { fields, ..self.head.without_fields() })
    }

    /// The text of each field.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Corrupt`].
    pub fn members(&self) -> Result<BTreeMap<String, Box<RawValue>>, MetadataError> {
        json::members(self.text.as_bytes()).map_err(corrupt)
    }

    /// Its memory, roughly.
    pub fn bytes(&self) -> usize {
        self.text.len().saturating_add(HEAD_BYTES)
    }
}

fn corrupt(error: serde_json::Error) -> MetadataError {
    MetadataError::Corrupt { table: "documents", problem: error.to_string() }
}

impl Kind {
    /// Most documents of the kind in a project, without deleted ones; of these as many are kept. Actions are held in
    /// memory, up to [`FIELDS_MAX_BYTES`] each.
    pub fn per_project_max(self) -> i64 {
        match self {
            Self::Action => 1000,
            Self::Insight | Self::Annotation | Self::Dashboard => 10_000,
        }
    }

    /// The kind as the activity log names it.
    pub const fn scope(self) -> Scope {
        match self {
            Self::Action => Scope::Action,
            Self::Insight => Scope::Insight,
            Self::Annotation => Scope::Annotation,
            Self::Dashboard => Scope::Dashboard,
        }
    }
}

impl Document {
    fn without_fields(&self) -> Self {
        Self { fields: Map::new(), ..*self }
    }

    /// Which document it is.
    pub fn key(&self) -> DocumentKey {
        DocumentKey { project: self.project, kind: self.kind, id: self.id }
    }

    /// A text among its fields; empty if there is none.
    pub fn text(&self, name: &str) -> &str {
        self.fields.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether a field is true.
    pub fn is(&self, name: &str) -> bool {
        self.fields.get(name) == Some(&Value::Bool(true))
    }

    /// Its name for people: the first text that it has of these.
    fn title(&self) -> &str {
        let texts = ["name", "derived_name", "content"].map(|name| self.text(name));
        texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
    }
}

impl Logged for Document {
    fn subject(&self) -> Subject {
        let (item, name) = (self.id.to_string(), self.title().to_owned());
        Subject { scope: self.kind.scope(), item, name, project: Some(self.project) }
    }

    fn logged(&self) -> Map<String, Value> {
        self.fields.clone().into_iter().chain(self.logged_cells()).collect()
    }
}
