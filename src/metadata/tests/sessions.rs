//! Sign-ins: links work once and for a quarter of an hour, sessions until they are not used for a month.

use super::*;
use crate::accounts::{Grant, PersonalKey};
use crate::members::{Level, NewMember};
use crate::sessions::{LINK_LIFE, SESSION_LIFE};
use crate::standing::Standing;

/// Adds the same member each time; returns it with its key.
async fn add(bench: &Bench, number: u64) -> (UserId, Arc<PersonalKey>) {
    let (email, first_name) = ("mel@acme.com".to_owned(), "Mel".to_owned());
    let new = NewMember { first_name, email, level: Level::Admin };
    let added = bench.metadata.add_member(USER, new, Grant::default(), &seed(number)).await;
    let (user, made) = added.expect("a member");
    (user.id, made.key)
}

#[tokio::test]
async fn a_link_works_once_and_not_for_long() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let link = metadata.create_sign_in_link(USER, &seed(1)).await.unwrap();
    let late = metadata.create_sign_in_link(USER, &seed(2)).await.unwrap();
    let cookie = metadata.use_sign_in_link(&link, "a browser", &seed(3)).await.unwrap().unwrap();
    assert_eq!(metadata.use_sign_in_link(&link, "", &seed(4)).await.unwrap(), None, "again");
    assert_eq!(metadata.use_sign_in_link("", "", &seed(4)).await.unwrap(), None, "another");
    let session = metadata.session(&cookie).await.unwrap().unwrap();
    assert_eq!((session.user, session.key, &*session.client), (USER, None, "a browser"));
    bench.clock.advance(LINK_LIFE);
    assert_eq!(metadata.use_sign_in_link(&late, "", &seed(5)).await.unwrap(), None, "late");
    assert!(metadata.create_sign_in_link(UserId(77), &seed(6)).await.is_err());
}

#[tokio::test]
async fn a_session_slides_and_ends() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let made = metadata.create_key(USER, "k", Grant::default(), &seed(11)).await.unwrap();
    let begin = |number| {
        let (metadata, key) = (metadata.clone(), made.key.id);
        async move { metadata.create_session(key, "x", &seed(number)).await.unwrap() }
    };
    let (used, unused, ended) = (begin(2).await, begin(3).await, begin(4).await);
    let ended_id = metadata.session(&ended).await.unwrap().unwrap().id;
    assert!(metadata.end_session(UserId(77), ended_id).await.is_err(), "of another user");
    metadata.end_session(USER, ended_id).await.unwrap();
    assert!(metadata.end_session(USER, ended_id).await.is_err(), "twice");
    assert_eq!(metadata.session(&ended).await.unwrap(), None);
    bench.clock.advance(SESSION_LIFE - Duration::from_secs(1));
    let session = metadata.session(&used).await.unwrap().unwrap();
    assert_eq!(session.key, Some(made.key.id));
    metadata.record_session_use(&session).await.unwrap();
    bench.clock.advance(Duration::from_secs(1));
    assert_eq!(metadata.session(&unused).await.unwrap(), None);
    assert!(metadata.session(&used).await.unwrap().is_some());
    let ids: Vec<i64> = metadata.sessions(USER).await.unwrap().iter().map(|own| own.id).collect();
    assert_eq!(ids, [session.id]);
    let next = begin(5).await;
    assert!(metadata.session(&next).await.unwrap().unwrap().id > ended_id, "ids are not reused");
}

/// Goal: nothing with which a removed user could sign in works again when the user is added again, also where an older
/// version left it.
#[tokio::test]
async fn who_was_removed_has_signed_in_nowhere() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let (mel, key) = add(&bench, 20).await;
    let sign_in = async |number: u64| {
        let link = metadata.create_sign_in_link(mel, &seed(number)).await.unwrap();
        metadata.use_sign_in_link(&link, "x", &seed(number + 1)).await.unwrap().unwrap()
    };
    let by_link = sign_in(30).await;
    let by_key = metadata.create_session(key.id, "x", &seed(32)).await.unwrap();
    let unused = metadata.create_sign_in_link(mel, &seed(33)).await.unwrap();
    let link = metadata.create_sign_in_link(USER, &seed(34)).await.unwrap();
    let others = metadata.use_sign_in_link(&link, "x", &seed(35)).await.unwrap().unwrap();
    let is_there = async |cookie: &str| metadata.session(cookie).await.unwrap().is_some();
    assert!(is_there(&by_link).await && is_there(&by_key).await);
    metadata.remove_member(USER, mel).await.unwrap();
    assert!(!is_there(&by_link).await && !is_there(&by_key).await);
    assert!(metadata.sessions(mel).await.unwrap().is_empty());
    assert_eq!(add(&bench, 40).await.0, mel, "who comes back is the same");
    assert!(!is_there(&by_link).await && !is_there(&by_key).await);
    assert_eq!(metadata.use_sign_in_link(&unused, "", &seed(41)).await.unwrap(), None);
    assert!(is_there(&others).await, "of another user");
    // As a store was that an older version wrote.
    let late = sign_in(42).await;
    metadata.remove_member(USER, mel).await.unwrap();
    bench.run("UPDATE sessions SET ended_at = NULL").await;
    add(&bench, 50).await;
    assert!(!is_there(&late).await && !is_there(&by_link).await);
    assert!(is_there(&others).await);
}

#[tokio::test]
async fn a_standing_ends_with_what_it_is_by() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let (mel, _) = add(&bench, 20).await;
    let key = async |number: u64| {
        let made = metadata.create_key(mel, "k", Grant::default(), &seed(number)).await;
        made.unwrap().key
    };
    let (first, second) = (key(60).await, key(61).await);
    let session = async |key: &PersonalKey, number: u64| {
        let cookie = metadata.create_session(key.id, "x", &seed(number)).await.unwrap();
        metadata.session(&cookie).await.unwrap().unwrap()
    };
    let (by_first, out) = (session(&first, 70).await, session(&second, 71).await);
    let link = metadata.create_sign_in_link(mel, &seed(72)).await.unwrap();
    let by_link = metadata.use_sign_in_link(&link, "x", &seed(73)).await.unwrap().unwrap();
    let by_link = metadata.session(&by_link).await.unwrap().unwrap();
    let project = Arc::clone(metadata.snapshot().project(PROJECT).unwrap());
    let all = [
        Standing::of(metadata, &first, None),
        Standing::of(metadata, &second, None),
        Standing::of(metadata, &first, Some(&by_first)),
        Standing::of(metadata, &second, Some(&out)),
        Standing::of(metadata, &first, Some(&by_link)),
        Standing::of_token(metadata, PROJECT, &project.token),
    ];
    let last = async || {
        let mut last = Vec::new();
        for standing in &all {
            last.push(standing.lasts().await);
        }
        last
    };
    assert_eq!(last().await, [true; 6]);
    metadata.end_session(mel, out.id).await.unwrap();
    assert_eq!(last().await, [true, true, true, false, true, true]);
    metadata.revoke_key(first.id).await.unwrap();
    // A session of a link has the rights of its user, whichever key stands for them.
    assert_eq!(last().await, [false, true, false, false, true, true]);
    metadata.rotate_token(PROJECT, &seed(80)).await.unwrap();
    assert_eq!(last().await, [false, true, false, false, true, false]);
    // By another process.
    let other = bench.other().await;
    other.remove_member(USER, mel).await.unwrap();
    metadata.refresh().await.unwrap();
    assert_eq!(last().await, [false; 6]);
    other.close().await;
}
