//! How to send events, with the address of this server and the token of the project filled in.

use chrono_tz::Tz;
use maud::Markup;
use maud::html;
use serde_json::Value;

use crate::web::pages::events;
use crate::web::parts;
use crate::web::parts::page;

/// Snippets: the id of the element, a title, and a text with `SERVER` and `TOKEN`.
const SNIPPETS: &[(&str, &str, &str)] = &[
    (
        "curl",
        "Any language",
        "curl SERVER/capture/ -H 'Content-Type: application/json' \\\n  -d '{\"api_key\": \"TOKEN\", \"event\": \"hello\", \"distinct_id\": \"me\"}'",
    ),
    (
        "browser",
        "Browser",
        "npm install posthog-js\n\nimport posthog from 'posthog-js'\nposthog.init('TOKEN', { api_host: 'SERVER' })\nposthog.capture('hello')",
    ),
    (
        "python",
        "Python",
        "pip install posthog\n\nfrom posthog import Posthog\nposthog = Posthog('TOKEN', host='SERVER')\nposthog.capture('hello', distinct_id='me')\nposthog.shutdown()",
    ),
    (
        "node",
        "Node",
        "npm install posthog-node\n\nimport { PostHog } from 'posthog-node'\nconst client = new PostHog('TOKEN', { host: 'SERVER' })\nclient.capture({ distinctId: 'me', event: 'hello' })\nawait client.shutdown()",
    ),
    (
        "go",
        "Go",
        "go get github.com/posthog/posthog-go\n\nclient, _ := posthog.NewWithConfig(\"TOKEN\", posthog.Config{Endpoint: \"SERVER\"})\ndefer client.Close()\nclient.Enqueue(posthog.Capture{DistinctId: \"me\", Event: \"hello\"})",
    ),
];

/// The snippets.
pub fn snippets(server: &str, token: &str) -> Markup {
    html! {
        p { "Weir takes events from the PostHog SDKs and from anything that speaks HTTP. The token is public; it can only send." }
        @for (id, title, text) in SNIPPETS {
            div class="card" {
                h2 { (title) }
                (parts::code(id, &text.replace("SERVER", server).replace("TOKEN", token)))
            }
        }
    }
}

/// What is there while no event is. The page asks again by itself.
pub fn waiting(project: i64) -> Markup {
    html! {
        div class="card" {
            p class="waiting" role="status" data-again="2" { "Waiting for the first event." }
            p { a class="button" href=(page(project, "onboarding")) { "Look again" } }
        }
    }
}

/// The journey of the newest event.
pub fn arrived(project: i64, zone: Tz, event: &Value) -> Markup {
    let id = parts::text(event, "distinct_id");
    html! {
        div class="card" {
            h2 { span class="badge good" { "It works" } " An event has arrived" }
            ol {
                li { "Received as " b { (parts::clipped(parts::text(event, "event"), 120)) } ", at "
                    (parts::time(parts::text(event, "timestamp"), zone)) "." }
                li { "Durable in the log before the client had its answer; written to Parquet files with the next flush." }
                li { "It belongs to the person " a href=(parts::person(project, id)) { (parts::clipped(id, 120)) } "." }
                li { a href=(page(project, &format!("events/{}", parts::part(parts::text(event, "id"))))) { "Its properties" }
                    ", as they were stored. " a href=(page(project, "activity/live")) { "Watch what else comes" } "." }
            }
            (events::table(&[], None, &events::row(project, zone, event, &[])))
        }
    }
}
