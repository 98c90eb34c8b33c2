//! Lists of selected columns of events, persons and groups; SQL; and the steps of actions.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::node;
use crate::node::{AnyNode, Texts};
use crate::nodes::base::{Common, Dates};
use crate::nodes::filter::Properties;
use crate::nodes::reasons::{LOGGED, SHOWN};

node! {
    /// A page of a list.
    ListQuery: Common {
        /// Expressions of SQL, which may have a name behind AS, and columns that are objects: of events *, elements, person,
        /// person_display_name; of actors actor, person, group, group_name. At most 100; with an aggregate rows are groups by
        /// the other columns
        select: Texts,
        /// At most 100 expressions of SQL, all of which must hold
        conditions ("where"): Texts,
        /// At most 20 expressions of SQL, with ASC or DESC behind them
        order_by ("orderBy"): Texts,
        /// Most rows: 100 unless it is sent, at most 50,000
        limit: Option<usize>,
        /// Rows left out before: at most 1,000,000,000
        offset: Option<usize>,
        /// Filters of events; of lists of persons and groups filters of these
        properties: Option<Properties>,
        /// The same, which a form does not show
        fixed_properties ("fixedProperties"): Option<Properties>,
    }

    /// Selected columns of events.
    EventsQuery "EventsQuery": ListQuery {
        /// Their name
        event: Option<String>,
        /// Their names: at most 1000
        events: Vec<String>,
        /// The id of an action that they are of
        action_id ("actionId"): Option<usize>,
        /// The steps of an action, which need not be saved
        action_steps ("actionSteps"): Vec<Step>,
        /// The id or the uuid of a person
        person_id ("personId"): Option<Value>,
        /// Whether the events of the project's test accounts are left out
        filter_test_accounts ("filterTestAccounts"): bool,
        /// A time, a span such as -24h (the default), or all
        after: Option<String>,
        /// A time or a span
        before: Option<String>,
    }
    lacking ["source"];

    /// A step of an action, with what clients keep of one that was saved.
    Step {
        /// The name of the event
        event: Option<String>,
        /// Filters of the event
        properties: Option<Properties>,
        /// A CSS selector of an element
        selector: Option<String>,
        /// The name of its tag
        tag_name: Option<String>,
        /// Its text
        text: Option<String>,
        /// How it is compared: contains, regex or exact (the default)
        text_matching: Option<String>,
        /// Its link
        href: Option<String>,
        /// How it is compared: contains, regex or exact (the default)
        href_matching: Option<String>,
        /// The address of the page
        url: Option<String>,
        /// How it is compared: contains (the default), regex or exact
        url_matching: Option<String>,
    }
    ignored SHOWN ["id", "isNew", "name", "selector_regex"];

    /// Selected columns of persons, or of the persons or groups of a source.
    ActorsQuery "ActorsQuery" | "PersonsQuery" | "PersonsNode": ListQuery {
        /// Who is behind a point of an insight, or SQL with a column of ids; everybody without it
        source: Option<AnyNode>,
        /// A part of the email or the name, or of a distinct id
        search: Option<String>,
        /// The id of a cohort
        cohort: Option<usize>,
        /// A distinct id
        distinct_id ("distinctId"): Option<String>,
    }

    /// Selected columns of the groups of a type.
    GroupsQuery "GroupsQuery": ListQuery {
        /// The index of the type
        group_type_index: Option<usize>,
        /// A part of the name or the key
        search: Option<String>,
    }
    lacking ["source", "cohort", "distinctId"];

    /// SQL, read only, with functions of ClickHouse that HogQL has.
    HogQLQuery "HogQLQuery": Common {
        /// Its text
        query: Option<String>,
        /// What {filters} stands for in the WHERE of a SELECT from events
        filters: Option<SqlFilters>,
        /// Values of placeholders such as {city}
        values: BTreeMap<String, Value>,
        /// Values of variables, by their ids
        variables: BTreeMap<String, Variable>,
    }
    ignored LOGGED ["name"];
    lacking ["connectionId", "sendRawQuery", "explain"];

    /// Filters of SQL.
    SqlFilters {
        /// Of what time the events are
        date_range ("dateRange"): Dates,
        /// Filters of events
        properties: Option<Properties>,
        /// Whether the events of the project's test accounts are left out
        filter_test_accounts ("filterTestAccounts"): bool,
    }

    /// The value of a variable; the rest is what a form shows of it.
    Variable {
        /// The name that the text has for it
        code_name: Option<String>,
        /// Its value
        value: Option<Value>,
        /// Whether it is null
        is_null ("isNull"): bool,
    }
    ignored SHOWN [
        "variableId",
        "id",
        "name",
        "type",
        "default_value",
        "values",
        "created_at",
        "created_by",
    ];
}
