//! Hostile SQL, which would use up all memory or abort the process during planning or in one call: it is
//! refused, or answered in little memory.

use serde_json::json;

use crate::harness::TestServer;
use crate::limits::{FREED_AT_ONCE, peak_mib};

#[test]
fn a_few_words_take_little_memory() {
    let server = TestServer::start_with(&[FREED_AT_ONCE]);
    let events: Vec<_> = (0..100)
        .map(|n| json!({"event": format!("e{}", n % 3), "distinct_id": format!("u{n}")}))
        .collect();
    assert_eq!(server.capture(&json!(events)).status, 200);
    assert_eq!(server.count("SELECT count(*) FROM events"), 100);
    let before = peak_mib(&server);
    let columns = |n: usize| (0..n).map(|n| format!("c.x{n}")).collect::<Vec<_>>().join(", ");
    let values = |n: usize| (0..n).map(|_| "1").collect::<Vec<_>>().join(", ");
    let names = |n: usize| (0..n).map(|n| format!("x{n}")).collect::<Vec<_>>().join(", ");
    let cube = format!(
        "SELECT count(*) FROM (VALUES ({})) c({}) GROUP BY CUBE({})",
        values(40),
        names(40),
        columns(40)
    );
    for (sql, status) in [
        ("SELECT * FROM range(1, array_length(range(1, 4000000000)))", 400),
        ("SELECT * FROM range(1, levenshtein(repeat('a', 400000), repeat('b', 400000)))", 400),
        ("SELECT count(*) FROM range(1, 1000)", 200),
        ("SELECT approx_percentile_cont(x, 0.5, 1000000000000000) FROM (VALUES (1.0)) t(x)", 400),
        (
            "SELECT approx_percentile_cont_with_weight(x, 1, 0.5, 1000000000000000) FROM (VALUES (1.0)) t(x)",
            400,
        ),
        (
            "SELECT approx_percentile_cont(x, 0.5, 1000000000000000) OVER () FROM (VALUES (1.0)) t(x)",
            400,
        ),
        ("SELECT approx_percentile_cont(x, 0.5, 1000) FROM (VALUES (1.0)) t(x)", 200),
        (
            "SELECT count(*) FROM (SELECT event FROM events GROUP BY event ORDER BY event \
             LIMIT 1000000000000000) t",
            200,
        ),
        (
            "SELECT count(*) FROM (SELECT event, max(timestamp) AS m FROM events GROUP BY event \
             ORDER BY m DESC LIMIT 1000000000000000) t",
            200,
        ),
        (
            "SELECT count(*) FROM (SELECT event FROM events ORDER BY event LIMIT 1000000000000000) t",
            200,
        ),
        ("SELECT count(*) FROM (SELECT DISTINCT event FROM events LIMIT 1000000000000000) t", 200),
        ("SELECT CAST(NULL AS VARCHAR[1000][1000][1000])", 400),
        ("SELECT CAST(NULL AS VARCHAR[1000][1000][1000][1000][1000])", 400),
        (
            "SELECT array_length(range(1, 4000000000)) FROM (VALUES (1)) a(x) JOIN (VALUES (2)) b(y) \
             ON a.x > b.y",
            200,
        ),
        (&cube, 400),
        (&format!("{cube}, c.x0"), 400),
        ("SELECT repeat('a', 10000000) LIKE ('%a' || repeat('_', 5000) || 'b%')", 400),
        ("SELECT array_resize([CAST(NULL AS BIGINT[128])], 10000000)", 400),
        ("SELECT arrays_zip(range(1, 1000000), [CAST(NULL AS BIGINT[128])])", 400),
        (
            "SELECT l, unnest(unnest(m)) FROM (SELECT range(1, 100000) AS l, [range(1, 100000)] AS m)",
            400,
        ),
        (
            "SELECT event || '-' || distinct_id, count(*) FROM events \
             GROUP BY ROLLUP(event || '-' || distinct_id)",
            200,
        ),
        (
            "SELECT max(array_length(a)) FROM (SELECT array_agg(event) OVER () AS a FROM events)",
            400,
        ),
        ("SELECT count(*) FROM events WHERE event LIKE 'e_' AND properties LIKE '%{%}%'", 200),
    ] {
        let answer = server.post("/api/projects/1/query/", &json!({"query": sql}));
        assert_eq!(answer.status, status, "{sql}: {answer}");
    }
    let more = peak_mib(&server).saturating_sub(before);
    assert!(more < 300, "{more} MiB");
    assert_eq!(server.count("SELECT count(*) FROM events"), 100);
}
