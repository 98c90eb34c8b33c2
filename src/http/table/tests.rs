//! Tests of the table: paths find their rows, and no row hides another.

use std::collections::HashSet;

use super::{Managed, Rendering, TABLE, find};
use crate::lookup::Lookup;

/// A path that matches the pattern of a row.
fn example(pattern: &str) -> String {
    let full =
        pattern.replace("P/", "/api/projects/1/").replace("O/", "/api/organizations/@current/");
    full.split('/')
        .map(|part| if part.starts_with(':') { "77" } else { part })
        .collect::<Vec<_>>()
        .join("/")
}

fn managed(method: &str, path: &str) -> Managed {
    match find(method, path) {
        Lookup::Found(managed) => managed,
        other => panic!("{method} {path}: {other:?}"),
    }
}

#[test]
fn every_line_is_found_by_its_path_and_none_hides_another() {
    for line in TABLE {
        let path = example(line.path);
        for method in line.methods.split(' ') {
            for path in [path.as_str(), path.trim_end_matches('/')] {
                let found = managed(method, path);
                assert_eq!(found.endpoint.path, line.path, "{method} {path}");
                assert_eq!(found.endpoint.methods, line.methods, "{method} {path}");
            }
        }
    }
}

#[test]
fn lines_are_well_formed() {
    let mut seen = HashSet::new();
    for line in TABLE {
        assert!(line.path.ends_with('/'), "{}", line.path);
        let (object, action) = line.scope.split_once(':').unwrap();
        assert!(!object.is_empty() && ["read", "write"].contains(&action), "{}", line.scope);
        for method in line.methods.split(' ') {
            assert!(["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&method), "{method}");
            assert!(seen.insert((method, line.path)), "{method} {} twice", line.path);
        }
    }
}

#[test]
fn what_may_cost_more_is_marked() {
    for line in TABLE {
        let of_many = ["P/events/", "P/persons/", "P/query/"];
        // Reading the status of a query is cheap.
        let is_look_up = line.path == "P/query/:id/";
        let is_of_many = of_many.iter().any(|begin| line.path.starts_with(begin)) && !is_look_up;
        assert!(line.is_analytics || !is_of_many, "{}", line.path);
    }
    for (method, path, expected) in [
        ("GET", "/api/projects/1/persons/", true),
        ("POST", "/api/person/7/split", true),
        ("GET", "/api/event/", true),
        ("POST", "/api/environments/1/query/", true),
        ("POST", "/api/projects/1/feature_flags/3/test_evaluation/", true),
        ("GET", "/api/projects/1/feature_flags/3/status/", true),
        ("POST", "/api/projects/1/feature_flags/user_blast_radius/", true),
        ("POST", "/api/projects/1/feature_flags/3/create_static_cohort_for_flag/", true),
        ("GET", "/api/projects/1/cohorts/3/persons/", true),
        ("GET", "/api/organizations/@current/feature_flags/a/", true),
        ("GET", "/api/organizations/@current/feature_flags/keys/", false),
        ("GET", "/api/projects/1/feature_flags/3/", false),
        ("GET", "/api/projects/1/event_definitions/", false),
        ("GET", "/api/projects/1/", false),
        ("GET", "/api/users/@me/", false),
    ] {
        let endpoint = managed(method, path).endpoint;
        assert_eq!(endpoint.is_analytics(|_| None), expected, "{path}");
    }
    // The time of the last call of a flag comes from events.
    for (path, value, expected) in [
        ("/api/projects/1/feature_flags/", "stale", true),
        ("/api/feature_flag/", "STALE", true),
        ("/api/projects/1/feature_flags/matching_ids/", "stale", true),
        ("/api/projects/1/feature_flags/", "true", false),
        ("/api/projects/1/feature_flags/3/", "stale", false),
    ] {
        let endpoint = managed("GET", path).endpoint;
        let query = |name: &str| (name == "active").then(|| value.into());
        assert_eq!(endpoint.is_analytics(query), expected, "{path}");
    }
}

#[test]
fn paths_have_their_aliases() {
    for (path, pattern, project, parameters) in [
        ("/api/projects/1/persons", "P/persons/", "1", vec![]),
        ("/api/projects/@current/persons/", "P/persons/", "@current", vec![]),
        ("/api/projects/%40current/persons/", "P/persons/", "@current", vec![]),
        ("/api/environments/2/persons/7/", "P/persons/:id/", "2", vec!["7"]),
        ("/api/person/7", "P/persons/:id/", "@current", vec!["7"]),
        ("/api/person/", "P/persons/", "@current", vec![]),
        ("/api/event_definition/", "P/event_definitions/", "@current", vec![]),
        ("/api/feature_flag/3/", "P/feature_flags/:id/", "@current", vec!["3"]),
        ("/api/environments/7/cohorts/3", "P/cohorts/:id/", "7", vec!["3"]),
        ("/api/organizations/o/roles/r", "O/roles/:id/", "o", vec!["o", "r"]),
    ] {
        let found = managed("GET", path);
        assert_eq!(found.endpoint.path, pattern, "{path}");
        assert_eq!(
            (found.owner.as_str(), found.parameters.as_slice()),
            (project, &parameters[..].iter().map(|p| p.to_string()).collect::<Vec<_>>()[..]),
            "{path}"
        );
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    for path in [
        "/api",
        "/api/",
        "/api/persons",
        "/api/projects/1/nothing",
        "/api/projects/1/persons/7/8/9",
        "/api/projects/1/cohorts/3/4",
        "/api/projects/1/persons//",
        "/api/projects//",
        "/persons",
        "/api/projects/1//persons",
    ] {
        assert!(matches!(find("GET", path), Lookup::Nothing), "{path}: {:?}", find("GET", path));
    }
}

#[test]
fn other_methods_are_told_which_there_are() {
    for (method, path, allow) in [
        ("POST", "/api/projects/1/feature_flags/3", "GET, PUT, PATCH, HEAD, OPTIONS"),
        ("DELETE", "/api/projects/1/feature_flags", "GET, POST, HEAD, OPTIONS"),
        ("PUT", "/api/projects/1/query/", "GET, POST, HEAD, OPTIONS"),
        ("PUT", "/api/projects/1/feature_flags/activity/", "GET, HEAD, OPTIONS"),
        ("DELETE", "/api/projects/1/feature_flags/settings", "GET, PATCH, HEAD, OPTIONS"),
        ("PUT", "/api/projects/1/feature_flags/3/role_access/4", "GET, DELETE, HEAD, OPTIONS"),
        ("POST", "/api/projects/1/cohorts/3", "GET, PUT, PATCH, HEAD, OPTIONS"),
        ("GET", "/api/projects/1/cohorts/3/add_persons_to_static_cohort", "POST, PATCH, OPTIONS"),
        ("GET", "/api/projects/1/rotate_secret_token", "POST, OPTIONS"),
        ("PUT", "/api/organizations/o/roles/r", "GET, PATCH, DELETE, HEAD, OPTIONS"),
        ("GET", "/api/organizations/o/roles/r/role_memberships/m", "DELETE, OPTIONS"),
    ] {
        match find(method, path) {
            Lookup::WrongMethod(found) => assert_eq!(found, allow, "{method} {path}"),
            other => panic!("{method} {path}: {other:?}"),
        }
    }
}

#[test]
fn suffixes_count_where_there_is_a_choice() {
    for (path, pattern, id, suffix) in [
        ("/api/projects/1/persons.csv", "P/persons/", None, Some(Rendering::Csv)),
        ("/api/projects/1/persons/7.json/", "P/persons/:id/", Some("7"), Some(Rendering::Json)),
        ("/api/person.csv", "P/persons/", None, Some(Rendering::Csv)),
        ("/api/projects/1/feature_flags/a.csv", "P/feature_flags/:id/", Some("a.csv"), None),
    ] {
        let found = managed("GET", path);
        assert_eq!((found.endpoint.path, found.suffix), (pattern, suffix), "{path}");
        assert_eq!(found.parameters.first().map(String::as_str), id, "{path}");
    }
}
