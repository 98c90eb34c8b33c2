//! Arguments of the tools by which assistants use a server. Those of insights are plainer than the nodes of their
//! queries, which are made of them; `query` takes a whole node where they do not suffice.

use serde_json::Value;

use crate::node::AnyNode;
use crate::nodes::filter::PropertyFilter;
use crate::nodes::insights::{FunnelOrderType, FunnelVizType, RetentionType, WindowUnit};
use crate::{node, words};

node! {
    /// What events and properties there are.
    SchemaArguments {
        /// Only the event of this name: its properties with types, shares and examples
        event: Option<String>,
        /// Only events and properties whose names contain these words
        search: Option<String>,
        /// Most events, and most properties: 100 unless it is sent, at most 500
        limit: Option<usize>,
    }

    /// A query in SQL.
    SqlArguments {
        /// One SELECT. A property is properties.plan or properties['my key'], of the person person.properties.plan
        query: Option<String>,
        /// Most rows: 100 unless it is sent, at most 1000
        limit: Option<usize>,
        /// Whether the plan is returned in the place of the rows
        explain: bool,
    }

    /// Events that count.
    CountedEvents {
        /// Their name, as the tool schema lists it; all events without it
        event: Option<String>,
        /// The id of an action, in the place of a name
        action: Option<usize>,
        /// What is counted: total (the default), dau for persons, weekly_active, monthly_active, unique_session,
        /// first_time_for_user; of a property sum, avg, min, max, median, p90, p95, p99
        math: Option<String>,
        /// The property whose values are aggregated
        math_property: Option<String>,
        /// What the series is called in the answer
        name: Option<String>,
        /// Filters of these events, all of which must hold
        filters: Vec<PropertyFilter>,
    }

    /// What the arguments of all insights have.
    InsightArguments {
        /// Where the time begins: a date, a time, a span such as -30d, or all; -7d unless it is sent
        from: Option<String>,
        /// Where it ends: a date, a time or a span; now unless it is sent
        to: Option<String>,
        /// Filters of all events, which must all hold. Operators: exact (the default), is_not, icontains, not_icontains,
        /// regex, not_regex, gt, gte, lt, lte, is_set, is_not_set, is_date_before, is_date_after; value is one or a list
        filters: Vec<PropertyFilter>,
        /// Whether the events of the project's test accounts are left out
        without_test_accounts: bool,
        /// The whole query as a node of the API, such as a TrendsQuery, in the place of all other arguments
        query: Option<AnyNode>,
    }

    /// Numbers of events or persons over time.
    TrendsArguments: InsightArguments {
        /// What is counted: 1 to 26 series; all events without it
        series: Vec<CountedEvents>,
        /// How long an interval is: a day unless it is sent
        interval: Option<IntervalLength>,
        /// The property whose values get a series each
        breakdown: Option<String>,
        /// Whose property it is: event (the default), person, session
        breakdown_type: Option<String>,
        /// Most values that get one: 25 unless it is sent
        breakdown_limit: Option<usize>,
        /// Another period beside it: previous, or how long before, such as -1w
        compare: Option<String>,
        /// Whether there is a number for each interval
        show: Option<TrendsShow>,
        /// Arithmetic over the series, which are called A, B and so on: such as A / B
        formulas: Vec<String>,
    }

    /// How many persons do one thing after another.
    FunnelArguments: InsightArguments {
        /// The steps: 2 to 20
        steps: Vec<CountedEvents>,
        /// In which order they come
        order: Option<FunnelOrderType>,
        /// Most time from the first step to the last: 14 unless it is sent
        window: Option<usize>,
        /// The unit of it: days unless it is sent
        window_unit: Option<WindowUnit>,
        /// The property whose values get a funnel each
        breakdown: Option<String>,
        /// Whose property it is: event (the default), person, session
        breakdown_type: Option<String>,
        /// Most values that get one: 25 unless it is sent
        breakdown_limit: Option<usize>,
        /// What is shown
        show: Option<FunnelVizType>,
        /// How long an interval of trends is: a day unless it is sent
        interval: Option<IntervalLength>,
    }

    /// How many persons come back.
    RetentionArguments: InsightArguments {
        /// What persons begin with; $pageview without it
        start: Option<CountedEvents>,
        /// What they come back with; the same as at the beginning without it
        returning: Option<CountedEvents>,
        /// How long an interval is: a day unless it is sent
        interval: Option<IntervalLength>,
        /// How many of them: 7 unless it is sent
        intervals: Option<usize>,
        /// In which rows a person is
        kind: Option<RetentionType>,
        /// Whether one who comes back counts in all intervals before, too
        cumulative: bool,
    }

    /// Which steps persons take one after another.
    PathsArguments: InsightArguments {
        /// Which events are steps: $pageview, $screen, custom_event; all without it
        include: Vec<String>,
        /// The step that paths begin at, such as /pricing
        start: Option<String>,
        /// The step that they end at
        end: Option<String>,
        /// Steps that are left out
        exclude: Vec<String>,
        /// Patterns with *; all steps that match one are one
        groupings: Vec<String>,
        /// Most steps of a path: 5 unless it is sent
        steps: Option<usize>,
        /// Most edges: 50 unless it is sent
        edges: Option<usize>,
        /// Fewest persons of an edge
        least: Option<usize>,
    }

    /// A look for persons.
    PersonsFindArguments {
        /// A part of an email, a name or a distinct id
        search: Option<String>,
        /// Filters of persons' properties, all of which must hold
        filters: Vec<PropertyFilter>,
        /// Most persons: 20 unless it is sent, at most 100
        limit: Option<usize>,
        /// Persons left out before
        offset: Option<usize>,
    }

    /// One person.
    PersonArguments {
        /// A distinct id, or the uuid of the person
        id: Option<String>,
        /// Most events of the timeline, the newest first: 50 unless it is sent, at most 200
        events: Option<usize>,
    }

    /// The feature flags.
    FlagsListArguments {
        /// A part of the key or the description
        search: Option<String>,
        /// Most flags: 50 unless it is sent, at most 200
        limit: Option<usize>,
        /// Flags left out before
        offset: Option<usize>,
    }

    /// Why a flag has its value.
    FlagExplainArguments {
        /// The key of the flag, or its id
        flag: Option<String>,
        /// For whom
        distinct_id: Option<String>,
    }

    /// A change of a flag. The first call has no token: it changes nothing, and returns the differences with a token. The
    /// second call has the same arguments and the token.
    FlagChangeArguments {
        /// The key of the flag, or its id
        flag: Option<String>,
        /// Whether it is on
        active: Option<bool>,
        /// The part in percent of one condition
        rollout_percentage: Option<f64>,
        /// The number of the condition, from 0; needed if there are several
        condition: Option<usize>,
        /// Its conditions, variants and payloads, as the API has them; keys that it lacks stay
        filters: Option<Value>,
        /// Its description
        description: Option<String>,
        /// Its labels, which replace those that it has
        tags: Option<Vec<String>>,
        /// Whether lists leave it out; only a flag that is off can be archived
        archived: Option<bool>,
        /// true deletes it, false restores it
        deleted: Option<bool>,
        /// What the first call returned; only with the consent of the user
        token: Option<String>,
    }

    /// How the server is.
    HealthArguments {
        /// Most slow queries, refused requests and warnings: 10 unless it is sent, at most 50
        limit: Option<usize>,
    }
}

words! {
    /// How long an interval is.
    IntervalLength {
        /// A minute; not of retention.
        Minute = "minute",
        /// An hour.
        Hour = "hour",
        /// A day.
        Day = "day",
        /// A week.
        Week = "week",
        /// A month.
        Month = "month",
    }

    /// Whether trends have a number for each interval.
    TrendsShow {
        /// A number for each interval.
        Intervals = "intervals",
        /// One for the whole time.
        Total = "total",
        /// The sums up to each interval.
        Cumulative = "cumulative",
    }
}
