//! Forms that create and change flags: the form, the actions of its buttons, reverting to a version, and scheduled
//! changes. Errors are shown beside the input.

use chrono::{NaiveDateTime, TimeZone};
use chrono_tz::Tz;
use serde_json::{Value, json};

use crate::operation::input::{New, Shared};
use crate::page::Page as Part;
use crate::response::Problem;
use crate::routes::feature_flags::actions::Revert;
use crate::routes::feature_flags::body::FlagWrite;
use crate::routes::feature_flags::evaluations::{AskedCondition, AudienceQuestion, BlastRadius};
use crate::routes::feature_flags::test_evaluation::{Unsaved, of_unsaved};
use crate::routes::pages::flags::{changed, flag_of, id_of};
use crate::routes::pages::visit::{Asking, Page, Sent, Visit, form, see_other, turned_back, wrong};
use crate::routes::scheduled_changes::{Payload, RecordId, ScheduledChangeWrite};
use crate::routes::{
    cohorts, event_definitions, feature_flags, groups, property_definitions, scheduled_changes,
};
use weir_api::flags::{Audience, Flag, TestedEvaluation};
use weir_base::clock::UnixMicros;
use weir_metadata::schedules::Interval;
use weir_web::pages::flag_form as shown;
use weir_web::pages::flag_form::Known;
use weir_web::parts;
use weir_web::parts::page;
use weir_web::state::flag::{Condition, Draft};
use weir_web::state::parameters::{Parameters, Wrong};

/// Actions of the buttons in the form.
const BUTTONS: [&str; 5] = ["save", "condition", "rows", "reach", "try"];

/// Most cohorts and properties that fields suggest.
const SUGGESTED: usize = 200;

/// Most conditions whose matching persons one request counts: each count is a scan of all persons.
const REACHED_MAX: usize = 10;

/// Actions of a scheduled change.
const CHANGES: [&str; 3] = ["on", "off", "add"];

/// `GET feature_flags/new`.
pub async fn new(visit: Visit) -> Result<Sent, Problem> {
    if let Some(back) = turned_back(&visit.asking, "feature_flag:write", "feature_flags")? {
        return Ok(back);
    }
    let draft = Draft { key: visit.parameter("key"), ..Draft::new() };
    let known = known(&visit.asking).await;
    Ok(Sent::Page(whole(&visit, None, &draft, &known)))
}

/// `POST feature_flags`.
pub async fn create(visit: Visit) -> Result<Sent, Problem> {
    edited(visit, None).await
}

/// `GET feature_flags/:id/edit`.
pub async fn edit(visit: Visit) -> Result<Sent, Problem> {
    if let Some(back) = turned_back(
        &visit.asking,
        "feature_flag:write",
        &format!("feature_flags/{}", parts::part(visit.id())),
    )? {
        return Ok(back);
    }
    let flag = flag_of(&visit).await?;
    let known = known(&visit.asking).await;
    Ok(Sent::Page(whole(&visit, Some(&flag), &Draft::of(&flag), &known)))
}

/// `POST feature_flags/:id/edit`.
pub async fn change(visit: Visit) -> Result<Sent, Problem> {
    let flag = flag_of(&visit).await?;
    edited(visit, Some(flag)).await
}

fn whole(visit: &Visit, flag: Option<&Flag>, draft: &Draft, known: &Known) -> Page {
    let project = visit.project();
    let all = page(project, "feature_flags");
    match flag {
        Some(flag) => {
            let own = format!("{all}/{}", flag.id);
            let title = format!("Edit {}", parts::clipped(&flag.key, 120));
            Page::new(title, shown::form(&format!("{own}/edit"), &own, draft, known))
        }
        None => Page::new("New feature flag", shown::form(&all, &all, draft, known)),
    }
}

/// Suggestions of the form; a list that the key may not read is empty.
pub(super) async fn known(asking: &Asking) -> Known {
    let page = Part { limit: SUGGESTED, offset: 0 };
    let groups = asking.perform(groups::Types {}).await.unwrap_or_default();
    let list = cohorts::List { search: Shared::default(), kind: None, page };
    let cohorts = asking.perform(list).await.map(|found| found.rows.into_values());
    let of = property_definitions::owner("person", None).unwrap_or_default();
    let list = property_definitions::List { of, page, ..Default::default() };
    let properties = asking.perform(list).await.map(|found| found.results).unwrap_or_default();
    let list = event_definitions::List { page, ..Default::default() };
    let events = asking.perform(list).await.map(|found| found.results).unwrap_or_default();
    Known {
        groups,
        cohorts: cohorts.unwrap_or_default(),
        properties: properties.into_iter().map(|own| own.name).collect(),
        events: events.into_iter().map(|own| own.name).collect(),
        ..Known::default()
    }
}

/// Performs the action of the button.
async fn edited(mut visit: Visit, flag: Option<Flag>) -> Result<Sent, Problem> {
    let mut sent = form(visit.take_request()?).await?;
    let what = sent.choice("do", &BUTTONS).map_err(|error| wrong(&error))?.unwrap_or("save");
    let tried = sent.take("try_id").map_err(|error| wrong(&error))?.unwrap_or_default();
    let mut draft = Draft::take(&mut sent).map_err(|error| wrong(&error))?;
    let asking = &visit.asking;
    let mut known = known(asking).await;
    match what {
        "condition" => {
            draft.conditions.push(Condition { rollout: "100".to_owned(), ..Condition::default() });
        }
        "reach" => known.reach = reach(asking, &draft).await,
        "try" => known.trial = Some(trial(asking, flag.as_ref(), &draft, &tried).await),
        "rows" => {}
        _ => match saved(asking, flag.as_ref(), &draft).await {
            Ok(saved) => {
                let address = page(visit.project(), &format!("feature_flags/{}", saved.id));
                return Ok(Sent::Other(see_other(&address)?));
            }
            Err(problem) => {
                known.problem = Some(problem.detail().to_owned());
                let page = whole(&visit, flag.as_ref(), &draft, &known);
                return Ok(Sent::Page(Page { status: problem.status(), ..page }));
            }
        },
    }
    known.tried = tried;
    Ok(Sent::Page(whole(&visit, flag.as_ref(), &draft, &known)))
}

/// Evaluates the draft for a distinct id as if it were saved, with the reason.
async fn trial(
    asking: &Asking,
    flag: Option<&Flag>,
    draft: &Draft,
    distinct_id: &str,
) -> Result<TestedEvaluation, String> {
    let filters = filters(flag, draft).map_err(|error| error.to_string())?;
    let unsaved = Unsaved {
        id: flag.map(|flag| flag.id),
        key: draft.key.clone(),
        filters,
        is_active: draft.is_active,
        is_continuous: draft.is_continuous,
    };
    let found = of_unsaved(&asking.app, &asking.asker, unsaved, distinct_id).await;
    found.map_err(|problem| problem.detail().to_owned())
}

/// The stored filters with the changes of the draft.
fn filters(flag: Option<&Flag>, draft: &Draft) -> Result<Value, Wrong> {
    draft.filters(flag.map_or(&Value::Null, |flag| &flag.filters))
}

async fn saved(asking: &Asking, flag: Option<&Flag>, draft: &Draft) -> Result<Flag, Problem> {
    let filters = filters(flag, draft).map_err(|error| wrong(&error))?;
    let (key, name) = (Some(draft.key.trim().to_owned()), Some(draft.name.trim().to_owned()));
    let (active, filters) = (Some(draft.is_active), Some(filters));
    let ensure_experience_continuity = Some(Some(draft.is_continuous));
    let sent = FlagWrite {
        name,
        key,
        filters,
        active,
        ensure_experience_continuity,
        ..FlagWrite::default()
    };
    match flag.map(|flag| flag.id) {
        Some(id) => asking.perform(feature_flags::Update { id, flag: sent }).await,
        None => Ok(asking.perform(feature_flags::Create { flag: New(sent) }).await?.0),
    }
}

/// The number of persons or groups that match each condition, and of all.
async fn reach(asking: &Asking, draft: &Draft) -> Vec<Result<(i64, i64), String>> {
    let mut reach = Vec::new();
    for (condition, number) in draft.conditions.iter().take(REACHED_MAX).zip(1_usize..) {
        let counted = match condition.node(number) {
            Ok(node) => counted(asking, draft, node).await,
            Err(error) => Err(wrong(&error)),
        };
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        reach.push(match counted {
            Ok(found) => Ok((number(found.affected), number(found.total))),
            Err(problem) => Err(problem.detail().to_owned()),
        });
    }
    reach
}

/// The number of persons or groups that match a condition.
async fn counted(asking: &Asking, draft: &Draft, node: Value) -> Result<Audience, Problem> {
    let condition = AskedCondition::of(Some(node))?;
    let group = draft.group.parse::<i64>().ok().map(Value::from);
    let question = AudienceQuestion { condition, group_type_index: Some(group) };
    asking.perform(BlastRadius { question }).await
}

/// `POST feature_flags/:id/revert`: restores the flag to a version.
pub async fn revert(mut visit: Visit) -> Result<Sent, Problem> {
    let mut sent = form(visit.take_request()?).await?;
    let version: Option<i64> = sent.number("version").map_err(|error| wrong(&error))?;
    let version = version.unwrap_or_default().to_string();
    visit.asking.perform(Revert { id: id_of(&visit)?, version }).await?;
    back(&visit, "")
}

/// `POST feature_flags/:id/delete`.
pub async fn delete(visit: Visit) -> Result<Sent, Problem> {
    changed(&visit, FlagWrite { deleted: Some(true), ..FlagWrite::default() }).await?;
    Ok(Sent::Other(see_other(&page(visit.project(), "feature_flags"))?))
}

/// `POST feature_flags/:id/schedule`: schedules a change, in the time zone of the project.
pub async fn schedule(mut visit: Visit) -> Result<Sent, Problem> {
    let mut sent = form(visit.take_request()?).await?;
    let flag = flag_of(&visit).await?;
    let change = scheduled(&mut sent, &flag, visit.asking.zone).map_err(|error| wrong(&error))?;
    visit.asking.perform(scheduled_changes::Create { change: New(change) }).await?;
    back(&visit, "#schedule")
}

fn scheduled(sent: &mut Parameters, flag: &Flag, zone: Tz) -> Result<ScheduledChangeWrite, Wrong> {
    let what = sent.choice("what", &CHANGES)?.unwrap_or("on");
    let interval = sent.choice("interval", &Interval::NAMES)?;
    let at = moment(sent.get("at"), zone)?;
    let payload = match what {
        "add" => {
            let rollout = sent.number::<i64>("rollout")?.unwrap_or(100);
            let condition = json!({"properties": [], "rollout_percentage": rollout});
            json!({"operation": "add_release_condition", "value": {"groups": [condition]}})
        }
        what => json!({"operation": "update_status", "value": what == "on"}),
    };
    let id = flag.id.to_string();
    Ok(ScheduledChangeWrite {
        record_id: Some(RecordId(id)),
        payload: Some(Payload(payload)),
        scheduled_at: Some(at),
        is_recurring: Some(interval.is_some()),
        recurrence_interval: Some(interval.and_then(Interval::parse)),
        ..ScheduledChangeWrite::default()
    })
}

/// Parses a local time in the format of a form field. A time that is skipped or repeated by the clocks is resolved to
/// the earliest.
fn moment(text: &str, zone: Tz) -> Result<UnixMicros, Wrong> {
    let wrong = || Wrong::new("at", "Expected a date and a time, such as 2026-12-24T18:00.");
    let formats = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"];
    let mut times =
        formats.iter().filter_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    let local = times.next().ok_or_else(wrong)?;
    let moment = zone.from_local_datetime(&local).earliest().ok_or_else(wrong)?;
    Ok(UnixMicros(moment.timestamp_micros()))
}

/// `POST feature_flags/:id/schedule/cancel`.
pub async fn cancel(mut visit: Visit) -> Result<Sent, Problem> {
    let mut sent = form(visit.take_request()?).await?;
    let id: Option<i64> = sent.number("id").map_err(|error| wrong(&error))?;
    let id = id.unwrap_or_default();
    visit.asking.perform(scheduled_changes::Delete { id }).await?;
    back(&visit, "#schedule")
}

fn back(visit: &Visit, part: &str) -> Result<Sent, Problem> {
    let address =
        page(visit.project(), &format!("feature_flags/{}{part}", parts::part(visit.id())));
    Ok(Sent::Other(see_other(&address)?))
}

#[cfg(test)]
mod tests {
    use chrono_tz::Tz;

    use super::moment;
    use weir_base::clock::UnixMicros;

    #[test]
    fn times_are_those_of_the_project() {
        for (text, expected) in [
            ("2026-12-24T18:00", Some("2026-12-24T17:00:00.000000Z")),
            ("2026-07-01T08:30:15", Some("2026-07-01T06:30:15.000000Z")),
            ("2026-10-25T02:30", Some("2026-10-25T00:30:00.000000Z")),
            ("2026-03-29T02:30", None),
            ("soon", None),
            ("", None),
        ] {
            let found = moment(text, Tz::Europe__Berlin).ok().map(UnixMicros::to_rfc3339);
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
