//! Forms that create and change cohorts and early access features. Errors are shown beside the input.

use serde_json::json;
use uuid::Uuid;

use crate::operation::input::{InPath, New};
use crate::page::Page as Part;
use crate::response::Problem;
use crate::routes::cohorts::{Change, CohortWrite, Description, Persons, Rule};
use crate::routes::early_access_features::EarlyAccessFeatureWrite;
use crate::routes::feature_flags::filter::Filters;
use crate::routes::pages::cohorts::number;
use crate::routes::pages::flag_editor::known;
use crate::routes::pages::visit::{Asking, Page, Sent, Visit, form, see_other, turned_back, wrong};
use crate::routes::{cohorts, early_access_features, feature_flags};
use weir_api::cohorts::Cohort;
use weir_api::early_access::Feature;
use weir_web::pages::cohort_form as shown;
use weir_web::pages::cohort_form::FeatureDraft;
use weir_web::pages::flag_form::Known;
use weir_web::parts;
use weir_web::parts::page;
use weir_web::state::cohort::{Draft, Group, members as listed};
use weir_web::state::parameters::Parameters;

/// Actions of the buttons in the form of a cohort.
const BUTTONS: [&str; 3] = ["save", "group", "rows"];

/// Longest name in a title, in characters.
const NAME_MAX_CHARS: usize = 120;

/// Most flags to choose from.
const FLAGS: usize = 500;

/// `GET cohorts/new`.
pub async fn new(visit: Visit) -> Result<Sent, Problem> {
    if let Some(back) = turned_back(&visit.asking, "cohort:write", "cohorts")? {
        return Ok(back);
    }
    let known = known(&visit.asking).await;
    Ok(Sent::Page(whole(&visit, None, &Draft::default(), &known)))
}

/// `GET cohorts/:id/edit`.
pub async fn edit(visit: Visit) -> Result<Sent, Problem> {
    if let Some(back) =
        turned_back(&visit.asking, "cohort:write", &format!("cohorts/{}", parts::part(visit.id())))?
    {
        return Ok(back);
    }
    let cohort = visit.asking.perform(cohorts::Retrieve { id: number(&visit)? }).await?;
    let known = known(&visit.asking).await;
    Ok(Sent::Page(whole(&visit, Some(&cohort), &Draft::of(&cohort), &known)))
}

/// `POST cohorts`.
pub async fn create(visit: Visit) -> Result<Sent, Problem> {
    edited(visit, None).await
}

/// `POST cohorts/:id/edit`.
pub async fn change(visit: Visit) -> Result<Sent, Problem> {
    let cohort = visit.asking.perform(cohorts::Retrieve { id: number(&visit)? }).await?;
    edited(visit, Some(cohort)).await
}

fn whole(visit: &Visit, cohort: Option<&Cohort>, draft: &Draft, known: &Known) -> Page {
    let all = page(visit.project(), "cohorts");
    match cohort {
        Some(cohort) => {
            let own = format!("{all}/{}", cohort.id);
            let content = shown::cohort((&format!("{own}/edit"), &own), draft, known, false);
            Page::new(format!("Edit {}", parts::title(&cohort.name)), content)
        }
        None => Page::new("New cohort", shown::cohort((&all, &all), draft, known, true)),
    }
}

async fn edited(mut visit: Visit, cohort: Option<Cohort>) -> Result<Sent, Problem> {
    let mut sent = form(visit.take_request()?).await?;
    let what = sent.choice("do", &BUTTONS).map_err(|error| wrong(&error))?.unwrap_or("save");
    let mut draft = Draft::take(&mut sent).map_err(|error| wrong(&error))?;
    let mut known = known(&visit.asking).await;
    match what {
        "group" => draft.groups.push(Group::default()),
        "rows" => {}
        _ => match saved(&visit.asking, cohort.as_ref(), &draft).await {
            Ok(saved) => {
                let own = page(visit.project(), &format!("cohorts/{}", saved.id));
                return Ok(Sent::Other(see_other(&own)?));
            }
            Err(problem) => {
                known.problem = Some(problem.detail().to_owned());
                let page = whole(&visit, cohort.as_ref(), &draft, &known);
                return Ok(Sent::Page(Page { status: problem.status(), ..page }));
            }
        },
    }
    Ok(Sent::Page(whole(&visit, cohort.as_ref(), &draft, &known)))
}

async fn saved(asking: &Asking, cohort: Option<&Cohort>, draft: &Draft) -> Result<Cohort, Problem> {
    let fields = CohortWrite {
        name: Some(draft.name.trim().to_owned()),
        description: Some(Description(draft.description.clone())),
        ..CohortWrite::default()
    };
    let rule = || draft.rule().map_err(|error| wrong(&error));
    let ruled = |fields: CohortWrite| -> Result<CohortWrite, Problem> {
        let filters = Some(Rule(json!({"properties": rule()?})));
        Ok(CohortWrite { filters, ..fields })
    };
    let is_list = cohort.map_or(draft.is_static, |own| own.is_static);
    let change = |fields| Change { fields, csv: None };
    let Some(own) = cohort else {
        let fields = match is_list {
            true => {
                let (uuids, ids) = listed(&draft.ids);
                let fields = CohortWrite { is_static: Some(true), ..fields };
                fields.with_persons(Persons::of(&uuids, &ids)?)
            }
            false => ruled(fields)?,
        };
        let made = asking.perform(cohorts::Create { cohort: New(change(fields)) }).await?;
        return Ok(made.0);
    };
    let fields = if is_list { fields } else { ruled(fields)? };
    asking.perform(cohorts::Update { id: own.id, change: change(fields) }).await
}

/// `POST cohorts/:id/delete`.
pub async fn delete(visit: Visit) -> Result<Sent, Problem> {
    let fields = CohortWrite { deleted: Some(true), ..CohortWrite::default() };
    let change = Change { fields, csv: None };
    visit.asking.perform(cohorts::Update { id: number(&visit)?, change }).await?;
    Ok(Sent::Other(see_other(&page(visit.project(), "cohorts"))?))
}

/// `POST cohorts/:id/members`: adds persons to a list, or removes them.
pub async fn members(mut visit: Visit) -> Result<Sent, Problem> {
    let mut sent = form(visit.take_request()?).await?;
    let what = sent.choice("do", &["add", "remove"]).map_err(|error| wrong(&error))?;
    let (uuids, ids) = listed(sent.get("ids"));
    let (id, persons) = (number(&visit)?, Persons::of(&uuids, &ids)?);
    match what {
        Some("remove") => visit.asking.perform(cohorts::RemoveMembers { id, persons }).await?,
        _ => visit.asking.perform(cohorts::AddMembers { id, persons }).await?,
    };
    let own = page(visit.project(), &format!("cohorts/{id}"));
    Ok(Sent::Other(see_other(&own)?))
}

/// `GET early_access_features/new`.
pub async fn new_feature(visit: Visit) -> Result<Sent, Problem> {
    if let Some(back) =
        turned_back(&visit.asking, "early_access_feature:write", "early_access_features")?
    {
        return Ok(back);
    }
    let page = feature_page(&visit, None, &FeatureDraft::default(), None).await;
    Ok(Sent::Page(page))
}

/// `POST early_access_features`.
pub async fn create_feature(mut visit: Visit) -> Result<Sent, Problem> {
    let typed = typed_feature(&form(visit.take_request()?).await?);
    let feature_flag_id = typed.flag.parse().ok().map(Some);
    let made = match feature_of(&typed) {
        Ok(sent) => {
            let feature = New(EarlyAccessFeatureWrite { feature_flag_id, ..sent });
            visit.asking.perform(early_access_features::Create { feature }).await.map(|_| ())
        }
        Err(problem) => Err(problem),
    };
    finished(&visit, made, None, &typed).await
}

/// `GET early_access_features/:id`.
pub async fn feature(visit: Visit) -> Result<Sent, Problem> {
    if let Some(back) =
        turned_back(&visit.asking, "early_access_feature:write", "early_access_features")?
    {
        return Ok(back);
    }
    let id = feature_id(&visit)?;
    let own = visit.asking.perform(early_access_features::Retrieve { id }).await?;
    Ok(Sent::Page(feature_page(&visit, Some(&own), &FeatureDraft::of(&own), None).await))
}

/// `POST early_access_features/:id`.
pub async fn change_feature(mut visit: Visit) -> Result<Sent, Problem> {
    let mut sent = form(visit.take_request()?).await?;
    let what = sent.choice("do", &["save", "delete"]).map_err(|error| wrong(&error))?;
    let (asking, id) = (visit.asking.clone(), feature_id(&visit)?);
    if what == Some("delete") {
        asking.perform(early_access_features::Delete { id }).await?;
        return Ok(Sent::Other(see_other(&page(visit.project(), "early_access_features"))?));
    }
    let own = asking.perform(early_access_features::Retrieve { id }).await?;
    let typed = typed_feature(&sent);
    let changed = match feature_of(&typed) {
        Ok(change) => {
            asking.perform(early_access_features::Update { id, change }).await.map(|_| ())
        }
        Err(problem) => Err(problem),
    };
    finished(&visit, changed, Some(&own), &typed).await
}

fn feature_id(visit: &Visit) -> Result<Uuid, Problem> {
    InPath::of(visit.id())
}

fn typed_feature(sent: &Parameters) -> FeatureDraft {
    let text = |name: &str| sent.get(name).trim().to_owned();
    FeatureDraft {
        name: text("name"),
        description: text("description"),
        stage: sent.get("stage").to_owned(),
        documentation_url: text("documentation_url"),
        flag: sent.get("flag").to_owned(),
    }
}

fn feature_of(typed: &FeatureDraft) -> Result<EarlyAccessFeatureWrite, Problem> {
    Ok(EarlyAccessFeatureWrite {
        name: Some(typed.name.clone()),
        description: Some(typed.description.clone()),
        stage: Some(early_access_features::stage("stage", &json!(typed.stage))?),
        documentation_url: Some(typed.documentation_url.clone()),
        ..EarlyAccessFeatureWrite::default()
    })
}

async fn finished(
    visit: &Visit,
    done: Result<(), Problem>,
    own: Option<&Feature>,
    typed: &FeatureDraft,
) -> Result<Sent, Problem> {
    match done {
        Ok(()) => Ok(Sent::Other(see_other(&page(visit.project(), "early_access_features"))?)),
        Err(problem) => {
            let page = feature_page(visit, own, typed, Some(problem.detail())).await;
            Ok(Sent::Page(Page { status: problem.status(), ..page }))
        }
    }
}

async fn feature_page(
    visit: &Visit,
    own: Option<&Feature>,
    typed: &FeatureDraft,
    problem: Option<&str>,
) -> Page {
    let all = page(visit.project(), "early_access_features");
    let Some(own) = own else {
        let (filters, page) = (Filters::searching(""), Part { limit: FLAGS, offset: 0 });
        let list = feature_flags::List { filters, order: None, page };
        let flags = visit.asking.perform(list).await.map(|found| found.rows.into_values());
        let flags = flags.unwrap_or_default();
        let content = shown::feature((&all, &all), typed, &flags, problem, true);
        return Page::new("New early access feature", content);
    };
    let address = format!("{all}/{}", parts::part(&own.id));
    let content = shown::feature((&address, &all), typed, &[], problem, false);
    Page::new(format!("Edit {}", parts::clipped(&own.name, NAME_MAX_CHARS)), content)
}
