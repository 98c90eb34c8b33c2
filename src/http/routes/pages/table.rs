//! Table of the pages: [`PAGES`]. One row each: methods, the path within `/project/:project/`, the scope that the
//! caller needs, the function. [`find`] looks up a request. Paths are those of PostHog, so that bookmarks and links in
//! tickets stay valid.
//!
//! A `:name` matches any one segment. The trailing slash is optional. The first row whose path matches wins.

use crate::lookup::Lookup;
use crate::request::decode;
use crate::routes::pages::insights::{arrange, boards, people, saved, transfer};
use crate::routes::pages::visit::{Drawing, Visit};
use crate::routes::pages::{
    cohort_editor, cohorts, definitions, deletions, events, flag_editor, flags, health, home,
    insights, live, members, onboarding, persons, settings, sql,
};

/// The function of a page.
macro_rules! run {
    ($function:path) => {
        |visit| Box::pin($function(visit))
    };
}

/// Every page of a project.
#[rustfmt::skip]
pub const PAGES: &[Line] = &[
    at("GET",  "home",                          "query:read",           run!(home::home)),
    at("GET",  "onboarding",                    "project:read",         run!(onboarding::onboarding)),
    at("POST", "onboarding",                    "project:write",        run!(onboarding::send_test)),
    at("GET",  "activity/live",                 "query:read",           run!(live::live)),
    at("GET",  "activity/live/rows",            "query:read",           run!(live::rows)),
    at("GET",  "insights",                      "insight:read",         run!(saved::list)),
    at("POST", "insights",                      "insight:write",        run!(saved::save)),
    at("GET",  "insights/:kind",                "insight:read",         run!(insights::show)),
    at("POST", "insights/:kind",                "insight:write",        run!(arrange::change_insight)),
    at("POST", "insights/:kind/share",          "sharing_configuration:write", run!(arrange::share_insight)),
    at("GET",  "insights/:kind/persons",        "person:read",          run!(people::persons)),
    at("POST", "insights/:kind/persons",        "cohort:write",         run!(people::save)),
    at("GET",  "dashboard",                     "dashboard:read",       run!(boards::list)),
    at("POST", "dashboard",                     "dashboard:write",      run!(boards::make)),
    at("POST", "dashboard/import",              "dashboard:write",      run!(transfer::import)),
    at("GET",  "dashboard/:id",                 "dashboard:read",       run!(boards::one)),
    at("GET",  "dashboard/:id/export",          "dashboard:read",       run!(transfer::export)),
    at("POST", "dashboard/:id",                 "dashboard:write",      run!(arrange::change)),
    at("GET",  "dashboard/:id/edit",            "dashboard:read",       run!(arrange::edit)),
    at("POST", "dashboard/:id/share",           "sharing_configuration:write", run!(arrange::share_board)),
    at("GET",  "activity/explore",              "query:read",           run!(events::list)),
    at("GET",  "events/:uuid",                  "query:read",           run!(events::one)),
    at("GET",  "persons",                       "person:read",          run!(persons::list)),
    at("GET",  "person/:id",                    "person:read",          run!(persons::one)),
    at("POST", "person/:id/delete",             "person:write",         run!(persons::delete)),
    at("POST", "person/:id/split",              "person:write",         run!(persons::split)),
    at("GET",  "groups",                        "group:read",           run!(cohorts::groups)),
    at("GET",  "groups/:index/:key",            "group:read",           run!(cohorts::group)),
    at("GET",  "cohorts",                       "cohort:read",          run!(cohorts::list)),
    at("POST", "cohorts",                       "cohort:write",         run!(cohort_editor::create)),
    at("GET",  "cohorts/new",                   "cohort:read",          run!(cohort_editor::new)),
    at("GET",  "cohorts/:id",                   "cohort:read",          run!(cohorts::one)),
    at("GET",  "cohorts/:id/edit",              "cohort:read",          run!(cohort_editor::edit)),
    at("POST", "cohorts/:id/edit",              "cohort:write",         run!(cohort_editor::change)),
    at("POST", "cohorts/:id/delete",            "cohort:write",         run!(cohort_editor::delete)),
    at("POST", "cohorts/:id/members",           "cohort:write",         run!(cohort_editor::members)),
    at("GET",  "feature_flags",                 "feature_flag:read",    run!(flags::list)),
    at("POST", "feature_flags",                 "feature_flag:write",   run!(flag_editor::create)),
    at("GET",  "feature_flags/new",             "feature_flag:read",    run!(flag_editor::new)),
    at("GET",  "feature_flags/:id",             "feature_flag:read",    run!(flags::one)),
    at("POST", "feature_flags/:id",             "feature_flag:write",   run!(flags::switch)),
    at("GET",  "feature_flags/:id/edit",        "feature_flag:read",    run!(flag_editor::edit)),
    at("POST", "feature_flags/:id/edit",        "feature_flag:write",   run!(flag_editor::change)),
    at("POST", "feature_flags/:id/revert",      "feature_flag:write",   run!(flag_editor::revert)),
    at("POST", "feature_flags/:id/delete",      "feature_flag:write",   run!(flag_editor::delete)),
    at("POST", "feature_flags/:id/schedule",    "feature_flag:write",   run!(flag_editor::schedule)),
    at("POST", "feature_flags/:id/schedule/cancel", "feature_flag:write", run!(flag_editor::cancel)),
    at("GET",  "early_access_features",         "early_access_feature:read", run!(flags::early_access)),
    at("POST", "early_access_features",         "early_access_feature:write", run!(cohort_editor::create_feature)),
    at("GET",  "early_access_features/new",     "early_access_feature:read", run!(cohort_editor::new_feature)),
    at("GET",  "early_access_features/:id",     "early_access_feature:read", run!(cohort_editor::feature)),
    at("POST", "early_access_features/:id",     "early_access_feature:write", run!(cohort_editor::change_feature)),
    at("GET",  "data-management/events",        "event_definition:read", run!(definitions::events)),
    at("GET",  "data-management/events/:id",    "event_definition:read", run!(definitions::event)),
    at("POST", "data-management/events/:id",    "event_definition:write", run!(definitions::change_event)),
    at("GET",  "data-management/properties",    "property_definition:read", run!(definitions::properties)),
    at("GET",  "data-management/properties/:id", "property_definition:read", run!(definitions::property)),
    at("POST", "data-management/properties/:id", "property_definition:write", run!(definitions::change_property)),
    at("POST", "data-management/properties/:id/column", "property_definition:write", run!(definitions::change_column)),
    at("GET",  "data-management/deletions",     "person:read",          run!(deletions::list)),
    at("GET",  "sql",                           "query:read",           run!(sql::sql)),
    at("GET",  "health",                        "project:read",         run!(health::health)),
    at("GET",  "settings",                      "project:read",         run!(settings::settings)),
    at("POST", "settings/project",              "project:write",        run!(settings::change_project)),
    at("POST", "settings/projects",             "project:write",        run!(settings::create_project)),
    at("POST", "settings/token",                "project:write",        run!(settings::reset_token)),
    at("POST", "settings/retention",            "project:write",        run!(settings::change_retention)),
    at("POST", "settings/delete",               "project:write",        run!(settings::delete_project)),
    at("POST", "settings/members",              "organization_member:write", run!(members::change)),
    at("POST", "settings/roles",                "organization:write",   run!(members::change_roles)),
    at("POST", "settings/keys",                 "personal_api_key:write", run!(settings::create_key)),
    at("POST", "settings/keys/revoke",          "personal_api_key:write", run!(settings::revoke_key)),
    at("POST", "settings/sessions/end",         "personal_api_key:write", run!(settings::end_session)),
];

/// One row of the table.
#[derive(Debug)]
pub struct Line {
    /// GET or POST.
    pub method: &'static str,
    /// The path within `/project/:project/`; also the name in metrics and logs.
    pub path: &'static str,
    /// The scope that the caller needs, such as `person:read`.
    pub scope: &'static str,
    /// The function.
    pub run: fn(Visit) -> Drawing,
}

const fn at(
    method: &'static str,
    path: &'static str,
    scope: &'static str,
    run: fn(Visit) -> Drawing,
) -> Line {
    Line { method, path, scope, run }
}

/// A page, with the values from its path.
#[derive(Debug)]
pub struct Located {
    /// The row of the table.
    pub line: &'static Line,
    /// The project as in the path: a number, or `@current`.
    pub project: String,
    /// The path within the project, as sent.
    pub rest: String,
    /// The values of the `:names`, decoded.
    pub parameters: Vec<String>,
}

/// Finds the page of a path without a trailing slash.
pub fn find(method: &str, path: &str) -> Lookup<Located> {
    let Some(path) = path.strip_prefix("/project/") else { return Lookup::Nothing };
    let (project, rest) = match path.split_once('/') {
        Some((project, rest)) => (project, rest),
        None => (path, "home"),
    };
    let matching = || PAGES.iter().filter_map(|line| Some((line, line.parameters(rest)?)));
    let Some((first, _)) = matching().next() else { return Lookup::Nothing };
    let same = || matching().filter(|(line, _)| line.path == first.path);
    match same().find(|(line, _)| line.method == method) {
        Some((line, parameters)) => {
            let (project, rest) = (decode(project).into_owned(), rest.to_owned());
            Lookup::Found(Located { line, project, rest, parameters })
        }
        None => Lookup::wrong_method(same().map(|(line, _)| line.method).collect()),
    }
}

impl Line {
    /// The values of the `:names`, if `path` matches.
    fn parameters(&self, path: &str) -> Option<Vec<String>> {
        let (mut own, mut parts, mut values) = (self.path.split('/'), path.split('/'), Vec::new());
        loop {
            match (own.next(), parts.next()) {
                (None, None) => return Some(values),
                (Some(name), Some(part)) if name.starts_with(':') && !part.is_empty() => {
                    values.push(decode(part).into_owned());
                }
                (Some(word), Some(part)) if word == part => {}
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGES, find};
    use crate::lookup::Lookup;

    #[test]
    fn every_line_is_found_by_its_path() {
        for line in PAGES {
            let parts =
                line.path.split('/').map(|part| if part.starts_with(':') { "7" } else { part });
            let path = format!("/project/1/{}", parts.collect::<Vec<_>>().join("/"));
            match find(line.method, &path) {
                Lookup::Found(found) => assert_eq!(found.line.path, line.path),
                other => panic!("{path}: {other:?}"),
            }
            let (object, action) = line.scope.split_once(':').unwrap();
            assert!(!object.is_empty() && ["read", "write"].contains(&action), "{}", line.scope);
            assert_eq!(line.method == "POST", action == "write", "{}", line.path);
        }
    }

    #[test]
    fn values_are_decoded_and_other_methods_refused() {
        let Lookup::Found(found) = find("GET", "/project/@current/person/a%2Fb%20c") else {
            panic!("not found")
        };
        assert_eq!((&*found.project, &*found.parameters), ("@current", &["a/b c".to_owned()][..]));
        assert!(
            matches!(find("POST", "/project/1/home"), Lookup::WrongMethod(allow) if allow == "GET, HEAD, OPTIONS")
        );
        assert!(matches!(find("GET", "/project/1/settings/keys"), Lookup::WrongMethod(_)));
        for path in ["/project/1/nothing", "/project/1/person/", "/home", "/projects/1/home"] {
            assert!(matches!(find("GET", path), Lookup::Nothing), "{path}");
        }
    }
}
