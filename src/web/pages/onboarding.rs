//! How to send events, with the address of this server and the token of the project filled in.

use chrono_tz::Tz;
use maud::{Markup, html};

use crate::pages::events;
use crate::pages::events::Drawn;
use crate::parts;
use crate::parts::page;

/// Element id of the indicator of whether an event has arrived.
pub const ARRIVAL: &str = "arrival";

/// Snippet for a web page: queues calls until the SDK has been loaded from `SCRIPT`, whenever that is.
const PAGE: &str = include_str!("onboarding/snippet.html");

/// The SDK with the settings of the project, from this server.
const OWN_SDK: &str = "SERVER/array/TOKEN/array.js";

/// The SDK from a public CDN.
const PUBLIC_SDK: &str = "https://cdn.jsdelivr.net/npm/posthog-js@1/dist/array.js";

/// Snippets: the id of the element, a title, and a text with `SERVER` and `TOKEN`.
const SNIPPETS: &[(&str, &str, &str)] = &[
    (
        "curl",
        "Any language",
        "curl SERVER/capture/ -H 'Content-Type: application/json' \\\n  -d '{\"api_key\": \"TOKEN\", \"event\": \"test event\", \"distinct_id\": \"me\"}'",
    ),
    (
        "browser",
        "Browser, with a bundler",
        "npm install posthog-js\n\nimport posthog from 'posthog-js'\nposthog.init('TOKEN', { api_host: 'SERVER' })",
    ),
    (
        "python",
        "Python",
        "pip install posthog\n\nfrom posthog import Posthog\nposthog = Posthog('TOKEN', host='SERVER')\nposthog.capture('test event', distinct_id='me')\nposthog.shutdown()",
    ),
    (
        "node",
        "Node",
        "npm install posthog-node\n\nimport { PostHog } from 'posthog-node'\nconst client = new PostHog('TOKEN', { host: 'SERVER' })\nclient.capture({ distinctId: 'me', event: 'test event' })\nawait client.shutdown()",
    ),
    (
        "rust",
        "Rust",
        "cargo add posthog-rs\n\nlet mut options = posthog_rs::ClientOptionsBuilder::default();\noptions.api_key(\"TOKEN\".into()).host(\"SERVER\");\nlet client = posthog_rs::client(options.build()?).await;\nclient.capture(posthog_rs::Event::new(\"test event\", \"me\"));\nclient.shutdown().await;",
    ),
    (
        "go",
        "Go",
        "go get github.com/posthog/posthog-go\n\nclient, _ := posthog.NewWithConfig(\"TOKEN\", posthog.Config{Endpoint: \"SERVER\"})\ndefer client.Close()\nclient.Enqueue(posthog.Capture{DistinctId: \"me\", Event: \"test event\"})",
    ),
];

/// The snippets. `has_sdk`: whether this server serves the browser SDK.
pub fn snippets(server: &str, token: &str, has_sdk: bool) -> Markup {
    let filled = |text: &str| text.replace("SERVER", server).replace("TOKEN", token);
    let page = PAGE.trim_end().replace("SCRIPT", if has_sdk { OWN_SDK } else { PUBLIC_SDK });
    html! {
        p { "Weir takes events from the PostHog SDKs and from anything that speaks HTTP. The token is public; it can only send." }
        div class="card" {
            h2 { "A page in a browser" }
            p { "Paste this into the " code { "<head>" } " of a page and open it. Views of pages and clicks are sent by themselves. "
                "The page never waits for it: calls are queued until the script is there, also while this server is away." }
            (parts::code("html", &filled(&page)))
            @if !has_sdk {
                p class="quiet" { "The script comes from a public network. With " code { "weir serve --static-dir DIRECTORY" }
                    ", where the directory is the folder " code { "dist" } " of the npm package posthog-js, it comes from this server." }
            }
        }
        @for (id, title, text) in SNIPPETS {
            div class="card" {
                h2 { (title) }
                (parts::code(id, &filled(text)))
            }
        }
    }
}

/// The placeholder until the first event arrives. The page polls every second by itself. `can_send` offers to send a
/// test event.
pub fn waiting(project: i64, can_send: bool) -> Markup {
    html! {
        div class="card" id=(ARRIVAL) data-again="1" {
            p class="waiting" role="status" { "Waiting for the first event." }
            div class="actions" {
                a class="button" href=(page(project, "onboarding")) { "Refresh" }
                @if can_send {
                    form method="post" action=(page(project, "onboarding")) { button { "Send a test event" } }
                }
            }
        }
    }
}

/// The processing of the newest event.
pub fn arrived(project: i64, zone: Tz, event: &Drawn) -> Markup {
    let (name, id) = (event.event.as_str(), event.distinct_id.as_str());
    let link = |path: &str, parameters: &[(&str, &str)]| {
        format!("{}?{}", page(project, path), parts::query(parameters))
    };
    html! {
        div class="card" id=(ARRIVAL) role="status" {
            h2 { span class="badge good" { "It works" } " An event has arrived" }
            ol {
                li { "Received as " b { (parts::clipped(name, 120)) } ", at "
                    (parts::time(&event.timestamp, zone)) "." }
                li { "Durable in the log before the response; written to Parquet files by the next flush." }
                @if event.has_person() {
                    li { "It belongs to the person " a href=(parts::person(project, id)) { (parts::clipped(id, 120)) } "." }
                } @else {
                    li { "It belongs to the visitor " (parts::clipped(id, 120)) ", who becomes a person with a call of " code { "identify" } "." }
                }
                li { a href=(page(project, &format!("events/{}", parts::part(&event.id)))) { "Its properties" }
                    ", as they were stored. " a href=(page(project, "activity/live")) { "Watch what else comes" } "." }
            }
            (events::table(&[], None, &events::row(project, zone, event, &[])))
            div class="actions" {
                "What next? "
                a class="button small" href=(link("insights/trends", &[("a", name)])) { "Count it by day" }
                a class="button small" href=(page(project, "insights/funnel")) { "Create a funnel" }
                a class="button small" href=(page(project, "activity/explore")) { "All events" }
            }
        }
    }
}
