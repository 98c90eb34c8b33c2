//! A command that asks the API the same: [`command`].

use serde_json::Value;
use serde_json::json;

/// A line for a shell that sends a query. The key is taken from the environment, so that it stands in no history.
pub fn command(server: &str, project: i64, query: &Value) -> String {
    let body = json!({"query": query}).to_string();
    format!(
        "curl {} \\\n  -H \"Authorization: Bearer $WEIR_PERSONAL_API_KEY\" \\\n  -H 'Content-Type: application/json' \\\n  -d {}",
        quoted(&format!("{server}/api/projects/{project}/query/")),
        quoted(&body)
    )
}

/// A text as one word of a shell.
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
