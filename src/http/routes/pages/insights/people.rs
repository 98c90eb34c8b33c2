//! The persons behind a mark of a chart: as a page, as a file, and saved as a cohort.

use maud::html;

use crate::beside::beside;
use crate::operation::input::New;
use crate::response::Problem;
use crate::routes::cohorts;
use crate::routes::cohorts::{Change, CohortWrite, Description};
use crate::routes::pages::files;
use crate::routes::pages::insights::{next, section, with_usual};
use crate::routes::pages::visit::{Asking, Page, Sent, Visit, form, see_other, wrong};
use crate::routes::query::actors;
use crate::routes::query::actors::People;
use weir_query::persons::people::Part;
use weir_web::insight::persons::{Persons, list};
use weir_web::insight::saved as shown;
use weir_web::parts;
use weir_web::parts::{FILES, failed};
use weir_web::state::actor::ActorRow;
use weir_web::state::insight::{Kind, Question};
use weir_web::state::parameters::Parameters;
use weir_web::state::point::Point;

/// Persons per page.
const PERSONS: usize = 100;

/// Persons in a file, and in each look-up for a cohort.
pub(super) const FILE_PERSONS: usize = 1000;

/// Most persons of a cohort that is created from a mark.
const COHORT_PERSONS_MAX: usize = 10_000;

/// The parsed URL: a query, a mark of its result, and the form of the response.
struct PersonsAddress {
    question: Question,
    point: Point,
    offset: usize,
    file: Option<&'static str>,
}

impl PersonsAddress {
    fn of(visit: &Visit) -> Result<Self, Problem> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == visit.id());
        let kind = kind.ok_or_else(|| Problem::not_found("There is no such kind of insight."))?;
        let read = || {
            let mut parameters = Parameters::parse(visit.request.query_string())?;
            let offset = parameters.number("offset")?.unwrap_or(0_usize);
            let file = parameters.choice("format", &FILES.map(|(format, _)| format))?;
            let point = Point::take(&mut parameters)?;
            let question = with_usual(Question::take(kind, &mut parameters)?);
            parameters.finish()?;
            Ok(Self { question, point, offset, file })
        };
        read().map_err(|error| wrong(&error))
    }
}

/// Up to `limit` persons behind a mark, from an offset on.
pub(super) async fn behind(
    asking: &Asking,
    (question, point): (&Question, &Point),
    (limit, offset): (usize, usize),
) -> Result<People, Problem> {
    let source = point.node(question);
    let is_of_row = question.kind() == Kind::Retention;
    let cell = point.cell.filter(|_| is_of_row).map(usize::from);
    let part = Part { offset, limit };
    actors::people_of(&asking.app, &asking.asker.project, &source, (part, cell)).await
}

/// `GET insights/:kind/persons`: the persons behind a mark.
pub(in crate::routes::pages) async fn persons(visit: Visit) -> Result<Sent, Problem> {
    let PersonsAddress { question, point, offset, file } = PersonsAddress::of(&visit)?;
    let asking = visit.asking.clone();
    if let Some(format) = file {
        let found = behind(&asking, (&question, &point), (FILE_PERSONS, offset)).await?;
        let file = move || files::of_objects(&found.people, ("persons", format));
        return beside(&asking.app.node.cpu, file).await;
    }
    let title = format!("Persons: {}", point.text(&question));
    let kinds = shown::kinds(asking.project(), Some(question.kind()), Some(&question));
    let mut page = Page::new(title, html! { (kinds) });
    let has_next = asking.may("query:read") && question.kind() == Kind::Funnel && offset == 0;
    let next = has_next.then(|| (asking.clone(), question.clone(), point.clone()));
    page.later.push(Box::pin(async move {
        let found = match behind(&asking, (&question, &point), (PERSONS, offset)).await {
            Ok(found) => found,
            Err(problem) => return section(&failed(problem.detail())),
        };
        let next = found.has_more.then(|| found.part.offset.saturating_add(found.people.len()));
        section(&list(&Persons {
            project: asking.project(),
            zone: asking.zone,
            server: &asking.server,
            question: &question,
            point: &point,
            people: &found.people.iter().map(ActorRow::of).collect::<Vec<_>>(),
            offset: found.part.offset,
            next,
            can_save: asking.may("cohort:write"),
        }))
    }));
    if let Some((asking, question, point)) = next {
        page = page.then(async move { next::events(&asking, &question, &point).await });
    }
    Ok(Sent::Page(page))
}

/// `POST insights/:kind/persons`: saves the persons currently behind a mark as a cohort.
pub(in crate::routes::pages) async fn save(mut visit: Visit) -> Result<Sent, Problem> {
    let PersonsAddress { question, point, .. } = PersonsAddress::of(&visit)?;
    let sent = form(visit.take_request()?).await?;
    let asking = &visit.asking;
    let mut persons: Vec<String> = Vec::new();
    loop {
        let part = (FILE_PERSONS, persons.len());
        let found = behind(asking, (&question, &point), part).await?;
        persons.extend(found.people.iter().map(|person| ActorRow::of(person).uuid));
        if !found.has_more || found.people.is_empty() || persons.len() >= COHORT_PERSONS_MAX {
            break;
        }
    }
    let of =
        parts::clipped(&format!("{}: {}", question.kind().title(), point.text(&question)), 400);
    let name = Some(sent.get("name")).filter(|name| !name.trim().is_empty()).unwrap_or(&of);
    let fields = CohortWrite {
        name: Some(name.trim().to_owned()),
        description: Some(Description(of.clone())),
        is_static: Some(true),
        ..CohortWrite::default()
    };
    let uuids: Vec<&str> = persons.iter().map(String::as_str).collect();
    let fields = fields.with_persons(cohorts::Persons::of(&uuids, &[])?);
    let cohort = New(Change { fields, csv: None });
    let made = asking.perform(cohorts::Create { cohort }).await?.0;
    let own = format!("cohorts/{}", made.id);
    Ok(Sent::Other(see_other(&parts::page(asking.project(), &own))?))
}
