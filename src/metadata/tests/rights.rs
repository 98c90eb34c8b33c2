//! Rights: roles, the default of the organization, and removed users.

use super::*;
use crate::accounts::Grant;
use crate::activity::{ActivityFilter, Scope};
use crate::annotations::NotesPatch;
use crate::definitions::DefinitionPatch;
use crate::flag_rights::{CAN_EDIT, CAN_VIEW};
use crate::members::{Level, NewMember};
use crate::roles::RolePatch;
use crate::schedules::{NewSchedule, Outcome, SchedulePatch, Timing, TimingPatch};
use weir_event::predicate::Matching;

const FLAGS: &str = "feature flags";

fn role_of(name: &str, feature_flags_access_level: Option<i64>) -> RolePatch {
    RolePatch { name: Some(name.to_owned()), feature_flags_access_level }
}

fn of_level(level: i64) -> RolePatch {
    RolePatch { feature_flags_access_level: Some(level), ..RolePatch::default() }
}

impl Bench {
    async fn add(&self, email: &str, level: Level) -> UserId {
        let new = NewMember { first_name: "A".to_owned(), email: email.to_owned(), level };
        // A different seed each time, so that keys have different values.
        let now = u64::try_from(self.clock.now().0).expect("after 1970");
        let seed = seed(now + email.len() as u64);
        let added = self.metadata.add_member(USER, new, Grant::default(), &seed).await;
        added.expect("a member").0.id
    }

    /// Restricts members to viewing.
    async fn restrict(&self) {
        self.metadata.add_resource_access(USER, FLAGS, CAN_VIEW).await.expect("a default");
    }

    /// The newest entries of the log of a project: kind, verb, fields with both values.
    async fn log(&self, project: ProjectId, limit: usize) -> Vec<String> {
        let log = self
            .metadata
            .activity(project, &ActivityFilter::default(), limit, 0)
            .await
            .expect("log");
        let entries = log.entries.into_iter().map(|entry| {
            let changes = entry.detail["changes"].as_array().cloned().unwrap_or_default();
            let changes: Vec<String> = changes
                .iter()
                .map(|c| format!("{} {}>{}", c["field"], c["before"], c["after"]).replace('"', ""))
                .collect();
            format!("{} {} {}", entry.scope, entry.activity, changes.join(", ")).trim().to_owned()
        });
        entries.collect()
    }
}

fn off_in_an_hour(flag: FlagId) -> NewSchedule {
    let timing = Timing {
        scheduled_at: START.saturating_add(Duration::from_hours(1)),
        is_recurring: false,
        interval: None,
        cron: None,
        end_date: None,
    };
    NewSchedule { flag, payload: json!({"operation": "update_status", "value": false}), timing }
}

#[tokio::test]
async fn viewers_change_no_scheduled_change() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let (mel, flag) = (bench.add("mel@acme.com", Level::Member).await, bench.create("a").await);
    let new = || off_in_an_hour(flag.id);
    let own = metadata.schedule(PROJECT, mel, new()).await.expect("nothing is said yet").id;
    bench.restrict().await;
    let admins = metadata.schedule(PROJECT, USER, new()).await.expect("by an owner").id;
    assert_eq!(kind(metadata.schedule(PROJECT, mel, new()).await), Kind::Forbidden);
    assert_eq!(kind(metadata.copy_schedule(PROJECT, mel, new()).await), Kind::Forbidden);
    let timing = TimingPatch { scheduled_at: Some(START), ..TimingPatch::default() };
    let early = SchedulePatch { timing, ..SchedulePatch::default() };
    for id in [own, admins] {
        let changed = metadata.reschedule(PROJECT, mel, id, early.clone()).await;
        assert_eq!(kind(changed), Kind::Forbidden);
        assert_eq!(kind(metadata.unschedule(PROJECT, mel, id).await), Kind::Forbidden);
    }
    // The same for a deleted flag, which may be restored.
    bench.update(flag.id, FlagPatch { deleted: Some(true), ..FlagPatch::default() }).await;
    assert_eq!(kind(metadata.unschedule(PROJECT, mel, admins).await), Kind::Forbidden);
    metadata.unschedule(PROJECT, USER, admins).await.expect("taken back");
}

#[tokio::test]
async fn shared_settings_need_the_right_to_all_flags_and_are_logged() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let mel = bench.add("mel@acme.com", Level::Member).await;
    let set = |matching| metadata.set_flag_settings(PROJECT, mel, Some(matching), None);
    set(Matching::Explicit).await.expect("nothing is said yet");
    assert_eq!(bench.log(PROJECT, 1).await, ["Project updated property_matching_version 1>2"]);
    bench.restrict().await;
    let refused = set(Matching::Legacy).await;
    assert_eq!(kind(refused), Kind::Forbidden);
    assert_eq!(metadata.snapshot().matching(PROJECT), Matching::Explicit);
    // A role for one flag is not enough; one for all flags is.
    let role = metadata.create_role(USER, role_of("Some", None), &seed(2)).await.expect("a role");
    metadata.add_role_member(USER, &role.id, mel, &seed(3)).await.expect("a member");
    let flag = bench.create("a").await.id;
    metadata.grant_role(PROJECT, USER, flag, &role).await.expect("granted");
    let refused = set(Matching::Legacy).await;
    assert_eq!(kind(refused), Kind::Forbidden);
    metadata.update_role(USER, &role.id, of_level(CAN_EDIT)).await.expect("a level");
    set(Matching::Legacy).await.expect("may change all");
    bench.check_snapshot().await;
}

/// "A new role takes the organization default, else 37."
#[tokio::test]
async fn a_new_role_has_the_level_of_the_organization() {
    let bench = Bench::started().await;
    let level = async |name: &str, level, number| {
        let role = bench.metadata.create_role(USER, role_of(name, level), &seed(number)).await;
        role.expect("a role").feature_flags_access_level
    };
    assert_eq!(level("before", None, 2).await, CAN_EDIT);
    bench.restrict().await;
    assert_eq!(level("after", None, 3).await, CAN_VIEW);
    assert_eq!(level("said", Some(CAN_EDIT), 4).await, CAN_EDIT);
}

#[tokio::test]
async fn removed_users_keep_no_right_and_get_none() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let ann = bench.add("ann@acme.com", Level::Admin).await;
    bench.restrict().await;
    let role =
        metadata.create_role(USER, role_of("All", Some(CAN_EDIT)), &seed(2)).await.expect("a role");
    metadata.add_role_member(USER, &role.id, ann, &seed(3)).await.expect("a member");
    let flag = bench.create("a").await;
    metadata.schedule(PROJECT, ann, off_in_an_hour(flag.id)).await.expect("by an admin");
    metadata.remove_member(USER, ann).await.expect("removed");
    bench.check_snapshot().await;
    assert_eq!(metadata.role_members(&role.id).await.expect("read"), []);
    // Writes that were in progress at the removal.
    let key = metadata.create_key(ann, "late", None, &seed(4)).await;
    assert_eq!(kind(key), Kind::NotFound);
    let member = metadata.add_role_member(USER, &role.id, ann, &seed(5)).await;
    assert_eq!(kind(member), Kind::NotFound);
    let notes = NotesPatch { owner: Some(Some(ann)), ..NotesPatch::default() };
    let owned = DefinitionPatch { name: Some("e".to_owned()), notes, ..DefinitionPatch::default() };
    assert_eq!(code(metadata.create_definition(PROJECT, owned, USER).await), "does_not_exist");
    let update = metadata.update_flag(PROJECT, ann, flag.id, FlagPatch::default()).await;
    assert_eq!(kind(update), Kind::NotFound);
    // A change scheduled in the user's name.
    bench.clock.advance(Duration::from_hours(1));
    let due = metadata.due_changes(10).await.expect("due");
    assert_eq!(metadata.make_due_change(due[0]).await.expect("noted"), Outcome::Failed);
    assert!(metadata.snapshot().flags(PROJECT)[0].active);
    // A user who is added again starts without rights.
    assert_eq!(bench.add("ann@acme.com", Level::Member).await, ann);
    let update = metadata.update_flag(PROJECT, ann, flag.id, FlagPatch::default()).await;
    assert_eq!(kind(update), Kind::Forbidden);
}

#[tokio::test]
async fn changes_of_roles_are_in_the_log_of_each_project() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let other = metadata.create_project(USER, "Other", ProjectPatch::default(), &seed(2)).await;
    let other = other.expect("a project").id;
    let (mel, flag) = (bench.add("mel@acme.com", Level::Member).await, bench.create("a").await.id);
    let default = metadata.add_resource_access(USER, FLAGS, CAN_VIEW).await.expect("a default");
    metadata.change_resource_access(USER, default.id, CAN_EDIT).await.expect("changed");
    metadata.remove_resource_access(USER, default.id).await.expect("removed");
    let role = metadata.create_role(USER, role_of("Some", None), &seed(3)).await.expect("a role");
    metadata.update_role(USER, &role.id, of_level(CAN_VIEW)).await.expect("another level");
    metadata.add_role_member(USER, &role.id, mel, &seed(4)).await.expect("a member");
    metadata.remove_member(USER, mel).await.expect("removed");
    metadata.grant_role(PROJECT, USER, flag, &role).await.expect("granted");
    metadata.delete_role(USER, &role.id).await.expect("deleted");
    let of_all = [
        "Role updated member mel@acme.com>null",
        "Role updated member null>mel@acme.com",
        "Role updated feature_flags_access_level 37>21",
        "Role created",
        "Organization updated feature_flags_access_level 37>null",
        "Organization updated feature_flags_access_level 21>37",
        "Organization updated feature_flags_access_level null>21",
    ];
    let of_one = [
        "Role deleted",
        "FeatureFlag updated role_access Some>null",
        "FeatureFlag updated role_access null>Some",
    ];
    assert_eq!(bench.log(PROJECT, 10).await, [&of_one[..], &of_all].concat());
    assert_eq!(bench.log(other, 8).await, [&of_one[..1], &of_all].concat());
    let asked = ActivityFilter { scopes: vec![Scope::Role], item: Some(role.id), user: Some(USER) };
    assert_eq!(metadata.activity(other, &asked, 10, 0).await.expect("log").count, 5);
    bench.check_snapshot().await;
}
