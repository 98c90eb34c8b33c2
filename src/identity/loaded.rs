//! [`Loaded`]: a newly opened database, with the parts of it that are kept in memory.

use std::path::Path;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;

use crate::cache::{Caches, Decoded};
use crate::codec::Counters;
use crate::deletions::Deletions;
use crate::gone::{Gone, GoneProjects};
use crate::limits::Limits;
use crate::overrides::Splits;
use crate::reading::Reading;
use crate::tables::Tables;
use crate::view::View;
use crate::{IdentityError, codec};
use weir_event::id::ProjectId;

/// Group types by project, in the order of their indexes. At most five per project.
pub(super) type GroupTypes = HashMap<ProjectId, Arc<[String]>>;

/// State that only the writer uses.
pub(super) struct Writer {
    pub(super) caches: Caches,
    pub(super) counters: Counters,
    pub(super) part_bytes: u64,
    /// Alive while an earlier database is being closed.
    pub(super) closing: Weak<()>,
}

/// An open database. Hold it as briefly as possible: it closes when the last holder drops it.
pub(super) struct Open {
    pub(super) tables: Arc<Tables>,
    pub(super) decoded: Arc<Decoded>,
}

impl Open {
    pub(super) fn view(&self) -> View {
        View::new(Reading::new(&self.tables, Arc::clone(&self.decoded)))
    }
}

/// A newly opened database, and the parts of it that are kept in memory.
pub(super) struct Loaded {
    pub(super) open: Open,
    pub(super) writer: Writer,
    pub(super) splits: Splits,
    pub(super) deletions: Deletions,
    pub(super) types: GroupTypes,
    pub(super) gone: GoneProjects,
}

impl Loaded {
    pub(super) fn from(directory: &Path, limits: Limits) -> Result<Self, IdentityError> {
        let tables = Tables::open(directory, limits.blocks_bytes)
            .map_err(|error| IdentityError::of_open(error, directory))?;
        let tables = Arc::new(tables);
        let (splits, deletions) = (load_splits(&tables)?, load_deletions(&tables)?);
        let types = load_types(&tables)?;
        let gone = load_gone(&tables)?.into_iter().map(|(project, _)| project).collect();
        let open = Open { tables, decoded: Arc::new(Decoded::new(limits.rows_bytes / 2)) };
        let writer = Writer {
            caches: Caches::new(limits.ids_bytes, limits.rows_bytes / 2),
            counters: open.view().counters()?,
            part_bytes: limits.part_bytes,
            closing: Weak::new(),
        };
        Ok(Self { open, writer, splits, deletions, types, gone })
    }
}

fn load_splits(tables: &Tables) -> Result<Splits, IdentityError> {
    let mut splits = Splits::default();
    for entry in tables.meta.prefix(codec::SPLIT_PREFIX) {
        splits.extend([codec::decode_split_key(&entry.key()?)?]);
    }
    Ok(splits)
}

pub(super) fn load_deletions(tables: &Tables) -> Result<Deletions, IdentityError> {
    let mut requests = Vec::new();
    for entry in tables.meta.prefix(codec::DELETING_PREFIX) {
        let (key, ids) = entry.into_inner()?;
        let place = codec::decode_deleting_key(&key)?;
        let row = tables.deletions.get(codec::deletion_key(place))?;
        let row = row.ok_or(IdentityError::Damaged { what: "deletion" })?;
        let asked_at = codec::decode_deletion(&row)?.asked_at;
        requests.push((place, asked_at, codec::decode_deleting(&ids)?));
    }
    let pending = load_gone(tables)?.into_iter().filter(|(_, gone)| gone.done_at.is_none());
    let projects = pending.map(|(project, gone)| (project, gone.sequence));
    Ok(Deletions::new(requests.into_iter()).with_projects(projects))
}

/// The deleted projects.
pub(super) fn load_gone(tables: &Tables) -> Result<Vec<(ProjectId, Gone)>, IdentityError> {
    let mut all = Vec::new();
    for entry in tables.meta.prefix(codec::GONE_PREFIX) {
        let (key, gone) = entry.into_inner()?;
        let project = codec::meta_project(codec::GONE_PREFIX, &key)?;
        all.push((project, codec::decode_gone(&gone)?));
    }
    Ok(all)
}

fn load_types(tables: &Tables) -> Result<GroupTypes, IdentityError> {
    let mut types = GroupTypes::new();
    for entry in tables.meta.prefix(codec::TYPES_PREFIX) {
        let (key, names) = entry.into_inner()?;
        let project = codec::meta_project(codec::TYPES_PREFIX, &key)?;
        types.insert(project, codec::decode_types(&names)?.into());
    }
    Ok(types)
}
