//! `/`: the landing page for browsers, programs and proxies.

use crate::harness::KEY;
use crate::harness::TOKEN;
use crate::harness::TestServer;

#[test]
fn the_root_says_what_this_is_to_each_in_its_form() {
    let server = TestServer::start();
    let get = |accept: &str| {
        let answer = server.send("GET", "/", &[("accept", accept)], "");
        assert_eq!(answer.status, 200, "{accept}: {answer}");
        assert!(answer.header("vary").is_some_and(|vary| vary.contains("accept")), "{accept}");
        answer
    };
    let page = get("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let text = String::from_utf8(page.body).expect("UTF-8");
    let version = env!("CARGO_PKG_VERSION");
    for part in
        [&format!("Weir {version}"), "It takes events.", "/api/schema/", "/capture/", &server.url()]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Nothing secret, and nothing from elsewhere.
    for part in [TOKEN, KEY, "<script", "src=", "href=\"http", "@import", "url("] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    let json = get("application/json").json();
    assert_eq!((&json["name"], &json["version"]), (&"weir".into(), &version.into()));
    assert_eq!((&json["ready"], &json["schema"]), (&true.into(), &"/api/schema/".into()));
    for accept in ["*/*", "text/plain"] {
        let word = get(accept);
        assert_eq!(word.body, b"capture", "what proxies of SDKs look for");
    }
    assert_eq!(server.send("GET", "/", &[], "").body, b"capture");
    let unready = TestServer::start_unready_with(&[("WEIR_DISK_FREE_MIN_BYTES", "1EiB")]);
    let look = || {
        let answer = unready.send("GET", "/", &[("accept", "application/json")], "").json();
        (answer["ready"] == false).then_some(answer)
    };
    let answer = crate::harness::patiently(look).expect("the disk is looked at");
    assert_eq!(answer["reason"], "the disk is nearly full");
}
