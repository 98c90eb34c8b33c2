//! Files of the persons table and rows of the store, beside each other.

use std::sync::Arc;
use std::time::Duration;

use arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;
use serde_json::json;
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::persons::person_scan::PersonsProvider;
use crate::persons::person_table::{PersonTable, PersonTableSettings, TableOf};
use crate::persons::tables::persons_schema;
use weir_base::clock::{Clock, UnixMicros};
use weir_disk::OsDisk;
use weir_event::id::ProjectId;
use weir_identity::change::{Force, Op, OpKind, Record, Update};
use weir_identity::limits::Limits;
use weir_identity::row::Key;
use weir_identity::store::Identities;
use weir_storage::tables::Tables;

const NOW: UnixMicros = UnixMicros(1_700_000_000_000_000);
const PROJECTS: [ProjectId; 2] = [ProjectId(1), ProjectId(2)];

fn set(number: u32, properties: serde_json::Value) -> Op {
    let set = properties.as_object().cloned().unwrap();
    op(number, OpKind::Update(Update { set, ..Update::default() }))
}

fn op(number: u32, kind: OpKind) -> Op {
    let distinct_id = format!("id{number}");
    Op { distinct_id, event_id: Uuid::from_u128(7), timestamp: NOW, kind }
}

fn apply(identities: &Identities, sequence: u64, project: ProjectId, ops: Vec<Op>) {
    identities.apply(&[Record { sequence, project, ops }]).unwrap();
}

fn table(directory: &std::path::Path, identities: &Identities, runtime: &Runtime) -> PersonTable {
    let table = PersonTable::new(PersonTableSettings {
        kind: TableOf::Persons,
        tables: Tables::in_directory(Arc::new(OsDisk), directory.to_path_buf()),
        identities: identities.clone(),
        projects: Arc::new(|| PROJECTS.to_vec()),
        app_id: "node".to_owned(),
        runtime: runtime.handle().clone(),
        clock: Clock::test(NOW),
        interval: Duration::from_mins(5),
        stale_max: Duration::from_hours(1),
        columns_bytes_max: 1 << 20,
    });
    table.unwrap().with_rows_max(20)
}

fn answer(runtime: &Runtime, persons: PersonsProvider, sql: &str) -> String {
    runtime.block_on(async {
        let mut context = SessionContext::new();
        datafusion_functions_json::register_all(&mut context).unwrap();
        context.register_table("persons", Arc::new(persons)).unwrap();
        let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
        pretty_format_batches(&batches).unwrap().to_string()
    })
}

/// Goal: files with who has changed since say what rows of the store say, whichever columns are asked for, also if
/// only some properties are, and nothing of another project. Method: the same queries of both.
#[test]
fn files_and_rows_give_the_same_answers() {
    let (runtime, directory) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let place = directory.path().join("identity");
    let identities = Identities::open(&place, Limits::SMALL).unwrap();
    let files = Arc::new(table(directory.path(), &identities, &runtime));
    let plans = ["pro", "free", "a \"quoted\" \\ é"];
    let told = |number: u32| match number % 4 {
        0 => json!({"n": number}),
        of => {
            json!({"n": number, "plan": plans[usize::try_from(of - 1).unwrap()], "o": {"a": [1]}})
        }
    };
    apply(&identities, 1, PROJECTS[0], (0..70).map(|number| set(number, told(number))).collect());
    apply(
        &identities,
        2,
        PROJECTS[1],
        (0..30).map(|number| set(number, json!({"plan": "other"}))).collect(),
    );
    for round in 0..4 {
        let (sequence, first) = (3 + round * 2, u32::try_from(round).unwrap() * 5);
        if round > 0 {
            let merge = OpKind::Merge {
                other: format!("id{}", first + 40),
                force: Force::Yes,
                update: Update::default(),
            };
            let changes = vec![
                set(first, json!({"plan": "new", "late": true})),
                set(70 + first, told(first)),
                op(first + 1, merge),
            ];
            apply(&identities, sequence, PROJECTS[0], changes);
        }
        let view = Arc::new(identities.view());
        // After the view, so that files are newer than it.
        if round % 2 == 0 {
            files.write(&|| false).unwrap();
        }
        apply(
            &identities,
            sequence + 1,
            PROJECTS[0],
            vec![set(3, json!({"plan": format!("later {round}")}))],
        );
        for project in PROJECTS {
            let own = PersonsProvider {
                schema: persons_schema(),
                view: Arc::clone(&view),
                project,
                table: None,
                keys: None,
            };
            let of_files = PersonsProvider { table: Some(Arc::clone(&files)), ..own.clone() };
            for sql in [
                "SELECT * FROM persons ORDER BY id",
                "SELECT count(*) FROM persons",
                "SELECT created_at, is_identified, count(*) FROM persons GROUP BY 1, 2 ORDER BY 1, 2",
                "SELECT uuid FROM persons WHERE json_as_text(properties, 'plan') = 'new' ORDER BY uuid",
                "SELECT count(*) FROM (SELECT id FROM persons LIMIT 5)",
            ] {
                let expected = answer(&runtime, own.clone(), sql);
                assert_eq!(answer(&runtime, of_files.clone(), sql), expected, "{round} {sql}");
            }
            let keys: Arc<[Key]> =
                ["plan", "late", "none"].iter().map(|key| Key::new(key)).collect();
            for sql in [
                "SELECT id, json_as_text(properties, 'plan'), json_as_text(properties, 'none') FROM persons ORDER BY id",
                "SELECT json_get_bool(properties, 'late') AS l, count(*) FROM persons GROUP BY 1 ORDER BY 1",
            ] {
                let expected = answer(&runtime, own.clone(), sql);
                let narrowed = of_files.narrowed(Arc::clone(&keys));
                assert_eq!(answer(&runtime, narrowed, sql), expected, "{round} {sql}");
            }
        }
    }
    assert!(files.known_files() > 3);
}
