//! [`Snapshot`]: an immutable copy of all metadata that hot paths read.
//!
//! A snapshot never changes once published. A write clones it, which copies maps of `Arc`s, applies
//! its changes, and publishes the copy; unchanged parts are shared.

mod parts;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use chrono_tz::Tz;
use uuid::Uuid;

use crate::accounts::{PersonalKey, Project, User, UserId};
use crate::cohorts::{CohortId, StoredCohort};
use crate::documents::Document;
use crate::early_access::EarlyAccessFeature;
use crate::flag_rights::FlagRights;
use crate::flag_settings::FlagSettings;
use crate::flags::StoredFlag;
use crate::members::Organization;
use crate::promotions::{PromotedProperty, Promotions};
use crate::secrets::KeyHash;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::pattern::PROJECT_MAX_STATES;
use weir_event::predicate::Matching;
use weir_event::predicate::moment::Now;
use weir_event::promotion::{PromotedTable, Promotion, merged};
use weir_flags::cohorts::{Cohort, CohortSet, Members};
use weir_flags::definition::{DefinitionError, Stored};
use weir_flags::set::{Entry, FlagSet};

/// The state of the store at one moment. Look-ups neither wait nor allocate.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The version of the data that it is of. Of two servers with one PostgreSQL database, the one with the higher number knows
    /// all that the other one does; numbers of SQLite are those of one connection. `None` if nothing was loaded.
    pub version: Option<i64>,
    organizations: BTreeMap<Uuid, Arc<Organization>>,
    projects: BTreeMap<ProjectId, Arc<Project>>,
    /// Deleted projects, with the times of their deletions.
    deleted: Arc<BTreeMap<ProjectId, UnixMicros>>,
    by_token: HashMap<String, Arc<Project>>,
    users: BTreeMap<UserId, Arc<User>>,
    keys: HashMap<KeyHash, Arc<PersonalKey>>,
    /// Flags that are not deleted, newest first. A project without flags may be absent.
    flags: HashMap<ProjectId, Arc<[Arc<StoredFlag>]>>,
    /// The same flags, parsed for evaluation.
    flag_sets: HashMap<ProjectId, Arc<FlagSet>>,
    /// Cohorts that are not deleted, newest first. A project without cohorts may be absent.
    cohorts: HashMap<ProjectId, Arc<[Arc<StoredCohort>]>>,
    /// The same cohorts, parsed for evaluation. As flag sets, only of projects that have some.
    cohort_sets: HashMap<ProjectId, Arc<CohortSet>>,
    /// Settings shared by the flags of a project, where they are not the default.
    flag_settings: HashMap<ProjectId, Arc<FlagSettings>>,
    /// Replaced whenever anything changes that definitions for local evaluation contain.
    revisions: HashMap<ProjectId, Arc<Revision>>,
    /// By position. A project without groups is absent.
    group_types: HashMap<ProjectId, Arc<[String]>>,
    /// Newest first. A project without features may be absent.
    features: HashMap<ProjectId, Arc<[Arc<EarlyAccessFeature>]>>,
    /// Actions that are not deleted, newest first. A project without actions may be absent.
    actions: HashMap<ProjectId, Arc<[Arc<Document>]>>,
    /// Promoted properties. A project without any is absent.
    promotions: HashMap<ProjectId, Arc<Promotions>>,
    flag_rights: Arc<FlagRights>,
}

/// Identifies one state of a project's flags, cohorts and group types, by the address of its `Arc`.
/// Caches compare it to detect a change.
#[derive(Debug)]
pub struct Revision;

/// Without the version. Flag sets and cohort sets are derived from flags and cohorts.
impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        self.organizations == other.organizations
            && self.projects == other.projects
            && self.deleted == other.deleted
            && self.by_token == other.by_token
            && self.users == other.users
            && self.keys == other.keys
            && self.flags == other.flags
            && self.cohorts == other.cohorts
            && self.flag_settings == other.flag_settings
            && self.group_types == other.group_types
            && self.features == other.features
            && self.actions == other.actions
            && self.promotions == other.promotions
            && self.flag_rights == other.flag_rights
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

    /// Deleted projects, with the times of their deletions.
    pub fn deleted_projects(&self) -> &BTreeMap<ProjectId, UnixMicros> {
        &self.deleted
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

    /// The flags of a project, parsed for evaluation; `None` if it has none.
    pub fn flag_set(&self, project: ProjectId) -> Option<&Arc<FlagSet>> {
        self.flag_sets.get(&project)
    }

    /// The cohorts of a project that are not deleted, newest first.
    pub fn cohorts(&self, project: ProjectId) -> &[Arc<StoredCohort>] {
        self.cohorts.get(&project).map_or(&[], |cohorts| cohorts)
    }

    /// A cohort that is not deleted.
    pub fn cohort(&self, project: ProjectId, id: CohortId) -> Option<&Arc<StoredCohort>> {
        self.cohorts(project).iter().find(|cohort| cohort.id == id)
    }

    /// The cohorts of a project, parsed for evaluation.
    pub fn cohort_set(&self, project: ProjectId) -> Option<&Arc<CohortSet>> {
        self.cohort_sets.get(&project)
    }

    /// The early access features of a project, newest first.
    pub fn features(&self, project: ProjectId) -> &[Arc<EarlyAccessFeature>] {
        self.features.get(&project).map_or(&[], |features| features)
    }

    /// The early access feature that has this flag.
    pub fn feature_of(&self, flag: &StoredFlag) -> Option<&Arc<EarlyAccessFeature>> {
        self.features(flag.project).iter().find(|feature| feature.flag == flag.id)
    }

    /// The actions of a project that are not deleted, newest first.
    pub fn actions(&self, project: ProjectId) -> &[Arc<Document>] {
        self.actions.get(&project).map_or(&[], |actions| actions)
    }

    /// The properties that a project has promoted to columns of a table, by key.
    pub fn promotions(&self, project: ProjectId, table: PromotedTable) -> &[Promotion] {
        self.promotions.get(&project).map_or(&[], |own| own.columns(table))
    }

    /// Whether there are projects of other organizations than this one.
    pub fn has_others(&self, organization: Uuid) -> bool {
        self.projects().any(|project| project.organization != organization)
    }

    /// The same as they are stored, of all tables.
    pub fn promoted_properties(&self, project: ProjectId) -> &[PromotedProperty] {
        self.promotions.get(&project).map_or(&[], |own| &own.rows)
    }

    /// The columns of a table for the promoted properties of all projects, by key. Of two types the older one stays, though
    /// none is promoted with another type than it has.
    pub fn promoted_columns(&self, table: PromotedTable) -> Vec<Promotion> {
        let all = self.promotions.values().flat_map(|own| &own.rows);
        let mut all: Vec<&PromotedProperty> = all.filter(|own| own.table == table).collect();
        all.sort_by(|a, b| {
            (a.created_at, a.project, &a.key).cmp(&(b.created_at, b.project, &b.key))
        });
        let columns: Vec<Promotion> = all.into_iter().map(PromotedProperty::promotion).collect();
        merged(columns.iter().filter(|own| !table.is_fixed(&own.key)))
    }

    /// The settings shared by the flags of a project.
    pub fn flag_settings(&self, project: ProjectId) -> Option<&Arc<FlagSettings>> {
        self.flag_settings.get(&project)
    }

    /// Identifies the state of the project's flags, cohorts and group types; `None` if it never had any.
    pub fn revision(&self, project: ProjectId) -> Option<&Arc<Revision>> {
        self.revisions.get(&project)
    }

    /// Whether SDKs may leave details out of the call events of a project's flags.
    pub fn has_minimal_called_events(&self, project: ProjectId) -> bool {
        self.flag_settings(project).is_some_and(|settings| settings.minimal_called_events)
    }

    /// The project that has this secret key.
    pub fn project_by_secret(&self, hash: KeyHash) -> Option<ProjectId> {
        let mut settings = self.flag_settings.values();
        settings.find(|settings| settings.secret == Some(hash)).map(|settings| settings.project)
    }

    /// How the flags and cohorts of a project compare truth values.
    pub fn matching(&self, project: ProjectId) -> Matching {
        self.flag_settings(project).map_or(Matching::Legacy, |settings| settings.matching)
    }

    /// The present of a project at an instant, for dates of its filters; an unknown project has UTC.
    pub fn now(&self, project: ProjectId, at: UnixMicros) -> Now {
        let zone = self.project(project).and_then(|own| own.timezone.parse().ok());
        Now { at, zone: zone.unwrap_or(Tz::UTC) }
    }

    /// The flags of a project as if one of them were another: that with the same id, or one more.
    pub fn flag_set_with(&self, project: ProjectId, other: &Stored<'_>) -> FlagSet {
        let own = self.flag_set(project).map(|set| set.entries()).unwrap_or_default();
        let others = own.iter().filter(|entry| entry.id != other.id).cloned();
        let other = Stored { matching: self.matching(project), ..*other };
        FlagSet::new(others.chain([Arc::new(Entry::read(&other, PROJECT_MAX_STATES))]))
    }

    /// The key with this hash, while it is valid.
    pub fn key(&self, hash: KeyHash) -> Option<&Arc<PersonalKey>> {
        self.keys.get(&hash)
    }

    /// All valid keys.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<PersonalKey>> {
        self.keys.values()
    }

    pub(super) fn flag_rights(&self) -> &FlagRights {
        &self.flag_rights
    }

    pub(super) fn put_flag_rights(&mut self, rights: FlagRights) {
        self.flag_rights = Arc::new(rights);
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

    /// Removes a project that was deleted, and everything of it.
    pub(super) fn remove_project(&mut self, project: ProjectId, deleted_at: UnixMicros) {
        self.forget(project);
        Arc::make_mut(&mut self.deleted).insert(project, deleted_at);
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

    /// Adds a group type after those of the project.
    pub(super) fn put_group_type(&mut self, project: ProjectId, name: String) {
        let names = self.group_types(project).iter().cloned().chain([name]);
        self.group_types.insert(project, names.collect());
        self.revise(project);
    }

    /// Adds a flag or replaces the one with its id; removes it if it is deleted.
    pub(super) fn put_flag(&mut self, flag: Arc<StoredFlag>) {
        self.put_flags(flag.project, with(self.flags(flag.project), flag));
    }

    /// Replaces existing flags of one project, all at once.
    pub(super) fn change_flags(&mut self, project: ProjectId, changed: &[Arc<StoredFlag>]) {
        if changed.is_empty() {
            return;
        }
        let mut flags = self.flags(project).to_vec();
        for flag in changed {
            flags = with(&flags, Arc::clone(flag));
        }
        self.put_flags(project, flags);
    }

    /// Adds a cohort or replaces the one with its id; removes it if it is deleted.
    pub(super) fn put_cohort(&mut self, cohort: Arc<StoredCohort>) {
        self.put_cohorts(cohort.project, with(self.cohorts(cohort.project), cohort));
    }

    /// Adds an early access feature, or replaces the one with its id.
    pub(super) fn put_feature(&mut self, feature: Arc<EarlyAccessFeature>) {
        self.remove_feature(&feature);
        let project = feature.project;
        let mut features = self.features(project).to_vec();
        features.push(feature);
        features.sort_by_key(|feature| Reverse((feature.created_at, feature.id)));
        self.features.insert(project, features.into());
    }

    /// Adds an action or replaces the one with its id; removes it if it is deleted.
    pub(super) fn put_action(&mut self, action: Arc<Document>) {
        let (project, actions) = (action.project, with(self.actions(action.project), action));
        match actions.is_empty() {
            true => drop(self.actions.remove(&project)),
            false => drop(self.actions.insert(project, actions.into())),
        }
    }

    /// Replaces the promoted properties of a project.
    pub(super) fn put_promotions(&mut self, project: ProjectId, own: Vec<PromotedProperty>) {
        match own.is_empty() {
            true => drop(self.promotions.remove(&project)),
            false => drop(self.promotions.insert(project, Arc::new(Promotions::new(own)))),
        }
    }

    pub(super) fn remove_feature(&mut self, feature: &EarlyAccessFeature) {
        let kept = self.features(feature.project).iter().filter(|other| other.id != feature.id);
        let kept: Vec<_> = kept.cloned().collect();
        match kept.is_empty() {
            true => drop(self.features.remove(&feature.project)),
            false => drop(self.features.insert(feature.project, kept.into())),
        }
    }

    /// Replaces a cohort of which only the count of members changed. No flag evaluates differently
    /// by it, so the project keeps its set and its [`Revision`].
    pub(super) fn put_counted(&mut self, cohort: Arc<StoredCohort>) {
        let (project, counted) = (cohort.project, with(self.cohorts(cohort.project), cohort));
        self.cohorts.insert(project, counted.into());
    }

    fn revise(&mut self, project: ProjectId) {
        self.revisions.insert(project, Arc::new(Revision));
    }

    fn put_cohorts(&mut self, project: ProjectId, cohorts: Vec<Arc<StoredCohort>>) {
        self.revise(project);
        if cohorts.is_empty() {
            self.cohorts.remove(&project);
            self.cohort_sets.remove(&project);
            return;
        }
        let matching = self.matching(project);
        let before = self.cohort_sets.get(&project).cloned().unwrap_or_default();
        let same = same(self.cohorts(project));
        let mut states_left = PROJECT_MAX_STATES;
        let set = CohortSet::new(cohorts.iter().map(|cohort| {
            let is_same = same.contains(&Arc::as_ptr(cohort));
            // There may be room for one now that had none.
            let is_known = |known: &&Cohort| is_same && !matches!(known.members, Members::Nobody);
            let known = before.get(cohort.id.0).filter(is_known).cloned();
            let cohort = known.unwrap_or_else(|| read(cohort, matching));
            match states_left.checked_sub(cohort.pattern_states) {
                Some(left) => {
                    states_left = left;
                    cohort
                }
                None => {
                    let (project, cohort) = (project.0, cohort.id);
                    tracing::warn!(
                        project,
                        cohort,
                        "patterns of cohorts are too large together; it has nobody"
                    );
                    Cohort::nobody(cohort, None)
                }
            }
        }));
        self.cohort_sets.insert(project, Arc::new(set));
        self.cohorts.insert(project, cohorts.into());
    }

    /// Replaces the settings, and parses flags and cohorts again.
    pub(super) fn put_flag_settings(&mut self, settings: FlagSettings) {
        let project = settings.project;
        self.flag_settings.insert(project, Arc::new(settings));
        // What was read with other settings.
        self.flag_sets.remove(&project);
        self.cohort_sets.remove(&project);
        self.put_cohorts(project, self.cohorts(project).to_vec());
        self.put_flags(project, self.flags(project).to_vec());
    }

    fn put_flags(&mut self, project: ProjectId, flags: Vec<Arc<StoredFlag>>) {
        self.revise(project);
        if flags.is_empty() {
            self.flags.remove(&project);
            self.flag_sets.remove(&project);
            return;
        }
        let matching = self.matching(project);
        let before = self.flag_sets.get(&project).cloned().unwrap_or_default();
        let same = same(self.flags(project));
        let mut states_left = PROJECT_MAX_STATES;
        // A flag that is as it was keeps its patterns, which are compiled.
        let entries: Vec<Arc<Entry>> = flags
            .iter()
            .map(|flag| {
                let is_same = same.contains(&Arc::as_ptr(flag));
                let known = before.by_key(&flag.key).filter(|known| {
                    is_same && known.definition.is_ok() && known.pattern_states <= states_left
                });
                let known = known.cloned();
                let entry = known.unwrap_or_else(|| Arc::new(entry(flag, matching, states_left)));
                states_left = states_left.saturating_sub(entry.pattern_states);
                entry
            })
            .collect();
        self.flag_sets.insert(project, Arc::new(FlagSet::new(entries)));
        self.flags.insert(project, flags.into());
    }
}

/// The places of what is stored. A write leaves what it does not change where it is.
fn same<T>(stored: &[Arc<T>]) -> HashSet<*const T> {
    stored.iter().map(Arc::as_ptr).collect()
}

/// The cohort as flag evaluation reads it.
fn read(cohort: &StoredCohort, matching: Matching) -> Cohort {
    let read = cohort.evaluable(matching);
    if let Some(error) = read.refused {
        let (project, cohort) = (cohort.project.0, cohort.id.0);
        tracing::warn!(project, cohort, %error, "a filter of a cohort matches nobody");
    }
    read
}

/// The flag as its evaluation reads it, if its patterns have no more states than are left.
fn entry(flag: &StoredFlag, matching: Matching, states_left: usize) -> Entry {
    let stored = Stored {
        id: flag.id.0,
        key: &flag.key,
        version: flag.version,
        active: flag.active,
        continuity: flag.plain.ensure_experience_continuity,
        bucketing: flag.plain.bucketing_identifier.as_deref(),
        runtime: flag.plain.evaluation_runtime.as_deref(),
        contexts: &flag.plain.evaluation_contexts,
        filters: &flag.filters,
        matching,
    };
    let entry = Entry::read(&stored, states_left);
    let (project, key) = (flag.project.0, &flag.key);
    match &entry.definition {
        Ok(definition) => {
            for (property, error) in definition.large_patterns() {
                tracing::warn!(project, key, property, %error, "a condition of a flag matches nobody");
            }
        }
        Err(error @ (DefinitionError::Patterns(_) | DefinitionError::PatternsOfProject)) => {
            tracing::warn!(project, key, %error, "a flag cannot be evaluated");
        }
        Err(_) => {}
    }
    entry
}

/// An object that lists of a project contain, newest first.
trait Listed {
    /// The project, its id within it, and its time of creation.
    fn place(&self) -> (ProjectId, i64, UnixMicros);

    /// Whether lists leave it out.
    fn is_deleted(&self) -> bool;
}

impl Listed for StoredFlag {
    fn place(&self) -> (ProjectId, i64, UnixMicros) {
        (self.project, self.id.0, self.created_at)
    }

    fn is_deleted(&self) -> bool {
        self.deleted
    }
}

impl Listed for StoredCohort {
    fn place(&self) -> (ProjectId, i64, UnixMicros) {
        (self.project, self.id.0, self.created_at)
    }

    fn is_deleted(&self) -> bool {
        self.deleted
    }
}

impl Listed for Document {
    fn place(&self) -> (ProjectId, i64, UnixMicros) {
        (self.project, self.id, self.created_at)
    }

    fn is_deleted(&self) -> bool {
        self.deleted
    }
}

/// Sort key of the order of lists.
fn newest_first<T: Listed>(listed: &Arc<T>) -> Reverse<(UnixMicros, i64)> {
    let (_, id, created_at) = listed.place();
    Reverse((created_at, id))
}

/// The lists of all projects.
fn by_project<T: Listed>(all: Vec<T>) -> HashMap<ProjectId, Vec<Arc<T>>> {
    let mut lists: HashMap<ProjectId, Vec<Arc<T>>> = HashMap::new();
    for listed in all {
        lists.entry(listed.place().0).or_default().push(Arc::new(listed));
    }
    lists.values_mut().for_each(|list| list.sort_by_key(newest_first));
    lists
}

/// The list with `new` in place of the object with its id; without that if `new` is deleted.
fn with<T: Listed>(list: &[Arc<T>], new: Arc<T>) -> Vec<Arc<T>> {
    let others = list.iter().filter(|other| other.place().1 != new.place().1);
    let mut list: Vec<Arc<T>> = others.cloned().collect();
    if !new.is_deleted() {
        let place = list.partition_point(|other| newest_first(other) < newest_first(&new));
        list.insert(place, new);
    }
    list
}
