//! The endpoints of flags, cohorts and what belongs to them, as one table: path, methods, [`Op`].

use hyper::Method;

use crate::app::App;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::activity;
use crate::http::routes::cohorts;
use crate::http::routes::feature_flags;
use crate::http::routes::feature_flags::actions;
use crate::http::routes::feature_flags::copy;
use crate::http::routes::feature_flags::questions;
use crate::http::routes::feature_flags::role_access;
use crate::http::routes::feature_flags::status;
use crate::http::routes::flag_events;
use crate::http::routes::flag_settings;
use crate::http::routes::local_evaluation;
use crate::http::routes::local_evaluation::Cache;
use crate::http::routes::ofrep;
use crate::http::routes::roles;
use crate::tasks::Shutdown;

const GET: &str = "GET, HEAD, OPTIONS";
const POST: &str = "POST, OPTIONS";
const DELETE: &str = "DELETE, OPTIONS";
const GET_DELETE: &str = "GET, DELETE, HEAD, OPTIONS";
const GET_PATCH_DELETE: &str = "GET, PATCH, DELETE, HEAD, OPTIONS";
const GET_POST: &str = "GET, POST, HEAD, OPTIONS";
const GET_PATCH: &str = "GET, PATCH, HEAD, OPTIONS";
const POST_PATCH: &str = "POST, PATCH, OPTIONS";
const GET_PUT_PATCH: &str = "GET, PUT, PATCH, HEAD, OPTIONS";

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Definitions for local evaluation.
    Definitions,
    /// The payload of one flag.
    RemoteConfig,
    /// What the flags of a project share.
    FlagSettings,
    /// Another secret key of the project.
    RotateSecret,
    /// Cohorts, listed or created.
    Cohorts,
    /// One cohort.
    Cohort,
    /// The members of a cohort.
    CohortMembers,
    /// Members added to a list, or taken out.
    ChangeMembers,
    /// What became of one cohort, or of all.
    CohortActivity,
    /// What became of one flag, or of all.
    FlagActivity,
    /// What became of anything in the project.
    ProjectActivity,
    /// What flags are for somebody, and why.
    EvaluationReasons,
    /// What flags are for who asks.
    MyFlags,
    /// How many a condition reaches.
    BlastRadius,
    /// What one flag is for somebody, step by step.
    TestEvaluation,
    /// A usage dashboard.
    Dashboard,
    /// More on a usage dashboard.
    Enrich,
    /// A list of those for whom a flag is on.
    StaticCohort,
    /// On, off, archived or not.
    Switch,
    /// Flags that need this one.
    Dependents,
    /// Whether a flag is of use.
    Status,
    /// A flag as it was.
    Version,
    /// A flag made what it was.
    Revert,
    /// Keys of many flags.
    BulkKeys,
    /// Ids of a whole list.
    MatchingIds,
    /// Many flags deleted.
    BulkDelete,
    /// Roles that may change a flag.
    RoleAccesses,
    /// One of these.
    RoleAccess,
    /// A flag copied to other projects.
    CopyFlag,
    /// A flag in all projects.
    FlagByKey,
    /// Roles of an organization.
    Roles,
    /// One of these.
    Role,
    /// Who has a role.
    RoleMembers,
    /// One of these.
    RoleMember,
    /// All flags, as OpenFeature asks.
    OfrepAll,
    /// One flag, as OpenFeature asks.
    OfrepOne,
    /// A stream that tells when flags change.
    FlagEvents,
}

/// An endpoint: its path, where `:` stands for any one segment, whose text becomes a parameter; the
/// methods of `Allow`; the methods that are answered; its name in metrics. All paths but those with
/// a slash in front follow `/api/projects/:project/`.
type Row = (&'static str, &'static str, &'static [Method], Op, &'static str);

const TABLE: &[Row] = &[
    ("/flags/definitions", GET, &[Method::GET], Op::Definitions, "definitions"),
    ("/api/feature_flag/local_evaluation", GET, &[Method::GET], Op::Definitions, "definitions"),
    ("feature_flags/local_evaluation", GET, &[Method::GET], Op::Definitions, "definitions"),
    (
        "feature_flags/settings",
        GET_PATCH,
        &[Method::GET, Method::PATCH],
        Op::FlagSettings,
        "flag_settings",
    ),
    ("feature_flags/:/remote_config", GET, &[Method::GET], Op::RemoteConfig, "flag_remote_config"),
    ("feature_flags/activity", GET, &[Method::GET], Op::FlagActivity, "flag_activity"),
    ("feature_flags/:/activity", GET, &[Method::GET], Op::FlagActivity, "flag_activity"),
    ("cohorts/activity", GET, &[Method::GET], Op::CohortActivity, "cohort_activity"),
    ("cohorts/:/activity", GET, &[Method::GET], Op::CohortActivity, "cohort_activity"),
    ("activity_log", GET, &[Method::GET], Op::ProjectActivity, "activity_log"),
    (
        "feature_flags/evaluation_reasons",
        GET,
        &[Method::GET],
        Op::EvaluationReasons,
        "flag_reasons",
    ),
    ("feature_flags/my_flags", GET, &[Method::GET], Op::MyFlags, "my_flags"),
    ("feature_flags/user_blast_radius", POST, &[Method::POST], Op::BlastRadius, "blast_radius"),
    ("feature_flags/:/test_evaluation", POST, &[Method::POST], Op::TestEvaluation, "flag_test"),
    ("feature_flags/:/dashboard", POST, &[Method::POST], Op::Dashboard, "flag_dashboard"),
    ("feature_flags/:/enrich_usage_dashboard", POST, &[Method::POST], Op::Enrich, "flag_dashboard"),
    (
        "feature_flags/:/create_static_cohort_for_flag",
        POST,
        &[Method::POST],
        Op::StaticCohort,
        "flag_cohort",
    ),
    ("feature_flags/:/enable", POST, &[Method::POST], Op::Switch, "flag_switch"),
    ("feature_flags/:/disable", POST, &[Method::POST], Op::Switch, "flag_switch"),
    ("feature_flags/:/archive", POST, &[Method::POST], Op::Switch, "flag_switch"),
    ("feature_flags/:/unarchive", POST, &[Method::POST], Op::Switch, "flag_switch"),
    ("feature_flags/:/dependent_flags", GET, &[Method::GET], Op::Dependents, "flag_dependents"),
    ("feature_flags/:/status", GET, &[Method::GET], Op::Status, "flag_status"),
    ("feature_flags/:/versions/:", GET, &[Method::GET], Op::Version, "flag_version"),
    ("feature_flags/:/versions/:/revert", POST, &[Method::POST], Op::Revert, "flag_revert"),
    ("feature_flags/bulk_keys", POST, &[Method::POST], Op::BulkKeys, "flag_bulk"),
    ("feature_flags/matching_ids", GET, &[Method::GET], Op::MatchingIds, "flag_bulk"),
    ("feature_flags/bulk_delete", POST, &[Method::POST], Op::BulkDelete, "flag_bulk"),
    (
        "feature_flags/:/role_access",
        GET_POST,
        &[Method::GET, Method::POST],
        Op::RoleAccesses,
        "role_accesses",
    ),
    (
        "feature_flags/:/role_access/:",
        GET_DELETE,
        &[Method::GET, Method::DELETE],
        Op::RoleAccess,
        "role_access",
    ),
    (
        "/api/organizations/:/feature_flags/copy_flags",
        POST,
        &[Method::POST],
        Op::CopyFlag,
        "flag_copy",
    ),
    ("/api/organizations/:/feature_flags/:", GET, &[Method::GET], Op::FlagByKey, "flag_by_key"),
    ("/api/organizations/:/roles", GET_POST, &[Method::GET, Method::POST], Op::Roles, "roles"),
    (
        "/api/organizations/:/roles/:",
        GET_PATCH_DELETE,
        &[Method::GET, Method::PATCH, Method::DELETE],
        Op::Role,
        "role",
    ),
    (
        "/api/organizations/:/roles/:/role_memberships",
        GET_POST,
        &[Method::GET, Method::POST],
        Op::RoleMembers,
        "role_members",
    ),
    (
        "/api/organizations/:/roles/:/role_memberships/:",
        DELETE,
        &[Method::DELETE],
        Op::RoleMember,
        "role_member",
    ),
    ("/ofrep/v1/evaluate/flags", POST, &[Method::POST], Op::OfrepAll, "ofrep_all"),
    ("/ofrep/v1/evaluate/flags/:", POST, &[Method::POST], Op::OfrepOne, "ofrep_one"),
    ("/flags/events", GET, &[Method::GET], Op::FlagEvents, "flag_events"),
    (
        "rotate_secret_token",
        POST,
        &[Method::POST, Method::PATCH],
        Op::RotateSecret,
        "rotate_secret",
    ),
    ("cohorts", GET_POST, &[Method::GET, Method::POST], Op::Cohorts, "cohorts"),
    (
        "cohorts/:",
        GET_PUT_PATCH,
        &[Method::GET, Method::PUT, Method::PATCH, Method::DELETE],
        Op::Cohort,
        "cohort",
    ),
    ("cohorts/:/persons", GET, &[Method::GET], Op::CohortMembers, "cohort_persons"),
    (
        "cohorts/:/add_persons_to_static_cohort",
        POST_PATCH,
        &[Method::POST, Method::PATCH],
        Op::ChangeMembers,
        "cohort_members",
    ),
    (
        "cohorts/:/remove_person_from_static_cohort",
        POST_PATCH,
        &[Method::POST, Method::PATCH],
        Op::ChangeMembers,
        "cohort_members",
    ),
];

/// An endpoint that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    op: Op,
    label: &'static str,
    /// A number or `@current`; empty where the path names no project.
    project: String,
    /// The segments that are no names.
    ids: Vec<String>,
}

/// Finds the endpoint of a path without its last slash; `Err` with the methods that it has, if this
/// is none of them.
pub(super) fn find(method: &Method, path: &str) -> Option<Result<Found, &'static str>> {
    let projects = path.strip_prefix("/api/projects/");
    let of_project = projects.or_else(|| path.strip_prefix("/api/environments/"));
    let (project, rest) = match of_project {
        Some(rest) => rest.split_once('/')?,
        None => ("", path),
    };
    let (row, ids) = TABLE.iter().find_map(|row| Some((row, matched(row.0, rest)?)))?;
    let (_, allow, methods, op, label) = *row;
    if !methods.contains(method) {
        return Some(Err(allow));
    }
    Some(Ok(Found { op, label, project: project.to_owned(), ids }))
}

/// The segments of `path` that stand where `pattern` has a colon, if the others are the same.
fn matched(pattern: &str, path: &str) -> Option<Vec<String>> {
    let (mut wanted, mut found) = (pattern.split('/'), path.split('/'));
    let mut ids = Vec::new();
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return Some(ids),
            (Some(":"), Some(id)) if !id.is_empty() => ids.push(id.to_owned()),
            (Some(wanted), Some(found)) if wanted == found => {}
            _ => return None,
        }
    }
}

impl Found {
    /// Name in metrics and logs.
    pub(super) fn label(&self) -> &'static str {
        self.label
    }

    /// Answers.
    pub(super) async fn answer(
        self,
        app: &App,
        (cache, ending): (&Cache, &Shutdown),
        request: Request,
    ) -> Result<Response, Problem> {
        let project = self.project.as_str();
        let mut ids = self.ids.iter().map(String::as_str);
        let first = ids.next();
        let (id, second) = (first.unwrap_or_default(), ids.next().unwrap_or_default());
        let third = ids.next().unwrap_or_default();
        match self.op {
            Op::Definitions => local_evaluation::definitions(app, cache, project, &request),
            Op::RemoteConfig => local_evaluation::remote_config(app, project, id, &request),
            Op::FlagSettings => flag_settings::settings(app, project, request).await,
            Op::RotateSecret => flag_settings::rotate_secret(app, project, request).await,
            Op::Cohorts => match request.method {
                Method::POST => cohorts::create(app, project, request).await,
                _ => cohorts::list(app, project, &request),
            },
            Op::Cohort => match request.method {
                Method::PUT | Method::PATCH => cohorts::update(app, project, id, request).await,
                Method::DELETE => cohorts::delete(app, project, &request, GET_PUT_PATCH),
                _ => cohorts::retrieve(app, project, id, request).await,
            },
            Op::CohortMembers => cohorts::members(app, project, id, request).await,
            Op::ChangeMembers => cohorts::change_members(app, project, id, request).await,
            Op::CohortActivity => cohorts::activity(app, project, first, request).await,
            Op::FlagActivity => feature_flags::activity(app, project, first, request).await,
            Op::ProjectActivity => activity::of_project(app, project, &request).await,
            Op::EvaluationReasons => questions::evaluation_reasons(app, project, request).await,
            Op::MyFlags => questions::my_flags(app, project, request).await,
            Op::BlastRadius => questions::blast_radius(app, project, request).await,
            Op::TestEvaluation => questions::test_evaluation(app, project, id, request).await,
            Op::Dashboard => actions::dashboard(app, project, id, request).await,
            Op::Enrich => actions::enrich(app, project, id, request).await,
            Op::StaticCohort => actions::static_cohort(app, project, id, request).await,
            Op::Switch => actions::switch(app, project, id, request).await,
            Op::Dependents => actions::dependents(app, project, id, request).await,
            Op::Status => status::status(app, project, id, request).await,
            Op::Version => actions::version(app, project, (id, second), request).await,
            Op::Revert => actions::revert(app, project, (id, second), request).await,
            Op::BulkKeys => actions::bulk_keys(app, project, request).await,
            Op::MatchingIds => actions::matching_ids(app, project, request).await,
            Op::BulkDelete => actions::bulk_delete(app, project, request).await,
            Op::RoleAccesses => match request.method {
                Method::POST => role_access::create(app, project, id, request).await,
                _ => role_access::list(app, project, id, request).await,
            },
            Op::RoleAccess => match request.method {
                Method::DELETE => role_access::delete(app, project, (id, second), request).await,
                _ => role_access::retrieve(app, project, (id, second), request).await,
            },
            Op::CopyFlag => copy::copy(app, id, request).await,
            Op::FlagByKey => copy::by_key(app, id, second, &request),
            Op::Roles => roles::roles(app, id, request).await,
            Op::Role => roles::role(app, id, second, request).await,
            Op::RoleMembers => roles::memberships(app, id, second, request).await,
            Op::OfrepAll => ofrep::all(app, request).await,
            Op::OfrepOne => ofrep::one(app, id, request).await,
            Op::FlagEvents => flag_events::events(app, ending, &request),
            Op::RoleMember => roles::end_membership(app, id, (second, third), request).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::Method;

    use super::GET;
    use super::Op;
    use super::find;

    #[test]
    fn paths_find_their_endpoints() {
        for (method, path, expected) in [
            (Method::GET, "/flags/definitions", Some(Ok((Op::Definitions, "", vec![])))),
            (Method::POST, "/flags/definitions", Some(Err(GET))),
            (
                Method::GET,
                "/api/projects/1/feature_flags/local_evaluation",
                Some(Ok((Op::Definitions, "1", vec![]))),
            ),
            (
                Method::GET,
                "/api/projects/@current/feature_flags/my-flag/remote_config",
                Some(Ok((Op::RemoteConfig, "@current", vec!["my-flag"]))),
            ),
            (
                Method::DELETE,
                "/api/environments/7/cohorts/3",
                Some(Ok((Op::Cohort, "7", vec!["3"]))),
            ),
            (Method::GET, "/api/projects/1/persons", None),
            (Method::GET, "/api/projects/1/cohorts/3/4", None),
            (Method::GET, "/cohorts", None),
        ] {
            let found = find(&method, path);
            let found = found.map(|found| found.map(|found| (found.op, found.project, found.ids)));
            let expected = expected.map(|expected| {
                expected.map(|(op, project, ids)| {
                    (op, project.to_owned(), ids.into_iter().map(str::to_owned).collect())
                })
            });
            assert_eq!(found, expected, "{method} {path}");
        }
    }
}
