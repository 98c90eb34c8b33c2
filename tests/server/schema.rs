//! The data dictionary: every column that SQL and the files have is described, by the API, the command and the page,
//! and in the files, the log of the table, and results, as PyArrow and `deltalake` read them.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{KEY, TestServer};
use crate::sdk::tools;

/// Prints what PyArrow finds in a data directory and in results of the server.
const READERS: &str = "
import glob, json, sys, urllib.request
import deltalake, duckdb, polars, pyarrow as pa, pyarrow.parquet as pq
directory, url, key, files = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
def text(field):
    return (field.metadata or {}).get(b'description', b'').decode()
def fields(schema):
    return {field.name: [str(field.type), text(field)] for field in schema}
def asked(sql, format):
    body = json.dumps({'query': sql, 'format': format}).encode()
    head = {'Authorization': 'Bearer ' + key, 'Content-Type': 'application/json'}
    return urllib.request.urlopen(urllib.request.Request(url + '/api/projects/1/query/', body, head)).read()
sql = 'SELECT event, timestamp AS at, person_id, \"p_$browser\", count(*) AS uuid FROM events GROUP BY 1, 2, 3, 4'
arrow = pa.ipc.open_stream(asked(sql, 'arrow'))
parquet = pq.read_schema(pa.BufferReader(asked('SELECT id, properties, number FROM persons', 'parquet')))
sessions = pa.ipc.open_stream(asked('SELECT session_id, \"$session_duration\", 1 AS one FROM sessions', 'arrow'))
tables = {}
for name in ['events', 'persons']:
    table = deltalake.DeltaTable(directory + '/tables/' + name)
    tables[name] = {field.name: field.metadata.get('comment', '') for field in table.schema().fields}
own = [fields(pq.read_schema(path)) for path in files]
persons = glob.glob(directory + '/tables/persons/*.parquet')
events = deltalake.DeltaTable(directory + '/tables/events')
print(json.dumps({
    'files': own, 'persons': [fields(pq.read_schema(path)) for path in persons], 'comments': tables,
    'arrow': fields(arrow.schema), 'rows': sum(sum(batch.column('uuid').to_pylist()) for batch in arrow),
    'parquet': fields(parquet), 'sessions': fields(sessions.schema),
    'counts': [
        sum(pq.read_metadata(path).num_rows for path in files),
        events.to_pyarrow_dataset().count_rows(),
        events.to_pyarrow_table().num_rows,
        polars.scan_delta(directory + '/tables/events').select(polars.len()).collect().item(),
        duckdb.read_parquet(files).count('*').fetchall()[0][0],
    ],
}))
";

fn furnished(server: &TestServer) {
    let event = |at: usize| {
        json!({"event": if at.is_multiple_of(2) { "view" } else { "buy" }, "distinct_id": format!("d{}", at % 5),
            "timestamp": format!("2026-{:02}-03T10:00:{:02}Z", 1 + at % 3, at % 60),
            "properties": {"$browser": "Firefox", "$session_id": format!("s{}", at % 4), "$set": {"plan": "pro"}}})
    };
    assert_eq!(server.capture(&(0..60).map(event).collect()).status, 200);
}

fn dictionary(server: &TestServer) -> Value {
    let answer = server.get("/api/projects/1/schema/");
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()
}

/// Name and type of the columns of a table in SQL or in files.
fn columns(table: &Value, place: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let all = table["columns"].as_array().expect("columns").iter();
    all.filter(|own| own[place] == true)
        .map(|own| (text(&own["name"]), text(&own["type"])))
        .collect()
}

/// Meaning and unit of the columns of a table in files.
fn descriptions(table: &Value) -> BTreeMap<String, String> {
    let all = table["columns"].as_array().expect("columns").iter();
    let described = |own: &Value| {
        let meaning = own["description"].as_str().expect("a text");
        let text = match own["unit"].as_str() {
            Some(unit) => format!("{meaning} ({unit})"),
            None => meaning.to_owned(),
        };
        (own["name"].as_str().expect("a name").to_owned(), text)
    };
    all.filter(|own| own["in_files"] == true).map(described).collect()
}

/// Goal: the dictionary has what SQL has, in its order, and nothing else.
#[test]
fn every_column_of_sql_is_described() {
    let server = TestServer::start();
    furnished(&server);
    let dictionary = dictionary(&server);
    let rows = server.query(
        "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns \
         WHERE table_schema <> 'information_schema' ORDER BY table_name, ordinal_position",
    );
    let mut found: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for row in rows {
        let kind = match row["data_type"].as_str().expect("a type") {
            "Utf8View" => "text",
            "Int64" => "bigint",
            "Float64" => "double",
            "Boolean" => "boolean",
            "Date32" => "date",
            time if time.starts_with("Timestamp") => "timestamptz",
            other => panic!("{other} has no name here"),
        };
        let column = (row["column_name"].as_str().expect("a name").to_owned(), kind.to_owned());
        found
            .entry(row["table_name"].as_str().expect("a name").to_owned())
            .or_default()
            .push(column);
    }
    let tables = dictionary["tables"].as_array().expect("tables");
    let described = tables.iter().map(|table| {
        (table["name"].as_str().expect("a name").to_owned(), columns(table, "in_sql"))
    });
    assert_eq!(described.collect::<BTreeMap<_, _>>(), found);
    for table in tables {
        for column in table["columns"].as_array().expect("columns") {
            assert!(column["description"].as_str().is_some_and(|text| text.len() > 5), "{column}");
        }
    }
    // One table.
    let one = server.get("/api/projects/1/schema/?table=persons").json();
    let persons = tables.iter().find(|table| table["name"] == "persons").expect("persons");
    assert_eq!(one, json!({"tables": [persons]}));
    let refused = server.get("/api/projects/1/schema/?table=person");
    assert_eq!(refused.status, 400, "{refused}");
    let detail = refused.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail.contains("person_distinct_ids"), "{detail}");
    // The command and the page have the same.
    let weir = |arguments: &[&str]| {
        let output =
            server.weir(&[&["schema"][..], arguments].concat()).output().expect("weir schema");
        (output.status.success(), String::from_utf8(output.stdout).expect("UTF-8"), output.stderr)
    };
    let (is_done, text, _) = weir(&["--format", "json"]);
    assert!(is_done);
    assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), dictionary);
    let (is_done, text, _) = weir(&["persons"]);
    assert!(is_done && text.starts_with("column ") && text.contains("\nnumber "), "{text}");
    let (is_done, text, _) = weir(&["events", "--format", "markdown"]);
    assert!(
        is_done && text.contains("\n| `p_$browser` | text, nullable | SQL, files | 1 | "),
        "{text}"
    );
    let (is_done, text, _) = weir(&[]);
    assert!(is_done && text.lines().count() == 1 + tables.len(), "{text}");
    let (is_done, _, error) = weir(&["nothing"]);
    assert!(!is_done && String::from_utf8_lossy(&error).contains("ingestion_warnings"));
    let page = String::from_utf8(server.get("/project/1/sql").body).expect("UTF-8");
    for text in
        ["when it happened, after correction", "p_$geoip_country_code", "ISO 3166-1, two letters"]
    {
        assert!(page.contains(text), "{text}");
    }
}

/// Goal: whoever has a file, a table or a result has the meaning of its columns, and everybody reads the same rows.
#[test]
fn files_and_results_have_descriptions() {
    let tools = tools();
    let mut server = TestServer::start();
    furnished(&server);
    server.flush();
    furnished(&server);
    server.flush();
    // The end of the server writes the persons.
    server.stop();
    server.restart();
    let dictionary = dictionary(&server);
    let table = |name: &str| {
        let tables = dictionary["tables"].as_array().expect("tables").iter();
        tables.clone().find(|table| table["name"] == name).expect("a table").clone()
    };
    let mut command = Command::new(tools.join("readers/bin/python"));
    command.args(["-c", READERS]).arg(server.data_dir()).args([&server.url(), KEY]);
    let output = command.args(server.files()).stderr(Stdio::inherit()).output().expect("Python");
    assert!(output.status.success(), "{}", output.status);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let kinds = [
        ("text", "string"),
        ("bigint", "int64"),
        ("double", "double"),
        ("boolean", "bool"),
        ("timestamptz", "timestamp[us, tz=UTC]"),
    ];
    let kinds: BTreeMap<&str, &str> = kinds.into();
    for (name, files) in [("events", &found["files"]), ("persons", &found["persons"])] {
        let (table, files) = (table(name), files.as_array().expect("files"));
        assert!(!files.is_empty(), "{name}");
        let texts = descriptions(&table);
        for file in files {
            for (column, kind) in columns(&table, "in_files") {
                if column == "month" {
                    continue;
                }
                let expected = json!([kinds[kind.as_str()], texts[&column]]);
                assert_eq!(file[&column], expected, "{name}.{column}");
            }
        }
        assert_eq!(found["comments"][name].as_object().expect("comments").len(), texts.len());
        for (column, text) in &texts {
            let comment = found["comments"][name][column].as_str().expect("a comment");
            // Nobody's files have a value of the partition column.
            assert!(comment == text || column == "month", "{name}.{column}: {comment}");
        }
    }
    let text = |name: &str, column: &str| {
        let columns = table(name)["columns"].as_array().expect("columns").clone();
        let own = columns.iter().find(|own| own["name"] == column && own["in_sql"] == true);
        let own = own.expect("a column");
        let unit = own["unit"].as_str().map_or(String::new(), |unit| format!(" ({unit})"));
        format!("{}{unit}", own["description"].as_str().expect("a text"))
    };
    for (result, column, expected) in [
        ("arrow", "event", text("events", "event")),
        ("arrow", "at", text("events", "timestamp")),
        ("arrow", "person_id", text("events", "person_id")),
        ("arrow", "p_$browser", text("events", "p_$browser")),
        ("arrow", "uuid", String::new()),
        ("parquet", "id", text("persons", "id")),
        ("parquet", "properties", text("persons", "properties")),
        ("parquet", "number", text("persons", "number")),
        ("sessions", "session_id", text("sessions", "session_id")),
        ("sessions", "$session_duration", text("sessions", "$session_duration")),
        ("sessions", "one", String::new()),
    ] {
        assert_eq!(found[result][column][1], expected, "{result}.{column}");
    }
    assert_eq!(found["counts"], json!([120, 120, 120, 120, 120]));
    assert_eq!(found["rows"], 120);
    assert_eq!(server.count("SELECT count(*) FROM events WHERE \"p_$browser\" = 'Firefox'"), 120);
}
