//! `/`: the landing page for browsers, programs and proxies.

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
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let page = server.send("GET", "/", &[("accept", browser)], "");
    assert_eq!((page.status, page.header("location")), (303, Some("/login")));
    assert!(page.header("vary").is_some_and(|vary| vary.contains("accept")), "{page}");
    let version = env!("CARGO_PKG_VERSION");
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
