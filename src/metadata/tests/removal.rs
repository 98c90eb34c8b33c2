//! Deletion of projects: everything of one goes, nothing of others, and neither ids nor tokens come back. And the time from
//! which a project keeps events.

use std::collections::BTreeSet;

use super::*;
use crate::accounts::{NewProject, Project, ProjectPatch};
use crate::activity::{Change, Elsewhere, Scope, Verb};
use crate::definitions::{DefinitionSeen, Sightings};
use crate::documents::Kind as Of;
use crate::removal::TABLES;
use crate::snapshot::Snapshot;
use crate::standing::Standing;
use crate::tests::place::Database;
use crate::warnings::DayOfWarnings;

const SECOND: ProjectId = ProjectId(2);
const DAY: Duration = Duration::from_hours(24);

/// A row of every table that has rows of projects, for the project `{p}`. Ids are those of the project times ten.
const ROWS: [&str; 23] = [
    "INSERT INTO feature_flags (id, project_id, name, key, filters, active, deleted, created_at, updated_at, version)
     VALUES ({p}0, {p}, 'a flag', 'flag', '{\"groups\": []}', TRUE, FALSE, 1, 1, 1)",
    "INSERT INTO flag_calls (flag_id, project_id, last_called_at) VALUES ({p}0, {p}, 1)",
    "INSERT INTO flag_role_access (id, flag_id, role, added_at, updated_at) VALUES ({p}0, {p}0, 'role', 1, 1)",
    "INSERT INTO flag_settings (project_id, property_matching_version) VALUES ({p}, 2)",
    "INSERT INTO hash_keys (project_id, distinct_id, flag_key, hash_key, created_at) VALUES ({p}, 'a', 'flag', 'b', 1)",
    "INSERT INTO scheduled_changes (id, project_id, flag_id, payload, scheduled_at, is_recurring, timezone, failure_count,
     created_by, created_at, updated_at) VALUES ({p}0, {p}, {p}0, '{}', 9, FALSE, 'UTC', 0, 1, 1, 1)",
    "INSERT INTO early_access_features (id, project_id, flag_id, name, description, stage, documentation_url, payload,
     created_at) VALUES ('00000000-0000-0000-0000-00000000000{p}', {p}, {p}0, 'a', '', 'beta', '', '{}', 1)",
    "INSERT INTO cohorts (id, project_id, name, description, filters, is_static, deleted, created_at, version,
     errors_calculating) VALUES ({p}0, {p}, 'c', '', '{}', TRUE, FALSE, 1, 1, 0)",
    "INSERT INTO cohort_members (cohort_id, person) VALUES ({p}0, '00000000-0000-0000-0000-000000000009')",
    "INSERT INTO documents (kind, id, project_id, deleted, created_at, updated_at, fields)
     VALUES ('dashboard', {p}0, {p}, FALSE, 1, 1, '{}')",
    "INSERT INTO documents (kind, id, project_id, deleted, created_at, updated_at, fields)
     VALUES ('action', {p}0, {p}, TRUE, 1, 1, '{}')",
    "INSERT INTO document_views (project_id, kind, user_id, document_id, viewed_at) VALUES ({p}, 'dashboard', 1, {p}0, 1)",
    "INSERT INTO shares (kind, document_id, project_id, enabled, token, token_hash, settings, created_at, updated_at)
     VALUES ('dashboard', {p}0, {p}, TRUE, 't{p}', 'h{p}', '{}', 1, 1)",
    "INSERT INTO share_passwords (kind, document_id, id, project_id, hash, note, created_by, created_at)
     VALUES ('dashboard', {p}0, {p}0, {p}, 'h', '', 1, 1)",
    "INSERT INTO event_definitions (id, project_id, name, created_at, tags, post_to_slack)
     VALUES ('e{p}', {p}, 'event', 1, '[]', FALSE)",
    "INSERT INTO event_usage (definition, day, count) VALUES ('e{p}', 19000, 1)",
    "INSERT INTO property_definitions (id, project_id, kind, group_type_index, name) VALUES ('p{p}', {p}, 1, -1, 'key')",
    "INSERT INTO promoted_properties (project_id, key, kind, created_at) VALUES ({p}, 'key', 'text', 1)",
    "INSERT INTO promoted_person_properties (project_id, key, kind, created_at) VALUES ({p}, 'key', 'number', 1)",
    "INSERT INTO event_properties (project_id, event, property) VALUES ({p}, 'event', 'key')",
    "INSERT INTO definition_notes (definition, project_id, verified, hidden, updated_at, default_columns)
     VALUES ('e{p}', {p}, FALSE, FALSE, 1, '[]')",
    "INSERT INTO group_types (project_id, position, name) VALUES ({p}, 0, 'company')",
    "INSERT INTO ingestion_warnings (project_id, kind, day, count, first_seen_at, last_seen_at, samples)
     VALUES ({p}, 'kind', 1, 1, 1, 1, '[]')",
];

impl Bench {
    /// The number of rows that a statement counts.
    async fn count(&self, statement: String) -> i64 {
        let count = sql::query_scalar(sqlx::AssertSqlSafe(statement.clone()));
        let count = count.fetch_one(&mut self.reader().await).await;
        count.unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// The rows of a project, by table.
    async fn rows_of(&self, project: ProjectId) -> Vec<(&'static str, i64)> {
        let mut rows = Vec::new();
        for (table, which) in TABLES {
            let which = which.replace("$1", &project.0.to_string());
            let count = self.count(format!("SELECT COUNT(*) FROM {table} WHERE {which}")).await;
            rows.push((table, count));
        }
        rows
    }

    async fn second(&self) -> Arc<Project> {
        let patch = ProjectPatch::default();
        self.metadata.create_project(USER, "Second", patch, &seed(2)).await.expect("a project")
    }

    async fn with_token(&self, token: &str) -> Result<Arc<Project>, MetadataError> {
        let new = NewProject { token: Some(token.to_owned()), ..NewProject::default() };
        self.metadata.create_project(USER, "Moved", new, &seed(9)).await
    }
}

/// Goal: a new table cannot be forgotten. Method: those with a column `project_id` in the schema.
#[tokio::test]
async fn every_table_of_projects_is_known() {
    let bench = Bench::at(Backend::file()).await;
    let select = "SELECT m.name FROM sqlite_master m, pragma_table_info(m.name) c
         WHERE m.type = 'table' AND c.name = 'project_id'";
    let select = sql::query_scalar::<String>(sqlx::AssertSqlSafe(select.to_owned()));
    let found: BTreeSet<String> =
        select.fetch_all(&mut bench.reader().await).await.expect("names").into_iter().collect();
    let known: BTreeSet<&str> = TABLES.iter().map(|(table, _)| *table).collect();
    // It is for the projects that are gone.
    let others = found.iter().filter(|name| !known.contains(name.as_str()));
    assert_eq!(others.collect::<Vec<_>>(), ["retired_tokens"]);
}

#[tokio::test]
async fn everything_of_a_project_goes_and_nothing_of_another() {
    let mut bench = Bench::started().await;
    let second = bench.second().await;
    let organization = second.organization;
    bench
        .run(&format!(
            "INSERT INTO roles (id, organization, name, feature_flags_access_level, created_at)
         VALUES ('role', '{organization}', 'r', 37, 1)"
        ))
        .await;
    for project in [1, 2] {
        for row in ROWS {
            bench.run(&row.replace("{p}", &project.to_string())).await;
        }
    }
    bench.run("UPDATE users SET current_project = 2").await;
    bench.metadata = bench.other().await;
    bench.metadata.create_flag(SECOND, USER, new("other")).await.expect("with an entry");
    bench.metadata.create_flag(PROJECT, USER, new("other")).await.expect("with an entry");
    let (before, of_second) = (bench.rows_of(PROJECT).await, bench.rows_of(SECOND).await);
    assert!(before.iter().chain(&of_second).all(|(_, rows)| *rows > 0), "{before:?} {of_second:?}");
    let first = |snapshot: &Snapshot| {
        let flags: Vec<_> = snapshot.flags(PROJECT).to_vec();
        (snapshot.project(PROJECT).cloned(), flags, snapshot.cohorts(PROJECT).to_vec())
    };
    let kept = first(&bench.metadata.snapshot());

    bench.metadata.delete_project(USER, SECOND).await.expect("deleted");
    assert!(bench.rows_of(SECOND).await.iter().all(|(_, rows)| *rows == 0));
    assert_eq!(bench.count("SELECT COUNT(*) FROM event_usage".to_owned()).await, 1, "cascades");
    assert_eq!(bench.rows_of(PROJECT).await, before);
    let snapshot = bench.metadata.snapshot();
    assert_eq!(first(&snapshot), kept);
    assert_eq!(snapshot.project(SECOND), None);
    assert_eq!(snapshot.project_by_token(&second.token), None);
    assert!(snapshot.flag_set(SECOND).is_none() && snapshot.cohort_set(SECOND).is_none());
    assert!(snapshot.is_deleted(SECOND) && !snapshot.is_deleted(PROJECT));
    assert_eq!(snapshot.user(USER).expect("a user").current_project, None);
    bench.check_snapshot().await;
    let again = bench.metadata.delete_project(USER, SECOND).await;
    assert_eq!(kind(again), Kind::NotFound);
}

#[tokio::test]
async fn ids_are_not_given_again() {
    let bench = Bench::started().await;
    bench.second().await;
    let metadata = &bench.metadata;
    let flag = metadata.create_flag(SECOND, USER, new("a")).await.expect("a flag").id;
    let fields = || serde_json::Map::from_iter([("name".to_owned(), json!("a"))]);
    let document = metadata.create_document(SECOND, USER, Of::Action, fields()).await;
    let document = document.expect("an action").id;
    metadata.delete_project(USER, SECOND).await.expect("deleted");
    let other = metadata.create_flag(PROJECT, USER, new("a")).await.expect("a flag").id;
    assert!(other > flag, "{other:?} {flag:?}");
    let later = metadata.create_document(PROJECT, USER, Of::Action, fields()).await;
    assert!(later.expect("an action").id > document);
    // After the entries of the flag and the action.
    assert_eq!(bench.count("SELECT MIN(position) FROM activity".to_owned()).await, 3);
    assert_eq!(bench.second().await.id, ProjectId(3));
    // Also after the next one of them.
    metadata.delete_project(USER, ProjectId(3)).await.expect("deleted");
    assert_eq!(bench.second().await.id, ProjectId(4));
    bench.check_snapshot().await;
}

#[tokio::test]
async fn a_token_is_that_of_one_project_for_ever() {
    let bench = Bench::started().await;
    let second = bench.second().await;
    let rotated = bench.metadata.rotate_token(SECOND, &seed(5)).await.expect("rotated");
    bench.metadata.rotate_secret_key(SECOND, USER, &seed(6)).await.expect("a secret");
    let key = bench.metadata.create_key(USER, "key", None, &seed(7)).await.expect("a key");
    let moved = bench.with_token("phc_the_token_of_another_place").await.expect("a project");
    assert_eq!(moved.token, "phc_the_token_of_another_place");
    assert_eq!(bench.metadata.snapshot().project_by_token(&moved.token), Some(&moved));
    for token in [&second.token, &rotated.token, &moved.token] {
        assert_eq!(code(bench.with_token(token).await), "unique", "{token}");
    }
    for token in ["short", "with spaces in it", "phc_\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}", &key.value] {
        assert_eq!(code(bench.with_token(token).await), "invalid_input", "{token}");
    }
    assert_eq!(code(bench.with_token("phs_the_secret_of_some_place").await), "invalid_input");
    bench.metadata.delete_project(USER, SECOND).await.expect("deleted");
    for token in [&second.token, &rotated.token] {
        assert_eq!(code(bench.with_token(token).await), "unique", "{token}");
    }
    bench.check_snapshot().await;
}

/// A key without a prefix, as settings may have it, is no token.
#[tokio::test]
async fn a_token_is_no_key() {
    let bench = Bench::at(Backend::new().await).await;
    let value = "0123456789abcdef0123456789abcdef";
    let settings = FirstStart { project_token: None, personal_key: Some(value.to_owned()) };
    bench.metadata.bootstrap(settings, &seed(1)).await.expect("first start");
    assert_eq!(code(bench.with_token(value).await), "unique");
}

#[tokio::test]
async fn the_last_project_stays_and_so_do_those_of_others() {
    let mut bench = Bench::started().await;
    assert_eq!(code(bench.metadata.delete_project(USER, PROJECT).await), "invalid_input");
    bench.run("INSERT INTO organizations (id, name, created_at) VALUES ('00000000-0000-0000-0000-000000000001', 'o', 1)").await;
    bench.run("INSERT INTO projects (id, organization, name, api_token, timezone, created_at)
               VALUES (7, '00000000-0000-0000-0000-000000000001', 'theirs', 'phc_theirs_only', 'UTC', 1)").await;
    bench.metadata = bench.other().await;
    assert_eq!(kind(bench.metadata.delete_project(USER, ProjectId(7)).await), Kind::NotFound);
    assert_eq!(code(bench.metadata.delete_project(USER, PROJECT).await), "invalid_input");
    bench.second().await;
    bench.metadata.delete_project(USER, PROJECT).await.expect("the first one may go");
    assert_eq!(bench.metadata.snapshot().projects().len(), 2);
    bench.check_snapshot().await;
}

#[tokio::test]
async fn keys_lose_the_project_and_end_with_it_if_they_have_no_other() {
    let bench = Bench::started().await;
    bench.second().await;
    let limited = async |number: u64, ids: &[i64]| {
        let projects = Some(ids.iter().map(|id| ProjectId(*id)).collect());
        let grant = crate::accounts::Grant { scopes: None, projects };
        bench.metadata.create_key(USER, "key", grant, &seed(number)).await.expect("a key").value
    };
    let (both, own, other) =
        (limited(3, &[1, 2]).await, limited(4, &[2]).await, limited(5, &[1]).await);
    bench.metadata.delete_project(USER, SECOND).await.expect("deleted");
    let snapshot = bench.metadata.snapshot();
    let of = |value: &str| snapshot.key_by_value(value).map(|key| key.projects.clone());
    assert_eq!(of(&both), Some(Some(vec![PROJECT])));
    assert_eq!(of(&own), None);
    assert_eq!(of(&other), Some(Some(vec![PROJECT])));
    bench.check_snapshot().await;
}

/// What lasts, such as a stream, ends with the project that it is about, whatever it was asked with.
#[tokio::test]
async fn whoever_asks_about_a_project_is_answered_as_long_as_it_is_there() {
    let bench = Bench::started().await;
    let second = bench.second().await;
    let key = bench.metadata.create_key(USER, "key", None, &seed(3)).await.expect("a key").key;
    let of = |project: Option<ProjectId>| Standing::of(&bench.metadata, &key, None).within(project);
    let all = [
        (of(None), true),
        (of(Some(PROJECT)), true),
        (of(Some(SECOND)), false),
        (Standing::of_token(&bench.metadata, SECOND, &second.token), false),
    ];
    for (standing, _) in &all {
        assert!(standing.lasts().await, "{standing:?}");
    }
    bench.metadata.delete_project(USER, SECOND).await.expect("deleted");
    for (standing, expected) in &all {
        assert_eq!(standing.lasts().await, *expected, "{standing:?}");
    }
}

/// What the write path still has of a project when it is deleted is no error, which would hold up all others.
#[tokio::test]
async fn what_comes_late_is_left_out() {
    let bench = Bench::started().await;
    bench.second().await;
    bench.metadata.delete_project(USER, SECOND).await.expect("deleted");
    let seen = |project| DefinitionSeen { project, name: "late".to_owned(), seen_at: START };
    let sightings = Sightings { events: vec![seen(SECOND), seen(PROJECT)], ..Sightings::default() };
    bench.metadata.upsert_definitions(&sightings).await.expect("upsert");
    let day = |project| DayOfWarnings {
        project,
        kind: "kind".to_owned(),
        day: 1,
        count: 1,
        first_seen_at: START,
        last_seen_at: START,
        samples: Vec::new(),
    };
    bench.metadata.add_warnings(&[day(SECOND), day(PROJECT)]).await.expect("add");
    let entry = |number: u128, project| Elsewhere {
        id: uuid::Uuid::from_u128(number),
        project,
        user: Some(USER),
        at: START,
        change: Change {
            scope: Scope::Person,
            item: "1".to_owned(),
            verb: Verb::Deleted,
            name: String::new(),
            fields: Vec::new(),
        },
        forgotten: None,
    };
    bench.metadata.record_activity(&[entry(1, SECOND), entry(2, PROJECT)]).await.expect("log");
    let types = bench.metadata.ensure_group_types(SECOND, &["company".to_owned()]).await;
    assert_eq!(kind(types), Kind::NotFound);
    assert!(bench.rows_of(SECOND).await.iter().all(|(_, rows)| *rows == 0));
    assert_eq!(bench.metadata.warnings(PROJECT).await.expect("warnings").len(), 1);
    assert_eq!(bench.metadata.definitions(PROJECT, "", 9).await.expect("definitions").len(), 1);
    // A project that never was is an error as before.
    let nowhere = bench.metadata.add_warnings(&[day(ProjectId(9))]).await;
    assert!(nowhere.is_err());
}

/// The settings of a container name the token of the first project, which may be deleted.
#[tokio::test]
async fn a_server_starts_with_the_token_of_a_deleted_project() {
    let bench = Bench::started().await;
    let first = bench.metadata.snapshot().project(PROJECT).cloned().expect("a project");
    let second = bench.second().await;
    bench.metadata.delete_project(USER, PROJECT).await.expect("deleted");
    let start = async |token: &str| {
        let settings = FirstStart { project_token: Some(token.to_owned()), personal_key: None };
        bench.metadata.bootstrap(settings, &seed(8)).await
    };
    assert_eq!(start(&first.token).await.expect("starts").project.id, second.id);
    assert_eq!(bench.metadata.snapshot().project_by_token(&first.token), None);
    let rotated = bench.metadata.rotate_token(second.id, &seed(9)).await.expect("rotated");
    assert!(start(&second.token).await.is_err(), "of a project that is there");
    assert!(start(&rotated.token).await.is_ok());
}

#[tokio::test]
async fn other_servers_hear_of_it() {
    let bench = Bench::at(Backend::Database(Database::new().await)).await;
    bench.metadata.bootstrap(FirstStart::default(), &seed(1)).await.expect("first start");
    let second = bench.second().await;
    bench.metadata.create_flag(SECOND, USER, new("a")).await.expect("a flag");
    let other = bench.other().await;
    assert!(other.snapshot().project(SECOND).is_some());
    bench.metadata.delete_project(USER, SECOND).await.expect("deleted");
    other.refresh().await.expect("refresh");
    assert!(other.snapshot().is_deleted(SECOND));
    assert_eq!(other.snapshot().project_by_token(&second.token), None);
    assert_eq!(bench.metadata.snapshot(), other.snapshot());
}

/// Goal: the time from which events are kept is a midnight, and never goes back. Method: days and times by hand.
#[tokio::test]
async fn events_are_kept_from_a_time_that_never_goes_back() {
    let bench = Bench::started().await;
    // 2023-11-14T22:13:20Z.
    let midnight = 1_699_920_000_000_000;
    let day = 86_400_000_000;
    let days = async |days: Option<i64>| {
        let patch = ProjectPatch { event_retention_days: Some(days), ..ProjectPatch::default() };
        bench.metadata.update_project(PROJECT, patch).await
    };
    let from = || {
        let project = bench.metadata.snapshot().project(PROJECT).cloned().expect("a project");
        project.kept_from(bench.clock.now()).map(|from| from.0)
    };
    assert_eq!(from(), None);
    days(Some(30)).await.expect("set");
    assert_eq!(from(), Some(midnight - 30 * day));
    bench.clock.advance(Duration::from_hours(1));
    assert_eq!(from(), Some(midnight - 30 * day), "the same day");
    bench.clock.advance(Duration::from_hours(1));
    assert_eq!(from(), Some(midnight - 29 * day), "the next one");
    days(Some(60)).await.expect("longer");
    assert_eq!(from(), Some(midnight - 29 * day), "what is gone does not come back");
    bench.clock.advance(31 * DAY);
    assert_eq!(from(), Some(midnight - 28 * day));
    days(Some(1)).await.expect("shorter");
    assert_eq!(from(), Some(midnight + 31 * day));
    days(None).await.expect("for ever");
    bench.clock.advance(100 * DAY);
    assert_eq!(from(), Some(midnight + 31 * day));
    bench.check_snapshot().await;
    for wrong in [0, -1, 36_501, i64::MAX, i64::MIN] {
        assert_eq!(code(days(Some(wrong)).await), "invalid_choice", "{wrong}");
    }
    days(Some(36_500)).await.expect("the longest");
}
