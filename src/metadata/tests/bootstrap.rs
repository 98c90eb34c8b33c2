//! Bootstrap of a store, and the operator's settings at every start.

use super::*;
use crate::accounts::KeyId;
use crate::bootstrap::Started;

#[tokio::test]
async fn the_first_start_creates_what_is_needed_to_begin() {
    let bench = Bench::empty().await;
    let started = bench.metadata.bootstrap(FirstStart::default(), &seed(1)).await.expect("start");
    let Started { project, user, personal_key } = started;
    let value = personal_key.expect("shown once");
    assert_eq!(project.id, PROJECT);
    assert_eq!(project.organization, user.organization);
    assert_eq!(user.current_project, Some(PROJECT));
    assert!(project.token.starts_with("phc_") && project.token.len() == 47, "{}", project.token);
    assert!(value.starts_with("phx_") && value.len() == 47);
    let snapshot = bench.metadata.snapshot();
    assert_eq!(snapshot.project_by_token(&project.token), Some(&project));
    assert_eq!(snapshot.project_by_token("phc_other"), None);
    let key = snapshot.key_by_value(&value).expect("key");
    assert_eq!((key.user.as_ref(), &key.scopes), (user.as_ref(), &None));
    assert_eq!(key.mask, format!("phx_...{}", &value[43..]));
    assert_eq!(snapshot.key_by_value(&project.token), None);
    bench.check_snapshot().await;

    let again = bench.metadata.bootstrap(FirstStart::default(), &seed(2)).await.expect("start");
    assert_eq!((again.project, again.user, again.personal_key), (project, user, None));
    assert_eq!(bench.metadata.snapshot(), snapshot);
}

#[tokio::test]
async fn no_clear_key_is_stored() {
    let bench = Bench::at(Backend::file()).await;
    let started = bench.metadata.bootstrap(FirstStart::default(), &seed(1)).await.expect("start");
    let value = started.personal_key.expect("key");
    bench.metadata.close().await;
    for entry in std::fs::read_dir(bench.place.path().parent().expect("a directory")).expect("list")
    {
        let bytes = std::fs::read(entry.expect("entry").path()).expect("read");
        let is_there = bytes.windows(value.len()).any(|window| window == value.as_bytes());
        assert!(!is_there, "a clear key on disk");
    }
}

const TOKEN: &str = "phc_a_123456";
const KEYS: [&str; 2] = ["phx_a_0123456789abcdef0123456789", "phx_b_0123456789abcdef0123456789"];

#[tokio::test]
async fn settings_fix_token_and_key() {
    let bench = Bench::empty().await;
    let fixed = |token: &str, key: &str| FirstStart {
        project_token: Some(token.to_owned()),
        personal_key: Some(key.to_owned()),
    };
    let start = async |settings: FirstStart| {
        bench.metadata.bootstrap(settings, &seed(1)).await.expect("start")
    };
    let works = |value: &str| bench.metadata.snapshot().key_by_value(value).is_some();

    let started = start(fixed(TOKEN, KEYS[0])).await;
    assert_eq!(started.personal_key.as_deref(), Some(KEYS[0]));
    assert_eq!(started.project.token, TOKEN);
    assert!(works(KEYS[0]));
    let made = bench.metadata.create_key(USER, "made", None, &seed(7)).await.expect("create");

    // Another key replaces the one from settings, and nothing else.
    let started = start(fixed(TOKEN, KEYS[1])).await;
    assert_eq!(started.personal_key, None);
    assert_eq!(started.project.token, TOKEN);
    assert!(!works(KEYS[0]) && works(KEYS[1]) && works(&made.value));

    // The same settings change nothing, and neither do no settings.
    let before = bench.metadata.snapshot();
    start(fixed(TOKEN, KEYS[1])).await;
    start(FirstStart::default()).await;
    assert_eq!(bench.metadata.snapshot(), before);

    // The value of a revoked key gets a new id.
    let ids = || bench.metadata.list_keys().iter().map(|key| key.id).collect::<Vec<_>>();
    assert_eq!(ids(), [KeyId(2), KeyId(3)]);
    start(fixed(TOKEN, KEYS[0])).await;
    assert_eq!(ids(), [KeyId(2), KeyId(4)]);
    assert!(works(KEYS[0]) && !works(KEYS[1]));

    // A key that does not come from settings stays unchanged.
    start(fixed(TOKEN, &made.value)).await;
    assert_eq!(ids(), [KeyId(2)]);
    bench.check_snapshot().await;
}

#[tokio::test]
async fn settings_that_cannot_be_used_change_nothing() {
    let bench = Bench::started().await;
    let second = bench
        .metadata
        .create_project(USER, "Second", ProjectPatch::default(), &seed(2))
        .await
        .expect("create");
    let before = bench.metadata.snapshot();
    for (token, key, expected) in [
        (Some(""), None, Kind::Invalid),
        (Some("phx_mixed-up"), None, Kind::Invalid),
        (Some("phc_good_token"), Some(""), Kind::Invalid),
        (Some("phc_short"), None, Kind::Invalid),
        (None, Some("phx_short"), Kind::Invalid),
        // Clients send with the stored token.
        (Some("phc_other_token"), None, Kind::Invalid),
        (Some(second.token.as_str()), Some(KEYS[1]), Kind::Invalid),
    ] {
        let settings = FirstStart {
            project_token: token.map(str::to_owned),
            personal_key: key.map(str::to_owned),
        };
        assert_eq!(kind(bench.metadata.bootstrap(settings, &seed(3)).await), expected);
    }
    assert_eq!(bench.metadata.snapshot(), before);
    bench.check_snapshot().await;
}
