//! Saved insights: their list, one of them, and saving one; changing one is in `arrange`.

use hyper::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::auth;
use crate::beside::beside;
use crate::response::Problem;
use crate::routes::documents::Create;
use crate::routes::documents::kinds::{Dashboards, Insights};
use crate::routes::documents::listed::List;
use crate::routes::documents::results::{Frame, Question as SavedQuery, question_of};
use crate::routes::documents::sent::New;
use crate::routes::pages::files;
use crate::routes::pages::insights::arrange::link_of;
use crate::routes::pages::insights::boards::rows;
use crate::routes::pages::insights::load::{saved, saved_of, suggestions};
use crate::routes::pages::insights::{
    Computed, answered, computed, download, downloaded, is_part, part, refusal, with_usual,
};
use crate::routes::pages::visit::{
    Asking, Later, Page, Sent, Visit, apart, form as read_form, see_other, wrong,
};
use crate::routes::store::problem;
use weir_metadata::documents::{Document, Kind as Stored};
use weir_web::insight::arrange::insight as settings;
use weir_web::insight::form::form_at;
use weir_web::insight::links::Links;
use weir_web::insight::saved::{Kept, Saved};
use weir_web::insight::{links, result, saved as shown};
use weir_web::pages::sql;
use weir_web::parts;
use weir_web::parts::{FILES, failed};
use weir_web::state::insight::{Kind, Question};
use weir_web::state::node::node;
use weir_web::state::parameters::{Parameters, Wrong};
use weir_web::state::saved_sql::SavedSql;
use weir_web::state::{board, saved_sql, stored};
use weir_wire::query_node::with_question;

/// The scope for running any SQL.
const ASKING: &str = "query:read";

/// Parameters of a list of insights without their results, which would all have to be computed.
const BASIC: [(&str, &str); 1] = [("basic", "true")];

/// `GET insights`.
pub(in crate::routes::pages) async fn list(visit: Visit) -> Result<Sent, Problem> {
    let (app, asker) = (&visit.asking.app, &visit.asking.asker);
    if let Some(format) = files::wanted(&visit)? {
        let list = List::<Insights>::basic;
        return files::of_list(&visit.asking, list, ("insights", format)).await;
    }
    let insights = saved_of(app, asker, Stored::Insight).await?;
    let content = html! {
        (shown::list(asker.project.id.0, &insights))
        @if !insights.is_empty() { (files::below(&visit.asking, ("insights/", &BASIC), None)) }
    };
    Ok(Sent::Page(Page::new("Insights", content)))
}

/// The saved insight in the URL.
pub(super) async fn document_of(visit: &Visit) -> Result<Document, Problem> {
    let (app, short_id) = (&visit.asking.app, visit.id());
    let missing = || Problem::not_found("There is no such insight.");
    if short_id.is_empty() || !short_id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(missing());
    }
    let project = visit.asking.asker.project.id;
    // Preselects insights by text: the one with the id, and those whose queries contain it.
    let like = format!("%\"short_id\":\"{short_id}\"%");
    let mut batches = app.node.metadata.document_batches(project, Stored::Insight, like);
    while let Some(some) = batches.next().await.map_err(problem)? {
        let wanted = short_id.to_owned();
        let look = move || -> Result<Option<Document>, Problem> {
            for one in some {
                let own = one.with(&["short_id".into()]).map_err(problem)?;
                if own.text("short_id") == wanted {
                    return one.whole().map(Some).map_err(problem);
                }
            }
            Ok(None)
        };
        if let Some(found) = beside(&app.node.cpu, look).await? {
            return Ok(found);
        }
    }
    Err(missing())
}

/// `GET insights/:short_id`. Parameters replace the saved query by another one of the same kind, which can be saved in
/// its place.
pub(super) async fn one(visit: &Visit) -> Result<Sent, Problem> {
    let asking = &visit.asking;
    let document = document_of(visit).await?;
    let own = saved(&document, &asking.app.node.metadata.snapshot());
    let asked = question_of(&document.fields, &Frame::default());
    let question = match &asked {
        Ok(Some(SavedQuery::Insight(node))) => stored::question(node).map(with_usual),
        _ => None,
    };
    if let Some(question) = question {
        let kept = kept(asking, &document);
        return by_form(visit, (&document, &own), (question, kept)).await;
    }
    if let Some(format) = files::wanted(visit)? {
        return as_file(asking, asked?, (&own, format)).await;
    }
    let mut page = Page::new(own.title(), head(asking, &own, None));
    page.end = settings_of(asking, (&document, &own)).await?;
    page.later.push(match SavedSql::of(&own.query) {
        Some(sql) => by_sql(visit, (&document, &own), &sql)?,
        None => {
            let asking = asking.clone();
            Box::pin(async move {
                html! {
                    (unsaid(&asking, asked, (&own, true)).await)
                    details class="source" {
                        summary { "Query" }
                        pre tabindex="0" { code { (serde_json::to_string_pretty(&own.query).unwrap_or_default()) } }
                    }
                }
            })
        }
    });
    Ok(Sent::Page(page))
}

/// The content above the result.
fn head(asking: &Asking, own: &Saved, question: Option<&Question>) -> Markup {
    let kind = question.map(Question::kind).or_else(|| own.kind());
    html! {
        (shown::kinds(asking.project(), kind, question))
        @if !own.description.is_empty() { p { (own.description) } }
    }
}

/// The forms that change the insight, except its query.
async fn settings_of(
    asking: &Asking,
    (document, own): (&Document, &Saved),
) -> Result<Markup, Problem> {
    let share = link_of::<Insights>(asking, document).await?;
    Ok(match asking.may("insight:write") {
        true => settings(asking.project(), own, share.as_ref()),
        false => html! { @if let Some(share) = share { (share) } },
    })
}

/// The actions on an insight whose query is the saved one.
fn kept(asking: &Asking, document: &Document) -> Kept {
    Kept {
        short_id: document.text("short_id").to_owned(),
        boards: board::boards_of(&document.fields),
        is_changed: false,
        can_change: asking.may("insight:write"),
        can_place: asking.may("dashboard:write"),
    }
}

/// The page of an insight whose query has a form.
async fn by_form(
    visit: &Visit,
    (document, own): (&Document, &Saved),
    (stored, kept): (Question, Kept),
) -> Result<Sent, Problem> {
    let asking = &visit.asking;
    let (app, asker, server) = (&asking.app, &asking.asker, asking.server.clone());
    let (project, query) = (asking.project(), visit.request.query_string());
    let address = links::saved(project, &kept.short_id);
    let read = changed(&stored, query);
    let (question, file) = match read {
        Ok(read) => read,
        Err(error) if is_part(&visit.request) => {
            return Ok(part(StatusCode::BAD_REQUEST, &refusal(&error)));
        }
        Err(error) => {
            let known = suggestions(app, asker).await?;
            let content = html! {
                (head(asking, own, None)) (form_at(&address, &stored, &known)) (refusal(&error))
            };
            let page = Page::new(own.title(), content);
            return Ok(Sent::Page(Page { status: StatusCode::BAD_REQUEST, ..page }));
        }
    };
    if let Some(format) = file {
        return download(app, &asker.project, question, format).await;
    }
    let short = question.print();
    if !short.is_empty() && !query.is_empty() && short != query {
        return Ok(Sent::Other(see_other(&format!("{address}?{short}"))?));
    }
    let kept = Kept { is_changed: question != stored, ..kept };
    if is_part(&visit.request) {
        let kinds = shown::kinds(project, Some(question.kind()), Some(&question));
        let answer = apart(&app.engine, answered(app, asker, question, server, Some(kept))).await;
        return Ok(part(StatusCode::OK, &html! { (answer) (kinds) }));
    }
    let known = suggestions(app, asker).await?;
    let now = html! {
        (head(asking, own, Some(&question)))
        (form_at(&address, &question, &known))
    };
    let mut page = Page::new(own.title(), now);
    page.later.push(answered(app, asker, question, server, Some(kept)));
    page.end = settings_of(asking, (document, own)).await?;
    Ok(Sent::Page(page))
}

/// The query in the URL, which replaces the saved one, and the requested file format.
fn changed(stored: &Question, query: &str) -> Result<(Question, Option<&'static str>), Wrong> {
    let mut parameters = Parameters::parse(query)?;
    let file = parameters.choice("format", &FILES.map(|(format, _)| format))?;
    if parameters.is_empty() {
        return Ok((stored.clone(), file));
    }
    let question = Question::take(stored.kind(), &mut parameters)?;
    parameters.finish()?;
    Ok((with_usual(question), file))
}

/// The rows of an insight of SQL, or of the SQL in the URL, which can be saved in its place.
fn by_sql(
    visit: &Visit,
    (document, own): (&Document, &Saved),
    stored: &SavedSql,
) -> Result<Later, Problem> {
    let mut parameters =
        Parameters::parse(visit.request.query_string()).map_err(|error| wrong(&error))?;
    let mut shown = stored.clone();
    if let Some(sql) = parameters.take("q").map_err(|error| wrong(&error))? {
        // The saved SQL may be run by callers who may read insights; other SQL may not.
        auth::require(&visit.asking.asker.key, ASKING)?;
        shown.sql = sql;
    }
    if !parameters.get("chart").is_empty() {
        shown.chart = saved_sql::chart(parameters.get("chart"));
    }
    let asking = visit.asking.clone();
    let is_changed = shown != *stored;
    let kept = kept(&asking, document);
    let can_change = kept.can_change && asking.may(ASKING);
    let kept = Kept { is_changed, can_change, ..kept };
    let query = if is_changed { shown.over(&own.query) } else { own.query.clone() };
    let own = Saved { query: query.clone(), ..own.clone() };
    Ok(Box::pin(async move {
        let (app, project) = (&asking.app, asking.project());
        let fields = serde_json::Map::from_iter([("query".to_owned(), query)]);
        let asked = question_of(&fields, &Frame::default());
        let dashboards = saved_of(app, &asking.asker, Stored::Dashboard).await;
        let chart = shown.chart.map_or("", |chart| chart.name);
        let hidden = [("question", shown.sql.as_str()), ("chart", chart)];
        let address = links::saved(project, &kept.short_id);
        html! {
            (unsaid(&asking, asked, (&own, !is_changed)).await)
            (shown::changing(project, &kept, &hidden))
            (sql::asked(project, (&shown, kept.is_changed), kept.can_change.then_some(address.as_str())))
            @if !kept.is_changed { (shown::placing(project, &kept, &dashboards.unwrap_or_default())) }
        }
    }))
}

/// The result of a saved insight as a file.
async fn as_file(
    asking: &Asking,
    asked: Option<SavedQuery>,
    (own, format): (&Saved, &'static str),
) -> Result<Sent, Problem> {
    let (app, project) = (&asking.app, &asking.asker.project);
    let none = || Problem::not_found("This insight has no numbers.");
    match asked.ok_or_else(none)? {
        SavedQuery::Rows(node) => {
            let answer = rows(asking, app, &node).await?;
            beside(&app.node.cpu, move || files::of_answer(&answer, ("query", format))).await
        }
        SavedQuery::Insight(node) => {
            let exact = stored::question(&node).map(with_usual);
            let sketch = exact.or_else(|| stored::sketch(&node)).ok_or_else(none)?;
            let computed = computed(app, project, &node, String::new()).await?;
            let (project, short_id) = (project.id.0, own.short_id.clone());
            let file = move || {
                let links = Links::without(project, &sketch, &node).with_files_of(&short_id);
                downloaded((&node, &computed), &links, format)
            };
            beside(&app.node.cpu, file).await
        }
    }
}

/// The result of a query that has no form of URL parameters; files are offered for the saved query.
async fn unsaid(
    asking: &Asking,
    asked: Result<Option<SavedQuery>, Problem>,
    (own, has_files): (&Saved, bool),
) -> Markup {
    let (app, project, short_id) = (&asking.app, &asking.asker.project, &own.short_id);
    let asked = match asked {
        Ok(asked) => asked,
        Err(problem) => return failed(problem.detail()),
    };
    match asked {
        None => html! { div class="empty" { h2 { "This insight has no query" } } },
        Some(SavedQuery::Rows(node)) => match rows(asking, app, &node).await {
            Ok(answer) => {
                let link = |format: &str| {
                    format!("{}?format={format}", links::saved(project.id.0, short_id))
                };
                html! {
                    (sql::saved(&answer, &own.query, true))
                    @if has_files { p class="source" { (parts::files(link)) } }
                }
            }
            Err(problem) => failed(problem.detail()),
        },
        Some(SavedQuery::Insight(node)) => {
            let Some(sketch) = stored::sketch(&node) else {
                return html! {
                    div class="empty" {
                        h2 { "This page cannot show the insight" }
                        p { "The page has no chart for this kind. The API returns its result: " code { "POST query/" } "." }
                    }
                };
            };
            match computed(app, project, &node, asking.server.clone()).await {
                Ok(Computed { answer, made, .. }) => {
                    let links =
                        Links::without(project.id.0, &sketch, &node).with_files_of(short_id);
                    result::whole(&answer, &links, &made)
                }
                Err(problem) => failed(problem.detail()),
            }
        }
    }
}

/// `POST insights`: saves a query under a name.
pub(in crate::routes::pages) async fn save(visit: Visit) -> Result<Sent, Problem> {
    let asking = visit.asking.clone();
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
    let document = New::<Insights>::of(&fields)?;
    let made = asking.perform(Create { document }).await?;
    let project = asking.project();
    let address = match board {
        Some(board) => links::dashboard(project, board),
        None => links::saved(project, &made.short_id),
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

/// The query of a saved insight with the query in a form in its place.
pub(super) fn query_over(own: &Saved, form: &mut Parameters) -> Result<Value, Wrong> {
    let text = form.take("question")?.unwrap_or_default();
    if SavedSql::of(&own.query).is_some() {
        if text.trim().is_empty() {
            return Err(Wrong::new("question", "There is no SQL to save."));
        }
        let chart = saved_sql::chart(form.get("chart"));
        return Ok(SavedSql { sql: text, chart, is_whole: true }.over(&own.query));
    }
    let kind =
        own.kind().ok_or_else(|| Wrong::new("question", "The form cannot show this query."))?;
    let question = with_usual(Question::parse(kind, &text)?);
    Ok(with_question(&own.query, node(&question)))
}

/// Creates a dashboard for an insight, with this name. Returns its id.
pub(super) async fn new_board(asking: &Asking, name: &str) -> Result<i64, Problem> {
    let document = New::<Dashboards>::of(&json!({"name": name}))?;
    Ok(asking.perform(Create { document }).await?.id)
}
