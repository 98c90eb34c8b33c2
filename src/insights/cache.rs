//! Cache of query results: [`Answers`]. A cached result is returned while it is still valid.
//!
//! A result depends on two kinds of things. What is known before execution is part of the cache key: the request, the
//! settings of the project, and the absolute times to which relative dates resolve now. The rest is stored with the
//! result and compared on each look-up ([`AsOf`]): events, persons and groups by the project's newest log record and
//! the time from which events are kept, cohorts by the identity of their set. A query that compares a value with the
//! current time itself, such as "signed up less than 3 days ago", has no stable result, so none is cached; for SQL the
//! plan determines whether the result is cacheable ([`Answered::is_cacheable`]).

use std::sync::{Arc, Weak};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::ProjectSettings;
use crate::answered::Answered;
use crate::correlation::answer::Subject;
use crate::dependence::Dependence;
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::json;
use weir_event::promotion::{PromotedTable, Promotion};
use weir_flags::cohorts::CohortSet;
use weir_query::kernel::engine::Engine;

/// Memory of a cached result besides its texts, in bytes.
const ANSWER_BYTES: u64 = 512;

/// Memory of a typical result in bytes, to size the index of the cache.
const ANSWER_TYPICAL_BYTES: u64 = 8192;

/// A query result with its response fields.
#[derive(Debug)]
pub struct Answer {
    /// JSON value of the field `results` of PostHog's API.
    pub results: Bytes,
    /// The other response fields that depend on the query and the data: JSON, comma-separated, without braces.
    pub fields: String,
    /// Events that the query names, as far as the plan shows.
    pub events: Vec<String>,
    /// The subjects of the rows of a correlation.
    pub subjects: Vec<Subject>,
    /// When it was computed.
    pub at: UnixMicros,
    as_of: AsOf,
}

impl Answer {
    /// A copy in memory of its own, instead of memory shared with query buffers.
    pub fn copied(&self) -> Self {
        Self {
            results: Bytes::copy_from_slice(&self.results),
            fields: self.fields.clone(),
            events: self.events.clone(),
            subjects: self.subjects.clone(),
            at: self.at,
            as_of: self.as_of.clone(),
        }
    }

    /// The response fields beside the results.
    ///
    /// # Errors
    ///
    /// They are not valid JSON: a bug.
    pub fn told(&self) -> Result<Map<String, Value>, serde_json::Error> {
        json::restore(format!("{{{}}}", self.fields).as_bytes())
    }

    /// Approximate memory in bytes.
    pub fn bytes(&self) -> u64 {
        let names = self.events.iter().map(String::len);
        let names = names.chain(self.subjects.iter().map(Subject::bytes));
        let names = names.fold(0, usize::saturating_add);
        let texts = self.results.len().saturating_add(self.fields.len()).saturating_add(names);
        u64::try_from(texts).unwrap_or(u64::MAX).saturating_add(ANSWER_BYTES)
    }
}

/// Version of the data from which a result was computed.
#[derive(Clone, Debug)]
struct AsOf {
    /// The newest log record of the project.
    latest: u64,
    /// Its cohorts. The weak reference does not keep them alive, but prevents that their address is used again.
    cohorts: Option<Weak<CohortSet>>,
    /// The time before which no event is kept, if there is one.
    kept_from: Option<UnixMicros>,
    /// The properties with columns, which SQL may name, by tables.
    promotions: [Vec<Promotion>; PromotedTable::ALL.len()],
}

impl AsOf {
    fn now(engine: &Engine, project: ProjectId) -> Self {
        let snapshot = engine.metadata().snapshot();
        let cohorts = snapshot.cohort_set(project).map(Arc::downgrade);
        let kept_from = engine.kept_from(project);
        let promotions =
            PromotedTable::ALL.map(|table| snapshot.promotions(project, table).to_vec());
        Self { latest: engine.latest_of(project), cohorts, kept_from, promotions }
    }

    fn is_same(&self, other: &Self) -> bool {
        let is_same_set = match (&self.cohorts, &other.cohorts) {
            (None, None) => true,
            (Some(own), Some(other)) => Weak::ptr_eq(own, other),
            _ => false,
        };
        is_same_set
            && self.latest == other.latest
            && self.kept_from == other.kept_from
            && self.promotions == other.promotions
    }
}

/// Cache key of a query as of now: a digest of the project and of all that the result depends on besides the stored
/// data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of the node `query` of a project with these settings, and with the additional dependencies `on`.
    pub fn of(query: &Value, owner: &ProjectSettings, on: &Dependence<'_>) -> Self {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            digest.update(part);
        };
        add(&owner.project.0.to_le_bytes());
        add(owner.timezone.as_bytes());
        add(&[u8::from(owner.is_monday_first)]);
        // The JSON text is canonical: the keys of objects are sorted.
        add(owner.test_account_filters.to_string().as_bytes());
        for name in owner.person_names.iter().flatten() {
            add(name.as_bytes());
        }
        add(&[u8::from(owner.person_names.is_some())]);
        add(query.to_string().as_bytes());
        for time in &on.times {
            add(&time.0.to_le_bytes());
        }
        Self(digest.finalize().into())
    }
}

/// The format that clients see: `cache_` and 64 hexadecimal digits.
impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cache_")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The cache of results, limited in memory. Clones share it.
#[derive(Clone)]
pub struct Answers {
    kept: Arc<Cache<Key, Arc<Answer>, Weight>>,
    bytes_max: u64,
}

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answers").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

/// Weighs results by their memory.
#[derive(Clone)]
struct Weight;

impl Weighter<Key, Arc<Answer>> for Weight {
    fn weight(&self, _: &Key, answer: &Arc<Answer>) -> u64 {
        answer.bytes()
    }
}

impl Answers {
    /// A cache of `bytes_max` bytes; nothing is cached with 0.
    pub fn new(bytes_max: u64) -> Self {
        let items = usize::try_from(bytes_max / ANSWER_TYPICAL_BYTES).unwrap_or(usize::MAX);
        let kept = Arc::new(Cache::with_weighter(items.max(16), bytes_max, Weight));
        Self { kept, bytes_max }
    }

    /// Memory of the cached results in bytes.
    pub fn bytes(&self) -> u64 {
        self.kept.weight()
    }

    /// The cached result, if it is still valid; a stale one is evicted.
    pub fn get(&self, key: &Key, engine: &Engine, project: ProjectId) -> Option<Arc<Answer>> {
        let answer = self.kept.get(key)?;
        if answer.as_of.is_same(&AsOf::now(engine, project)) {
            return Some(answer);
        }
        self.kept.remove_if(key, |kept| Arc::ptr_eq(kept, &answer));
        None
    }

    /// Computes the result of a query of the project with these dependencies, and caches it if it is cacheable.
    pub async fn compute<E>(
        &self,
        key: &Key,
        on: &Dependence<'_>,
        (engine, project): (&Engine, ProjectId),
        computing: impl Future<Output = Result<Answered, E>>,
    ) -> Result<Arc<Answer>, E> {
        // Read before the data: a write during the computation then makes the result look older than it is, never
        // newer.
        let (as_of, at) = (AsOf::now(engine, project), engine.now());
        let Answered { results, fields, is_cacheable, events, subjects } = computing.await?;
        let answer = Answer { results, fields, events, subjects, at, as_of };
        if answer.bytes() > self.bytes_max || !is_cacheable || !stays_right(on, engine, project) {
            return Ok(Arc::new(answer));
        }
        let answer = Arc::new(answer.copied());
        self.kept.insert(*key, Arc::clone(&answer));
        Ok(answer)
    }
}

/// Whether the result stays valid while its data do not change.
fn stays_right(on: &Dependence<'_>, engine: &Engine, project: ProjectId) -> bool {
    let is_on_now = on.is_on_now
        || on.is_on_cohorts && {
            let snapshot = engine.metadata().snapshot();
            snapshot.cohort_set(project).is_some_and(|cohorts| cohorts.is_of_now())
        };
    !is_on_now && !on.is_on_actions
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::Key;
    use crate::ProjectSettings;
    use crate::actor_list::ActorsQuery;
    use crate::dependence::Dependence;
    use crate::event_list::EventsQuery;
    use crate::insight::Insight;
    use crate::sql::SqlQuery;
    use weir_base::clock::UnixMicros;
    use weir_event::id::ProjectId;

    /// 2026-01-05, 12:34:56 UTC.
    const NOW: i64 = 1_767_616_496_000_000;
    const HOUR: i64 = 3_600_000_000;

    fn owner() -> ProjectSettings {
        ProjectSettings {
            project: ProjectId(1),
            timezone: "UTC".to_owned(),
            is_monday_first: false,
            test_account_filters: json!([]),
            person_names: None,
        }
    }

    /// The dependencies of the result of a node.
    fn dependence<'o>(query: &Value, owner: &'o ProjectSettings, now: i64) -> Dependence<'o> {
        let mut on = Dependence::new(owner, UnixMicros(now));
        match query["kind"].as_str().unwrap() {
            "EventsQuery" => EventsQuery::parse(query).unwrap().depend(&mut on),
            "ActorsQuery" => ActorsQuery::parse(query).unwrap().depend(&mut on),
            "HogQLQuery" => SqlQuery::parse(query).unwrap().depend(&mut on),
            _ => Insight::parse(query).unwrap().depend(&mut on),
        }
        on
    }

    fn key(query: &Value, now: i64) -> Key {
        let owner = owner();
        Key::of(query, &owner, &dependence(query, &owner, now))
    }

    #[test]
    fn keys_differ_in_all_that_an_answer_depends_on() {
        let query = json!({"kind": "TrendsQuery", "series": [{"event": "a"}]});
        let other = json!({"kind": "TrendsQuery", "series": [{"event": "b"}]});
        let with = |change: &dyn Fn(&mut ProjectSettings)| {
            let mut owner = owner();
            change(&mut owner);
            Key::of(&query, &owner, &dependence(&query, &owner, NOW))
        };
        let keys = [
            key(&query, NOW),
            key(&other, NOW),
            key(&query, NOW + 12 * HOUR),
            with(&|owner| owner.project = ProjectId(2)),
            with(&|owner| owner.timezone = "Europe/Berlin".to_owned()),
            with(&|owner| owner.is_monday_first = true),
            with(&|owner| owner.test_account_filters = json!([{"key": "a", "value": 1}])),
            with(&|owner| owner.person_names = Some(Vec::new())),
            with(&|owner| owner.person_names = Some(vec!["nick".to_owned()])),
        ];
        let texts: BTreeSet<String> = keys.iter().map(Key::to_string).collect();
        assert_eq!(texts.len(), keys.len());
        assert!(texts.iter().all(|text| text.len() == 70 && text.starts_with("cache_")));
    }

    #[test]
    fn keys_change_when_the_dates_mean_other_times() {
        const MINUTE: i64 = HOUR / 60;
        for (range, interval, same, other) in [
            (json!({}), "day", 11 * HOUR, 12 * HOUR),
            (json!({"date_from": "-7d"}), "week", 11 * HOUR, 12 * HOUR),
            (json!({"date_from": "-3h"}), "hour", 25 * MINUTE, 26 * MINUTE),
            (json!({"date_from": "-3h"}), "Hour", 25 * MINUTE, 26 * MINUTE),
            (json!({"date_from": "-3h"}), "day", 25 * MINUTE, 26 * MINUTE),
            (json!({"date_from": "-3h"}), "minute", 3_000_000, 4_000_000),
            (json!({"date_from": "2025-01-01", "date_to": "2025-02-01"}), "hour", 1, 9000 * HOUR),
        ] {
            let series = json!([{"event": "a"}, {"event": "b"}]);
            let funnel = json!({"kind": "FunnelsQuery", "series": series, "dateRange": range,
                                "interval": interval});
            let query = match interval {
                "minute" => {
                    let source = json!({"kind": "FunnelsActorsQuery", "source": funnel});
                    json!({"kind": "FunnelCorrelationQuery", "source": source})
                }
                "Hour" => {
                    let options = json!({"period": interval});
                    json!({"kind": "RetentionQuery", "dateRange": range, "retentionFilter": options})
                }
                "week" => {
                    let fixed = json!({"date_from": "2026-01-01", "date_to": "2026-01-02"});
                    let around = json!({"funnelPathType": "funnel_path_after_step",
                                        "funnelSource": funnel, "funnelStep": 1});
                    json!({"kind": "PathsQuery", "dateRange": fixed, "funnelPathsFilter": around})
                }
                _ => json!({"kind": "TrendsQuery", "series": series, "dateRange": range,
                            "interval": interval}),
            };
            assert_eq!(key(&query, NOW), key(&query, NOW + same), "{query}");
            let is_absolute = range.get("date_to").is_some();
            assert_eq!(key(&query, NOW) == key(&query, NOW + other), is_absolute, "{query}");
        }
    }

    #[test]
    fn keys_of_rows_change_when_their_dates_mean_other_times() {
        const SECOND: i64 = 1_000_000;
        let events =
            |after: &str| json!({"kind": "EventsQuery", "after": after, "before": "2026-01-05"});
        let sql = |from: &str| {
            let filters = json!({"dateRange": {"date_from": from}});
            json!({"kind": "HogQLQuery", "query": "SELECT 1", "filters": filters})
        };
        let actors = json!({"kind": "ActorsQuery", "source": sql("-3h")});
        for (query, same, other) in [
            (json!({"kind": "EventsQuery"}), 3 * SECOND, 4 * SECOND),
            (events("-24h"), 3 * SECOND, 4 * SECOND),
            (sql("-3h"), 25 * 60 * SECOND, 26 * 60 * SECOND),
            (actors, 25 * 60 * SECOND, 26 * 60 * SECOND),
        ] {
            assert_eq!(key(&query, NOW), key(&query, NOW + same), "{query}");
            assert_ne!(key(&query, NOW), key(&query, NOW + other), "{query}");
        }
        assert_eq!(key(&events("all"), NOW), key(&events("all"), NOW + 11 * HOUR));
    }

    /// Names of the dependencies of the result of a node.
    fn named(query: &Value, owner: &ProjectSettings) -> Vec<&'static str> {
        let on = dependence(query, owner, NOW);
        let all =
            [(on.is_on_now, "now"), (on.is_on_actions, "actions"), (on.is_on_cohorts, "cohorts")];
        all.into_iter().filter(|(is_on, _)| *is_on).map(|(_, name)| name).collect()
    }

    #[test]
    fn questions_about_the_current_time_are_recognized() {
        let trends = |more: Value| {
            let mut node = json!({"kind": "TrendsQuery", "series": [{"event": "a"}]});
            node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            node
        };
        let filter = |operator: &str, value: Value| {
            let own = json!([{"key": "a", "operator": operator, "value": value}]);
            trends(json!({"properties": own}))
        };
        let of = |kind: &str, more: Value| {
            let mut node = trends(more);
            node["kind"] = json!(kind);
            node["series"] = json!([{"event": "a"}, {"event": "b"}]);
            node
        };
        let paths = |more: Value| json!({"kind": "PathsQuery", "pathsFilter": more});
        let action = json!({"kind": "ActionsNode", "id": 1});
        let cohort = json!([{"type": "cohort", "key": "id", "value": 3}]);
        let hogql = json!([{"type": "hogql", "key": "now() > timestamp"}]);
        let dated = json!([{"key": "a", "operator": "is_date_after", "value": "-7d"}]);
        let rows: [(Value, &[&str]); 22] = [
            (filter("exact", json!("-7d")), &[]),
            (filter("is_date_before", json!("-7d")), &["now"]),
            // Values may be durations before now.
            (filter("is_date_after", json!("2026-01-01")), &["now"]),
            (trends(json!({"properties": {"a__is_date_before": "1d"}})), &["now"]),
            (trends(json!({"properties": cohort})), &["cohorts"]),
            (trends(json!({"properties": hogql})), &["now"]),
            (trends(json!({"series": [{"event": "a", "properties": dated}]})), &["now"]),
            (trends(json!({"series": [action]})), &["actions"]),
            (trends(json!({"series": [{"math": "hogql", "math_hogql": "max(now())"}]})), &["now"]),
            (
                trends(json!({"breakdownFilter": {"breakdown_type": "cohort", "breakdown": [1]}})),
                &["cohorts"],
            ),
            (
                trends(
                    json!({"breakdownFilter": {"breakdown_type": "hogql", "breakdown": "now()"}}),
                ),
                &["now"],
            ),
            (
                trends(
                    json!({"breakdownFilter": {"breakdowns": [{"type": "hogql", "property": "now()"}]}}),
                ),
                &["now"],
            ),
            (trends(json!({"breakdownFilter": {"breakdown": "plan"}})), &[]),
            (
                paths(json!({"includeEventTypes": ["hogql"], "pathsHogQLExpression": "now()"})),
                &["now"],
            ),
            (paths(json!({"pathsHogQLExpression": null})), &[]),
            (
                of("FunnelsQuery", json!({"funnelsFilter": {"funnelAggregateByHogQL": "now()"}})),
                &["now"],
            ),
            (of("FunnelsQuery", json!({})), &[]),
            (json!({"kind": "EventsQuery", "actionId": 1}), &["actions"]),
            (json!({"kind": "EventsQuery", "actionId": null}), &[]),
            (
                json!({"kind": "EventsQuery", "actionSteps": [{"event": "a", "properties": dated}]}),
                &["now"],
            ),
            (
                json!({"kind": "HogQLQuery", "query": "SELECT 1", "filters": {"properties": dated}}),
                &["now"],
            ),
            (trends(json!({"filterTestAccounts": true})), &[]),
        ];
        for (query, expected) in &rows {
            assert_eq!(named(query, &owner()), *expected, "{query}");
        }
        let testing = trends(json!({"filterTestAccounts": true}));
        let owner = ProjectSettings { test_account_filters: dated, ..owner() };
        assert_eq!(named(&testing, &owner), ["now"]);
        assert_eq!(named(&trends(json!({})), &owner), [""; 0]);
    }
}
