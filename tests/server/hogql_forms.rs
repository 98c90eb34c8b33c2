//! HogQL as people write it: aggregates that leave out null, arrays, operators, names and joins. Expected values are those
//! of ClickHouse's documentation, or follow from the sent events.

use serde_json::{Value, json};

use crate::harness::{Answer, TestServer};

const QUERY: &str = "/api/projects/@current/query/";

/// Events of one person by time, of which every second one has no plan, and one of another.
fn start() -> TestServer {
    let server = TestServer::start();
    let plans = [json!("free"), json!(null), json!("pro"), json!(null), json!("team"), json!(null)];
    let mut events: Vec<Value> = plans
        .iter()
        .zip(1..)
        .map(|(plan, at)| {
            let properties = json!({"plan": plan, "n": at, "flag": at > 3, "list": ["a", {"b": at}],
                "$set": {"tier": "gold"}, "$current_url": format!("https://www.example.com/p/{at}?q=1#x")});
            let time = format!("2026-03-0{at}T10:00:00Z");
            json!({"event": "buy", "distinct_id": "u1", "timestamp": time, "properties": properties})
        })
        .collect();
    let other = json!({"$set": {"tier": "tin"}, "n": "7"});
    events.push(json!({"event": "look", "distinct_id": "u2", "timestamp": "2026-03-07T10:00:00Z", "properties": other}));
    assert_eq!(server.capture(&json!(events)).status, 200);
    server
}

fn ask(server: &TestServer, sql: &str) -> Answer {
    server.post(QUERY, &json!({"query": {"kind": "HogQLQuery", "query": sql}}))
}

fn check(server: &TestServer, cases: &[(&str, Value)]) {
    for (sql, expected) in cases {
        let answer = ask(server, sql);
        assert_eq!(answer.status, 200, "{sql}: {answer}");
        assert_eq!(answer.json()["results"], *expected, "{sql}");
    }
}

#[test]
fn aggregates_leave_out_null() {
    let server = start();
    let cases = [
        (
            "SELECT argMax(properties.plan, timestamp), argMin(properties.plan, timestamp) FROM events",
            json!([["team", "free"]]),
        ),
        (
            "SELECT argMaxIf(properties.plan, timestamp, properties.n < 5), argMin(n, p) FROM (SELECT properties, timestamp, \
             toInt(properties.n) AS n, properties.plan AS p FROM events)",
            json!([["pro", 1]]),
        ),
        ("SELECT argMax(v, k) FROM (VALUES (1, 10), (2, NULL)) AS t (k, v)", json!([[10]])),
        ("SELECT argMax(v, k) FROM (VALUES (1, 10), (NULL, 20)) AS t (k, v)", json!([[10]])),
        (
            "SELECT argMax(v, k) FROM (VALUES (CAST(NULL AS BIGINT), 20)) AS t (k, v)",
            json!([[null]]),
        ),
        (
            "SELECT arraySort(groupArray(properties.plan)), length(groupArray(2)(properties.plan)), \
             arraySort(groupUniqArray(properties.plan)) FROM events",
            json!([[["free", "pro", "team"], 2, ["free", "pro", "team"]]]),
        ),
        (
            "SELECT groupArrayIf(properties.plan, properties.n = 3), groupArray(properties.nothing) FROM events",
            json!([[["pro"], []]]),
        ),
        (
            "SELECT plan FROM (SELECT arrayJoin(groupArray(properties.plan)) AS plan FROM events) ORDER BY plan",
            json!([["free"], ["pro"], ["team"]]),
        ),
        ("SELECT topK(1)(event), topK(9)(properties.nothing) FROM events", json!([[["buy"], []]])),
        (
            "SELECT windowFunnel(86400)(timestamp, properties.plan = 'free', properties.n = 2, properties.n = 4), \
             windowFunnel(604800)(timestamp, properties.plan = 'free', properties.n = 2, properties.n = 4) \
             FROM events WHERE distinct_id = 'u1'",
            json!([[2, 3]]),
        ),
        (
            "SELECT lagInFrame(n, 1) OVER (ORDER BY n) FROM (VALUES (1), (2)) AS t (n) ORDER BY n",
            json!([[null], [1]]),
        ),
    ];
    check(&server, &cases);
    let flushed = server.weir(&["flush"]).output().expect("runs");
    assert!(flushed.status.success(), "{flushed:?}");
    check(&server, &cases);
}

#[test]
fn forms_of_hogql_are_answered() {
    let server = start();
    check(
        &server,
        &[
            (
                "SELECT length([1, 2, 3]), length(splitByChar(',', 'aa,bb,cc')), length('abc'), reverse([1, 2, 3]), \
                 concat([1], [2]), concat('a', 'b'), empty([]), notEmpty([1]), empty('')",
                json!([[3, 3, 3, [3, 2, 1], [1, 2], "ab", true, true, true]]),
            ),
            (
                "SELECT properties.plan ?? 'none', properties.n > 3 ? 'late' : 'early' FROM events \
                 WHERE event IN ['buy'] AND properties.n IN [2, 5] ORDER BY timestamp",
                json!([["none", "early"], ["team", "late"]]),
            ),
            (
                "SELECT count() FROM events WHERE properties.$current_url =~ '/p/[12]' AND event !~ '^l'",
                json!([[2]]),
            ),
            ("SELECT count() FROM events WHERE properties.flag", json!([[3]])),
            (
                "SELECT count() FROM events WHERE NOT properties.flag AND event = 'buy'",
                json!([[3]]),
            ),
            ("SELECT countIf(properties.flag), sum(properties.n) FROM events", json!([[3, 28.0]])),
            (
                "SELECT toInt(properties.n) AS number, number * 2 AS twice FROM events WHERE number > 5 ORDER BY number",
                json!([[6, 12], [7, 14]]),
            ),
            (
                "WITH 5 AS least SELECT count() FROM events WHERE toInt(properties.n) > least",
                json!([[2]]),
            ),
            (
                "SELECT properties.list[1], properties.list[-1].b FROM events WHERE properties.n = 2",
                json!([["a", "2"]]),
            ),
            (
                "SELECT JSONExtractInt(properties, 'list', 2, 'b'), JSONLength(properties, 'list'), \
                 JSONExtractRaw(properties, 'list') FROM events WHERE properties.n = 2",
                json!([[2, 2, "[\"a\",{\"b\":2}]"]]),
            ),
            (
                "SELECT domainWithoutWWW(u), path(u), cutQueryString(u), extractURLParameter(u, 'q') FROM \
                 (SELECT properties.$current_url AS u FROM events WHERE properties.n = 2)",
                json!([["example.com", "/p/2", "https://www.example.com/p/2#x", "1"]]),
            ),
            (
                "SELECT arrayMap(x -> x * toInt(properties.n), [1, 2]), arrayFilter(x -> x > toInt(properties.n), [1, 2, 3]), \
                 arrayExists(x -> x = 'b', splitByChar(',', 'a,b')) FROM events WHERE properties.n = 2",
                json!([[[2, 4], [3], true]]),
            ),
            // A parameter comes before a name of the query.
            (
                "WITH 1 AS x SELECT arrayMap(x -> x + 1, [5]), arrayMap(y -> y + x, [5])",
                json!([[[6], [6]]]),
            ),
            (
                "SELECT count() FROM events WHERE created_at > toDateTime('2026-01-01 00:00:00')",
                json!([[7]]),
            ),
            (
                "SELECT formatDateTime(timestamp, '%Y/%m/%d'), toYYYYMM(timestamp) FROM events WHERE properties.n = 2",
                json!([["2026/03/02", 202_603]]),
            ),
        ],
    );
    for (sql, told) in [
        ("SELECT arrayMapp(x, [1])", "the nearest one is arrayMap"),
        ("SELECT toFloot('1')", "the nearest one is toFloat"),
        ("SELECT upper([1])", "upper"),
        ("SELECT argMax(event, timestamp) OVER () FROM events", "argMax takes no OVER"),
        ("SELECT concat([1], 'a')", "concat takes texts, or arrays, and not both"),
        ("SELECT arrayFilter(x -> x + 1, [1])", "the lambda of arrayFilter is a condition"),
        ("SELECT arrayMap((x, y) -> x + y, [1], [1, 2])", "as long as each other"),
    ] {
        let answer = ask(&server, sql);
        assert_eq!(answer.status, 400, "{sql}: {answer}");
        assert!(answer.to_string().contains(told), "{sql}: not {told}: {answer}");
    }
}

#[test]
fn persons_are_joined_by_their_uuid() {
    let server = start();
    check(
        &server,
        &[
            (
                "SELECT count() FROM events WHERE person_id IN (SELECT id FROM persons WHERE properties.tier = 'gold')",
                json!([[6]]),
            ),
            (
                "SELECT count() FROM events WHERE person_id NOT IN (SELECT id FROM persons WHERE properties.tier = 'gold')",
                json!([[1]]),
            ),
            (
                "SELECT p.properties.tier AS tier, count() AS n FROM events JOIN persons p ON events.person_id = p.id \
                 GROUP BY tier ORDER BY tier",
                json!([["gold", 6], ["tin", 1]]),
            ),
            ("SELECT count() FROM persons WHERE id = uuid AND number > 0", json!([[2]])),
        ],
    );
    let uuid =
        ask(&server, "SELECT id FROM persons WHERE properties.tier = 'tin'").json()["results"][0]
            [0]
        .clone();
    let uuid = uuid.as_str().expect("a uuid");
    let sql = format!("SELECT properties.tier FROM persons WHERE id = '{uuid}'");
    check(&server, &[(sql.as_str(), json!([["tin"]]))]);
}

/// Goal: `created_at` is of the table that it is of. Expected: an event is received when its row says so, and a person is
/// there from the first event on.
#[test]
fn created_at_is_of_its_table() {
    let server = start();
    let join = "events AS e JOIN persons AS p ON e.person_id = p.id";
    let turned = "persons AS p JOIN events AS e ON e.person_id = p.id";
    let counts = "countIf(e.created_at = e.received_at), countIf(p.created_at = toDateTime('2026-03-01 10:00:00')), \
                  countIf(e.created_at = p.created_at)";
    let (one, other) =
        (format!("SELECT {counts} FROM {join}"), format!("SELECT {counts} FROM {turned}"));
    check(
        &server,
        &[
            (one.as_str(), json!([[7, 6, 0]])),
            (other.as_str(), json!([[7, 6, 0]])),
            (
                "SELECT countIf(events.created_at = received_at), min(persons.created_at) FROM events JOIN persons ON \
                 events.person_id = persons.id",
                json!([[7, "2026-03-01T10:00:00Z"]]),
            ),
            (
                "SELECT count() FROM events WHERE created_at = received_at AND person_id IN (SELECT id FROM persons WHERE \
                 created_at = toDateTime('2026-03-07 10:00:00'))",
                json!([[1]]),
            ),
            (
                "SELECT count() FROM persons WHERE created_at = toDateTime('2026-03-01 10:00:00') AND id IN (SELECT person_id \
                 FROM events WHERE created_at <> toDateTime('2026-03-01 10:00:00'))",
                json!([[1]]),
            ),
            (
                "SELECT count(DISTINCT created_at) > 0, min(c) FROM (SELECT * FROM events) AS e CROSS JOIN (SELECT \
                 min(created_at) AS c FROM persons) AS p",
                json!([[true, "2026-03-01T10:00:00Z"]]),
            ),
            (
                "SELECT toYear(created_at) > 2025 AS created_at, count() FROM events GROUP BY created_at ORDER BY created_at",
                json!([[true, 7]]),
            ),
            (
                "SELECT count() FROM (SELECT created_at FROM events ORDER BY created_at)",
                json!([[7]]),
            ),
        ],
    );
    let sql = "SELECT created_at FROM events JOIN persons ON events.person_id = persons.id";
    let answer = ask(&server, sql);
    assert_eq!(answer.status, 400, "{answer}");
    assert!(answer.to_string().contains("say of which"), "{answer}");
    let answer = ask(
        &server,
        "SELECT e.created_at, p.created_at AS joined FROM (SELECT * FROM events) AS e, (SELECT created_at FROM persons) AS p LIMIT 1",
    );
    assert_eq!(answer.json()["columns"], json!(["created_at", "joined"]), "{answer}");
}

/// Goal: a name of an outer query is not put where a table of an inner one has a column of that name.
#[test]
fn names_are_those_of_the_nearest_query() {
    let server = start();
    check(
        &server,
        &[
            (
                "WITH 5 AS n SELECT a, n FROM (SELECT n AS a FROM (VALUES (1)) AS t (n))",
                json!([[1, 5]]),
            ),
            (
                "SELECT n * 10 AS k FROM (VALUES (1), (2)) AS t (n) WHERE k > (SELECT max(k) FROM (VALUES (10)) AS u (k))",
                json!([[20]]),
            ),
            (
                "SELECT n * 10 AS k FROM (VALUES (1), (2)) AS t (n) WHERE k > 10 AND n IN (SELECT k FROM (VALUES (2)) AS u (k))",
                json!([[20]]),
            ),
            (
                "SELECT person.properties.tier AS tier FROM events WHERE event = 'look' UNION ALL SELECT person.properties.tier \
                 FROM events WHERE properties.n = 1 ORDER BY tier",
                json!([["gold"], ["tin"]]),
            ),
        ],
    );
}

/// The first cases are those of ClickHouse's documentation of ARRAY JOIN.
#[test]
fn arrays_are_joined() {
    let server = start();
    let arrays = "(VALUES ('Hello', [1, 2]), ('World', [3, 4, 5]), ('Goodbye', arraySlice([1], 2))) AS arrays_test (s, arr)";
    let of = |sql: &str| sql.replace("arrays_test", arrays);
    let documented = [
        (
            of("SELECT s, arr FROM arrays_test ARRAY JOIN arr ORDER BY arr"),
            json!([["Hello", 1], ["Hello", 2], ["World", 3], ["World", 4], ["World", 5]]),
        ),
        (
            of("SELECT s, arr FROM arrays_test LEFT ARRAY JOIN arr ORDER BY arr NULLS LAST"),
            json!([
                ["Hello", 1],
                ["Hello", 2],
                ["World", 3],
                ["World", 4],
                ["World", 5],
                ["Goodbye", null]
            ]),
        ),
        (
            of(
                "SELECT s, arr, a, num, mapped FROM arrays_test ARRAY JOIN arr AS a, arrayEnumerate(arr) AS num, \
                arrayMap(x -> x + 1, arr) AS mapped ORDER BY a",
            ),
            json!([
                ["Hello", [1, 2], 1, 1, 2],
                ["Hello", [1, 2], 2, 2, 3],
                ["World", [3, 4, 5], 3, 1, 4],
                ["World", [3, 4, 5], 4, 2, 5],
                ["World", [3, 4, 5], 5, 3, 6]
            ]),
        ),
        (
            of(
                "SELECT s, arr, a FROM arrays_test ARRAY JOIN [1, 2, 3] AS a WHERE s = 'Hello' ORDER BY a",
            ),
            json!([["Hello", [1, 2], 1], ["Hello", [1, 2], 2], ["Hello", [1, 2], 3]]),
        ),
    ];
    let documented: Vec<(&str, Value)> =
        documented.iter().map(|(sql, expected)| (sql.as_str(), expected.clone())).collect();
    check(&server, &documented);
    let cases = [
        (
            "SELECT count(), uniq(x) FROM events ARRAY JOIN JSONExtractArrayRaw(properties, 'list') AS x",
            json!([[12, 7]]),
        ),
        (
            "SELECT count(), count(x) FROM events AS e LEFT ARRAY JOIN JSONExtractArrayRaw(e.properties, 'list') AS x",
            json!([[13, 12]]),
        ),
        (
            "SELECT e.properties.n, e.event, x, y FROM events AS e ARRAY JOIN JSONExtractArrayRaw(properties, 'list') AS x, \
             arrayEnumerate(JSONExtractArrayRaw(properties, 'list')) AS y WHERE properties.n = 2 ORDER BY y",
            json!([["2", "buy", "\"a\"", 1], ["2", "buy", "{\"b\":2}", 2]]),
        ),
        (
            "SELECT person.properties.tier AS tier, count() FROM events ARRAY JOIN JSONExtractArrayRaw(properties, 'list') AS x \
             WHERE x = '\"a\"' GROUP BY tier",
            json!([["gold", 6]]),
        ),
        (
            "SELECT part, count() FROM events ARRAY JOIN splitByChar('o', person.properties.tier) AS part GROUP BY part ORDER BY \
             part",
            json!([["g", 6], ["ld", 6], ["tin", 1]]),
        ),
        (
            "SELECT splitByChar('/', properties.$current_url) AS parts, part FROM events ARRAY JOIN parts AS part WHERE \
             properties.n = 2 AND part = 'p'",
            json!([[["https:", "", "www.example.com", "p", "2?q=1#x"], "p"]]),
        ),
        (
            "SELECT p.properties.tier, count() FROM events ARRAY JOIN [1, 2] AS x JOIN persons AS p ON p.id = person_id \
             GROUP BY p.properties.tier ORDER BY 1",
            json!([["gold", 12], ["tin", 2]]),
        ),
    ];
    check(&server, &cases);
    let flushed = server.weir(&["flush"]).output().expect("runs");
    assert!(flushed.status.success(), "{flushed:?}");
    check(&server, &cases);
    for (sql, told) in [
        ("SELECT x FROM events ARRAY JOIN [1] AS x, [1, 2] AS y", "as long as each other"),
        ("SELECT x FROM events ARRAY JOIN lower('a')", "with names"),
        (
            "SELECT x FROM events JOIN persons ON person_id = id ARRAY JOIN [1] AS x",
            "arrayJoin(...) in SELECT",
        ),
        ("SELECT count() FROM events WHERE person_id IN COHORT 5", "there is no cohort"),
    ] {
        let answer = ask(&server, sql);
        assert_eq!(answer.status, 400, "{sql}: {answer}");
        assert!(answer.to_string().contains(told), "{sql}: not {told}: {answer}");
    }
}

#[test]
fn names_with_dashes_need_quotes() {
    let server = start();
    let name = "$survey_response_0196e96d-7705-7d32";
    let sent =
        json!({"event": "survey", "distinct_id": "u1", "properties": {name: "yes", "$price": 5}});
    assert_eq!(server.capture(&json!([sent])).status, 200);
    let event = "FROM events WHERE event = 'survey'";
    let (quoted, bracketed) = (
        format!("SELECT properties.\"{name}\" {event}"),
        format!("SELECT properties['{name}'], properties.$price-1, properties.$price - 2 {event}"),
    );
    check(
        &server,
        &[(quoted.as_str(), json!([["yes"]])), (bracketed.as_str(), json!([["yes", 4.0, 3.0]]))],
    );
    let answer = ask(&server, &format!("SELECT properties.{name} {event}"));
    assert_eq!(answer.status, 400, "{answer}");
    assert!(answer.to_string().contains("write it in quotes"), "{answer}");
    let query = json!({"kind": "EventsQuery", "select": [format!("properties.{name}")]});
    let answer = server.post(QUERY, &json!({"query": query}));
    assert_eq!(answer.status, 400, "{answer}");
    assert!(answer.to_string().contains("write it in quotes"), "{answer}");
}

/// Members of cohorts, by their id or name: of a rule, and of a list.
#[test]
fn members_of_cohorts_are_asked_for() {
    let server = start();
    let cohort = |body: Value| server.post("/api/projects/@current/cohorts/", &body).created();
    let is_gold = json!({"key": "tier", "type": "person", "value": "gold", "operator": "exact"});
    let rule = json!({"properties": {"type": "AND", "values": [is_gold]}});
    let gold = cohort(json!({"name": "gold ones", "filters": rule}))["id"].clone();
    let listed =
        cohort(json!({"name": "it's a \"list\"", "is_static": true, "distinct_ids": ["u2"]}));
    let listed = listed["id"].clone();
    for round in ["in memory", "in files"] {
        for (condition, count) in [
            (format!("person_id IN COHORT {gold}"), 6),
            (format!("person_id NOT IN COHORT {gold}"), 1),
            (format!("person_id in cohort {listed}"), 1),
            ("person_id IN COHORT 'gold ones'".to_owned(), 6),
            ("person_id IN COHORT 'it''s a \"list\"'".to_owned(), 1),
            (format!("NOT (person_id IN COHORT {gold}) AND event = 'look'"), 1),
            (format!("person_id IN COHORT {gold} AND person_id IN COHORT {listed}"), 0),
            (format!("person_id IN COHORT {gold} OR person_id IN COHORT {listed}"), 7),
            (format!("person_id IN COHORT {gold} AND properties.n > 4"), 2),
            ("person_id IN COHORT (5)".to_owned(), -1),
            ("person_id IN COHORT gold".to_owned(), -1),
            ("person_id IN COHORT 4711".to_owned(), -1),
            ("person_id IN COHORT 'gold'".to_owned(), -1),
        ] {
            let answer = ask(&server, &format!("SELECT count() FROM events WHERE {condition}"));
            if count < 0 {
                assert_eq!(answer.status, 400, "{condition}: {answer}");
                assert!(answer.to_string().to_lowercase().contains("cohort"), "{answer}");
                continue;
            }
            assert_eq!(answer.status, 200, "{round}: {condition}: {answer}");
            assert_eq!(answer.json()["results"], json!([[count]]), "{round}: {condition}");
        }
        check(
            &server,
            &[
                (&format!("SELECT count() FROM persons WHERE id IN COHORT {gold}"), json!([[1]])),
                (
                    &format!(
                        "SELECT e.event FROM events e JOIN persons p ON e.person_id = p.id WHERE p.id IN COHORT {listed}"
                    ),
                    json!([["look"]]),
                ),
            ],
        );
        server.flush();
    }
    let answer = ask(&server, &format!("SELECT countIf(person_id IN COHORT {gold}) FROM events"));
    assert_eq!(answer.status, 400, "{answer}");
    assert!(answer.to_string().contains("IN COHORT"), "{answer}");
    // Of which several have the name.
    cohort(json!({"name": "gold ones", "filters": {"properties": {"type": "AND", "values": [
        {"key": "tier", "type": "person", "value": "tin", "operator": "exact"}]}}}));
    let answer = ask(&server, "SELECT count() FROM events WHERE person_id IN COHORT 'gold ones'");
    assert_eq!(answer.status, 400, "{answer}");
    assert!(answer.to_string().contains("several cohorts"), "{answer}");
    // As a text, without anything around it.
    let sql = format!("SELECT count(*) AS n FROM events WHERE person_id IN COHORT {gold}");
    let answer = server.post(QUERY, &json!({"query": sql}));
    assert_eq!(answer.status, 200, "{answer}");
    assert_eq!(answer.json()["n"], 6, "{answer}");
}

/// What stands for something else is what it stands for where it is asked, and functions are those of ClickHouse for null,
/// line ends and nothing.
#[test]
fn names_and_functions_mean_one_thing() {
    let server = start();
    check(
        &server,
        &[
            (
                "SELECT toYear(created_at) > 2000 AS created_at, count() FROM events \
                 WHERE created_at > now() - INTERVAL 1 hour GROUP BY created_at",
                json!([[true, 7]]),
            ),
            (
                "WITH 2 AS x SELECT event, x, count() FROM events GROUP BY event, x ORDER BY event",
                json!([["buy", 2, 6], ["look", 2, 1]]),
            ),
            (
                "WITH 2 AS x SELECT event, properties.n AS n FROM events WHERE event = 'buy' ORDER BY x, toInt(n) DESC LIMIT 1",
                json!([["buy", "6"]]),
            ),
            (
                "WITH ['a', 'b'] AS tag SELECT tag, count() FROM events ARRAY JOIN tag GROUP BY tag ORDER BY tag",
                json!([["a", 7], ["b", 7]]),
            ),
            (
                "SELECT max2(NULL, 1), min2(1, NULL), ifNotFinite(NULL, 42.0), intDivOrZero(NULL, 0), moduloOrZero(NULL, 0)",
                json!([[null, null, null, null, null]]),
            ),
            (
                "SELECT match('a' || chr(10) || 'b', 'a.b'), countMatches('a' || chr(10) || 'b', 'a.b'), \
                 countMatches('abc', 'x*'), countMatchesCaseInsensitive('aXx', 'x'), countMatches('a', NULL)",
                json!([[true, 1, 0, 2, null]]),
            ),
        ],
    );
    // Of a property with a column of numbers, too, what is no number is behind all others.
    let prices = [json!("abc"), json!("1e3"), json!(5)];
    let event = |(price, n): (&Value, i32)| json!({"event": "pay", "distinct_id": "u3", "properties": {"price": price, "n": n}});
    let events: Vec<Value> = prices.iter().zip(1..).map(event).collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    let of_prices =
        "argMax(properties.n, properties.price), argMin(properties.n, properties.price)";
    check(
        &server,
        &[(&format!("SELECT {of_prices} FROM events WHERE event = 'pay'"), json!([["2", "3"]]))],
    );
    // Queries of WITH in each other are gone through more than once at each level.
    let nested = (0..30).fold("SELECT 1 AS a".to_owned(), |inner, _| {
        format!("WITH w AS ({inner}) SELECT * FROM w")
    });
    let twice = (0..14).fold("SELECT 1 AS a".to_owned(), |inner, _| {
        format!("WITH w AS ({inner}) SELECT 1 AS a FROM w, w AS z")
    });
    for sql in [nested, twice] {
        let answer = ask(&server, &sql);
        assert_eq!(answer.status, 400, "{sql}: {answer}");
    }
    let chain: Vec<String> =
        (1..100).map(|at| format!("w{at} AS (SELECT * FROM w{})", at - 1)).collect();
    let sql = format!("WITH w0 AS (SELECT 1 AS a), {} SELECT a FROM w99", chain.join(", "));
    check(&server, &[(&sql, json!([[1]]))]);
}

/// Goal: a search that reads on to the end for each match ends with its query. What fails: it goes on for minutes.
#[test]
fn searches_of_all_matches_end_with_their_query() {
    let server = TestServer::start_with(&[("WEIR_QUERY_TIMEOUT", "2s")]);
    for function in ["extractAll", "countMatches", "extractAllGroups", "splitByRegexp"] {
        let (text, pattern) = ("repeat('a', 400000)", "'(a).*b|(a)'");
        let arguments = match function {
            "splitByRegexp" => format!("{pattern}, {text}"),
            _ => format!("{text}, {pattern}"),
        };
        #[expect(clippy::disallowed_methods, reason = "how long it takes")]
        let began = std::time::Instant::now();
        let call = format!("{function}({arguments})");
        let sql = match function {
            "countMatches" => format!("SELECT {call}"),
            _ => format!("SELECT length({call})"),
        };
        let answer = ask(&server, &sql);
        assert_eq!(answer.status, 504, "{function}: {answer}");
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{function}: {answer}");
    }
    // The threads are there for others.
    assert_eq!(ask(&server, "SELECT 1").json()["results"], json!([[1]]));
}
