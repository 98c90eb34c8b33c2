//! SQL as a saved insight: [`SavedSql`], built from the JSON that a client saved, or from the state of the SQL page.

use serde_json::{Value, json};

use weir_wire::query_node::{SQL, VISUALIZATION, unwrapped};

/// Fields of a query that an address cannot represent.
const UNSAID: [&str; 3] = ["filters", "variables", "values"];

/// A chart of rows beside the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Chart {
    /// Name in addresses.
    pub name: &'static str,
    /// Display name.
    pub title: &'static str,
    /// Name in the API.
    display: &'static str,
}

/// All of them.
pub const CHARTS: [Chart; 2] = [
    Chart { name: "line", title: "Lines", display: "ActionsLineGraph" },
    Chart { name: "bars", title: "Bars", display: "ActionsBar" },
];

/// The chart with this name.
pub fn chart(name: &str) -> Option<&'static Chart> {
    CHARTS.iter().find(|own| own.name == name)
}

/// A query in SQL and how its rows are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedSql {
    /// The text.
    pub sql: String,
    /// The chart above the rows.
    pub chart: Option<&'static Chart>,
    /// Whether the text alone is the whole query: it has neither filters nor values.
    pub is_whole: bool,
}

impl SavedSql {
    /// The SQL of a saved query; `None` if it is of another kind.
    pub fn of(query: &Value) -> Option<Self> {
        let source = unwrapped(query);
        if source.get("kind")? != SQL {
            return None;
        }
        let display = query.get("display").and_then(Value::as_str);
        let chart = CHARTS.iter().find(|own| Some(own.display) == display);
        let is_unsaid = |name: &&str| match source.get(name) {
            None | Some(Value::Null) => false,
            Some(Value::Object(fields)) => !fields.is_empty(),
            Some(_) => true,
        };
        let is_whole = !UNSAID.iter().any(is_unsaid);
        Some(Self { sql: source.get("query")?.as_str()?.to_owned(), chart, is_whole })
    }

    /// A saved SQL query with its text and chart replaced by these; its other fields are preserved.
    pub fn over(&self, query: &Value) -> Value {
        let before = Self::of(query);
        let is_bare = query.get("kind").is_some_and(|kind| kind == SQL);
        let mut source = if is_bare { Some(query) } else { query.get("source") }.cloned();
        if let Some(Value::Object(fields)) = &mut source {
            fields.insert("query".to_owned(), Value::from(self.sql.as_str()));
        }
        let own = self.node();
        let mut changed = if is_bare { own.clone() } else { query.clone() };
        if let Value::Object(fields) = &mut changed {
            fields.insert("source".to_owned(), source.unwrap_or_default());
            if before.is_none_or(|before| before.chart != self.chart) {
                for name in ["kind", "display"] {
                    fields.insert(name.to_owned(), own.get(name).cloned().unwrap_or_default());
                }
            }
        }
        changed
    }

    /// The query as clients save it.
    pub fn node(&self) -> Value {
        let display = self.chart.map_or("ActionsTable", |chart| chart.display);
        json!({"kind": VISUALIZATION, "source": {"kind": SQL, "query": self.sql}, "display": display})
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CHARTS, SavedSql};

    #[test]
    fn what_is_saved_is_read_again() {
        let charts = CHARTS.iter().map(Some).chain([None]);
        for chart in charts {
            let saved = SavedSql { sql: "SELECT 'a\n\"'".to_owned(), chart, is_whole: true };
            assert_eq!(SavedSql::of(&saved.node()).as_ref(), Some(&saved));
            let before = json!({"kind": "DataTableNode", "full": true, "source": {
                "kind": "HogQLQuery", "query": "SELECT 1", "values": {"n": 1},
            }});
            for before in [before.clone(), before["source"].clone()] {
                let changed = saved.over(&before);
                assert_eq!(
                    SavedSql::of(&changed),
                    Some(SavedSql { is_whole: false, ..saved.clone() })
                );
                assert_eq!(changed["source"]["values"], json!({"n": 1}));
            }
        }
    }

    #[test]
    fn queries_of_clients_are_read() {
        let sql = |more: &str| {
            let text = format!(r#"{{"kind": "HogQLQuery", "query": "SELECT 1"{more}}}"#);
            serde_json::from_str(&text).unwrap_or_default()
        };
        let is_whole = |query| SavedSql::of(&query).map(|saved| saved.is_whole);
        assert_eq!(is_whole(sql("")), Some(true));
        assert_eq!(is_whole(json!({"kind": "DataTableNode", "source": sql("")})), Some(true));
        assert_eq!(is_whole(sql(r#", "variables": {}, "filters": null"#)), Some(true));
        assert_eq!(is_whole(sql(r#", "filters": {"dateRange": {}}"#)), Some(false));
        assert_eq!(is_whole(sql(r#", "values": {"n": 1}"#)), Some(false));
        let others = [
            json!(null),
            json!({"kind": "TrendsQuery"}),
            json!({"kind": "HogQLQuery"}),
            json!({"kind": "DataVisualizationNode", "source": {"kind": "EventsQuery"}}),
            json!({"kind": "ActorsQuery", "source": sql("")}),
        ];
        for query in others {
            assert_eq!(SavedSql::of(&query), None, "{query}");
        }
    }
}
