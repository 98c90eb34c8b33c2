//! A store moves from its file to PostgreSQL.

use super::*;
use crate::definitions::{DefinitionSeen, Sightings};
use crate::hash_keys::NewHashKey;
use crate::promotions::NewPromotion;
use crate::tests::place::Database;
use weir_event::id::ShardId;
use weir_event::promotion::PromotedTable;
use weir_event::schema::PropertyType;

/// Goal: everything moves, once. Method: a store with more rows than one batch, NULLs, truth values and texts of all
/// kinds; the snapshots are equal, and so are the rows of every table.
#[tokio::test]
async fn a_store_moves_whole_and_once() {
    let file = Bench::started_at(Backend::file()).await;
    for number in 0..20 {
        let flag = file.create(&format!("flag-{number}")).await;
        let name = Some(format!("'quoted' \"ü\" {number}"));
        file.update(
            flag.id,
            FlagPatch { name, active: Some(number % 2 == 0), ..FlagPatch::default() },
        )
        .await;
    }
    let events = (0..1700).map(|number| DefinitionSeen {
        project: PROJECT,
        name: format!("event {number}"),
        seen_at: START,
    });
    let seen = Sightings { events: events.collect(), ..Sightings::default() };
    file.metadata.upsert_definitions(&seen).await.expect("upsert");
    for table in PromotedTable::ALL {
        let key = table.name().to_owned();
        let promotion = NewPromotion { table, key, kind: PropertyType::Double, stored: None };
        file.metadata.promote(USER, PROJECT, promotion).await.expect("promoted");
    }
    file.metadata.add_shards("s3://a/b", 1).await.expect("shards");
    file.metadata.want_shard(ShardId(1), "node").await.expect("a wish");
    let second =
        file.metadata.create_project(USER, "Second", ProjectPatch::default(), &seed(2)).await;
    assert_eq!(second.expect("a project").shard, ShardId(1));
    // Where it comes from, and none of where it goes to.
    file.metadata.register_node("node", "1.0", 4).await.expect("registered");
    let row = NewHashKey {
        project: PROJECT,
        distinct_id: "d".to_owned(),
        flag_key: "f".to_owned(),
        hash_key: "h".to_owned(),
    };
    file.metadata.keep_hash_keys(vec![row]).await.expect("kept");
    let database = Bench::at(Backend::Database(Database::new().await)).await;
    let rows = database.metadata.take_over(&file.metadata).await.expect("taken over");
    assert!(rows > 1700, "{rows}");
    assert_eq!(file.metadata.snapshot(), database.metadata.snapshot());
    assert_eq!(database.metadata.snapshot().promoted_properties(PROJECT).len(), 2);
    let shards = async |bench: &Bench| bench.metadata.shards().await.expect("shards");
    assert_eq!(shards(&database).await, shards(&file).await);
    assert_eq!(database.metadata.nodes().await.expect("nodes"), []);
    database.check_snapshot().await;
    for (table, columns) in [
        ("event_definitions", "id, name, created_at, last_seen_at, post_to_slack"),
        ("feature_flags", "key, name, updated_at, created_by, active"),
        ("activity", "id, detail, created_at, user_id, TRUE"),
        ("hash_keys", "distinct_id, hash_key, created_at, project_id, TRUE"),
        ("users", "uuid, email, created_at, removed_at, is_email_verified"),
        ("personal_keys", "mask, value_sha256, created_at, revoked_at, fixed"),
    ] {
        let select = format!("SELECT {columns} FROM {table} ORDER BY 1");
        let read = async |bench: &Bench| {
            let select = sqlx::AssertSqlSafe(select.clone());
            let select = sql::query_as::<(String, String, i64, Option<i64>, bool)>(select);
            select.fetch_all(&mut bench.reader().await).await.expect(table)
        };
        assert_eq!(read(&file).await, read(&database).await, "{table}");
    }
    // Whoever was interrupted then moves the same file again.
    let again = database.metadata.take_over(&file.metadata).await.expect("it is there");
    assert_eq!(again, rows);
    assert_eq!(file.metadata.snapshot(), database.metadata.snapshot());
    // The ids go on, and what has changed since does not move a second time.
    assert_eq!(database.create("next").await.id, file.create("next").await.id);
    let again = database.metadata.take_over(&file.metadata).await;
    assert!(matches!(again, Err(MetadataError::NotEmpty(_))), "{again:?}");
    database.check_snapshot().await;
}
