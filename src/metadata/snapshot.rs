//! Everything that hot roads ask of the metadata, frozen at one moment: [`Snapshot`].
//!
//! A snapshot is never changed once published. A write clones it, which copies maps of `Arc`s, puts
//! in what it changed, and publishes the copy; the parts that did not change are shared.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use sqlx::SqliteConnection;
use uuid::Uuid;

use crate::event::id::ProjectId;
use crate::event::predicate::Matching;
use crate::flags::definition::Stored;
use crate::flags::set::Entry;
use crate::flags::set::FlagSet;
use crate::metadata::MetadataError;
use crate::metadata::accounts;
use crate::metadata::accounts::PersonalKey;
use crate::metadata::accounts::Project;
use crate::metadata::accounts::User;
use crate::metadata::accounts::UserId;
use crate::metadata::flags;
use crate::metadata::flags::FlagId;
use crate::metadata::flags::StoredFlag;
use crate::metadata::members;
use crate::metadata::members::Organization;
use crate::metadata::secrets::KeyHash;

/// The state of the store at one moment. Look-ups neither wait nor allocate.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    organizations: BTreeMap<Uuid, Arc<Organization>>,
    projects: BTreeMap<ProjectId, Arc<Project>>,
    by_token: HashMap<String, Arc<Project>>,
    users: BTreeMap<UserId, Arc<User>>,
    keys: HashMap<KeyHash, Arc<PersonalKey>>,
    /// Flags that are not deleted, newest first. A project without flags may be absent.
    flags: HashMap<ProjectId, Arc<[Arc<StoredFlag>]>>,
    /// The same flags, ready to be evaluated.
    flag_sets: HashMap<ProjectId, Arc<FlagSet>>,
    /// By position. A project without groups is absent.
    group_types: HashMap<ProjectId, Arc<[String]>>,
}

/// Flag sets follow from the flags.
impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        self.organizations == other.organizations
            && self.projects == other.projects
            && self.by_token == other.by_token
            && self.users == other.users
            && self.keys == other.keys
            && self.flags == other.flags
            && self.group_types == other.group_types
    }
}

impl Snapshot {
    /// The organization with this id.
    pub fn organization(&self, id: Uuid) -> Option<&Arc<Organization>> {
        self.organizations.get(&id)
    }

    /// The project whose events a token may write.
    pub fn project_by_token(&self, token: &str) -> Option<&Arc<Project>> {
        self.by_token.get(token)
    }

    /// The project with this id.
    pub fn project(&self, id: ProjectId) -> Option<&Arc<Project>> {
        self.projects.get(&id)
    }

    /// All projects, by id.
    pub fn projects(&self) -> impl ExactSizeIterator<Item = &Arc<Project>> {
        self.projects.values()
    }

    /// The user with this id.
    pub fn user(&self, id: UserId) -> Option<&Arc<User>> {
        self.users.get(&id)
    }

    /// All users, by id.
    pub fn users(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.users.values()
    }

    /// The key with this clear value, unless it was revoked.
    pub fn key_by_value(&self, value: &str) -> Option<&Arc<PersonalKey>> {
        self.keys.get(&KeyHash::of(value))
    }

    /// The flags of a project that are not deleted, active or not; newest first, that is by
    /// creation time and then id, both descending. Empty for an unknown project.
    pub fn flags(&self, project: ProjectId) -> &[Arc<StoredFlag>] {
        self.flags.get(&project).map_or(&[], |flags| flags)
    }

    /// The names of a project's group types, by position.
    pub fn group_types(&self, project: ProjectId) -> &[String] {
        self.group_types.get(&project).map_or(&[], |names| names)
    }

    /// The flags of a project, ready to be evaluated; `None` if it has none.
    pub fn flag_set(&self, project: ProjectId) -> Option<&Arc<FlagSet>> {
        self.flag_sets.get(&project)
    }

    /// Reads the whole store.
    pub(super) async fn load(connection: &mut SqliteConnection) -> Result<Self, MetadataError> {
        let mut snapshot = Self::default();
        for organization in members::organizations(connection).await? {
            snapshot.put_organization(organization);
        }
        for project in accounts::rows::projects(connection).await? {
            snapshot.put_project(project);
        }
        snapshot.users = accounts::rows::users(connection).await?;
        for key in accounts::rows::keys(connection, &snapshot.users).await? {
            snapshot.put_key(key);
        }
        let mut flags: HashMap<ProjectId, Vec<Arc<StoredFlag>>> = HashMap::new();
        for flag in flags::rows::live(connection).await? {
            flags.entry(flag.project).or_default().push(Arc::new(flag));
        }
        for (project, mut flags) in flags {
            flags.sort_by_key(|flag| newest_first(flag));
            snapshot.put_flags(project, flags);
        }
        let types = "SELECT project_id, name FROM group_types ORDER BY project_id, position";
        let types: Vec<(i64, String)> = sqlx::query_as(types).fetch_all(connection).await?;
        for (project, name) in types {
            snapshot.put_group_type(ProjectId(project), name);
        }
        Ok(snapshot)
    }

    pub(super) fn key(&self, hash: KeyHash) -> Option<&Arc<PersonalKey>> {
        self.keys.get(&hash)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<PersonalKey>> {
        self.keys.values()
    }

    /// Adds an organization, or replaces the one with its id.
    pub(super) fn put_organization(&mut self, organization: Arc<Organization>) {
        self.organizations.insert(organization.id, organization);
    }

    /// Adds a project, or replaces the one with its id.
    pub(super) fn put_project(&mut self, project: Arc<Project>) {
        if let Some(replaced) = self.projects.insert(project.id, Arc::clone(&project)) {
            self.by_token.remove(&replaced.token);
        }
        self.by_token.insert(project.token.clone(), project);
    }

    /// Adds a user, or replaces the one with its id.
    pub(super) fn put_user(&mut self, user: Arc<User>) {
        self.users.insert(user.id, user);
    }

    /// Adds a key, or replaces the one with its hash.
    pub(super) fn put_key(&mut self, key: Arc<PersonalKey>) {
        self.keys.insert(key.hash, key);
    }

    pub(super) fn remove_key(&mut self, hash: KeyHash) {
        self.keys.remove(&hash);
    }

    /// Adds a group type behind those that the project has.
    pub(super) fn put_group_type(&mut self, project: ProjectId, name: String) {
        let names = self.group_types(project).iter().cloned().chain([name]);
        self.group_types.insert(project, names.collect());
    }

    /// Adds a flag or replaces the one with its id; takes it out if it is deleted.
    pub(super) fn put_flag(&mut self, flag: Arc<StoredFlag>) {
        let project = flag.project;
        let others = self.flags(project).iter().filter(|other| other.id != flag.id);
        let mut flags: Vec<_> = others.cloned().collect();
        if !flag.deleted {
            let place = flags.partition_point(|other| newest_first(other) < newest_first(&flag));
            flags.insert(place, flag);
        }
        self.put_flags(project, flags);
    }

    fn put_flags(&mut self, project: ProjectId, flags: Vec<Arc<StoredFlag>>) {
        if flags.is_empty() {
            self.flags.remove(&project);
            self.flag_sets.remove(&project);
            return;
        }
        let entries = flags.iter().map(|flag| Arc::new(entry(flag)));
        self.flag_sets.insert(project, Arc::new(FlagSet::new(entries)));
        self.flags.insert(project, flags.into());
    }
}

/// The flag as its evaluation reads it.
fn entry(flag: &StoredFlag) -> Entry {
    Entry::read(&Stored {
        id: flag.id.0,
        key: &flag.key,
        version: flag.version,
        active: flag.active,
        continuity: flag.ensure_experience_continuity,
        bucketing: None,
        runtime: None,
        contexts: &[],
        filters: &flag.filters,
        matching: Matching::Legacy,
    })
}

/// Sort key of the order in which flags are listed.
fn newest_first(flag: &StoredFlag) -> std::cmp::Reverse<(i64, FlagId)> {
    std::cmp::Reverse((flag.created_at.0, flag.id))
}
