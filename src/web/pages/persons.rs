//! Persons, groups and cohorts: pages of a single one, and lists of the last two.

use std::time::Duration;

use chrono::DateTime;
use chrono_tz::Tz;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::pages::events;
use crate::pages::events::Drawn;
use crate::parts;
use crate::parts::{clipped, literal, page};
use crate::state::properties::{name_of_group, url_of};
use weir_api::cohorts::Cohort;
use weir_api::flags::EvaluationReasons;
use weir_api::groups::{Group, Type};
use weir_api::persons::Person;
use weir_api::query::Rows;

/// Longest names and ids in a row, in characters.
const NAME_MAX_CHARS: usize = 120;

/// Time range in days, and most rows, of the events of a group.
const GROUP_DAYS: u32 = 30;
const GROUP_ROWS: u32 = 20;

/// Most distinct ids of a person that a form offers.
const IDS_OFFERED_MAX: usize = 200;

/// Time without an event after which the next one begins another visit.
const VISIT_GAP: Duration = Duration::from_mins(30);

/// Most ids that a person shows.
const IDS_MAX: usize = 100;

/// Placeholder in place of the persons of an empty cohort.
pub fn no_members(cohort: &Cohort) -> Markup {
    html! {
        div class="empty" {
            h2 { @if is_being_counted(cohort) { "Counting" } @else { "This cohort is empty" } }
            @if is_being_counted(cohort) { p { (COUNTING) } } @else if cohort.is_static { p { "Persons are added above, by their ids." } } @else {
                p { "No person matches at the moment. Persons that match later are added automatically." }
            }
        }
    }
}

/// Note on a cohort by events while its members are being computed.
pub const COUNTING: &str =
    "The members are known when all events have been read: load this page again in a moment.";

/// Whether the members of a cohort by events are being computed; until then there are none, or those of the last
/// computation.
pub fn is_being_counted(cohort: &Cohort) -> bool {
    cohort.is_calculating && cohort.cohort_type == "behavioral"
}

/// The SQL that finds the groups of a list.
pub fn sql_of_groups(index: u8, wanted: &str) -> String {
    let condition = match wanted {
        "" => String::new(),
        text => {
            let lower = literal(&text.to_lowercase());
            format!(
                "\n  AND (strpos(lower(key), {lower}) > 0 OR strpos(lower(json_get_str(properties, 'name')), {lower}) > 0)"
            )
        }
    };
    format!(
        "SELECT *\nFROM groups\nWHERE group_type_index = {index}{condition}\nORDER BY created_at DESC\nLIMIT 100"
    )
}

/// The name of a person.
pub fn name(person: &Person) -> String {
    let first = person.distinct_ids.first().map(String::as_str);
    let is_named = !person.name.trim().is_empty();
    parts::title(if is_named { &person.name } else { first.unwrap_or_default() })
}

/// One person: the data that needs no query. `cohorts` are those that contain it.
pub fn one(project: i64, zone: Tz, person: &Person, cohorts: &[Cohort]) -> Markup {
    let ids = &person.distinct_ids;
    html! {
        div class="pair" {
            div {
                h2 { "Properties" }
                (parts::properties_of(&person.properties))
            }
            aside {
                div class="card" {
                    h2 { "Person" }
                    dl class="facts" {
                        dt { "First seen" } dd { (parts::time(&person.created_at, zone)) }
                        dt { "Identified" } dd { @if person.is_identified { "yes" } @else { "no" } }
                        dt { "Uuid" } dd { code { (person.uuid) } }
                    }
                    h3 { "Distinct ids (" (ids.len()) ")" }
                    ul class="plain" {
                        @for id in ids.iter().take(IDS_MAX) { li { code { (parts::cell(id)) } } }
                        @if ids.len() > IDS_MAX { li class="quiet" { "and " (ids.len() - IDS_MAX) " more" } }
                    }
                    @if !cohorts.is_empty() {
                        h3 { "Cohorts" }
                        div class="actions" {
                            @for cohort in cohorts {
                                a class="badge" href=(page(project, &format!("cohorts/{}", cohort.id))) {
                                    (clipped(&cohort.name, NAME_MAX_CHARS))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Note above the events of a distinct id without a person.
pub fn nobody() -> Markup {
    html! {
        div class="note" {
            p { "This id has events and no person. SDKs in browsers make a person of a visitor with the first call of "
                code { "identify" } ", and with each event if " code { "person_profiles: 'always'" } " is set." }
        }
    }
}

/// Forms that split a person or delete it.
pub fn changes(project: i64, person: &Person) -> Markup {
    let ids = &person.distinct_ids;
    let address = page(project, &format!("person/{}", parts::part(&person.uuid)));
    html! {
        details class="card" {
            summary { "Split or delete" }
            div {
                @if ids.len() > 1 {
                    form class="stack" method="post" action=(format!("{address}/split")) data-confirm="The chosen ids become persons of their own, without properties. Do it?" {
                        h3 { "Ids that become persons of their own" }
                        @for id in ids.iter().take(IDS_MAX) {
                            label class="check" { input type="checkbox" name="id" value=(id); code { (parts::cell(id)) } }
                        }
                        button { "Split" }
                    }
                }
                form class="stack" method="post" action=(format!("{address}/delete")) data-confirm="This cannot be undone. Delete?" {
                    label { "Delete" select name="what" {
                        option value="person" { "the person, and keep its events" }
                        option value="both" { "the person and its events" }
                        option value="events" { "the events, and keep the person" }
                    } }
                    button class="danger" { "Delete" }
                }
            }
        }
    }
}

/// The events that set the current values of a person's properties.
pub fn origins(project: i64, zone: Tz, found: &[(String, Drawn)]) -> Markup {
    html! {
        @if !found.is_empty() {
            details class="card" {
                summary { "Events that set the properties (" (found.len()) ")" }
                dl class="facts" {
                    @for (name, event) in found {
                        dt { (clipped(name, NAME_MAX_CHARS)) }
                        dd {
                            a href=(page(project, &format!("events/{}", parts::part(&event.id)))) { (clipped(&event.event, NAME_MAX_CHARS)) }
                            " " span class="quiet" { (parts::time(&event.timestamp, zone)) }
                        }
                    }
                }
            }
        }
    }
}

/// Events of a person, split into visits by gaps of half an hour.
pub fn timeline(project: i64, zone: Tz, events: &[Drawn]) -> Markup {
    let moment = |event: &Drawn| DateTime::parse_from_rfc3339(&event.timestamp).ok();
    let mut visits: Vec<Vec<&Drawn>> = Vec::new();
    for event in events {
        let last = visits.last().and_then(|visit| visit.last()).and_then(|last| moment(last));
        let gap = last.zip(moment(event)).and_then(|(later, own)| (later - own).to_std().ok());
        match visits.last_mut() {
            Some(visit) if gap.is_some_and(|gap| gap < VISIT_GAP) => visit.push(event),
            _ => visits.push(vec![event]),
        }
    }
    html! {
        h2 { "What happened" }
        @if visits.is_empty() { p class="quiet" { "No events are stored of this person." } }
        @for visit in &visits {
            section class="visit" {
                h3 {
                    @if let Some(first) = visit.last() { (parts::time(&first.timestamp, zone)) }
                    " · " (visit.len()) @if visit.len() == 1 { " event" } @else { " events" }
                }
                ul class="plain" {
                    @for event in visit {
                        li {
                            a href=(page(project, &format!("events/{}", parts::part(&event.id)))) { (clipped(&event.event, NAME_MAX_CHARS)) }
                            " " span class="quiet" {
                                (clipped(url_of(&event.properties), NAME_MAX_CHARS))
                                " " (parts::time(&event.timestamp, zone))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The flags of a person, evaluated for one of its distinct ids. `told` has rows of a flag's key, the value that a
/// client received last, and when.
pub fn flags(
    (project, zone): (i64, Tz),
    (distinct_id, ids): (&str, &[String]),
    EvaluationReasons(flags): &EvaluationReasons,
    known: &[(String, i64)],
    told: &Rows,
) -> Markup {
    let told_of = |key: &str| {
        told.results.iter().find(|row| row.first().and_then(Value::as_str) == Some(key))
    };
    if flags.is_empty() {
        return html! { h2 { "Feature flags" } p class="quiet" { "This project has no feature flags." } };
    }
    html! {
        h2 id="flags" { "Feature flags, now" }
        (flags_of(distinct_id, ids))
        div class="scroll" tabindex="0" role="region" aria-label="Feature flags" {
            table {
                thead { tr { th scope="col" { "Flag" } th scope="col" { "Value now" } th scope="col" { "Why" } th scope="col" { "Last reported" } } }
                tbody {
                    @for (key, flag) in flags {
                        @let value = &Value::from(flag.value.clone());
                        tr {
                            th scope="row" {
                                @match known.iter().find(|(own, _)| own == key) {
                                    Some((_, id)) => a href=(page(project, &format!("feature_flags/{id}"))) { (clipped(key, NAME_MAX_CHARS)) },
                                    None => (clipped(key, NAME_MAX_CHARS)),
                                }
                            }
                            td { (parts::flag_value(value)) }
                            td { (flag.evaluation.reason.replace('_', " "))
                                @if let Some(index) = flag.evaluation.condition_index { ", condition " (index + 1) } }
                            td { @if let Some(row) = told_of(key) { (told_value(row, value, zone)) } @else { span class="quiet" { "never" } } }
                        }
                    }
                }
            }
        }
    }
}

/// The distinct id for which flags are evaluated, and a form to choose another one of the person.
fn flags_of(distinct_id: &str, ids: &[String]) -> Markup {
    let hint =
        "A part of everybody is chosen by distinct id, so another one may have other values.";
    html! {
        @if ids.len() > 1 {
            form class="bar" method="get" action="#flags" {
                label { "As the distinct id" select name="flags_of" {
                    @for id in ids.iter().take(IDS_OFFERED_MAX) {
                        option value=(id) selected[id == distinct_id] { (clipped(id, NAME_MAX_CHARS)) }
                    }
                    @if !ids.iter().take(IDS_OFFERED_MAX).any(|id| id == distinct_id) {
                        option value=(distinct_id) selected { (clipped(distinct_id, NAME_MAX_CHARS)) }
                    }
                } }
                button { "Evaluate" }
            }
            p class="quiet" { (hint) }
        } @else {
            p class="quiet" { "As the distinct id " code { (clipped(distinct_id, NAME_MAX_CHARS)) } ", the only one of this person." }
        }
    }
}

/// The value that a client received last, marked if it differs from the current one.
fn told_value(row: &[Value], now: &Value, zone: Tz) -> Markup {
    let cell = |at: usize| row.get(at).map(parts::plain).unwrap_or_default();
    let (value, is_same) = (cell(1), cell(1) == parts::plain(now));
    html! {
        span class=(if is_same { "badge good" } else { "badge warn" }) { (clipped(&value, NAME_MAX_CHARS)) }
        " " span class="quiet" { (parts::time(&cell(2), zone)) }
    }
}

/// SQL about a group.
#[derive(Clone, Debug)]
pub struct OfGroup {
    /// Its newest events.
    pub events: String,
    /// The persons of the most recent of these events.
    pub persons: String,
}

/// SQL for the events and persons of a group, by the index of its type and its key.
pub fn of_group(index: u8, key: &str) -> OfGroup {
    let of = format!(
        "FROM events WHERE group_{index} = {} AND timestamp > now() - INTERVAL '{GROUP_DAYS} days'",
        literal(key)
    );
    OfGroup {
        events: format!(
            "SELECT uuid, event, distinct_id, timestamp, properties['$current_url'] {of} ORDER BY timestamp DESC LIMIT {GROUP_ROWS}"
        ),
        persons: format!(
            "SELECT max(distinct_id) AS id, count(*) AS events, max(timestamp) AS last {of} GROUP BY person_id \
             ORDER BY last DESC LIMIT {GROUP_ROWS}"
        ),
    }
}

/// The newest events of a group, and their persons, if the user may see these.
pub fn deeds_of_group((project, zone): (i64, Tz), events: &Rows, persons: Option<&Rows>) -> Markup {
    let event = |row: &Vec<Value>| {
        let cell = |at: usize| row.get(at).map(parts::plain).unwrap_or_default();
        Drawn {
            id: cell(0),
            event: cell(1),
            distinct_id: cell(2),
            timestamp: cell(3),
            properties: json!({"$current_url": cell(4)}),
            ..Drawn::default()
        }
    };
    let events: Vec<Drawn> = events.results.iter().map(event).collect();
    html! {
        h2 { "Newest events of the last " (GROUP_DAYS) " days" }
        @if events.is_empty() { p class="quiet" { "None." } } @else {
            (events::table(&[], None, &events::rows(project, zone, &events, &[])))
        }
        @if let Some(persons) = persons.map(|own| &own.results).filter(|own| !own.is_empty()) {
            h2 { "Persons of the last " (GROUP_DAYS) " days" }
            div class="scroll" tabindex="0" role="region" aria-label="Persons" {
                table {
                    thead { tr { th scope="col" { "Person" } th scope="col" class="number" { "Events" } th scope="col" { "Last event" } } }
                    tbody {
                        @for row in persons {
                            @let id = row.first().map(parts::plain).unwrap_or_default();
                            tr {
                                th scope="row" { a href=(parts::person(project, &id)) { (clipped(&id, NAME_MAX_CHARS)) } }
                                td class="number" { (parts::number(row.get(1).and_then(Value::as_i64).unwrap_or_default())) }
                                td class="short" { (parts::time(&row.get(2).map(parts::plain).unwrap_or_default(), zone)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A list of groups of one type.
pub fn groups(project: i64, zone: Tz, types: &[Type], index: u8, groups: &[Group]) -> Markup {
    html! {
        nav class="tabs" aria-label="Group types" {
            @for of in types {
                @let own = of.group_type_index;
                a href=(format!("?index={own}")) aria-current=[(own == usize::from(index)).then_some("page")] { (clipped(&of.group_type, NAME_MAX_CHARS)) }
            }
        }
        @if groups.is_empty() {
            div class="empty" {
                h2 { "No groups" }
                p { "Groups are companies, teams or whatever else persons belong to. An event with "
                    code { "$groups" } " belongs to them, and " code { "$groupidentify" } " tells their properties." }
            }
        } @else {
            div class="scroll" tabindex="0" role="region" aria-label="Groups" {
                table {
                    thead { tr { th scope="col" { "Group" } th scope="col" { "Name" } th scope="col" { "First seen" } } }
                    tbody {
                        @for group in groups {
                            @let key = group.group_key.as_str();
                            @let name = name_of_group(&group.group_properties);
                            tr {
                                th scope="row" { a href=(page(project, &format!("groups/{index}/{}", parts::part(key)))) { (clipped(key, NAME_MAX_CHARS)) } }
                                td { (clipped(name, NAME_MAX_CHARS)) }
                                td class="short" { (parts::time(&group.created_at, zone)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A list of cohorts.
pub fn cohorts(project: i64, zone: Tz, cohorts: &[Cohort]) -> Markup {
    if cohorts.is_empty() {
        return html! {
            div class="empty" {
                h2 { "No cohorts yet" }
                p { "A cohort is a set of persons, by rules on their properties and other cohorts, or as a list. \
                     Flags and insights can be limited to one. The button above makes one, and so does the API: " code { "POST /api/projects/" (project) "/cohorts/" } }
            }
        };
    }
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Cohorts" {
            table {
                thead { tr { th scope="col" { "Cohort" } th scope="col" { "Kind" } th scope="col" class="number" { "Persons" } th scope="col" { "Counted" } } }
                tbody {
                    @for cohort in cohorts {
                        tr {
                            th scope="row" {
                                a href=(page(project, &format!("cohorts/{}", cohort.id))) { (parts::title(&cohort.name)) }
                                @if !cohort.description.is_empty() { div class="quiet" { (clipped(&cohort.description, 300)) } }
                            }
                            td { @if cohort.is_static { "List" } @else { "Rules" } }
                            td class="number" { @match cohort.count { Some(count) => (parts::number(count)), None if cohort.is_calculating => "being counted", None => "-" } }
                            td class="short" { (parts::time(cohort.last_calculation.as_deref().unwrap_or_default(), zone)) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono_tz::Tz;

    use super::{Drawn, timeline};

    #[test]
    fn visits_end_after_half_an_hour() {
        let event = |minute: u32| Drawn {
            event: "x".to_owned(),
            id: "y".to_owned(),
            timestamp: format!("2026-11-21T{:02}:{:02}:00Z", minute / 60, minute % 60),
            ..Drawn::default()
        };
        for (minutes, visits) in
            [(vec![], 0), (vec![5], 1), (vec![60, 31, 2], 1), (vec![90, 60, 30, 29, 0], 3)]
        {
            let events: Vec<Drawn> = minutes.iter().map(|minute| event(*minute)).collect();
            let shown = timeline(1, Tz::UTC, &events).0;
            assert_eq!(shown.matches("class=\"visit\"").count(), visits, "{minutes:?}");
        }
    }
}
