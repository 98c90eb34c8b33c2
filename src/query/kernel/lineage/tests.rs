//! Tests of the columns behind results.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;

use super::{described, origin_of_both};
use crate::persons::tables::with_columns;
use weir_event::dictionary::{DESCRIPTION, EVENTS, PERSONS, Table};
use weir_event::promotion::Promotion;
use weir_event::schema::PropertyType;

async fn planned(sql: &str) -> DataFrame {
    let mut context = SessionContext::new();
    datafusion_functions_json::register_all(&mut context).unwrap();
    for table in [EVENTS, PERSONS] {
        let rows = MemTable::try_new(Table::sql_schema(&table), vec![Vec::new()]).unwrap();
        let plan = Promotion { key: "plan".into(), kind: PropertyType::Text };
        let rows: Arc<dyn TableProvider> = match table.name == PERSONS.name {
            true => with_columns(Arc::new(rows), &[plan]).unwrap(),
            false => Arc::new(rows),
        };
        context.register_table(table.name, rows).unwrap();
    }
    context.sql(sql).await.unwrap()
}

async fn descriptions(sql: &str) -> Vec<Option<String>> {
    let plan = planned(sql).await;
    let schema = Arc::new(plan.schema().as_arrow().clone());
    let described = described(plan.logical_plan(), &schema);
    let text = |field: &Arc<arrow::datatypes::Field>| field.metadata().get(DESCRIPTION).cloned();
    described.fields().iter().map(text).collect()
}

#[tokio::test]
async fn columns_are_followed_to_their_tables() {
    let event = || EVENTS.sql_description("event");
    let of_person = |name: &str| PERSONS.sql_description(name);
    let time = || EVENTS.sql_description("timestamp");
    for (sql, expected) in [
        ("SELECT event, count(*) AS uuid FROM events GROUP BY event", vec![event(), None]),
        ("SELECT upper(event) AS event, event AS name FROM events", vec![None, event()]),
        (
            "SELECT p.id, e.event, p.number FROM events e JOIN persons p ON e.person_id = p.id ORDER BY 2 LIMIT 3",
            vec![of_person("id"), event(), of_person("number")],
        ),
        (
            "SELECT p.p_plan, q.p_plan AS n, q.properties FROM persons p JOIN persons q ON p.id = q.id ORDER BY 1",
            vec![of_person("p_plan"), of_person("p_plan"), of_person("properties")],
        ),
        ("SELECT p_plan FROM (SELECT event AS p_plan FROM events) AS persons", vec![event()]),
        ("SELECT upper(p_plan) AS p_plan FROM persons", vec![None]),
        (
            "SELECT n, t FROM (SELECT event AS n, timestamp AS t FROM events WHERE ip IS NULL) AS persons",
            vec![event(), time()],
        ),
        ("SELECT event, row_number() OVER () AS event_2 FROM events", vec![event(), None]),
        // One of several columns, each of which may be computed.
        ("SELECT event FROM events UNION ALL SELECT uuid FROM persons", vec![None]),
        ("SELECT DISTINCT event FROM events", vec![event()]),
        ("WITH c AS (SELECT event FROM events) SELECT * FROM c", vec![event()]),
        ("SELECT cast(timestamp AS text) AS timestamp, 1 AS event FROM events", vec![None, None]),
        (
            "SELECT e.uuid FROM persons p RIGHT SEMI JOIN events e ON p.id = e.person_id",
            vec![EVENTS.sql_description("uuid")],
        ),
        ("SELECT event AS id FROM (VALUES (1)) AS events(event)", vec![None]),
        ("SELECT DISTINCT ON (uuid) ip AS event, event AS ip FROM events", {
            vec![EVENTS.sql_description("ip"), event()]
        }),
        (
            "WITH RECURSIVE events AS (SELECT 'a' AS event, 1 AS n UNION ALL SELECT event, n + 1 FROM events WHERE n < 3) \
             SELECT event FROM events",
            vec![None],
        ),
    ] {
        assert_eq!(descriptions(sql).await, expected, "{sql}");
    }
}

/// Goal: two columns are of one row of a table only if nothing may have put them together.
#[tokio::test]
async fn columns_of_one_row_are_told_from_others() {
    for (sql, expected) in [
        ("SELECT ip, event FROM events", Some(("ip", "event"))),
        (
            "SELECT event AS a, ip AS b FROM (SELECT * FROM events WHERE ip IS NULL) e ORDER BY 1",
            Some(("event", "ip")),
        ),
        (
            "SELECT a.ip, a.event FROM events a JOIN events b ON a.uuid = b.uuid",
            Some(("ip", "event")),
        ),
        (
            "SELECT b.ip, b.event FROM events a LEFT JOIN events b ON a.uuid = b.uuid",
            Some(("ip", "event")),
        ),
        ("SELECT a.ip, b.event FROM events a JOIN events b ON a.uuid = b.uuid", None),
        (
            "SELECT s.ip, s.event FROM (SELECT a.ip, b.event FROM events a CROSS JOIN events b) s",
            None,
        ),
        (
            "WITH e AS (SELECT * FROM events) SELECT a.ip, b.event FROM e a JOIN e b ON a.uuid = b.uuid",
            None,
        ),
        ("SELECT ip, event FROM events GROUP BY ip, event", Some(("ip", "event"))),
        ("SELECT ip, max(event) FROM events GROUP BY ip", None),
        ("SELECT ip, upper(event) FROM events", None),
        ("SELECT ip, event FROM events UNION ALL SELECT ip, event FROM events", None),
    ] {
        let plan = planned(sql).await;
        let found = origin_of_both(plan.logical_plan(), [0, 1]).map(|(table, names)| {
            assert_eq!(table.name, "events", "{sql}");
            names
        });
        let expected = expected.map(|(one, other)| [one.to_owned(), other.to_owned()]);
        assert_eq!(found, expected, "{sql}");
    }
}
