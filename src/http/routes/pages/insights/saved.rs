//! Saved insights: their list, one of them, and saving one; changing one is in `arrange`.

use hyper::Method;
use maud::Markup;
use maud::html;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::http::auth::Principal;
use crate::http::fields::Fields;
use crate::http::response::Problem;
use crate::http::routes::documents;
use crate::http::routes::documents::results::Frame;
use crate::http::routes::documents::results::Question as Asked;
use crate::http::routes::documents::results::question_of;
use crate::http::routes::pages::files;
use crate::http::routes::pages::insights::answered;
use crate::http::routes::pages::insights::arrange::link_of;
use crate::http::routes::pages::insights::boards::rows;
use crate::http::routes::pages::insights::computed;
use crate::http::routes::pages::insights::downloaded;
use crate::http::routes::pages::insights::load::saved;
use crate::http::routes::pages::insights::load::saved_of;
use crate::http::routes::pages::insights::load::suggestions;
use crate::http::routes::pages::insights::with_usual;
use crate::http::routes::pages::visit::Asking;
use crate::http::routes::pages::visit::Page;
use crate::http::routes::pages::visit::Sent;
use crate::http::routes::pages::visit::Visit;
use crate::http::routes::pages::visit::form as read_form;
use crate::http::routes::pages::visit::see_other;
use crate::http::routes::pages::visit::wrong;
use crate::http::routes::store::problem;
use crate::metadata::accounts::Project;
use crate::metadata::documents::Document;
use crate::metadata::documents::Kind as Stored;
use crate::web::insight::arrange::insight as settings;
use crate::web::insight::form::form;
use crate::web::insight::links;
use crate::web::insight::links::Links;
use crate::web::insight::result;
use crate::web::insight::saved as shown;
use crate::web::insight::saved::Saved;
use crate::web::pages::sql;
use crate::web::parts;
use crate::web::parts::failed;
use crate::web::parts::integer;
use crate::web::state::insight::Kind;
use crate::web::state::insight::Question;
use crate::web::state::node::node;
use crate::web::state::parameters::Parameters;
use crate::web::state::parameters::Wrong;
use crate::web::state::saved_sql;
use crate::web::state::saved_sql::SavedSql;
use crate::web::state::stored;

/// A list of insights without their results, which would all have to be computed.
const BASIC: [(&str, &str); 1] = [("basic", "true")];

/// `GET insights`.
pub(in crate::http::routes::pages) async fn list(visit: Visit) -> Result<Sent, Problem> {
    let (app, asker) = (&visit.asking.app, &visit.asking.asker);
    if let Some(format) = files::wanted(&visit)? {
        return files::of_list(&visit.asking, ("insights/", &BASIC), ("insights", format)).await;
    }
    let insights = saved_of(app, asker, Stored::Insight).await?;
    let content = html! {
        (shown::list(asker.project.id.0, &insights))
        @if !insights.is_empty() { (files::below(&visit.asking, ("insights/", &BASIC), None)) }
    };
    Ok(Sent::Page(Page::new("Insights", content)))
}

/// The saved insight of an address.
pub(super) async fn document_of(visit: &Visit) -> Result<Document, Problem> {
    let (app, short_id) = (&visit.asking.app, visit.id());
    let mut found = None;
    let look = |document: Document| {
        if document.text("short_id") == short_id {
            found = Some(document);
        }
    };
    let project = visit.asking.asker.project.id;
    app.metadata.visit_documents(project, Stored::Insight, look).await.map_err(problem)?;
    found.ok_or_else(|| Problem::not_found("There is no such insight."))
}

/// `GET insights/:short_id`.
pub(super) async fn one(visit: &Visit) -> Result<Sent, Problem> {
    let asking = &visit.asking;
    let (app, asker) = (&asking.app, &asking.asker);
    let (project, document) = (&asker.project, document_of(visit).await?);
    let own = saved(&document, &app.metadata.snapshot());
    let asked = question_of(&document.fields, &Frame::default())?;
    let question = match &asked {
        Some(Asked::Insight(node)) => stored::question(node).map(with_usual),
        _ => None,
    };
    let kind = question.as_ref().map(Question::kind);
    if let Some(format) = files::wanted(visit)? {
        return as_file(app, project, asked, (&own, format)).await;
    }
    let share = link_of(asking, &document).await?;
    let settings = match asking.may("insight:write") {
        true => settings(project.id.0, &own, share.as_ref()),
        false => html! { @if let Some(share) = share { (share) } },
    };
    let mut now = html! {
        (shown::kinds(project.id.0, kind.or_else(|| own.kind()), question.as_ref()))
        @if !own.description.is_empty() { p { (own.description) } }
    };
    if let Some(question) = question {
        let known = suggestions(app, asker).await?;
        now = html! { (now) (form(project.id.0, &question, &known)) };
        let mut page = Page::new(own.title(), now);
        page.later.push(answered(app, asker, question, asking.server.clone(), false));
        page.end = settings;
        return Ok(Sent::Page(page));
    }
    let mut page = Page::new(own.title(), now);
    let asking = asking.clone();
    page.later.push(Box::pin(async move {
        html! {
            (unsaid(&asking, asked, &own).await)
            @match SavedSql::of(&own.query) {
                Some(saved) => (sql::asked(asking.project(), &saved)),
                None => details class="source" {
                    summary { "What it asks" }
                    pre tabindex="0" { code { (serde_json::to_string_pretty(&own.query).unwrap_or_default()) } }
                },
            }
        }
    }));
    page.end = settings;
    Ok(Sent::Page(page))
}

/// The answer to a saved insight as a file.
async fn as_file(
    app: &App,
    project: &Project,
    asked: Option<Asked>,
    (own, format): (&Saved, &'static str),
) -> Result<Sent, Problem> {
    let none = || Problem::not_found("This insight has no numbers.");
    match asked.ok_or_else(none)? {
        Asked::Rows(node) => {
            let answer = rows(app, project, &node).await?;
            files::of_answer(&answer, ("query", format))
        }
        Asked::Insight(node) => {
            let exact = stored::question(&node).map(with_usual);
            let sketch = exact.or_else(|| stored::sketch(&node)).ok_or_else(none)?;
            let (results, _) = computed(app, project, &node, String::new()).await?;
            let links = Links::without(project.id.0, &sketch, &node).with_files_of(&own.short_id);
            downloaded((&node, &results), &links, format)
        }
    }
}

/// The answer to what no address can say.
async fn unsaid(asking: &Asking, asked: Option<Asked>, own: &Saved) -> Markup {
    let (app, project, short_id) = (&asking.app, &asking.asker.project, &own.short_id);
    match asked {
        None => html! { div class="empty" { h2 { "This insight asks nothing" } } },
        Some(Asked::Rows(node)) => match rows(app, project, &node).await {
            Ok(answer) => {
                let link = |format: &str| {
                    format!("{}?format={format}", links::saved(project.id.0, short_id))
                };
                html! {
                    (sql::saved(&answer, &own.query, true))
                    p class="source" { (parts::files(link)) }
                }
            }
            Err(problem) => failed(problem.detail()),
        },
        Some(Asked::Insight(node)) => {
            let Some(sketch) = stored::sketch(&node) else {
                return html! {
                    div class="empty" {
                        h2 { "This page cannot show the insight" }
                        p { "It has no chart of this kind. The API answers it: " code { "POST query/" } "." }
                    }
                };
            };
            match computed(app, project, &node, asking.server.clone()).await {
                Ok((results, made)) => {
                    let links =
                        Links::without(project.id.0, &sketch, &node).with_files_of(short_id);
                    result::whole(&results, &links, &made)
                }
                Err(problem) => failed(problem.detail()),
            }
        }
    }
}

/// `POST insights`: saves a question under a name.
pub(in crate::http::routes::pages) async fn save(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
    let (app, asker) = (&asking.app, &asking.asker);
    let mut form = read_form(visit.request).await?;
    let mut read = || {
        let query = query_of(&mut form)?;
        let name = form.take("name")?.unwrap_or_default();
        let is_new = form.get("dashboard") == shown::NEW_DASHBOARD;
        let board: Option<i64> = if is_new { None } else { form.number("dashboard")? };
        Ok((query, name, (board, is_new)))
    };
    let (query, name, (board, is_new)) = read().map_err(|error| wrong(&error))?;
    let board = match is_new {
        true => Some(new_board(&asking, &name).await?),
        false => board,
    };
    let fields = json!({
        "name": name, "query": query, "saved": true, "dashboards": Vec::from_iter(board),
    });
    let document = add(app, asker, &fields, Stored::Insight).await?;
    let project = asker.project.id.0;
    let address = match board {
        Some(board) => links::dashboard(project, board),
        None => links::saved(project, &document),
    };
    Ok(Sent::Other(see_other(&address)?))
}

/// The query that a form saves: of SQL, or of an insight.
fn query_of(form: &mut Parameters) -> Result<Value, Wrong> {
    let text = form.take("question")?.unwrap_or_default();
    if form.get("kind") == shown::SQL {
        if text.trim().is_empty() {
            return Err(Wrong::new("question", "There is no SQL to save."));
        }
        let chart = saved_sql::chart(form.get("chart"));
        return Ok(SavedSql { sql: text, chart, is_whole: true }.node());
    }
    let kind = form.choice("kind", &Kind::ALL.map(Kind::name))?;
    let kind = Kind::ALL.into_iter().find(|own| Some(own.name()) == kind);
    let question = with_usual(Question::parse(kind.unwrap_or(Kind::Trends), &text)?);
    Ok(json!({"kind": "InsightVizNode", "source": node(&question)}))
}

/// Makes a dashboard for an insight, and calls it so; its id.
async fn new_board(asking: &Asking, name: &str) -> Result<i64, Problem> {
    let made = asking.send(Method::POST, "dashboards/", &json!({"name": name})).await?;
    integer(&made, "id").ok_or_else(|| Problem::not_found("There is no such dashboard."))
}

/// Saves a document, as the API does; its short id, or its id where it has none.
pub(super) async fn add(
    app: &App,
    asker: &Principal,
    fields: &Value,
    kind: Stored,
) -> Result<String, Problem> {
    let fields = Fields::parse("application/json", fields.to_string().as_bytes())?;
    let document = documents::add(app, asker, fields, kind).await?;
    Ok(match document.text("short_id") {
        "" => document.id.to_string(),
        short_id => short_id.to_owned(),
    })
}
