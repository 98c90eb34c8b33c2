//! Tests of places of tables: names, and that a copy changes nothing in the bucket.

use arrow::datatypes::{DataType, Field, Schema};
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::{ObjectStoreExt, PutMode};

use super::*;
use crate::delta::{Edit, EditKind};
use weir_base::clock::UnixMicros;
use weir_disk::OsDisk;

fn spec() -> TableSpec {
    let columns = vec![Field::new("id", DataType::Int64, true)];
    TableSpec { name: "events", schema: Arc::new(Schema::new(columns)), partition_column: None }
}

fn bucket(objects: &Arc<InMemory>, url: &str) -> Tables {
    let objects = Arc::clone(objects) as Arc<dyn ObjectStore>;
    Tables::in_bucket(objects, BucketUrl::parse(url).expect("a bucket"), "shards/0000".to_owned())
}

async fn keys(objects: &InMemory) -> Vec<String> {
    let listed: Vec<_> = objects.list(None).try_collect().await.expect("a listing");
    let mut keys: Vec<String> = listed.iter().map(|object| object.location.to_string()).collect();
    keys.sort();
    keys
}

#[tokio::test]
async fn tables_have_a_place_in_a_directory_and_in_a_bucket() {
    let directory = tempfile::tempdir().expect("a directory");
    let data_dir = directory.path().to_str().expect("a path").to_owned();
    let objects = Arc::new(InMemory::new());
    let local = Tables::of_data_dir(Arc::new(OsDisk), directory.path()).expect("a place");
    let clock = Clock::test(UnixMicros(0));
    for (tables, name, place, location) in [
        (
            local,
            format!("{data_dir}/tables/events"),
            "tables/events".to_owned(),
            format!("file://{data_dir}/tables/events/"),
        ),
        (
            bucket(&objects, "s3://a"),
            "s3://a/shards/0000/tables/events".to_owned(),
            "s3://a/shards/0000/tables/events".to_owned(),
            "s3://a/shards/0000/tables/events/".to_owned(),
        ),
        (
            bucket(&objects, "s3://a/b/c"),
            "s3://a/b/c/shards/0000/tables/events".to_owned(),
            "s3://a/b/c/shards/0000/tables/events".to_owned(),
            "s3://a/b/c/shards/0000/tables/events/".to_owned(),
        ),
    ] {
        assert_eq!((tables.name("events"), tables.place("events")), (name, place));
        let files = tables.writing("events").expect("its files");
        let table = files.open_or_create(spec(), clock.clone()).await.expect("a table");
        assert_eq!(table.location().as_str(), location);
        let files = tables.reading("events").expect("its files");
        assert!(files.open_existing(spec(), clock.clone()).await.expect("a table").is_some());
        let none = tables.reading("persons").expect("its files");
        assert!(none.open_existing(spec(), clock.clone()).await.expect("no table").is_none());
    }
    let first = "shards/0000/tables/events/_delta_log/00000000000000000000.json";
    assert_eq!(keys(&objects).await, [format!("b/c/{first}"), first.to_owned()]);
}

#[tokio::test]
async fn a_copy_changes_nothing_in_the_bucket() {
    let objects = Arc::new(InMemory::new());
    let clock = Clock::test(UnixMicros(0));
    let tables = bucket(&objects, "s3://a");
    let files = tables.writing("events").expect("its files");
    let table = files.open_or_create(spec(), clock.clone()).await.expect("a table");
    let before = keys(&objects).await;

    let directory = tempfile::tempdir().expect("a directory");
    let copy = tables.copied(Arc::new(OsDisk), directory.path()).expect("a place");
    assert!(!copy.is_bucket() && !copy.is_local());
    let files = copy.writing("events").expect("its files");
    let copied = files.clone().open_or_create(spec(), clock.clone()).await.expect("the table");
    let transaction = Some(("node/1".to_owned(), 7));
    let (add, remove, kind) = (Vec::new(), Vec::new(), EditKind::Append);
    copied.commit(Edit { add, remove, transaction, kind }).await.expect("a commit");
    assert_eq!(copied.current().version, 1);
    let again =
        files.clone().open_existing(spec(), clock).await.expect("opens").expect("the table");
    assert_eq!(again.current().transaction("node/1"), Some(7), "the copy has it");

    let objects_of_copy = files.objects();
    let first = ObjectPath::from("_delta_log/00000000000000000000.json");
    let put = objects_of_copy.put_opts(&first, "x".into(), PutMode::Create.into()).await;
    let taken = put.expect_err("it is in the bucket");
    assert!(matches!(taken, object_store::Error::AlreadyExists { .. }), "{taken}");
    objects_of_copy.delete(&first).await.expect("a deletion");
    objects_of_copy.head(&first).await.expect("it is there");
    let listed: Vec<_> = objects_of_copy.list(None).try_collect().await.expect("a listing");
    assert_eq!(listed.len(), 2);
    let level = objects_of_copy.list_with_delimiter(None).await.expect("a listing");
    assert_eq!(level.common_prefixes, [ObjectPath::from("_delta_log")]);

    assert_eq!(keys(&objects).await, before);
    assert_eq!(table.refresh().await.expect("a look").version, 0);
}
