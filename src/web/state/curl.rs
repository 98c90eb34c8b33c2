//! Shell commands that send the same request to the API as a page: [`get`], [`post`], and [`command`] for an insight.
//! The key is read from an environment variable, so that it does not appear in the shell's history.

use serde_json::{Value, json};

/// Runs the query of an insight.
pub fn command(server: &str, project: i64, query: &Value) -> String {
    post(server, project, "query/", &json!({"query": query}))
}

/// Reads a path of a project, its query string included.
pub fn get(server: &str, project: i64, path: &str) -> String {
    format!(
        "curl {} \\\n  -H \"Authorization: Bearer $WEIR_PERSONAL_API_KEY\"",
        quoted(&format!("{server}/api/projects/{project}/{path}"))
    )
}

/// Sends JSON to a path of a project.
pub fn post(server: &str, project: i64, path: &str, body: &Value) -> String {
    format!(
        "{} \\\n  -H 'Content-Type: application/json' \\\n  -d {}",
        get(server, project, path),
        quoted(&body.to_string())
    )
}

/// Quotes a text as one word of a shell command.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::command;

    #[test]
    fn quotes_do_not_end_the_word() {
        let query = json!({"event": "it's; rm -rf / #"});
        let command = command("http://a", 1, &query);
        let expected = r#"-d '{"query":{"event":"it'\''s; rm -rf / #"}}'"#;
        assert!(command.ends_with(expected), "{command}");
    }
}
