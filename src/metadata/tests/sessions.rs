//! Sign-ins: links work once and for a quarter of an hour, sessions until they are not used for a month.

use super::*;
use crate::metadata::accounts::Grant;
use crate::metadata::sessions::LINK_LIFE;
use crate::metadata::sessions::SESSION_LIFE;

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
