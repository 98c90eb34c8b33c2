//! Prompts: texts that a user chooses, by which a model begins an analysis with the tools.

use serde_json::{Map, Value, json};

use crate::routes::mcp::protocol::Failure;
use weir_api::node::nearest::hint;
use weir_web::parts::clipped;

/// Longest argument, in characters.
const ARGUMENT_MAX_CHARS: usize = 500;

/// A prompt.
struct Prompt {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    /// Name, description, and whether it must be there.
    arguments: &'static [(&'static str, &'static str, bool)],
    /// The text; `{name}` is an argument, or what stands behind a colon if that is absent: `{name:usual}`.
    text: &'static str,
}

const PROMPTS: [Prompt; 2] = [
    Prompt {
        name: "why_did_it_change",
        title: "Why did it change?",
        about: "Looks for what is behind a change of a number",
        arguments: &[
            ("what", "What changed, such as signups or weekly active users", true),
            ("when", "When it changed, such as since Monday", false),
        ],
        text: "Find out why this changed: {what} ({when:lately}).\n\n\
               1. Call schema, so that events and properties have their right names.\n\
               2. Call trends for the number, by day, over a time that begins well before the change, with compare \
               previous. Say how large the change is, and when it began. If there is none, say so and stop.\n\
               3. Look for where it is: trends with a breakdown by each plausible property, such as $browser, $os, \
               $geoip_country_code, utm_source, plan or the version of the application. What grew or fell as all did is no \
               cause.\n\
               4. Look at the steps before it with funnel, at flags with flags_list that were changed then, and at health \
               for refused requests: data that were not stored look like a change, too.\n\
               5. Answer with the likeliest cause, its share of the change in numbers, what speaks against it, and the \
               pages that show it.",
    },
    Prompt {
        name: "weekly_report",
        title: "Weekly report",
        about: "The last week compared with the one before",
        arguments: &[("focus", "What it is about, such as onboarding or the shop", false)],
        text: "Write a report of the last 7 days compared with the 7 days before, about {focus:the product as a whole}.\n\n\
               1. Call schema, and choose the events that matter. Saved dashboards may have the numbers already: look at \
               the resources.\n\
               2. Active persons: trends with math dau, from -7d, compare previous.\n\
               3. The most important actions: trends of their events, compare previous.\n\
               4. How many get through: funnel of the main steps. How many come back: retention by week.\n\
               5. What is new: the events that appeared or grew most, and flags that were changed.\n\n\
               At most one page: a sentence for each number with its change in percent, the three things to look at next, \
               and a link to the page of each number. No number that no tool returned.",
    },
];

/// `prompts/list`.
pub(super) fn list() -> Value {
    let prompt = |own: &Prompt| {
        let arguments = own.arguments.iter().map(|(name, about, is_needed)| {
            json!({"name": name, "description": about, "required": is_needed})
        });
        let arguments: Vec<Value> = arguments.collect();
        json!({
            "name": own.name, "title": own.title, "description": own.about, "arguments": arguments,
        })
    };
    json!({"prompts": PROMPTS.iter().map(prompt).collect::<Vec<_>>()})
}

/// `prompts/get`.
pub(super) fn get(name: &str, arguments: &Map<String, Value>) -> Result<Value, Failure> {
    let Some(prompt) = PROMPTS.iter().find(|own| own.name == name) else {
        let shown = clipped(name, 100);
        let hint = hint(&shown, &PROMPTS.map(|own| own.name.to_owned()));
        return Err(Failure::params(format!("There is no prompt \"{shown}\".{hint}")));
    };
    let known: Vec<String> = prompt.arguments.iter().map(|(name, ..)| (*name).to_owned()).collect();
    if let Some(unknown) = arguments.keys().find(|name| !known.contains(name)) {
        let shown = clipped(unknown, 100);
        return Err(Failure::params(format!(
            "Unknown argument \"{shown}\".{}",
            hint(&shown, &known)
        )));
    }
    let sent = |name: &str| {
        let sent = arguments.get(name).and_then(Value::as_str).map(str::trim);
        sent.filter(|sent| !sent.is_empty()).map(|sent| clipped(sent, ARGUMENT_MAX_CHARS))
    };
    let missing =
        prompt.arguments.iter().find(|(name, _, is_needed)| *is_needed && sent(name).is_none());
    if let Some((name, ..)) = missing {
        return Err(Failure::params(format!("The prompt {} needs {name}.", prompt.name)));
    }
    let text = filled(prompt.text, sent);
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    Ok(json!({"description": prompt.about, "messages": [message]}))
}

/// The text with what was sent in the places of arguments.
fn filled(text: &str, sent: impl Fn(&str) -> Option<String>) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (place, behind) = part.split_once('}').unwrap_or((part, ""));
        let (name, usual) = place.split_once(':').unwrap_or((place, ""));
        filled.push_str(&sent(name).unwrap_or_else(|| usual.to_owned()));
        filled.push_str(behind);
    }
    filled
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::get;

    fn text(name: &str, arguments: &Value) -> Result<String, String> {
        let found = get(name, arguments.as_object().unwrap());
        let found =
            found.map_err(|failure| failure.answer(&json!(1))["error"]["message"].to_string())?;
        Ok(found["messages"][0]["content"]["text"]
            .as_str()
            .unwrap()
            .lines()
            .next()
            .unwrap()
            .to_owned())
    }

    #[test]
    fn arguments_are_filled_in() {
        for (name, arguments, expected) in [
            (
                "why_did_it_change",
                json!({"what": "signups {when}", "when": "since Monday"}),
                Ok("Find out why this changed: signups {when} (since Monday)."),
            ),
            (
                "why_did_it_change",
                json!({"what": "signups"}),
                Ok("Find out why this changed: signups (lately)."),
            ),
            (
                "weekly_report",
                json!({}),
                Ok(
                    "Write a report of the last 7 days compared with the 7 days before, about the product as a whole.",
                ),
            ),
            (
                "why_did_it_change",
                json!({"what": " "}),
                Err("\"The prompt why_did_it_change needs what.\""),
            ),
            (
                "weekly_report",
                json!({"fokus": "x"}),
                Err(r#""Unknown argument \"fokus\". Did you mean \"focus\"?""#),
            ),
            (
                "weekly_reports",
                json!({}),
                Err(r#""There is no prompt \"weekly_reports\". Did you mean \"weekly_report\"?""#),
            ),
        ] {
            let found = text(name, &arguments);
            let found = found.as_deref().map_err(String::as_str);
            assert_eq!(found, expected, "{name} {arguments}");
        }
    }
}
