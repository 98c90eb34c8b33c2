//! Saved insights: their list, one of them, and saving one.

use maud::html;
use serde_json::Value;
use serde_json::json;

use crate::app::App;
use crate::http::auth::Principal;
use crate::http::fields::Fields;
use crate::http::request::Request;
use crate::http::response::Problem;
use crate::http::routes::documents;
use crate::http::routes::pages::insights::answered;
use crate::http::routes::pages::insights::load::saved;
use crate::http::routes::pages::insights::load::saved_of;
use crate::http::routes::pages::insights::load::suggestions;
use crate::http::routes::pages::insights::with_usual;
use crate::http::routes::pages::insights::wrong;
use crate::http::routes::pages::visit::Page;
use crate::http::routes::pages::visit::Sent;
use crate::http::routes::pages::visit::Visit;
use crate::http::routes::pages::visit::see_other;
use crate::http::routes::store::problem;
use crate::metadata::documents::Document;
use crate::metadata::documents::Kind as Stored;
use crate::web::insight::form::form;
use crate::web::insight::links;
use crate::web::insight::saved as shown;
use crate::web::state::insight::Kind;
use crate::web::state::insight::Question;
use crate::web::state::node::node;
use crate::web::state::parameters::Parameters;
use crate::web::state::stored;

/// Longest form that saves something.
const FORM_MAX_BYTES: u64 = 64 << 10;

/// `GET insights`.
pub(in crate::http::routes::pages) async fn list(visit: Visit) -> Result<Sent, Problem> {
    let (app, asker) = (&visit.asking.app, &visit.asking.asker);
    let insights = saved_of(app, asker.project.id, Stored::Insight).await?;
    Ok(Sent::Page(Page::new("Insights", shown::list(asker.project.id.0, &insights))))
}

/// `GET insights/:short_id`.
pub(super) async fn one(visit: &Visit) -> Result<Sent, Problem> {
    let (app, asker, short_id) = (&visit.asking.app, &visit.asking.asker, visit.id());
    let (project, mut found) = (&asker.project, None);
    let look = |document: Document| {
        if document.text("short_id") == short_id {
            found = Some(document);
        }
    };
    app.metadata.visit_documents(project.id, Stored::Insight, look).await.map_err(problem)?;
    let document = found.ok_or_else(|| Problem::not_found("There is no such insight."))?;
    let own = saved(&document, &app.metadata.snapshot());
    let Some(question) = stored::question(&own.query).map(with_usual) else {
        let query = serde_json::to_string_pretty(&own.query).unwrap_or_default();
        let now = html! {
            (shown::kinds(project.id.0, own.kind()))
            div class="empty" {
                h2 { "This page cannot show the insight" }
                p { "It asks for something that the form has no field for. The API answers it: " code { "POST query/" } "." }
            }
            pre tabindex="0" { code { (query) } }
        };
        return Ok(Sent::Page(Page::new(own.title(), now)));
    };
    let known = suggestions(app, project).await?;
    let now = html! {
        (shown::kinds(project.id.0, Some(question.kind())))
        @if !own.description.is_empty() { p { (own.description) } }
        (form(project.id.0, &question, &known))
    };
    let mut page = Page::new(own.title(), now);
    page.later.push(answered(app, asker, question, visit.asking.server.clone(), false));
    Ok(Sent::Page(page))
}

/// `POST insights`: saves a question under a name.
pub(in crate::http::routes::pages) async fn save(visit: Visit) -> Result<Sent, Problem> {
    let (app, asker) = (&visit.asking.app, &visit.asking.asker);
    let mut form = read_form(visit.request).await?;
    let mut read = || {
        let names = Kind::ALL.map(Kind::name);
        let kind = form.choice("kind", &names)?;
        let kind = Kind::ALL.into_iter().find(|own| Some(own.name()) == kind);
        let question = form.take("question")?.unwrap_or_default();
        let question = Question::parse(kind.unwrap_or(Kind::Trends), &question)?;
        let (name, board) = (form.take("name")?.unwrap_or_default(), form.number("dashboard")?);
        Ok((with_usual(question), name, board))
    };
    let (question, name, board) = read().map_err(|error| wrong(&error))?;
    let board: Option<i64> = board;
    let fields = json!({
        "name": name, "query": {"kind": "InsightVizNode", "source": node(&question)}, "saved": true,
        "dashboards": Vec::from_iter(board),
    });
    let document = add(app, asker, &fields, Stored::Insight).await?;
    let project = asker.project.id.0;
    let address = match board {
        Some(board) => links::dashboard(project, board),
        None => links::saved(project, &document),
    };
    Ok(Sent::Other(see_other(&address)?))
}

/// The fields of a form that was posted.
pub(super) async fn read_form(request: Request) -> Result<Parameters, Problem> {
    let body = request.body.read(FORM_MAX_BYTES).await?;
    let text = std::str::from_utf8(&body).map_err(|error| Problem::parse_error(&error))?;
    Parameters::parse(text).map_err(|error| wrong(&error))
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
