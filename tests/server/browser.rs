//! Requirements of browsers besides capture: settings, scripts, lists, and headers that let a page
//! of another origin read every response. Expectations are those of posthog-js and of the Fetch
//! standard; the SDK in a real browser is tested elsewhere.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Answer, TOKEN, TestServer, patiently};

const ORIGIN: &str = "https://shop.example";

fn get(server: &TestServer, path: &str) -> Answer {
    server.send("GET", path, &[("origin", ORIGIN)], "")
}

/// Every path with its method, body and status, on a server with one flag and no scripts.
#[test]
fn every_public_answer_can_be_read_by_pages_of_other_origins() {
    let server = TestServer::start();
    let event = json!({"api_key": TOKEN, "event": "e", "distinct_id": "d"}).to_string();
    let start = format!("/array/{TOKEN}");
    let with_token = |path: &str| format!("{path}?token={TOKEN}");
    for (method, path, body, status) in [
        ("POST", "/e/", &event, 200),
        ("POST", "/i/v0/e/", &event, 200),
        ("POST", "/batch/", &event, 200),
        ("POST", "/capture/", &"{".to_owned(), 400),
        ("POST", "/e/", &json!({"api_key": "phc_no", "event": "e"}).to_string(), 401),
        ("POST", "/flags/?v=2", &event, 200),
        ("POST", "/flags?v=2", &event, 200),
        ("POST", "/flags/?v=2", &"{".to_owned(), 400),
        ("POST", "/flags/?v=2", &json!({"api_key": "phc_no", "distinct_id": "d"}).to_string(), 401),
        ("POST", "/flags/?v=2", &json!({"distinct_id": "d"}).to_string(), 401),
        ("POST", "/flags/?v=2", &json!({"api_key": TOKEN}).to_string(), 400),
        ("POST", "/flags/?v=2", &" ".repeat((2 << 20) + 1), 413),
        ("GET", "/flags/", &String::new(), 200),
        ("HEAD", "/flags/", &String::new(), 200),
        ("OPTIONS", "/flags/", &String::new(), 200),
        ("PUT", "/flags/", &String::new(), 405),
        ("POST", "/decide/?v=3", &event, 200),
        ("GET", "/decide/", &String::new(), 200),
        ("DELETE", "/decide/", &String::new(), 405),
        ("GET", &format!("{start}/config"), &String::new(), 200),
        ("HEAD", &format!("{start}/config"), &String::new(), 200),
        ("GET", &format!("{start}/config/"), &String::new(), 200),
        ("GET", &format!("{start}/config.js"), &String::new(), 200),
        ("GET", &format!("{start}/array.js"), &String::new(), 404),
        ("GET", "/array/phc_no/config", &String::new(), 404),
        ("GET", "/array/phc_no/config.js", &String::new(), 404),
        ("POST", &format!("{start}/config"), &String::new(), 405),
        ("GET", "/static/array.js", &String::new(), 404),
        ("GET", "/static/../metadata.db", &String::new(), 404),
        ("GET", &with_token("/api/surveys/"), &String::new(), 200),
        ("GET", &with_token("/api/surveys"), &String::new(), 200),
        ("GET", &with_token("/api/early_access_features/"), &String::new(), 200),
        ("GET", &with_token("/api/web_experiments/"), &String::new(), 200),
        ("GET", &with_token("/api/product_tours/"), &String::new(), 200),
        ("GET", "/api/surveys/", &String::new(), 401),
        ("GET", "/api/surveys/?token=phc_no", &String::new(), 401),
        ("POST", "/api/surveys/", &String::new(), 405),
        ("GET", "/_readiness", &String::new(), 200),
        ("GET", "/nothing/here", &String::new(), 404),
    ] {
        let answer = server.send(method, path, &[("origin", ORIGIN)], body);
        assert_eq!(answer.status, status, "{method} {path}: {answer}");
        let header = |name| answer.header(name);
        assert_eq!(header("access-control-allow-origin"), Some(ORIGIN), "{method} {path}");
        assert_eq!(header("access-control-allow-credentials"), Some("true"), "{method} {path}");
        let readable = header("access-control-expose-headers").expect("names");
        assert!(readable.contains("etag") && readable.contains("retry-after"), "{readable}");
        assert!(header("vary").is_some_and(|vary| vary.contains("origin")), "{method} {path}");
        if status >= 400 {
            let problem = answer.json();
            assert!(problem["type"].is_string() && problem["code"].is_string(), "{problem}");
            assert!(problem["detail"].as_str().is_some_and(|text| !text.is_empty()), "{problem}");
        }
    }
}

#[test]
fn preflights_are_allowed_everywhere() {
    let server = TestServer::start();
    let config = format!("/array/{TOKEN}/config");
    for path in ["/flags/?v=2", "/decide/?v=3", "/e/", "/i/v0/e/", "/batch/", &config, "/nothing"] {
        let asked = [
            ("origin", ORIGIN),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "content-type,x-mine"),
        ];
        let answer = server.send("OPTIONS", path, &asked, "");
        assert_eq!(answer.status, 200, "{path}: browsers take any 2xx and no redirect");
        assert_eq!(answer.header("access-control-allow-origin"), Some(ORIGIN), "{path}");
        assert_eq!(answer.header("access-control-allow-methods"), Some("POST"), "{path}");
        let headers = answer.header("access-control-allow-headers");
        assert_eq!(headers, Some("content-type,x-mine"), "{path}");
    }
}

fn create_flag(server: &TestServer, flag: &Value) {
    let answer = server.post("/api/projects/1/feature_flags/", flag);
    assert_eq!(answer.status, 201, "{answer}");
}

#[test]
fn the_settings_follow_the_flags_of_the_project_and_are_the_same_everywhere() {
    let server = TestServer::start();
    let path = format!("/array/{TOKEN}/config");
    let config = get(&server, &path);
    assert_eq!(config.header("content-type"), Some("application/json"));
    assert!(config.header("cache-control").is_some_and(|cache| cache.contains("max-age")));
    let tag = config.header("etag").expect("a tag").to_owned();
    assert_eq!(config.json()["hasFeatureFlags"], false);
    assert_eq!(config.json()["token"], TOKEN);

    let again = server.send("GET", &path, &[("if-none-match", &tag)], "");
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert_eq!(again.header("etag"), Some(&*tag));

    let filters = json!({"groups": [{"properties": [], "rollout_percentage": 100}]});
    create_flag(&server, &json!({"key": "on", "filters": filters}));
    let config = server.send("GET", &path, &[("if-none-match", &tag)], "");
    assert_eq!(config.status, 200, "the settings changed");
    let config = config.json();
    assert_eq!(config["hasFeatureFlags"], true);

    let script = get(&server, &format!("{path}.js"));
    assert!(script.header("content-type").is_some_and(|kind| kind.contains("javascript")));
    let text = String::from_utf8(script.body).expect("UTF-8");
    let begin = format!("window._POSTHOG_REMOTE_CONFIG[\"{TOKEN}\"] = {{config: ");
    let (_, rest) = text.split_once(&begin).expect("the global of posthog-js");
    let (json, _) = rest.split_once(", siteApps: []}").expect("site apps");
    assert_eq!(serde_json::from_str::<Value>(json).expect("JSON"), config);

    let asked = json!({"api_key": TOKEN, "distinct_id": "d"}).to_string();
    for (method, path) in [
        ("POST", "/flags/?v=2&config=true".to_owned()),
        ("POST", "/flags/".to_owned()),
        ("POST", "/decide/?v=3".to_owned()),
        ("GET", format!("/flags/?token={TOKEN}")),
        ("GET", format!("/decide/?token={TOKEN}")),
    ] {
        let body = if method == "POST" { &*asked } else { "" };
        let answer = server.send(method, &path, &[], body).json();
        for (key, value) in config.as_object().expect("an object") {
            // `/decide` is also for SDKs that compress in another way.
            let differs =
                key == "token" || path.contains("decide") && key == "supportedCompression";
            assert!(differs || &answer[key] == value, "{method} {path}: {key}: {answer}");
        }
    }
}

#[test]
fn flags_without_a_subject_are_none() {
    let server = TestServer::start();
    let filters = json!({"groups": [{"properties": [], "rollout_percentage": 100}]});
    create_flag(&server, &json!({"key": "on", "filters": filters}));
    for (path, flags) in [
        ("/flags", ("flags", json!({}))),
        ("/flags/?v=2", ("flags", json!({}))),
        ("/flags/?v=1", ("featureFlags", json!({}))),
        ("/decide/?v=3", ("featureFlags", json!({}))),
        ("/decide", ("featureFlags", json!([]))),
    ] {
        let answer = get(&server, path);
        assert_eq!(answer.status, 200, "{path}: {answer}");
        let answer = answer.json();
        assert_eq!(answer[flags.0], flags.1, "{path}: {answer}");
        assert_eq!(answer["errorsWhileComputingFlags"], false, "{path}");
        assert_eq!(answer["config"], json!({"enable_collect_everything": true}), "{path}");
        assert_eq!(answer["sessionRecording"], false, "{path}");
        let compression = answer["supportedCompression"].as_array().expect("a list");
        assert!(compression.contains(&json!("gzip-js")), "{path}");
    }
    let head = server.send("HEAD", "/flags/", &[], "");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn lists_are_empty_but_for_flags_that_people_may_enrol_in() {
    let server = TestServer::start();
    for (path, key) in [
        ("surveys", "surveys"),
        ("early_access_features", "earlyAccessFeatures"),
        ("web_experiments", "experiments"),
        ("product_tours", "product_tours"),
    ] {
        let answer = get(&server, &format!("/api/{path}/?token={TOKEN}&_=1700000000000"));
        assert_eq!(answer.json(), json!({ key: [] }), "{path}");
        for query in ["", "?token=", "?token=phc_no"] {
            let answer = get(&server, &format!("/api/{path}/{query}"));
            assert_eq!(answer.status, 401, "{path}{query}");
            assert_eq!(answer.json()["code"], "invalid_api_key", "{path}{query}");
        }
    }
    let groups = json!([{"properties": [], "rollout_percentage": 0}]);
    let filters = json!({"groups": groups, "feature_enrollment": true});
    let flag = json!({"key": "new-editor", "name": "An editor", "filters": filters});
    create_flag(&server, &flag);
    create_flag(&server, &json!({"key": "plain", "filters": {"groups": groups}}));
    let off = json!({"key": "off", "active": false, "filters": filters});
    create_flag(&server, &off);
    let path = format!("/api/early_access_features/?token={TOKEN}");
    let features = get(&server, &path).json();
    let features = features["earlyAccessFeatures"].as_array().expect("a list").clone();
    assert_eq!(features.len(), 1, "{features:?}");
    assert_eq!(features[0]["flagKey"], "new-editor");
    assert_eq!(features[0]["description"], "An editor");
    for (stage, expected) in
        [("&stage=beta", 1), ("&stage=alpha&stage=beta", 1), ("&stage=alpha", 0)]
    {
        let features = get(&server, &format!("{path}{stage}")).json();
        let features = features["earlyAccessFeatures"].as_array().expect("a list").len();
        assert_eq!(features, expected, "{stage}");
    }
    // What the SDK does when somebody enrols.
    let event = json!([{"event": "$feature_enrollment_update", "distinct_id": "ada", "properties": {
        "$feature_flag": "new-editor", "$feature_enrollment": true,
        "$set": {"$feature_enrollment/new-editor": true},
    }}]);
    assert_eq!(server.capture(&event).status, 200);
    for (who, enabled) in [("ada", true), ("bob", false)] {
        let asked = json!({"api_key": TOKEN, "distinct_id": who}).to_string();
        let answer = server.send("POST", "/flags/?v=2", &[], asked).json();
        assert_eq!(answer["flags"]["new-editor"]["enabled"], enabled, "{who}");
    }
}

/// A directory as `npm pack posthog-js` creates it, next to a file that must not be served.
fn scripts() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let put = |path: &str, text: &str| {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(path, text).expect("a file");
    };
    put("dist/array.js", "window.posthog = 'sdk';\n");
    put("dist/array.js.map", "{\"version\":3}");
    put("dist/recorder.js", &"// long\n".repeat(100_000));
    put("dist/1.2.3/recorder.js", "// of 1.2.3\n");
    put("dist/module.d.ts", "types");
    put("dist/folder.js/inner.js", "inner");
    put("secret.js", "secret");
    directory
}

fn serving(directory: &Path) -> TestServer {
    let path = directory.join("dist");
    TestServer::start_with(&[("WEIR_STATIC_DIR", path.to_str().expect("UTF-8"))])
}

#[test]
fn scripts_of_the_directory_are_served_and_nothing_else() {
    let directory = scripts();
    let server = serving(directory.path());
    let long = "// long\n".repeat(100_000);
    for (path, kind, cache, body) in [
        ("/static/array.js", "javascript", "max-age=300", "window.posthog = 'sdk';\n"),
        ("/static/array.js?v=1.2.3", "javascript", "max-age=300", "window.posthog = 'sdk';\n"),
        ("/static/array.js.map", "json", "max-age=300", "{\"version\":3}"),
        ("/static/recorder.js", "javascript", "max-age=300", &long),
        ("/static/1.2.3/recorder.js", "javascript", "immutable", "// of 1.2.3\n"),
        ("/static/9.9.9/recorder.js", "javascript", "max-age=300", &long),
    ] {
        let answer = get(&server, path);
        assert_eq!(answer.status, 200, "{path}: {answer}");
        assert!(answer.header("content-type").is_some_and(|found| found.contains(kind)), "{path}");
        let found = answer.header("cache-control").expect("a header");
        assert!(found.contains(cache), "{path}: {found}");
        let length = body.len().to_string();
        assert_eq!(answer.header("content-length"), Some(&*length), "{path}");
        assert_eq!(answer.body, body.as_bytes(), "{path}");
        let tag = answer.header("etag").expect("a tag");
        for method in ["GET", "HEAD"] {
            let again = server.send(method, path, &[("if-none-match", tag)], "");
            assert_eq!((again.status, again.body.len()), (304, 0), "{method} {path}");
        }
        let head = server.send("HEAD", path, &[], "");
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-length"), Some(&*length), "{path}");
    }
    for path in [
        "/static/",
        "/static/nothing.js",
        "/static/module.d.ts",
        "/static/folder.js",
        "/static/a/folder.js/inner.js",
        "/static/../secret.js",
        "/static/1.2.3/../../secret.js",
        "/static/%2e%2e/secret.js",
        "/static/..%2fsecret.js",
        "/static/..%5csecret.js",
        "/static//etc/passwd.js",
        "/static/array.js%00",
    ] {
        let answer = get(&server, path);
        assert_eq!(answer.status, 404, "{path}: {answer}");
        assert_eq!(answer.json()["code"], "not_found", "{path}");
    }
}

#[test]
fn a_changed_script_has_another_tag() {
    let directory = scripts();
    let server = serving(directory.path());
    let tag = |path: &str| get(&server, path).header("etag").expect("a tag").to_owned();
    let before = tag("/static/array.js");
    std::fs::write(directory.path().join("dist/array.js"), "window.posthog = 'new';\n").unwrap();
    assert_ne!(tag("/static/array.js"), before);
    let answer = server.send("GET", "/static/array.js", &[("if-none-match", &before)], "");
    assert_eq!(answer.body, b"window.posthog = 'new';\n");
}

#[test]
fn the_script_of_a_project_is_its_settings_and_the_sdk() {
    let directory = scripts();
    let server = serving(directory.path());
    let path = format!("/array/{TOKEN}/array.js");
    let answer = get(&server, &path);
    let config = get(&server, &format!("/array/{TOKEN}/config.js"));
    assert_eq!(answer.body, [&config.body[..], b"window.posthog = 'sdk';\n"].concat());
    let tag = answer.header("etag").expect("a tag").to_owned();
    assert_eq!(server.send("GET", &path, &[("if-none-match", &tag)], "").status, 304);
    create_flag(&server, &json!({"key": "on", "filters": {"groups": [{"properties": []}]}}));
    assert_eq!(server.send("GET", &path, &[("if-none-match", &tag)], "").status, 200);
    assert_eq!(get(&server, "/array/phc_no/array.js").status, 404);
}

#[test]
fn without_a_directory_the_operator_is_told_what_is_missing() {
    let server = TestServer::start();
    for path in ["/static/array.js".to_owned(), format!("/array/{TOKEN}/array.js")] {
        let answer = get(&server, &path);
        assert_eq!(answer.status, 404, "{answer}");
        let detail = answer.json()["detail"].as_str().expect("a sentence").to_owned();
        assert!(detail.contains("static-dir") && detail.contains("posthog-js"), "{detail}");
    }
}

/// Events have the client address: that of the peer, or the one named by a trusted proxy.
#[test]
fn events_come_from_whom_a_trusted_proxy_names() {
    for (trusted, forwarded, expected) in [
        ("127.0.0.0/8,::1", "198.51.100.1, 203.0.113.7", "203.0.113.7"),
        ("127.0.0.1,203.0.113.7", "198.51.100.1, 203.0.113.7", "198.51.100.1"),
        ("10.0.0.0/8", "203.0.113.7", "127.0.0.1"),
        ("none", "203.0.113.7", "127.0.0.1"),
    ] {
        let server = TestServer::start_with(&[("WEIR_TRUSTED_PROXIES", trusted)]);
        let event = json!({"api_key": TOKEN, "event": "e", "distinct_id": "d"}).to_string();
        let answer = server.send("POST", "/e/", &[("x-forwarded-for", forwarded)], event);
        assert_eq!(answer.status, 200, "{answer}");
        let rows = server.query("SELECT ip FROM events");
        assert_eq!(rows, [json!({"ip": expected})], "{trusted}");
    }
}

#[test]
fn a_server_that_takes_no_events_is_not_ready() {
    let server = TestServer::start_unready_with(&[("WEIR_DISK_FREE_MIN_BYTES", "1EiB")]);
    let refused = patiently(|| {
        let answer = get(&server, "/_readiness");
        (answer.status == 503).then_some(answer)
    });
    let refused = refused.expect("the disk has less than that");
    assert_eq!(refused.json()["code"], "not_ready");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(server.capture(&json!([{"event": "e", "distinct_id": "d"}])).status, 503);
    assert_eq!(get(&server, "/_liveness").status, 200, "a restart would not help");
    assert_eq!(get(&server, &format!("/array/{TOKEN}/config")).status, 200);
}
