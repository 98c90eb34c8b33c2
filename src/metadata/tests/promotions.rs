//! Promoted properties: who has which columns of which table, in the snapshot and on disk, and that a column has one type for
//! all projects.

use super::*;
use crate::activity::ActivityFilter;
use crate::promotions::{NewPromotion, PromotedProperty, StoredColumn};
use crate::properties::{PropertyKind, PropertySeen};
use crate::sql;
use crate::tests::place::Database;
use weir_event::promotion::PromotedTable::{Events, Persons};
use weir_event::promotion::{PROMOTIONS_MAX, Promotion};
use weir_event::schema::PropertyType;
use weir_event::schema::PropertyType::{Boolean, Double, Text};

const SECOND: ProjectId = ProjectId(2);

fn new(key: &str, kind: PropertyType) -> NewPromotion {
    NewPromotion { table: Events, key: key.to_owned(), kind, stored: None }
}

fn new_of_persons(key: &str, kind: PropertyType) -> NewPromotion {
    NewPromotion { table: Persons, ..new(key, kind) }
}

fn column(key: &str, kind: PropertyType) -> Promotion {
    Promotion { key: key.into(), kind }
}

impl Bench {
    async fn promote(
        &self,
        project: ProjectId,
        key: &str,
        kind: PropertyType,
    ) -> Result<PromotedProperty, MetadataError> {
        self.metadata.promote(USER, project, new(key, kind)).await
    }

    async fn with_second(&self) {
        let patch = ProjectPatch::default();
        let made = self.metadata.create_project(USER, "Second", patch, &seed(2)).await;
        assert_eq!(made.expect("a project").id, SECOND);
    }

    fn columns(&self) -> Vec<Promotion> {
        self.metadata.snapshot().promoted_columns(Events)
    }
}

/// The text of a violation.
fn told<T: std::fmt::Debug>(result: Result<T, MetadataError>) -> String {
    match result {
        Err(MetadataError::Rejected(violation)) => violation.detail,
        other => panic!("not rejected: {other:?}"),
    }
}

#[tokio::test]
async fn projects_promote_properties_and_stop_that() {
    let bench = Bench::started().await;
    bench.with_second().await;
    let plan = bench.promote(PROJECT, "plan", Text).await.expect("promoted");
    assert_eq!((plan.project, plan.created_at), (PROJECT, START));
    bench.clock.advance(Duration::from_secs(1));
    bench.promote(PROJECT, "a b", Double).await.expect("promoted");
    bench.promote(SECOND, "plan", Text).await.expect("the same column");
    bench.promote(SECOND, "paid", Boolean).await.expect("promoted");
    let again = bench.promote(PROJECT, "plan", Text).await;
    assert_eq!(again.expect("it is there"), plan, "as it was");
    bench.check_snapshot().await;
    let snapshot = bench.metadata.snapshot();
    assert_eq!(snapshot.promotions(PROJECT, Events), [column("a b", Double), column("plan", Text)]);
    assert_eq!(
        snapshot.promotions(SECOND, Events),
        [column("paid", Boolean), column("plan", Text)]
    );
    assert!(snapshot.promotions(ProjectId(9), Events).is_empty());
    let all = [column("a b", Double), column("paid", Boolean), column("plan", Text)];
    assert_eq!(snapshot.promoted_columns(Events), all);

    bench.metadata.demote(USER, PROJECT, Events, "plan").await.expect("ended");
    assert_eq!(bench.columns(), all, "the other project has it still");
    bench.metadata.demote(USER, SECOND, Events, "plan").await.expect("ended");
    bench.metadata.demote(USER, SECOND, Events, "paid").await.expect("ended");
    assert_eq!(bench.columns(), [column("a b", Double)]);
    bench.check_snapshot().await;
    for (project, key) in [(SECOND, "plan"), (SECOND, "a b"), (PROJECT, "plan")] {
        let none = bench.metadata.demote(USER, project, Events, key).await;
        assert_eq!(kind(none), Kind::NotFound, "{project} {key}");
    }
}

#[tokio::test]
async fn what_cannot_be_promoted_changes_nothing() {
    let bench = Bench::started().await;
    bench.with_second().await;
    bench.promote(PROJECT, "plan", Text).await.expect("promoted");
    let before = bench.metadata.snapshot();
    let stays = "The column p_plan is text, and stays it.";
    assert_eq!(told(bench.promote(PROJECT, "plan", Double).await), stays);
    assert_eq!(told(bench.promote(SECOND, "plan", Boolean).await), stays, "of another project");
    let case = "The column p_Plan would differ in case alone from p_plan.";
    assert_eq!(told(bench.promote(SECOND, "Plan", Text).await), case);
    let fixed = "The property $os has a column already, p_$os.";
    assert_eq!(told(bench.promote(PROJECT, "$os", Text).await), fixed);
    assert_eq!(code(bench.promote(PROJECT, "", Text).await), "blank");
    assert_eq!(kind(bench.promote(ProjectId(9), "x", Text).await), Kind::NotFound);
    let nobody = bench.metadata.promote(UserId(9), PROJECT, new("x", Text)).await;
    assert_eq!(kind(nobody), Kind::NotFound);
    // The table has it, as after the end of a promotion.
    let stored = StoredColumn { name: "p_seats".to_owned(), kind: "number".to_owned() };
    let seats = NewPromotion { stored: Some(stored), ..new("seats", Text) };
    let refused = bench.metadata.promote(USER, PROJECT, seats).await;
    assert_eq!(told(refused), "The column p_seats is number, and stays it.");
    assert_eq!(bench.metadata.snapshot(), before);
    bench.check_snapshot().await;
}

/// Each key counts once, whoever promotes it.
#[tokio::test]
async fn the_columns_of_a_server_are_counted() {
    let bench = Bench::started().await;
    bench.with_second().await;
    for number in 0..PROMOTIONS_MAX {
        let project = if number % 2 == 0 { PROJECT } else { SECOND };
        bench.promote(project, &format!("key {number}"), Text).await.expect("promoted");
    }
    bench.promote(SECOND, "key 0", Text).await.expect("a column that is there");
    for project in [PROJECT, SECOND] {
        let refused = told(bench.promote(project, "more", Text).await);
        assert_eq!(refused, "The projects of a server promote at most 50 properties of events.");
    }
    bench.metadata.demote(USER, PROJECT, Events, "key 0").await.expect("ended");
    assert_eq!(code(bench.promote(PROJECT, "more", Text).await), "invalid_input");
    bench.metadata.demote(USER, SECOND, Events, "key 0").await.expect("ended");
    bench.promote(PROJECT, "more", Text).await.expect("there is room");
    assert_eq!(bench.columns().len(), PROMOTIONS_MAX);
    bench.check_snapshot().await;
}

#[tokio::test]
async fn promotions_are_in_the_log_of_changes() {
    let bench = Bench::started().await;
    bench.promote(PROJECT, "plan", Text).await.expect("promoted");
    bench.promote(PROJECT, "plan", Text).await.expect("nothing new");
    bench.metadata.demote(USER, PROJECT, Events, "plan").await.expect("ended");
    let page = bench.metadata.activity(PROJECT, &ActivityFilter::default(), 9, 0).await;
    let page = page.expect("entries");
    let entries: Vec<_> = page
        .entries
        .iter()
        .map(|own| (own.scope.as_str(), own.activity.as_str(), own.detail["changes"].clone()))
        .collect();
    let change = |action: &str, before: Option<&str>, after: Option<&str>| {
        json!([{"type": "PropertyDefinition", "action": action, "field": "column",
            "before": before, "after": after}])
    };
    let of = |changes| ("PropertyDefinition", "changed", changes);
    assert_eq!(
        entries,
        [
            of(change("deleted", Some("p_plan, text"), None)),
            of(change("created", None, Some("p_plan, text"))),
        ]
    );
    assert!(page.entries.iter().all(|own| own.detail["name"] == "plan"));
}

#[tokio::test]
async fn columns_of_a_deleted_project_are_promoted_no_more() {
    let bench = Bench::started().await;
    bench.with_second().await;
    bench.promote(SECOND, "plan", Text).await.expect("promoted");
    bench.promote(PROJECT, "paid", Boolean).await.expect("promoted");
    bench.metadata.delete_project(USER, SECOND).await.expect("deleted");
    assert_eq!(bench.columns(), [column("paid", Boolean)]);
    assert_eq!(kind(bench.promote(SECOND, "plan", Text).await), Kind::NotFound);
    bench.check_snapshot().await;
}

#[tokio::test]
async fn other_servers_see_the_columns() {
    let bench = Bench::started_at(Backend::Database(Database::new().await)).await;
    let other = bench.other().await;
    bench.promote(PROJECT, "plan", Text).await.expect("promoted");
    // It reads first what the other has written.
    let refused = other.promote(USER, PROJECT, new("plan", Double)).await;
    assert_eq!(told(refused), "The column p_plan is text, and stays it.");
    assert_eq!(other.snapshot().promotions(PROJECT, Events), [column("plan", Text)]);
    bench.metadata.demote(USER, PROJECT, Events, "plan").await.expect("ended");
    other.refresh().await.expect("refresh");
    assert!(other.snapshot().promoted_columns(Events).is_empty());
    assert_eq!(bench.metadata.snapshot(), other.snapshot());
}

/// Goal: the tables have nothing in common: neither keys, nor types, nor cases, nor the number of columns.
#[tokio::test]
async fn tables_have_their_own_columns() {
    let bench = Bench::started().await;
    bench.with_second().await;
    let persons = async |project, key: &str, kind| {
        bench.metadata.promote(USER, project, new_of_persons(key, kind)).await
    };
    bench.promote(PROJECT, "plan", Text).await.expect("promoted");
    let made = persons(PROJECT, "plan", Double).await.expect("the other table");
    assert_eq!((made.table, made.kind), (Persons, Double));
    assert_eq!(persons(PROJECT, "plan", Double).await.expect("it is there"), made);
    persons(PROJECT, "$os", Text).await.expect("no column of every server");
    persons(SECOND, "Seats", Text).await.expect("promoted");
    bench.promote(SECOND, "seats", Text).await.expect("no matter what persons have");
    let stays = "The column p_plan is number, and stays it.";
    assert_eq!(told(persons(SECOND, "plan", Text).await), stays);
    let case = "The column p_seats would differ in case alone from p_Seats.";
    assert_eq!(told(persons(PROJECT, "seats", Text).await), case);
    bench.check_snapshot().await;
    let snapshot = bench.metadata.snapshot();
    assert_eq!(snapshot.promotions(PROJECT, Events), [column("plan", Text)]);
    let of_persons = [column("$os", Text), column("plan", Double)];
    assert_eq!(snapshot.promotions(PROJECT, Persons), of_persons);
    assert_eq!(snapshot.promoted_columns(Events), [column("plan", Text), column("seats", Text)]);
    let all = [column("$os", Text), column("Seats", Text), column("plan", Double)];
    assert_eq!(snapshot.promoted_columns(Persons), all);
    let rows = snapshot.promoted_properties(PROJECT).iter();
    let rows: Vec<_> = rows.map(|own| (own.table, own.key.as_str())).collect();
    assert_eq!(rows, [(Events, "plan"), (Persons, "$os"), (Persons, "plan")]);

    for number in 3..PROMOTIONS_MAX {
        persons(PROJECT, &format!("key {number}"), Text).await.expect("promoted");
    }
    let refused = told(persons(PROJECT, "more", Text).await);
    assert_eq!(refused, "The projects of a server promote at most 50 properties of persons.");
    bench.promote(PROJECT, "more", Text).await.expect("events have room");

    bench.metadata.demote(USER, PROJECT, Events, "plan").await.expect("ended");
    let snapshot = bench.metadata.snapshot();
    assert!(snapshot.promotions(PROJECT, Persons).contains(&column("plan", Double)));
    let none = bench.metadata.demote(USER, PROJECT, Events, "$os").await;
    assert_eq!(kind(none), Kind::NotFound);
    bench.metadata.demote(USER, PROJECT, Persons, "plan").await.expect("ended");
    bench.check_snapshot().await;
    let page = bench.metadata.activity(PROJECT, &ActivityFilter::default(), 9, 0).await;
    let newest = &page.expect("entries").entries[..2];
    let items: Vec<_> = newest.iter().map(|own| own.item.clone()).collect();
    let expected = [PropertyKind::Person, PropertyKind::Event].map(|kind| {
        let name = "plan".to_owned();
        let seen = PropertySeen { project: PROJECT, kind, name, value_type: None };
        crate::properties::id(&seen).to_string()
    });
    assert_eq!(items, expected);
}

/// Goal: a server of before, which knows promotions of events alone, goes on beside this one. Method: its statements.
#[tokio::test]
async fn older_servers_promote_properties_of_events() {
    let bench = Bench::started().await;
    bench.with_second().await;
    bench.promote(SECOND, "seats", Text).await.expect("promoted");
    let made = bench.metadata.promote(USER, SECOND, new_of_persons("plan", Double)).await;
    made.expect("promoted");
    bench
        .run(
            "INSERT INTO promoted_properties (project_id, key, kind, created_at)
             VALUES (2, 'old', 'boolean', 5)",
        )
        .await;
    let other = bench.other().await;
    let snapshot = other.snapshot();
    assert_eq!(
        snapshot.promotions(SECOND, Events),
        [column("old", Boolean), column("seats", Text)]
    );
    assert_eq!(snapshot.promotions(SECOND, Persons), [column("plan", Double)]);
    let read = "SELECT project_id, key, kind, created_at FROM promoted_properties ORDER BY key";
    let read = sql::query_as::<(i64, String, String, i64)>(read);
    let rows = read.fetch_all(&mut bench.reader().await).await.expect("rows");
    let rows: Vec<_> = rows.iter().map(|(_, key, kind, _)| (key.as_str(), kind.as_str())).collect();
    assert_eq!(rows, [("old", "boolean"), ("seats", "text")]);
    // It cannot remove what it does not know.
    bench.run("DELETE FROM promoted_properties").await;
    bench.run("DELETE FROM activity WHERE project_id = 2").await;
    bench.run("DELETE FROM projects WHERE id = 2").await;
    let left = sql::query_scalar::<i64>("SELECT COUNT(*) FROM promoted_person_properties");
    assert_eq!(left.fetch_one(&mut bench.reader().await).await.expect("a count"), 0);
}
