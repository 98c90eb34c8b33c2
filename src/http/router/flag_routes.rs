//! The endpoints of flags, cohorts and what belongs to them, as one table: path, methods, [`Op`].

use hyper::Method;

use crate::app::App;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::response::Response;
use crate::http::routes::cohorts;
use crate::http::routes::flag_settings;
use crate::http::routes::local_evaluation;
use crate::http::routes::local_evaluation::Cache;

const GET: &str = "GET, HEAD, OPTIONS";
const POST: &str = "POST, OPTIONS";
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
        cache: &Cache,
        request: Request,
    ) -> Result<Response, Problem> {
        let project = self.project.as_str();
        let mut ids = self.ids.iter().map(String::as_str);
        let id = ids.next().unwrap_or_default();
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
