//! A project with one object of every kind, and their ids: [`Owner`]. No expectations here.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, patiently};

/// A project, and its objects.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) project: i64,
    /// Part of the names of all its objects.
    pub(crate) secret: &'static str,
    /// Values of placeholders in a path or a text: `feature_flags/:id`, `FLAG`.
    pub(crate) ids: BTreeMap<&'static str, String>,
}

impl Owner {
    /// Creates objects of every kind in a project.
    pub(crate) fn fill(
        server: &TestServer,
        project: i64,
        token: &str,
        secret: &'static str,
    ) -> Self {
        let event = |name: &str, properties: Value| json!({"event": name, "distinct_id": "same", "properties": properties});
        // A session of each project has the same id.
        let page = json!({"secret": secret, format!("q_{secret}"): 1, "$session_id": "same session",
                          "$current_url": format!("https://x.example/{secret}")});
        let mut batch = vec![
            event("$identify", json!({"$set": {"email": format!("{secret}@x.com"), "plan": "x"}})),
            event("same event", page),
            json!({"event": "same event", "distinct_id": "gone"}),
            event(&format!("only of {secret}"), json!({format!("p_{secret}"): 1})),
            event("$set", json!({"$set": {format!("p_{secret}"): 1}})),
            json!({"event": format!("odd of {secret}")}),
        ];
        for key in ["same", secret] {
            let set = json!({"name": secret, format!("p_{secret}"): 1});
            let group = json!({"$group_type": secret, "$group_key": key, "$group_set": set});
            batch.push(event("$groupidentify", group));
        }
        let body = json!({"api_key": token, "batch": batch}).to_string();
        let json_type = [("content-type", "application/json")];
        assert_eq!(server.send("POST", "/batch/", &json_type, body).status, 200);
        let mut owner = Self { project, secret, ids: BTreeMap::new() };
        owner.furnish(server);
        owner
    }

    /// Creates one of every object that has an id.
    fn furnish(&mut self, server: &TestServer) {
        let base = format!("/api/projects/{}", self.project);
        let secret = self.secret;
        let made = |path: &str, body: Value| {
            let answer = server.post(&format!("{base}/{path}"), &body);
            assert!(matches!(answer.status, 200 | 201), "{path}: {answer}");
            answer.json()
        };
        let changed = |path: &str, body: Value| {
            let answer = server.patch(&format!("{base}/{path}"), &body);
            assert!(matches!(answer.status, 200 | 202), "{path}: {answer}");
        };
        let first = |path: &str| {
            let page = server.get(&format!("{base}/{path}")).json();
            text(&page["results"][0]["id"])
        };
        changed("", json!({"name": format!("shop of {secret}")}));
        let person = |id: &str| {
            let page = server.get(&format!("{base}/persons/?distinct_id={id}")).json();
            page["results"][0].clone()
        };
        let gone = text(&person("gone")["uuid"]);
        let deleted = server.delete(&format!("{base}/persons/{gone}/?delete_events=true"));
        assert_eq!(deleted.status, 202, "{deleted}");
        let person = person("same");
        let event = first("events/?event=same%20event");
        let definition = first(&format!("event_definitions/?search={secret}%20only"));
        let property = first("property_definitions/?search=secret");
        let rule = json!({"key": "email", "type": "person", "value": format!("{secret}@x.com")});
        let rule = json!({"properties": {"type": "AND", "values": [rule]}});
        let cohort =
            made("cohorts/", json!({"name": format!("people of {secret}"), "filters": rule}));
        let everybody = json!([{"properties": [], "rollout_percentage": 100}]);
        let filters = json!({"groups": everybody, "payloads": {"true": format!("\"{secret}\"")}});
        let flag = json!({
            "key": format!("of-{secret}"), "name": secret, "filters": filters,
            "is_remote_configuration": true,
        });
        let flag = made("feature_flags/", flag);
        let (flag, cohort) = (text(&flag["id"]), text(&cohort["id"]));
        changed(&format!("feature_flags/{flag}/"), json!({"name": format!("again {secret}")}));
        let noted = json!({"description": secret, "primary_property": secret});
        changed(&format!("event_definitions/{definition}/"), noted);
        changed(&format!("property_definitions/{property}/"), json!({"description": secret}));
        let promoted = format!("q_{secret}");
        made("promoted_properties/", json!({"key": promoted, "type": "number"}));
        let of_persons = json!({"key": format!("r_{secret}"), "type": "text", "table": "persons"});
        made("promoted_properties/", of_persons);
        changed(&format!("persons/{}/", person["id"]), json!({"properties": {"mark": secret}}));
        let group = "groups/update_property/?group_type_index=0&group_key=same";
        made(group, json!({"key": "mark", "value": secret}));
        let roles = "/api/organizations/@current/roles/";
        let role = server.post(roles, &json!({"name": format!("role {}", self.project)})).json();
        let access =
            made(&format!("feature_flags/{flag}/role_access/"), json!({"role_id": role["id"]}));
        let change = made(
            "scheduled_changes/",
            json!({
                "record_id": flag, "model_name": "FeatureFlag", "scheduled_at": "2090-01-01T00:00:00Z",
                "payload": {"operation": "update_variants", "value": {"variants": [
                    {"key": secret, "rollout_percentage": 100}]}},
            }),
        );
        let feature = json!({"name": format!("lab {secret}"), "stage": "beta"});
        let feature = made("early_access_feature/", feature);
        let steps = json!([{"event": format!("only of {secret}")}]);
        let action = made("actions/", json!({"name": secret, "steps": steps}));
        let insight = made("insights/", json!({"name": secret, "saved": true}));
        let of_insight = json!({"content": secret, "dashboard_item": insight["id"]});
        let annotation = made("annotations/", of_insight);
        let dashboard = made("dashboards/", json!({"name": secret}));
        let viewed = format!("{base}/insights/{}/viewed/", insight["id"]);
        assert_eq!(server.post(&viewed, &json!({})).status, 201);
        for (path, id) in [("actions", &action), ("insights", &insight)] {
            changed(&format!("{path}/{}/", id["id"]), json!({"description": secret}));
        }
        changed(&format!("annotations/{}/", annotation["id"]), json!({"scope": "project"}));
        changed(&format!("dashboards/{}/", dashboard["id"]), json!({"pinned": true}));
        let sharing = format!("insights/{}/sharing/", insight["id"]);
        changed(&sharing, json!({"password_required": true}));
        let password = made(&format!("{sharing}passwords/"), json!({"note": secret}));
        self.ids = BTreeMap::from([
            ("actions/:id", text(&action["id"])),
            ("annotations/:id", text(&annotation["id"])),
            ("dashboards/:id", text(&dashboard["id"])),
            ("insights/:id", text(&insight["id"])),
            ("ACTION", text(&action["id"])),
            ("INSIGHT", text(&insight["id"])),
            ("BOARD", text(&dashboard["id"])),
            ("cohorts/:id", cohort.clone()),
            ("early_access_feature/:id", text(&feature["id"])),
            ("event_definitions/:id", definition.clone()),
            ("DEFINITION", definition),
            ("events/:uuid", event),
            ("feature_flags/:id", flag.clone()),
            ("passwords/:password", text(&password["id"])),
            ("persons/:id", text(&person["id"])),
            ("promoted_properties/:key", promoted),
            ("property_definitions/:id", property),
            ("query/:id", format!("of-{secret}")),
            ("role_access/:access", text(&access["id"])),
            ("scheduled_changes/:id", text(&change["id"])),
            ("versions/:version", "1".to_owned()),
            ("SECRET", secret.to_owned()),
            ("PERSON", text(&person["uuid"])),
            ("NUMBER", text(&person["id"])),
            ("GONE", gone),
            ("COHORT", cohort),
            ("FLAG", flag),
            ("ROLE", text(&role["id"])),
        ]);
    }

    /// A path of the table in this project, with the ids of `of`.
    pub(crate) fn path(&self, pattern: &str, of: &Self) -> String {
        fill_in(pattern, &self.project.to_string(), &of.ids)
    }

    /// `template` with the values of this project.
    pub(crate) fn of_mine(&self, template: &str) -> String {
        let names = [
            "SECRET",
            "PERSON",
            "NUMBER",
            "GONE",
            "COHORT",
            "FLAG",
            "ROLE",
            "DEFINITION",
            "ACTION",
            "INSIGHT",
            "BOARD",
        ];
        names.iter().fold(template.to_owned(), |text, name| text.replace(name, &self.ids[name]))
    }

    /// Whether a response contains anything of this project.
    pub(crate) fn shows_in(&self, answer: &Answer) -> bool {
        let body = String::from_utf8_lossy(&answer.body);
        let people = ["PERSON", "GONE"].map(|name| self.ids[name].as_str());
        [self.secret].iter().chain(&people).any(|own| body.contains(own))
    }
}

/// Waits for the background work of the server on a new owner.
pub(crate) fn settle(server: &TestServer, project: i64, ids: &BTreeMap<&'static str, String>) {
    let base = format!("/api/projects/{project}");
    let done = patiently(|| {
        let cohort = server.get(&format!("{base}/cohorts/{}/", ids["COHORT"])).json();
        let warnings = server.get(&format!("{base}/ingestion_warnings/")).json();
        (!cohort["count"].is_null() && !warnings["results"][0].is_null()).then_some(())
    });
    done.expect("the cohort is counted, and the warning written");
}

/// A path of the table in a project, with these ids.
pub(crate) fn fill_in(
    pattern: &str,
    project: &str,
    ids: &BTreeMap<&'static str, String>,
) -> String {
    let root = pattern.replace("P/", &format!("/api/projects/{project}/"));
    let root = root.replace("O/", "/api/organizations/@current/");
    let mut before = "";
    let mut path = String::new();
    for part in root.split('/').filter(|part| !part.is_empty()) {
        let place = format!("{before}/{part}");
        path.push('/');
        path += match part.starts_with(':') {
            true => {
                ids.get(place.as_str()).unwrap_or_else(|| panic!("{pattern}: {place} is whose?"))
            }
            false => part,
        };
        before = part;
    }
    path + "/"
}

/// Removes times set by the server, how long it took, and the counts of earlier queries.
pub(crate) fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let names =
                ["last_calculation", "last_refresh", "effective_date_from", "effective_date_to"];
            for name in names.into_iter().chain(["query_usage_30_day", "is_cached", "timings"]) {
                fields.remove(name);
            }
            // With the port of the server, which is another one after a restart.
            for link in ["next", "initial"] {
                if let Some(link) = fields.get_mut(link) {
                    let question = link.as_str().and_then(|link| link.split_once('?'));
                    *link = question.map(|(_, question)| question).into();
                }
            }
            if fields.remove("delete_verified_at").is_some() {
                fields.remove("status");
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// A value in the form of a path segment.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A path with a query, written as `name=value&name=value` without escapes.
pub(crate) fn with(path: &str, question: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for pair in question.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').expect("a value");
        query.append_pair(name, value);
    }
    format!("{path}?{}", query.finish())
}
