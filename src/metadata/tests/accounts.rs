//! Projects and personal keys.

use super::*;

#[tokio::test]
async fn projects() {
    let bench = Bench::started().await;
    let project = bench
        .metadata
        .create_project(USER, "Shop", ProjectPatch::default(), &seed(2))
        .await
        .expect("create");
    assert_eq!((project.id, project.name.as_str()), (ProjectId(2), "Shop"));
    let patch = ProjectPatch {
        name: Some("Web shop".to_owned()),
        timezone: Some("Europe/Berlin".to_owned()),
        person_display_name_properties: Some(Some(vec!["nick".to_owned()])),
        anonymize_ips: Some(true),
        ..ProjectPatch::default()
    };
    let patched = bench.metadata.update_project(ProjectId(2), patch).await.expect("update");
    assert_eq!(patched.token, project.token);
    assert!(patched.anonymize_ips && !project.anonymize_ips);
    let snapshot = bench.metadata.snapshot();
    assert_eq!(snapshot.project(ProjectId(2)), Some(&patched));
    assert_eq!(snapshot.project_by_token(&project.token), Some(&patched));
    assert_eq!(snapshot.projects().map(|project| project.id.0).collect::<Vec<_>>(), [1, 2]);
    bench.check_snapshot().await;

    let metadata = &bench.metadata;
    assert_eq!(
        code(metadata.create_project(USER, " ", ProjectPatch::default(), &seed(3)).await),
        "blank"
    );
    let long = "n".repeat(201);
    assert_eq!(
        code(metadata.create_project(USER, &long, ProjectPatch::default(), &seed(3)).await),
        "max_length"
    );
    let nobody = metadata.create_project(UserId(9), "x", ProjectPatch::default(), &seed(3)).await;
    assert_eq!(kind(nobody), Kind::NotFound);
    let nothing = metadata.update_project(ProjectId(9), ProjectPatch::default()).await;
    assert_eq!(kind(nothing), Kind::NotFound);
}

#[tokio::test]
async fn keys_are_created_used_and_revoked() {
    let bench = Bench::started().await;
    let scopes = Some(vec!["feature_flag:read".to_owned()]);
    let created =
        bench.metadata.create_key(USER, "ci", scopes.clone(), &seed(5)).await.expect("create");
    let found = |value: &str| bench.metadata.snapshot().key_by_value(value).cloned();
    let key = found(&created.value).expect("key");
    assert_eq!((&key.scopes, key.created_at, key.last_used_at), (&scopes, START, None));
    assert_eq!(bench.metadata.list_keys().len(), 2);
    assert!(!format!("{created:?}").contains(&created.value));

    // Uses are stored once an hour at most.
    bench.metadata.record_key_use(&key).await.expect("record");
    let used = |value: &str| found(value).and_then(|key| key.last_used_at);
    assert_eq!(used(&created.value), Some(START));
    bench.clock.advance(Duration::from_mins(59));
    let key = found(&created.value).expect("key");
    bench.metadata.record_key_use(&key).await.expect("record");
    assert_eq!(used(&created.value), Some(START));
    bench.clock.advance(Duration::from_mins(1));
    bench.metadata.record_key_use(&key).await.expect("record");
    assert_eq!(used(&created.value), Some(bench.clock.now()));
    bench.check_snapshot().await;

    bench.metadata.revoke_key(key.id).await.expect("revoke");
    assert_eq!(found(&created.value), None);
    assert_eq!(kind(bench.metadata.revoke_key(key.id).await), Kind::NotFound);
    let next = bench.metadata.create_key(USER, "next", None, &seed(6)).await.expect("create");
    assert_ne!(next.key.id, key.id, "the id of a revoked key stands for it for good");
    bench.check_snapshot().await;

    assert_eq!(code(bench.metadata.create_key(USER, "", None, &seed(7)).await), "blank");
    let nobody = bench.metadata.create_key(UserId(9), "x", None, &seed(7)).await;
    assert_eq!(kind(nobody), Kind::NotFound);
}
