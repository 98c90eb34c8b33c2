//! The integration tests in one binary: a real server process, used over HTTP and the command
//! line; and [`merges`], which needs no server but modules from several layers.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::too_many_lines,
    reason = "a test fails by panicking, and a table of cases is long"
)]

mod accounts;
mod activity;
mod arrangements;
mod backup;
mod bins;
mod board_pages;
mod bounded_answers;
mod breakdowns;
mod browser;
mod capture;
mod cohorts;
mod commands;
mod correlation;
mod crash;
mod damage;
mod dashboards;
mod definitions;
mod deletion;
mod delta;
mod differential;
mod distinct_id_files;
mod documents;
mod early_access;
mod editor_pages;
mod errors;
mod event_definitions;
mod events;
mod exact_columns;
mod export;
mod expressions;
mod feature_flags;
mod filters;
mod flag_management;
mod flag_pages;
mod flag_rights;
mod flag_states;
mod flags;
mod full_disk;
mod funnel_cases;
mod funnels;
mod fuzz;
mod geoip;
mod group_actors;
mod groups;
mod guide;
mod harness;
mod health_page;
mod hogql;
mod hogql_forms;
mod hostile_sql;
mod http2;
mod identity;
mod import;
mod imported;
mod insight_cache;
mod insight_pages;
mod insight_requests;
mod isolation;
mod kept_rows;
mod landing;
mod leaving;
mod lifecycle;
mod lifecycle_insight;
mod limits;
mod lists;
mod live_page;
mod local_evaluation;
mod mcp;
mod merged_persons;
mod merges;
mod nested_json;
mod newcomers;
mod operations;
mod oracle;
mod owner;
mod packages;
mod page_files;
mod page_sql;
mod pages;
mod pair;
mod paths;
mod patterns;
mod person_changes;
mod person_columns;
mod person_page;
mod persons;
mod postgres;
mod postgres_port;
mod project_deletion;
mod promoted_columns;
mod promotions;
mod property_access;
mod property_definitions;
mod published;
mod query_limits;
mod query_nodes;
mod refusals;
mod retention;
mod retention_breakdowns;
mod retention_by_age;
mod revocation;
mod rights;
mod row_isolation;
mod s3;
mod saved_insights;
mod scans;
mod scheduled_changes;
mod schema;
mod sdk;
mod sessions;
mod sharing;
mod standby;
mod starts;
mod stickiness;
mod streams;
mod support;
mod table_damage;
mod time_zones;
mod transfer;
mod trends;
mod unknown_fields;
mod validations;
mod version;
mod views;
mod wire;
