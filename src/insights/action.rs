//! Actions: named sets of events, defined by steps. [`Action`] is parsed from the steps that users save. An event
//! matches the action if it matches any step, and a step if it meets all conditions of the step: the event's name,
//! the URL of the page, properties, and conditions on the DOM elements of the event.

use datafusion::logical_expr::Expr;
use datafusion::prelude::{col, lit};
use serde_json::{Value, json};

use crate::filters::Filters;
use weir_api::node::{Content, NodeError, join, shortened};
use weir_api::nodes::filter::Properties;
use weir_api::nodes::lists as nodes;
use weir_event::elements::criteria::Criteria;
use weir_event::elements::selector::Selector;
use weir_event::id::ProjectId;
use weir_event::pattern::{Pattern, Size, check_together};
use weir_query::filter::elements;
use weir_query::kernel::engine::Engine;
use weir_query::kernel::view::View;

/// Most steps of an action. Each one is a condition that is evaluated for every event.
pub const STEPS_MAX: usize = 50;

/// Longest text of a step, in characters.
const TEXT_MAX_CHARS: usize = 1000;

/// Operators that compare a text.
const MATCHINGS: [&str; 3] = ["contains", "regex", "exact"];

/// The steps of an action.
#[derive(Clone, Debug)]
pub struct Action {
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
struct Step {
    event: Option<String>,
    /// Its property filters, and the condition on the URL of the page.
    filters: Filters,
    criteria: Criteria,
}

impl Action {
    /// Parses a list of steps at `path` of the request.
    ///
    /// # Errors
    ///
    /// A step is malformed or has an invalid pattern or selector, or there are too many steps.
    pub fn parse(steps: &Value, path: &str) -> Result<Self, NodeError> {
        Self::of(Vec::read(steps, path)?, path)
    }

    /// An action of steps that are decoded already.
    ///
    /// # Errors
    ///
    /// There are too many, or one has an invalid text.
    pub(crate) fn of(steps: Vec<nodes::Step>, path: &str) -> Result<Self, NodeError> {
        if steps.len() > STEPS_MAX {
            let detail = format!("An action has at most {STEPS_MAX} steps.");
            return Err(NodeError::new(path, detail));
        }
        let numbered = steps.into_iter().enumerate();
        let steps = numbered.map(|(number, step)| Step::of(step, &format!("{path}.{number}")));
        let steps: Vec<Step> = steps.collect::<Result<_, _>>()?;
        let states = steps.iter().map(Step::pattern_states);
        match check_together(states) {
            Ok(()) => Ok(Self { steps }),
            Err(error) => Err(NodeError::new(path, error.to_string())),
        }
    }

    /// The name of the action with this id, or `None` if it has no name. `field` is the path of the id in the
    /// request, for errors.
    ///
    /// # Errors
    ///
    /// There is no such action, or it was deleted.
    pub fn name_of(
        engine: &Engine,
        project: ProjectId,
        (id, field): (i64, &str),
    ) -> Result<Option<String>, NodeError> {
        let snapshot = engine.metadata().snapshot();
        let found = snapshot.actions(project).iter().find(|action| action.id == id);
        let found = found.ok_or_else(|| unknown(id, field))?;
        let name = found.fields.get("name").and_then(Value::as_str);
        Ok(name.filter(|name| !name.is_empty()).map(str::to_owned))
    }

    /// Parses the action with this id. `field` is the path of the id in the request, for errors.
    ///
    /// # Errors
    ///
    /// There is no such action, or it was deleted.
    pub fn find(
        engine: &Engine,
        project: ProjectId,
        (id, field): (i64, &str),
    ) -> Result<Self, NodeError> {
        let snapshot = engine.metadata().snapshot();
        let found = snapshot.actions(project).iter().find(|action| action.id == id);
        let Some(steps) = found.and_then(|action| action.fields.get("steps")) else {
            return Err(unknown(id, field));
        };
        Self::parse(steps, field)
    }

    /// The filters of its steps, one set per step.
    pub fn filters(&self) -> impl Iterator<Item = &Filters> {
        self.steps.iter().map(|step| &step.filters)
    }

    /// The event names of its steps.
    pub fn events(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| step.event.as_deref())
    }

    /// The condition that an event matches it; never null.
    pub fn condition(&self, engine: &Engine, (view, project): (&View, ProjectId)) -> Expr {
        let steps = self.steps.iter().map(|step| step.condition(engine, (view, project)));
        steps.reduce(Expr::or).unwrap_or_else(|| lit(false))
    }
}

/// The error for an id that no action has.
fn unknown(id: i64, field: &str) -> NodeError {
    let detail = format!("There is no action with the id {id}.");
    NodeError { field: field.to_owned(), detail }
}

impl Step {
    fn of(sent: nodes::Step, path: &str) -> Result<Self, NodeError> {
        let refused = |name: &str, detail: String| NodeError::new(join(path, name), detail);
        for (name, text) in [
            ("event", &sent.event),
            ("url", &sent.url),
            ("text", &sent.text),
            ("href", &sent.href),
            ("tag_name", &sent.tag_name),
            ("selector", &sent.selector),
        ] {
            if text.as_ref().is_some_and(|text| text.chars().count() > TEXT_MAX_CHARS) {
                let detail =
                    format!("Ensure this field has no more than {TEXT_MAX_CHARS} characters.");
                return Err(refused(name, detail));
            }
        }
        let mut filters = Filters::default();
        if let Some(Properties(properties)) = &sent.properties {
            filters.add(properties, &join(path, "properties"))?;
        }
        let compared = |name: &str, text: &Option<String>, matching: &Option<String>, usual| {
            let compared = Compared { text: text.as_deref(), matching: matching.as_deref(), usual };
            compared
                .pattern(name != "url")
                .map_err(|detail| refused(&format!("{name}_matching"), detail))
        };
        if let Some(url) = compared("url", &sent.url, &sent.url_matching, "contains")? {
            Size::of(&url).map_err(|error| refused("url", error.to_string()))?;
            let of_url = json!([{"key": "$current_url", "operator": "regex", "value": url}]);
            filters.add(&of_url, &join(path, "url"))?;
        }
        let selector = sent.selector.as_deref().map(Selector::parse).transpose();
        let compiled = |name: &str, text: &Option<String>, matching: &Option<String>| {
            let pattern = compared(name, text, matching, "exact")?;
            let pattern = pattern.map(|pattern| Pattern::new(&pattern)).transpose();
            pattern.map_err(|error| refused(name, error.to_string()))
        };
        let criteria = Criteria {
            text: compiled("text", &sent.text, &sent.text_matching)?,
            href: compiled("href", &sent.href, &sent.href_matching)?,
            selector: selector.map_err(|error| refused("selector", error.to_string()))?,
            tag: sent.tag_name,
        };
        Ok(Self { event: sent.event, filters, criteria })
    }

    fn pattern_states(&self) -> usize {
        let states = self.criteria.patterns().map(|pattern| pattern.size().states);
        states.fold(self.filters.pattern_states(), usize::saturating_add)
    }

    fn condition(&self, engine: &Engine, (view, project): (&View, ProjectId)) -> Expr {
        let named = self.event.as_deref().map(|event| col("event").eq(lit(event)));
        let of_elements =
            (!self.criteria.is_empty()).then(|| elements::condition(self.criteria.clone()));
        let all = named.into_iter().chain(of_elements);
        let all = all.chain(self.filters.condition(engine, project, view.exact()));
        all.reduce(Expr::and).unwrap_or_else(|| lit(true))
    }
}

/// A text of a step, the operator that compares it, and the default operator.
struct Compared<'s> {
    text: Option<&'s str>,
    matching: Option<&'s str>,
    usual: &'static str,
}

impl Compared<'_> {
    /// The regular expression, if there is a text; `contains` is case-insensitive if `is_any_case`.
    ///
    /// # Errors
    ///
    /// The operator is unknown, as a sentence.
    fn pattern(&self, is_any_case: bool) -> Result<Option<String>, String> {
        let matching = self.matching.unwrap_or(self.usual);
        if !MATCHINGS.contains(&matching) {
            return Err(format!("\"{}\" is not a valid choice.", shortened(matching)));
        }
        let Some(text) = self.text else { return Ok(None) };
        Ok(Some(match matching {
            "exact" => format!(r"\A{}\z", fancy_regex::escape(text)),
            "contains" => like(text, is_any_case),
            _ => text.to_owned(),
        }))
    }
}

/// The regular expression of SQL's LIKE with `%` around the text: in it `%` matches any characters and `_` one
/// character; a backslash escapes the next one.
fn like(text: &str, is_any_case: bool) -> String {
    let mut pattern = String::from(if is_any_case { "(?is)" } else { "(?s)" });
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let plain = match character {
            '%' => {
                pattern.push_str(".*");
                continue;
            }
            '_' => {
                pattern.push('.');
                continue;
            }
            '\\' => characters.next().unwrap_or('\\'),
            other => other,
        };
        pattern.push_str(&fancy_regex::escape(plain.encode_utf8(&mut [0; 4])));
    }
    pattern
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Action, STEPS_MAX, TEXT_MAX_CHARS, like};
    use weir_event::elements::elements;
    use weir_event::pattern::Pattern;

    #[test]
    fn parts_are_those_of_the_elements() {
        let chain = elements(
            r#"b:text="Buy 100%";a.big:attr__href="/Cart?x=1"href="/Cart?x=1"text="";div.shop:text="Shop""#,
        );
        for (step, expected) in [
            (json!({"text": "Buy 100%"}), true),
            (json!({"text": "buy 100%"}), false),
            (json!({"text": "Buy"}), false),
            (json!({"text": "buy", "text_matching": "contains"}), true),
            (json!({"text": "b_y%100", "text_matching": "contains"}), true),
            (json!({"text": "^Buy \\d+%$", "text_matching": "regex"}), true),
            (json!({"text": "^buy", "text_matching": "regex"}), false),
            (json!({"href": "/Cart?x=1"}), true),
            (json!({"href": "/cart", "href_matching": "contains"}), true),
            (json!({"tag_name": "A"}), true),
            (json!({"tag_name": "p"}), false),
            (json!({"selector": ".shop > a"}), true),
            (json!({"selector": ".shop > b"}), false),
            (json!({"text": "Shop", "tag_name": "b", "href": "/Cart?x=1"}), true),
            (json!({"text": "Shop", "tag_name": "i"}), false),
        ] {
            let action = Action::parse(&json!([step]), "steps").unwrap();
            assert_eq!(action.steps[0].criteria.are_met_by(&chain), expected, "{step}");
        }
        let none = Action::parse(&json!([{"event": "a"}, {"url": "x"}]), "steps").unwrap();
        assert!(none.steps.iter().all(|step| step.criteria.is_empty()));
        let named = Action::parse(&json!([{"event": "a"}, {"event": "b"}]), "steps").unwrap();
        assert_eq!(named.events().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn wrong_steps_are_refused_by_their_field() {
        let many: Vec<Value> = (0..=STEPS_MAX).map(|_| json!({})).collect();
        for (steps, field) in [
            (json!(null), "steps"),
            (json!({}), "steps"),
            (json!(many), "steps"),
            (json!([{}, null]), "steps.1"),
            (json!([{"event": 1}]), "steps.0.event"),
            (json!([{"url": "a", "url_matching": "near"}]), "steps.0.url_matching"),
            (json!([{"url": "(", "url_matching": "regex"}]), "steps.0.url"),
            (json!([{"text": "[", "text_matching": "regex"}]), "steps.0.text"),
            (json!([{"text": "\\w{500}", "text_matching": "regex"}]), "steps.0.text"),
            (json!([{"url": "\\w{500}", "url_matching": "regex"}]), "steps.0.url"),
            (json!(vec![json!({"href": "\\w{50}", "href_matching": "regex"}); 6]), "steps"),
            (json!([{"href": "a".repeat(TEXT_MAX_CHARS + 1)}]), "steps.0.href"),
            (json!([{"selector": "a:hover"}]), "steps.0.selector"),
            (json!([{"tag_name": []}]), "steps.0.tag_name"),
            (json!([{"properties": 1}]), "steps.0.properties"),
            (
                json!([{"properties": [{"key": "a", "value": 1, "type": "flag"}]}]),
                "steps.0.properties",
            ),
        ] {
            assert_eq!(Action::parse(&steps, "steps").unwrap_err().field, field, "{steps}");
        }
    }

    #[test]
    fn like_is_that_of_sql() {
        for (text, actual, expected) in [
            ("/buy", "https://x.com/buy/1", true),
            ("/Buy", "https://x.com/buy/1", false),
            ("/buy%/2", "https://x.com/buy/1/2", true),
            ("/b_y", "/buy", true),
            ("/b_y", "/by", false),
            ("100\\%", "100%", true),
            ("100\\%", "1000", false),
            ("a.b", "axb", false),
            ("a%b", "a\nb", true),
        ] {
            let found = Pattern::new(&like(text, false)).unwrap().is_match(actual).unwrap();
            assert_eq!(found, expected, "{text} {actual}");
        }
    }
}
