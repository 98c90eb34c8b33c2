//! The list of documents ([`List`]): selects the documents that match the request, reads one page of them in stored
//! form, and adds their results. A page is limited in bytes, and only the fields that the request needs are parsed.

use std::marker::PhantomData;
use std::sync::Arc;

use hyper::StatusCode;
use serde_json::Value;

use crate::auth::Principal;
use crate::beside::beside;
use crate::budget::{Memory, Reservation};
use crate::members::Members;
use crate::openapi::{Shape, Success};
use crate::operation::input::{InQuery, input};
use crate::operation::output::{Items, Output, Reply, as_value};
use crate::operation::{Context, Operation};
use crate::page::{Envelope, Page};
use crate::request::Request;
use crate::response::{Problem, Response};
use crate::routes::documents::kinds::DocumentKind;
use crate::routes::documents::question::{Question, SortKey, Texts};
use crate::routes::documents::results::{Reader, Results, ResultsRequest};
use crate::routes::documents::rights::Viewer;
use crate::routes::documents::{body, form};
use crate::routes::store::problem;
use crate::rows::PAGE_MAX_BYTES;
use weir_app::App;
use weir_event::id::ProjectId;
use weir_metadata::documents::{DocumentText, Kind};

/// Most documents of a page.
const LIMIT_MAX: usize = 500;

/// Documents of a page that are read together.
const READ_AT_ONCE: usize = 16;

/// Parameters of a list: filters on documents, and how results are obtained.
#[derive(Debug)]
pub struct Wanted<K> {
    texts: Texts,
    results: Results,
    kind: PhantomData<K>,
}

impl<K: DocumentKind> InQuery for Wanted<K> {
    fn describe(_: &'static str, _: &'static str, shape: &mut Shape) {
        K::describe_list(shape);
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let results = Results::take(request, name)?;
        Ok(Self { texts: Texts::of(request), results, kind: PhantomData })
    }
}

input! {
    /// Documents that are not deleted, newest first; see `question` for the parameters. Insights come with their
    /// results, as `refresh` says, unless `basic` is true.
    pub struct List<K: DocumentKind> {
        query wanted: Wanted<K>,
        query page: Page,
    }
}

impl<K: DocumentKind> List<K> {
    /// A page of all documents.
    pub(in crate::routes) fn all(page: Page) -> Self {
        Self::of(Texts::default(), page)
    }

    /// The same without results.
    pub(in crate::routes) fn basic(page: Page) -> Self {
        Self::of(Texts::basic(), page)
    }

    fn of(texts: Texts, page: Page) -> Self {
        Self { wanted: Wanted { texts, results: Results::kept(), kind: PhantomData }, page }
    }
}

impl<K: DocumentKind> Operation for List<K> {
    type Who = Principal;
    type Out = Listed<K>;
    const SCOPE: &'static str = K::READ;

    async fn perform(self, cx: &Context<Principal>) -> Result<Self::Out, Problem> {
        let Wanted { texts, results, .. } = self.wanted;
        let question = Question::of(&texts, &cx.who, cx.app.node.clock.now())?;
        let asked = results.of(&cx.who.key)?;
        let page = self.page.limited(self.page.limit.min(LIMIT_MAX));
        let shown = list(cx, K::KIND, (question, &asked), page).await?;
        Ok(Listed { page, shown, kind: PhantomData })
    }
}

/// A page of a list, whose documents are written as they are stored.
#[derive(Debug)]
pub struct Listed<K> {
    page: Page,
    shown: ListPart,
    kind: PhantomData<K>,
}

impl<K: DocumentKind> Output for Listed<K> {
    fn describe(shape: &mut Shape) {
        shape.success =
            Some(Success::of::<Envelope<K::Listed>>(StatusCode::OK, "A page of the list"));
    }

    async fn respond(self, reply: &Reply<'_>) -> Result<Response, Problem> {
        let ListPart { count, taken, bodies, held } = self.shown;
        self.page.written_whole(reply.app, reply.request, (count, taken), (bodies, held)).await
    }
}

impl<K: DocumentKind> Items for Listed<K> {
    fn into_items(self, held: &mut Reservation) -> Result<Vec<Value>, Problem> {
        let item = |body: Members| as_value(held, |text| body.write(text));
        self.shown.bodies.into_iter().map(item).collect()
    }

    fn has_next(&self) -> bool {
        self.page.next(self.shown.count, self.shown.taken).is_some()
    }
}

/// A page of a list as sent to clients.
#[derive(Debug)]
struct ListPart {
    /// Documents of the whole list.
    count: usize,
    /// How many of them the page covers.
    taken: usize,
    bodies: Vec<Members>,
    held: Reservation,
}

/// Reads the page of a list.
async fn list(
    cx: &Context<Principal>,
    kind: Kind,
    (mut question, asked): (Question, &ResultsRequest),
    page: Page,
) -> Result<ListPart, Problem> {
    let (app, project, memory) = (&cx.app, cx.who.project.id, &cx.memory);
    add_placed(app, project, &mut question).await?;
    let is_basic = question.is_basic;
    let found = found(app, (project, kind), question, memory).await?;
    let wanted = found.iter().skip(page.offset).take(page.limit).map(|(_, id)| *id).collect();
    let mut part = read(app, (project, kind), wanted, memory).await?;
    let viewer = Viewer::from(&cx.who);
    let mut bodies = body::bodies(app, &part.documents, &viewer).await?;
    if kind == Kind::Dashboard {
        let shared = app.node.metadata.shared_documents(project, kind).await.map_err(problem)?;
        for (document, body) in part.documents.iter().zip(&mut bodies) {
            body::set_shared(body, shared.contains(&document.head.id));
        }
    }
    if is_basic {
        bodies.iter_mut().for_each(body::make_basic);
    } else if kind == Kind::Insight {
        let reader = Reader::new(app, &viewer);
        let insights = part.documents.iter().zip(&mut bodies).collect();
        reader.add_all(insights, (asked, &mut part.held)).await?;
    }
    let Part { documents, taken, mut held } = part;
    // Only the bodies made of them stay in memory.
    held.let_go(bytes(&documents));
    drop(documents);
    Ok(ListPart { count: found.len(), taken, bodies, held })
}

/// Adds to a query the insights that have a place on the dashboards that it names.
async fn add_placed(app: &App, project: ProjectId, question: &mut Question) -> Result<(), Problem> {
    let boards = app.node.metadata.document_texts(project, Kind::Dashboard, question.boards());
    for board in boards.await.map_err(problem)? {
        let board = board.with(&["tiles".into()]).map_err(problem)?;
        let placed = board.fields.get("tiles").map(form::ids).unwrap_or_default();
        question.add_placed(board.id, &placed);
    }
    Ok(())
}

/// The ids of the documents that match a query, in its order.
async fn found(
    app: &App,
    place: (ProjectId, Kind),
    question: Question,
    memory: &Memory,
) -> Result<Vec<(SortKey, i64)>, Problem> {
    let mut found: Vec<(SortKey, i64)> = Vec::new();
    let names: Arc<[Box<str>]> = question.fields().into();
    let question = Arc::new(question);
    if names.is_empty() {
        let heads = app.node.metadata.document_heads(place.0, place.1).await.map_err(problem)?;
        found.extend(heads.iter().filter_map(|head| Some((question.place_of(head)?, head.id))));
    } else {
        let mut held = memory.reservation();
        let mut batches = app.node.metadata.document_batches(place.0, place.1, "%".to_owned());
        while let Some(some) = batches.next().await.map_err(problem)? {
            held.hold(bytes(&some))?;
            let (question, names) = (Arc::clone(&question), Arc::clone(&names));
            let look = move || -> Result<Vec<(SortKey, i64)>, Problem> {
                let mut found = Vec::new();
                for one in some {
                    let document = one.with(&names).map_err(problem)?;
                    found.extend(question.place_of(&document).map(|place| (place, document.id)));
                }
                Ok(found)
            };
            found.extend(beside(&app.node.cpu, look).await?);
        }
    }
    question.sort(&mut found);
    Ok(found)
}

/// A page of a list in stored form.
#[derive(Debug)]
struct Part {
    documents: Vec<DocumentText>,
    /// How many of the selected documents it covers; some may be deleted by now.
    taken: usize,
    held: Reservation,
}

/// Reads the selected documents until the page is full.
async fn read(
    app: &App,
    place: (ProjectId, Kind),
    wanted: Vec<i64>,
    memory: &Memory,
) -> Result<Part, Problem> {
    let mut part = Part { documents: Vec::new(), taken: 0, held: memory.reservation() };
    let mut page_bytes: usize = 0;
    for ids in wanted.chunks(READ_AT_ONCE) {
        let some = app.node.metadata.document_texts(place.0, place.1, ids.to_vec()).await;
        let some = some.map_err(problem)?;
        // Twice: the stored texts, and the bodies made of them.
        part.held.hold_more(bytes(&some).saturating_mul(2))?;
        let mut some = some.into_iter().peekable();
        for id in ids {
            if let Some(one) = some.next_if(|one| one.head.id == *id) {
                page_bytes = page_bytes.saturating_add(one.bytes());
                if page_bytes > PAGE_MAX_BYTES && !part.documents.is_empty() {
                    return Ok(part);
                }
                part.documents.push(one);
            }
            part.taken += 1;
        }
    }
    Ok(part)
}

fn bytes(documents: &[DocumentText]) -> usize {
    documents.iter().map(DocumentText::bytes).fold(0, usize::saturating_add)
}
