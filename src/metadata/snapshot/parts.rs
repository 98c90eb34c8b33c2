//! Reading of a [`Snapshot`], as a whole or the parts of it that another server has changed; and which parts of one
//! differ from another.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::changes::Part;
use crate::connection::Conn;
use crate::documents::Kind;
use crate::error::MetadataError;
use crate::flag_rights::FlagRights;
use crate::snapshot::{Snapshot, by_project};
use crate::{
    accounts, cohorts, documents, early_access, flag_settings, flags, members, promotions, removal,
    sql,
};
use weir_event::id::ProjectId;

/// Parts that are read one by one. Each takes some statements; the whole takes as many at once.
const PARTS_MAX: usize = 50;

impl Snapshot {
    /// Reads the whole store.
    pub(crate) async fn load(connection: &mut Conn) -> Result<Self, MetadataError> {
        let mut snapshot = Self::default();
        snapshot.load_common(connection).await?;
        snapshot.load_projects(connection, None).await?;
        Ok(snapshot)
    }

    /// This snapshot, with `parts` as they are in the store now.
    pub(crate) async fn with_parts(
        &self,
        connection: &mut Conn,
        parts: &BTreeSet<Part>,
    ) -> Result<Self, MetadataError> {
        if parts.len() > PARTS_MAX {
            return Self::load(connection).await;
        }
        let mut next = self.clone();
        for part in parts {
            match *part {
                Part::Common => next.load_common(connection).await?,
                Part::Project(project) => {
                    next.forget(project);
                    next.load_projects(connection, Some(project)).await?;
                }
            }
        }
        Ok(next)
    }

    /// The parts in which `next`, which was made from this snapshot, is not the same.
    pub(crate) fn changed_in(&self, next: &Self) -> BTreeSet<Part> {
        let mut projects = BTreeSet::new();
        macro_rules! compare {
            ($into:expr, $($field:ident),*) => {$(
                $into.extend(differing(&self.$field, |key| next.$field.get(key)));
                $into.extend(differing(&next.$field, |key| self.$field.get(key)));
            )*};
        }
        compare!(projects, projects, flag_settings, cohorts, flags);
        compare!(projects, group_types, features, actions, promotions);
        let (mut organizations, mut users, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        compare!(organizations, organizations);
        compare!(users, users);
        compare!(keys, keys);
        let is_common = !(organizations.is_empty() && users.is_empty() && keys.is_empty())
            || self.flag_rights != next.flag_rights
            || self.deleted != next.deleted;
        let projects = projects.into_iter().map(Part::Project);
        projects.chain(is_common.then_some(Part::Common)).collect()
    }

    /// Reads what belongs to no project.
    async fn load_common(&mut self, connection: &mut Conn) -> Result<(), MetadataError> {
        let organizations = members::organizations(connection).await?;
        self.organizations = organizations.into_iter().map(|one| (one.id, Arc::new(one))).collect();
        self.users = accounts::rows::users(connection).await?;
        let keys = accounts::rows::keys(connection, &self.users).await?;
        self.keys = keys.into_iter().map(|key| (key.hash, Arc::new(key))).collect();
        self.flag_rights = Arc::new(FlagRights::load(connection).await?);
        self.deleted = Arc::new(removal::deleted(connection).await?);
        Ok(())
    }

    /// Reads a project, of which nothing is here, or all.
    async fn load_projects(
        &mut self,
        connection: &mut Conn,
        only: Option<ProjectId>,
    ) -> Result<(), MetadataError> {
        for project in accounts::rows::projects(connection, only).await? {
            self.put_project(Arc::new(project));
        }
        for settings in flag_settings::all(connection, only).await? {
            self.flag_settings.insert(settings.project, Arc::new(settings));
        }
        // After the settings, which determine how they are parsed.
        for (project, cohorts) in by_project(cohorts::rows::live(connection, only).await?) {
            self.put_cohorts(project, cohorts);
        }
        for (project, flags) in by_project(flags::rows::live(connection, only).await?) {
            self.put_flags(project, flags);
        }
        let types = "SELECT project_id, name FROM group_types
             WHERE (CAST($1 AS BIGINT) IS NULL OR project_id = $1) ORDER BY project_id, position";
        let types = sql::query_as(types).bind(only.map(|project| project.0));
        let types: Vec<(i64, String)> = types.fetch_all(&mut *connection).await?;
        for (project, name) in types {
            self.put_group_type(ProjectId(project), name);
        }
        for feature in early_access::all(connection, only).await? {
            self.put_feature(Arc::new(feature));
        }
        let actions = documents::rows::live(connection, Kind::Action, only).await?;
        for (project, actions) in by_project(actions) {
            self.actions.insert(project, actions.into());
        }
        let promoted = promotions::all(connection, only).await?;
        for own in promoted.chunk_by(|a, b| a.project == b.project) {
            if let Some(first) = own.first() {
                self.put_promotions(first.project, own.to_vec());
            }
        }
        Ok(())
    }

    /// Removes everything of a project.
    pub(super) fn forget(&mut self, project: ProjectId) {
        if let Some(forgotten) = self.projects.remove(&project) {
            self.by_token.remove(&forgotten.token);
        }
        self.flag_settings.remove(&project);
        self.cohorts.remove(&project);
        self.cohort_sets.remove(&project);
        self.flags.remove(&project);
        self.flag_sets.remove(&project);
        self.group_types.remove(&project);
        self.features.remove(&project);
        self.actions.remove(&project);
        self.promotions.remove(&project);
        self.revise(project);
    }
}

/// The keys under which `other` has another value than `map`, or none. Values are the same if they are shared: a write
/// leaves those that it does not change.
fn differing<'m, K: Copy + 'm, V: ?Sized + 'm>(
    map: impl IntoIterator<Item = (&'m K, &'m Arc<V>)>,
    other: impl Fn(&K) -> Option<&'m Arc<V>>,
) -> impl Iterator<Item = K> {
    let differs =
        move |key: &K, value: &Arc<V>| other(key).is_none_or(|other| !Arc::ptr_eq(value, other));
    map.into_iter().filter(move |(key, value)| differs(key, value)).map(|(key, _)| *key)
}
