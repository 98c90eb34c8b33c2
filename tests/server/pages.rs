//! The page: every page with every right, for another project, with hostile data, and signing in.

use serde_json::{Value, json};
use weir_http::routes::pages::table::PAGES;

use crate::harness::{Answer, KEY, TOKEN, TestServer, patiently};

/// The stream of the live view, which does not end.
const STREAM: &str = "activity/live/rows";

/// Texts that run a script, load something or close an element where they are not escaped, and texts that are
/// hard to show.
const HOSTILE: &[&str] = &[
    "<script>window.__hit=1</script>",
    "\"><img src=x onerror=window.__hit=1>",
    "'><svg/onload=window.__hit=1>",
    "</textarea><script>window.__hit=1</script>",
    "</title><script>window.__hit=1</script>",
    "<!--<script>window.__hit=1</script>",
    "javascript:window.__hit=1",
    "{{constructor.constructor('window.__hit=1')()}}",
    "\u{202e}gnp.exe",
    "line\r\nset-cookie: hit=1",
    "event: rows\n\ndata: [\"<img src=x>\"]",
    "👩‍👩‍👧‍👦 é zero\u{200b}width",
    "../../settings",
    "%3Cscript%3E%00",
    "' OR 1=1 --",
];

/// What stands in no page: the hostile texts as elements.
const ELEMENTS: [&str; 5] =
    ["<script>window", "<img src=x", "<svg/onload", "</textarea><script", "href=\"javascript:"];

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).expect("UTF-8")
}

fn get(server: &TestServer, key: &str, path: &str) -> Answer {
    let bearer = format!("Bearer {key}");
    server.send("GET", path, &[("authorization", bearer.as_str())], "")
}

fn key_with(server: &TestServer, scopes: &[&str]) -> String {
    let made =
        server.post("/api/personal_api_keys/", &json!({"label": "x", "scopes": scopes})).created();
    made["value"].as_str().expect("a key").to_owned()
}

/// Checks what every page has.
fn check_page(answer: &Answer, path: &str) {
    assert!(answer.status < 500, "{path}: {answer}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{path}: {name}");
    }
    let policy = answer.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
}

/// Events, persons, groups, flags, cohorts and definitions with hostile names; a flag and a cohort.
fn fill(server: &TestServer) -> Vec<String> {
    let mut batch = Vec::new();
    for hostile in HOSTILE {
        batch.push(json!({"event": hostile, "distinct_id": hostile, "properties": {
            *hostile: hostile, "$current_url": hostile, "$set": {"email": hostile, "name": hostile, *hostile: [hostile]},
            "$groups": {"company": hostile}, "deep": {"a": [{"b": hostile}]},
        }}));
        batch.push(json!({"event": "$groupidentify", "distinct_id": hostile, "properties": {
            "$group_type": "company", "$group_key": hostile, "$group_set": {"name": hostile},
        }}));
    }
    batch.push(json!({"event": "x".repeat(200), "distinct_id": "y".repeat(200)}));
    let sent = server.post("/batch/", &json!({"api_key": TOKEN, "batch": batch}));
    assert_eq!(sent.status, 200, "{sent}");
    let mut paths = Vec::new();
    for (at, hostile) in HOSTILE.iter().enumerate() {
        let filter =
            json!({"key": hostile, "value": [hostile], "operator": "exact", "type": "person"});
        let flag = server.post(
            "/api/projects/1/feature_flags/",
            &json!({
                "key": format!("flag-{at}"), "name": hostile,
                "filters": {
                    "groups": [{"properties": [filter], "rollout_percentage": 50}],
                    "payloads": {"true": json!(hostile).to_string()},
                },
            }),
        );
        let flag = format!("feature_flags/{}", flag.created()["id"]);
        paths.extend([format!("{flag}/edit"), flag]);
        let cohort = server.post(
            "/api/projects/1/cohorts/",
            &json!({
                "name": hostile, "description": hostile,
                "filters": {"properties": {"type": "AND", "values": [filter]}},
            }),
        );
        let cohort = format!("cohorts/{}", cohort.created()["id"]);
        paths.extend([format!("{cohort}/edit"), cohort]);
        let name = format!("{hostile} {at}");
        let body = json!({"name": name, "description": hostile, "stage": "beta"});
        let feature = server.post("/api/projects/1/early_access_feature/", &body).created();
        paths.push(format!("early_access_features/{}", feature["id"].as_str().expect("an id")));
        let query =
            json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": hostile}]});
        let body = json!({"name": hostile, "description": hostile, "query": query});
        let insight = server.post("/api/projects/1/insights/", &body).created();
        paths.push(format!("insights/{}", insight["short_id"].as_str().expect("an id")));
        let tiles = json!([{"text": {"body": hostile}}, {"insight": insight["id"]}]);
        let body = json!({"name": hostile, "description": hostile, "tiles": tiles,
            "filters": {"properties": [{"key": hostile, "value": hostile, "type": "event"}]},
            "variables": {"v": {"code_name": hostile, "value": hostile}}});
        let board = server.post("/api/projects/1/dashboards/", &body).created();
        let board = format!("dashboard/{}", board["id"]);
        paths.extend([format!("{board}/edit"), board]);
    }
    server.count("SELECT count(*) FROM events");
    paths
}

/// The paths of all pages with GET, with the ids of things that are there.
fn paths(server: &TestServer, own: Vec<String>) -> Vec<String> {
    let mut paths = own;
    let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    for line in PAGES.iter().filter(|line| line.method == "GET" && line.path != STREAM) {
        match line.path {
            "person/:id" => {
                paths.extend(HOSTILE.iter().map(|id| format!("person/{}", encoded(id))))
            }
            "groups/:index/:key" => {
                paths.extend(HOSTILE.iter().map(|id| format!("groups/0/{}", encoded(id))))
            }
            "events/:uuid" => {
                for event in server.query("SELECT uuid FROM events") {
                    paths.push(format!("events/{}", event["uuid"].as_str().expect("a uuid")));
                }
            }
            path if path.contains(':') => {}
            path => paths.push(path.to_owned()),
        }
    }
    paths
}

#[test]
fn hostile_texts_are_texts_on_every_page() {
    let server = TestServer::start();
    let own = fill(&server);
    let paths = paths(&server, own);
    for path in &paths {
        let path = format!("/project/1/{path}");
        let answer = get(&server, KEY, &path);
        assert_eq!(answer.status, 200, "{path}: {answer}");
        check_page(&answer, &path);
        let shown = text(&answer);
        assert!(shown.ends_with("</body></html>"), "{path}: {shown}");
        assert!(!shown.contains("class=\"problem\""), "{path}: {shown}");
        for element in ELEMENTS {
            assert!(!shown.contains(element), "{path} has {element}");
        }
        for part in ["<style", " style=", " onclick=", "src=\"http"] {
            assert!(!shown.contains(part), "{path} has {part}");
        }
    }
}

#[test]
fn no_question_fails_inside() {
    let server = TestServer::start();
    server.capture(&json!([{"event": "a", "distinct_id": "b"}]));
    let names = [
        "q",
        "search",
        "event",
        "key",
        "value",
        "after",
        "columns",
        "offset",
        "limit",
        "index",
        "format",
        "distinct_id",
        "flags_of",
        "explain",
        "next",
        "link",
    ];
    for line in PAGES.iter().filter(|line| line.method == "GET" && line.path != STREAM) {
        for (at, hostile) in
            HOSTILE.iter().chain(&["-1", "99999999999999999999", "", "NaN"]).enumerate()
        {
            let value: String = hostile.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let path: Vec<&str> = line
                .path
                .split('/')
                .map(|part| if part.starts_with(':') { value.as_str() } else { part })
                .collect();
            // Without one of its parts a path is another one.
            if value.is_empty() && line.path.contains(':') {
                continue;
            }
            let question: Vec<String> =
                names.iter().map(|name| format!("{name}={value}")).collect();
            // All parameters at once are mostly refused for one of them, so each has its turn alone, too.
            let one = names[at % names.len()];
            for question in [question.join("&"), format!("{one}={value}")] {
                let path = format!("/project/1/{}?{question}", path.join("/"));
                let answer = get(&server, KEY, &path);
                check_page(&answer, &path);
                let shown = String::from_utf8_lossy(&answer.body).into_owned();
                if answer.header("content-type").is_some_and(|of| of.starts_with("text/html")) {
                    for element in ELEMENTS {
                        assert!(!shown.contains(element), "{path} has {element}");
                    }
                }
                assert!(!shown.contains("A server error occurred"), "{path}: {shown}");
            }
        }
    }
}

#[test]
fn each_page_needs_its_right_and_its_project() {
    let server = TestServer::start();
    let other = server.post("/api/projects/", &json!({"name": "other"})).created()["id"].clone();
    let body = json!({"label": "one", "scopes": ["*"], "scoped_teams": [other]});
    let elsewhere = server.post("/api/personal_api_keys/", &body).created()["value"].clone();
    let elsewhere = elsewhere.as_str().expect("a key");
    let mut scopes: Vec<&str> =
        PAGES.iter().map(|line| line.scope.split(':').next().expect("an object")).collect();
    scopes.sort_unstable();
    scopes.dedup();
    for line in PAGES {
        let object = line.scope.split(':').next().expect("an object");
        let others: Vec<String> = scopes
            .iter()
            .flat_map(
                |scope| if *scope == object { vec![] } else { vec![format!("{scope}:write")] },
            )
            .chain((line.method == "POST").then(|| format!("{object}:read")))
            .collect();
        let others = key_with(&server, &others.iter().map(String::as_str).collect::<Vec<_>>());
        let path = line
            .path
            .replace(":uuid", "0")
            .replace(":id", "0")
            .replace(":index", "0")
            .replace(":key", "x");
        let path = format!("/project/1/{path}");
        let ask = |bearer: Option<&str>, path: &str| {
            let bearer = bearer.map(|key| format!("Bearer {key}"));
            let headers: Vec<(&str, &str)> =
                bearer.iter().map(|value| ("authorization", value.as_str())).collect();
            server.send(line.method, path, &headers, "")
        };
        let denied = ask(Some(&others), &path);
        assert_eq!(denied.status, 403, "{path} without {}: {denied}", line.scope);
        check_page(&denied, &path);
        assert!(text(&denied).contains(line.scope), "{path} names {}", line.scope);
        assert_eq!(ask(Some(elsewhere), &path).status, 403, "{path} of another project");
        assert_eq!(ask(Some("phx_wrong"), &path).status, 401, "{path}");
        assert_eq!(
            ask(Some(KEY), &path.replace("/1/", "/77/")).status,
            404,
            "{path} of no project"
        );
        let nobody = ask(None, &path);
        assert_eq!(nobody.status, 303, "{path}: {nobody}");
        assert!(nobody.header("location").is_some_and(|to| to.starts_with("/login?")), "{nobody}");
        if line.method == "GET" && line.path != STREAM {
            let own = key_with(&server, &[line.scope]);
            let allowed = ask(Some(&own), &path);
            assert!(
                !matches!(allowed.status, 401 | 403) && allowed.status < 500,
                "{path}: {allowed}"
            );
        }
    }
}

/// Sends a form of this server with a cookie.
fn send_form(server: &TestServer, path: &str, cookie: &str, form: &str) -> Answer {
    let origin = server.url();
    let headers = [
        ("origin", origin.as_str()),
        ("cookie", cookie),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    server.send("POST", path, &headers, form)
}

fn cookie_of(answer: &Answer) -> String {
    let cookie = answer.header("set-cookie").expect("a cookie");
    for part in ["HttpOnly", "SameSite=Lax", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    cookie.split(';').next().expect("a value").to_owned()
}

#[test]
fn a_link_signs_in_once_and_a_form_of_others_does_nothing() {
    let server = TestServer::start();
    let output = server.weir(&["login"]).output().expect("weir login");
    assert!(output.status.success(), "{output:?}");
    let link = String::from_utf8(output.stdout).expect("UTF-8");
    let value = link
        .trim()
        .strip_prefix(&format!("{}/login?link=", server.url()))
        .expect("a link")
        .to_owned();
    // Looking at the link does not use it.
    let shown = server.send("GET", &format!("/login?link={value}"), &[], "");
    assert!(shown.status == 200 && text(&shown).contains("Sign in with this link"), "{shown}");
    let form = format!("link={value}&next=%2Fproject%2F1%2Fsettings");
    for headers in [
        &[][..],
        &[("origin", "https://evil.example")][..],
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site")][..],
        &[("origin", "null")][..],
    ] {
        assert_eq!(server.send("POST", "/login", headers, &form).status, 403, "{headers:?}");
    }
    let signed_in = send_form(&server, "/login", "", &form);
    assert_eq!(
        (signed_in.status, signed_in.header("location")),
        (303, Some("/project/1/settings"))
    );
    let cookie = cookie_of(&signed_in);
    assert_eq!(send_form(&server, "/login", "", &form).status, 403, "the link works once");

    let see =
        |cookie: &str| server.send("GET", "/project/@current/home", &[("cookie", cookie)], "");
    assert_eq!(see(&cookie).header("location"), Some("/project/1/home"));
    assert!(see("weir_session=x").header("location").is_some_and(|to| to.starts_with("/login")));
    let browser = [("accept", "text/html"), ("cookie", cookie.as_str())];
    let entrance = server.send("GET", "/", &browser, "");
    assert_eq!(entrance.header("location"), Some("/project/@current/home"));
    // The cookie opens no endpoint of the API, whose responses every origin may read.
    let api = server.send("GET", "/api/projects/1/persons/", &[("cookie", cookie.as_str())], "");
    assert_eq!(api.status, 401, "{api}");

    let change = "name=Renamed&timezone=Europe%2FBerlin";
    let foreign = [("origin", "https://evil.example"), ("cookie", cookie.as_str())];
    assert_eq!(server.send("POST", "/project/1/settings/project", &foreign, change).status, 403);
    assert_eq!(send_form(&server, "/project/1/settings/project", &cookie, change).status, 303);
    let settings = server.send("GET", "/project/1/settings", &[("cookie", cookie.as_str())], "");
    assert!(text(&settings).contains("value=\"Renamed\""), "{settings}");
    assert!(text(&settings).contains("this one"), "{settings}");

    let out = send_form(&server, "/logout", &cookie, "");
    assert_eq!((out.status, out.header("location")), (303, Some("/login")));
    assert!(see(&cookie).header("location").is_some_and(|to| to.starts_with("/login")));
}

#[test]
fn a_key_signs_in_with_its_rights_until_it_is_revoked() {
    let server = TestServer::start();
    let made = server
        .post("/api/personal_api_keys/", &json!({"label": "x", "scopes": ["person:read"]}))
        .created();
    let key = made["value"].as_str().expect("a key");
    let signed_in =
        send_form(&server, "/login", "", &format!("key={key}&next=https%3A%2F%2Fevil.example"));
    assert_eq!(signed_in.header("location"), Some("/project/@current/home"), "{signed_in}");
    let cookie = cookie_of(&signed_in);
    let see = |path: &str| server.send("GET", path, &[("cookie", cookie.as_str())], "").status;
    assert_eq!((see("/project/1/persons"), see("/project/1/sql")), (200, 403));
    server.delete(&format!("/api/personal_api_keys/{}/", made["id"]));
    assert_eq!(see("/project/1/persons"), 303, "the session ends with its key");
    // Wrong keys are refused, and too many of them at once.
    let mut statuses: Vec<u16> =
        (0..12).map(|_| send_form(&server, "/login", "", "key=phx_wrong").status).collect();
    statuses.dedup();
    assert_eq!(statuses, [403, 429]);
}

/// A proxy says over what its client came. Over an encrypted connection the cookie has a name that no other host, and
/// nobody without encryption, can set; whom nobody trusts says nothing.
#[test]
fn the_scheme_of_a_proxy_decides_the_cookie_and_the_links() {
    for (trusted, is_trusted) in [("127.0.0.0/8", true), ("none", false)] {
        let server = TestServer::start_with(&[("WEIR_TRUSTED_PROXIES", trusted)]);
        let proxied = [("x-forwarded-proto", "https"), ("x-forwarded-host", "weir.example")];
        let send = |method: &str, path: &str, more: &[(&str, &str)], body: &str| {
            let own = [
                ("sec-fetch-site", "same-origin"),
                ("content-type", "application/x-www-form-urlencoded"),
            ];
            server.send(method, path, &[&own[..], &proxied, more].concat(), body)
        };
        let signed_in = send("POST", "/login", &[], &format!("key={KEY}"));
        let cookie = cookie_of(&signed_in);
        let (name, value) = cookie.split_once('=').expect("a pair");
        let expected = if is_trusted { "__Host-weir_session" } else { "weir_session" };
        assert_eq!(name, expected);
        let set = signed_in.header("set-cookie").expect("a cookie");
        assert_eq!(set.contains("; Secure"), is_trusted, "{set}");
        let see = |cookie: &str, proxied: &[(&str, &str)]| {
            let headers = [&[("cookie", cookie)][..], proxied].concat();
            server.send("GET", "/project/1/settings", &headers, "").status
        };
        assert_eq!(see(&cookie, &proxied), 200);
        let plain = format!("weir_session={value}");
        assert_eq!(see(&plain, &proxied), if is_trusted { 303 } else { 200 });
        let out = send("POST", "/logout", &[("cookie", &cookie)], "");
        let removed = out.header("set-cookie").expect("a cookie");
        assert!(removed.starts_with(&format!("{expected}=; ")), "{removed}");
        assert_eq!(see(&cookie, &proxied), 303);
        // Links of answers.
        let bearer = format!("Bearer {KEY}");
        let link = |proxied: &[(&str, &str)]| {
            let headers = [&[("authorization", bearer.as_str())][..], proxied].concat();
            let path = "/api/projects/1/persons/?limit=1&offset=1";
            let answer = server.send("GET", path, &headers, "").json();
            let link = answer["previous"].as_str().expect("a link").to_owned();
            link.split_once("/api/").expect("a path").0.to_owned()
        };
        let own = server.url();
        for (headers, expected) in [
            (&[][..], own.as_str()),
            (&proxied[..], "https://weir.example"),
            (&proxied[1..], "http://weir.example"),
            (
                &[("x-forwarded-proto", "javascript"), ("x-forwarded-host", "a.example")],
                "http://a.example",
            ),
            (
                &[("x-forwarded-proto", "http, https"), ("x-forwarded-host", "x, b.example:8443")],
                "https://b.example:8443",
            ),
            (&[("x-forwarded-host", "b.example/x?")], "http://localhost"),
        ] {
            let expected = if is_trusted { expected } else { own.as_str() };
            assert_eq!(link(headers), expected, "{headers:?}");
        }
    }
}

/// Goal: a page tells nobody the names of what the key may not read.
#[test]
fn names_on_pages_are_those_that_the_key_may_read() {
    let server = TestServer::start();
    let event = json!({"event": "$groupidentify", "distinct_id": "a", "properties":
        {"$group_type": "secret-group", "$group_key": "x"}});
    // Of events and of persons, since some pages suggest those of persons alone.
    let seen = json!({"event": "seen", "distinct_id": "a", "properties":
        {"secret-property": 1, "$set": {"secret-property": 1}}});
    assert_eq!(server.capture(&json!([event, seen])).status, 200);
    server.post("/api/projects/1/event_definitions/", &json!({"name": "secret-event"})).created();
    server.post("/api/projects/", &json!({"name": "secret-project"})).created();
    let board = json!({"name": "secret-board", "pinned": true});
    let board = server.post("/api/projects/1/dashboards/", &board).created();
    let query = json!({"kind": "HogQLQuery", "query": "SELECT 1"});
    let insight =
        json!({"name": "secret-insight", "favorited": true, "saved": true, "query": query});
    server.post("/api/projects/1/insights/", &insight).created();
    let defined = patiently(|| {
        let found = server.get("/api/projects/1/property_definitions/").to_string();
        found.contains("secret-property").then_some(())
    });
    defined.expect("a definition");
    // The page, the scopes that it needs, and the names that it has with which other ones.
    let edit = format!("dashboard/{}/edit", board["id"]);
    let all = [
        ("secret-event", "event_definition:read"),
        ("secret-property", "property_definition:read"),
        ("secret-group", "group:read"),
        ("secret-board", "dashboard:read"),
        ("secret-insight", "insight:read"),
        ("secret-project", "project:read"),
    ];
    for (path, needed, shown) in [
        ("home", &["query:read"][..], &["secret-board", "secret-insight", "secret-project"][..]),
        (
            "insights/trends?events=%24pageview",
            &["insight:read"],
            &["secret-event", "secret-property", "secret-project"],
        ),
        (
            "insights/trends?nothing=1",
            &["insight:read"],
            &["secret-event", "secret-property", "secret-project"],
        ),
        (
            "sql?q=SELECT%201",
            &["query:read", "insight:write"],
            &["secret-event", "secret-board", "secret-project"],
        ),
        (&edit, &["dashboard:write"], &["secret-property", "secret-insight", "secret-project"]),
        ("feature_flags/new", &["feature_flag:write"], &["secret-property", "secret-project"]),
        ("cohorts/new", &["cohort:write"], &["secret-property", "secret-project"]),
    ] {
        let grants = |scope: &str| {
            let read = |own: &&str| *own == scope || own.replace(":write", ":read") == scope;
            needed.iter().any(read)
        };
        let page = text(&get(&server, &key_with(&server, needed), &format!("/project/1/{path}")));
        for (name, scope) in all {
            assert!(!page.contains(name) || grants(scope), "{path} without {scope}: {name}");
        }
        let scopes = [needed, &all.map(|(_, scope)| scope)].concat();
        let page = text(&get(&server, &key_with(&server, &scopes), &format!("/project/1/{path}")));
        for name in shown {
            assert!(page.contains(name), "{path}: {name} in {page}");
        }
    }
}

#[test]
fn changes_of_pages_are_those_of_the_api() {
    let server = TestServer::start();
    let flag = server.post("/api/projects/1/feature_flags/", &json!({"key": "beta"})).created();
    let path = format!("/project/1/feature_flags/{}", flag["id"]);
    let bearer = format!("Bearer {KEY}");
    let headers =
        [("authorization", bearer.as_str()), ("content-type", "application/x-www-form-urlencoded")];
    let active = || {
        server.get(&format!("/api/projects/1/feature_flags/{}/", flag["id"])).json()["active"]
            .clone()
    };
    assert_eq!(active(), true);
    assert_eq!(server.send("POST", &path, &headers, "active=false").status, 303);
    assert_eq!(active(), false);
    let tested = get(&server, KEY, &format!("{path}?distinct_id=somebody"));
    assert!(text(&tested).contains("disabled"), "{tested}");
    let made = server.send(
        "POST",
        "/project/1/settings/keys",
        &headers,
        "label=mine&scopes=person%3Aread",
    );
    let shown = text(&made);
    let value = shown
        .split("id=\"new-key\">")
        .nth(1)
        .and_then(|rest| rest.split('<').next())
        .expect("a key");
    assert_eq!(get(&server, value, "/project/1/persons").status, 200);
    assert_eq!(get(&server, value, "/project/1/sql").status, 403);
    let refused =
        server.send("POST", "/project/1/settings/keys", &headers, "label=&scopes=nonsense");
    assert_eq!(refused.status, 400, "{refused}");
}

#[test]
fn answers_come_as_files_too_and_numbers_are_those_of_the_api() {
    let server = TestServer::start();
    let events: Vec<Value> =
        (0..7).map(|at| json!({"event": "seen", "distinct_id": format!("p{at}")})).collect();
    server.capture(&Value::from(events));
    assert_eq!(server.count("SELECT count(*) FROM events"), 7);
    let home = text(&get(&server, KEY, "/project/1/home"));
    assert!(home.contains("<div class=\"figure\">7</div>"), "{home}");
    let persons = text(&get(&server, KEY, "/project/1/persons"));
    assert!(persons.contains("7 persons"), "{persons}");
    let sql = "/project/1/sql?q=SELECT+count(*)+AS+n+FROM+events";
    assert!(text(&get(&server, KEY, sql)).contains("<td class=\"number\">7</td>"));
    for (path, media_type, begin) in [
        (format!("{sql}&format=csv"), "text/csv", "n\n7"),
        (format!("{sql}&format=json"), "application/x-ndjson", "{\"n\":7}"),
        (format!("{sql}&format=parquet"), "application/vnd.apache.parquet", "PAR1"),
        ("/project/1/activity/explore?format=csv&event=seen".to_owned(), "text/csv", ""),
        ("/project/1/persons?format=json".to_owned(), "application/json", "[{"),
    ] {
        let file = get(&server, KEY, &path);
        assert_eq!(file.status, 200, "{path}: {file}");
        assert!(
            file.header("content-type").is_some_and(|of| of.starts_with(media_type)),
            "{path}: {file}"
        );
        assert!(
            file.header("content-disposition").is_some_and(|of| of.starts_with("attachment")),
            "{path}"
        );
        assert!(file.body.starts_with(begin.as_bytes()), "{path}: {file}");
    }
    let wrong = text(&get(&server, KEY, "/project/1/sql?q=SELECT+nothing+FROM+nowhere"));
    assert!(wrong.contains("class=\"problem\""), "{wrong}");
    let plan = text(&get(&server, KEY, "/project/1/sql?q=SELECT+1&explain=1"));
    assert!(plan.contains("Plan"), "{plan}");
}

#[test]
fn files_of_the_page_never_expire() {
    let server = TestServer::start();
    let page = text(&server.send("GET", "/login", &[], ""));
    let paths: Vec<&str> = page.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert!(paths.len() >= 3, "{page}");
    for path in paths {
        let plain = server.send("GET", path, &[], "");
        assert_eq!(plain.status, 200, "{path}");
        assert!(
            plain.header("cache-control").is_some_and(|of| of.contains("immutable")),
            "{plain}"
        );
        let small = server.send("GET", path, &[("accept-encoding", "gzip")], "");
        assert_eq!(small.header("content-encoding"), Some("gzip"), "{path}");
        assert!(small.body.len() < plain.body.len(), "{path}");
    }
    assert_eq!(server.send("GET", "/assets/weir.css", &[], "").status, 404);
}
