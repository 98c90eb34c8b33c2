//! Weir: an event-analytics server.
//!
//! Events come in over HTTP in the shapes of the PostHog SDKs, are durable at the 200, become
//! Parquet files in a Delta table, and persons, event definitions, feature flags and SQL are
//! answered from them. This page is the map: the write path, the read path, invariants, and where things belong.
//!
//! # Bird's eye
//!
//! ```text
//!  edges         weir (cli, synth)  http   arguments, made-up events; sockets, JSON answers
//!  composition   app                       opens and wires everything; flush, merge, vacuum
//!  product       insights                  lists, timelines, audiences, insights
//!  page          web                       markup, charts and questions in addresses, as pure functions
//!  answers       api                       what the API and pages say of things, as types
//!  read path     query                     DataFusion over one snapshot; below it, nothing knows DataFusion
//!  write path    ingest                    from a body to the 200. It and the read path do not know each other
//!  flags         evaluation                what a flag request needs of the stores
//!  between       progress                  how far the write path is, for readers to wait (read-your-writes)
//!  engines       storage   metadata        log and tables; projects, keys, flags, definitions
//!  rules         flags   identity          verdicts; persons and their distinct ids
//!  vocabulary    event   wire              ids, time, columns, places; JSON shapes of SDKs
//!  foundations   base   disk               errors, clock, settings, telemetry, tasks; the file system
//!  tests alone   sim                       a disk that loses what was not synced
//! ```
//!
//! Each name is a member of the workspace, `weir-query` in `src/query`; its dependencies in `Cargo.toml` are the layers, so
//! an edge that is not there does not compile. Each begins with a page like this one.
//!
//! [`weir_app::App::open`] opens what a process has once ([`weir_app::node::Node`]) and one log with everything that is derived
//! from it ([`weir_app::shard::Shard`]), and is the cheap handle on both; commands that read without a server open a
//! [`weir_app::copy::WorkingCopy`].
//! There is no global state. Sockets are served by one asynchronous runtime, queries run on
//! another, where insights and the parts of pages that ask them are made, too ([`weir_query::kernel::engine::Engine::apart`]);
//! bodies are decoded, and large sets of flags evaluated, on a pool of threads
//! ([`weir_base::tasks::CpuPool`]), what the API and pages tell is read and written on another (`http/beside.rs`);
//! the log, the spare of its next segment, its replay at start, the projector, flush, merge, the persons table and the record of warnings have one thread each.
//!
//! # Write path
//!
//! 1. [`weir_http::router::Router`] finds the endpoint in [`weir_http::public`]; [`weir_http::routes::capture::capture`], or
//!    [`weir_http::routes::capture_v1::capture_v1`] for the newer protocol, or [`weir_http::routes::otel::export`]
//!    for traces, reads the bounded body and calls [`weir_ingest::Pipeline::accept`], detached from the connection, so that a client that hangs
//!    up cuts nothing in half. `accept` is the whole write path; read it first.
//! 2. `Pipeline::admit` refuses a request beyond the memory budget, before any work. The permit that it
//!    returns grows and shrinks with the memory that the body turns out to need (`ingest/budget.rs`, `memory_estimate.rs`).
//! 3. [`weir_ingest::decoding::Decoding`], on the pool unless the body is small, is one pure function
//!    from bytes to columns: [`weir_wire::encoding::Decoder::decode`] undoes compression and wrapping, and makes
//!    events of spans ([`weir_wire::otlp`]), the tape of
//!    [`weir_ingest::tape`] is read by [`weir_ingest::prepare::Preparer::prepare`], [`weir_ingest::normalize`]
//!    has the rules for one event, [`weir_event::columns::Columns`] takes the values. Ids and times that
//!    the server makes come from the seed and time of [`weir_ingest::request::Received`].
//! 4. [`weir_ingest::log_record::LogRecord::encode`] makes the log record: the body as it was received, and
//!    the seed, the time and the hints that lead from it to the same columns again.
//! 5. The log thread ([`weir_ingest::commit`]) appends all requests that have queued up, syncs once, publishes each and wakes
//!    its waiter: the 200. What a log is, is in [`weir_storage::log`]; [`weir_storage::wal`] keeps it in segment files,
//!    [`weir_storage::object_log`] in a bucket, where a claim shuts out who wrote it before, and [`weir_app::lease`] says who serves.
//! 6. Publication ([`weir_ingest::publish`]) drops retries by the window of recent events
//!    ([`weir_ingest::dedup::Window`]), makes the rows visible
//!    ([`weir_storage::store::Store::insert`]) and hands what the events say of persons and definitions
//!    ([`weir_ingest::definitions`]) to the projector ([`weir_ingest::projector`]), which calls
//!    [`weir_identity::store::Identities::apply_noting`] and
//!    [`weir_metadata::Metadata::upsert_definitions`].
//! 7. [`weir_app::maintenance`]: [`weir_storage::store::Store::freeze`] and [`weir_storage::store::Store::flush`] turn
//!    memtables into Parquet files and one Delta commit that also says how far the log is now in
//!    files; then the log is cut. [`weir_storage::compaction::choose`] picks small files,
//!    [`weir_query::events::merge`] merges as many of them as there is memory for, page by page
//!    ([`weir_storage::parquet::pages`]), [`weir_storage::delta::DeltaTable::vacuum`] removes what was
//!    replaced. [`weir_storage::tables`] says where all that is, in the data directory or in a bucket
//!    ([`weir_storage::remote`], in front of it [`weir_storage::cached`]), and [`weir_app::moving`] moves it from one to the other. Events that an operator has deleted ([`weir_identity::deletions`]) are left out on both
//!    ways, and [`weir_app::maintenance::files::Files::erase`] writes the files anew that still have them.
//!    If the disk of a node may be lost, persons go into a bucket as well: an image of the identity store
//!    ([`weir_identity::store::Identities::image`]) is put ([`weir_storage::images`]) when it is due ([`weir_app::maintenance::images`]), and
//!    the log is cut behind the last but one. [`weir_app::images`] restores the newest at start.
//!
//! An [`weir_ingest::operation::Operation`] on persons or groups, such as the split of
//! [`weir_http::routes::persons::split`], takes the same path from step 5 on
//! ([`weir_ingest::Pipeline::operate`]), so it has its place among the events. What it does is logged
//! ([`weir_metadata::Metadata::record_activity`]) before it is done.
//!
//! At start, [`weir_ingest::replay`] takes the log from where the tables and the persons end through
//! steps 3 and 6. New requests are logged meanwhile, no faster than it can follow; it comes to them in
//! turn. After the identity store has failed, what follows for persons is derived from the log again
//! without a restart (`ingest/projector/recover.rs`).
//!
//! # Read path
//!
//! 1. An endpoint of [`weir_http::table`] is an [`weir_http::operation::Operation`] that [`weir_http::operation::serve`] reads
//!    from the request of a caller whom [`weir_http::auth`] let through; or a route that is none yet
//!    ([`weir_http::routes::query`], [`weir_http::routes::persons`]) gets a [`weir_http::call::Call`] and decodes a typed request for [`weir_insights`], for
//!    [`weir_query::persons::people`], or for [`weir_query::kernel::engine::Engine::lists`].
//! 2. [`weir_insights`] has the product questions: lists of events ([`weir_insights::events`]), of selected columns of events and
//!    persons ([`weir_insights::select`]), of groups and of definitions, timelines, sizes of cohorts and audiences, trends and paths. Each makes a plan over the
//!    tables of a [`weir_query::kernel::view::View`], and the shape of its answer. [`weir_insights::cache`] keeps answers while they
//!    are right.
//! 3. [`weir_query::kernel::engine::Engine::wait`] waits until persons and definitions are as of the newest record
//!    acknowledged before the call ([`weir_progress::barrier::ReadBarrier`]).
//! 4. [`weir_query::kernel::engine::Engine::view`] takes one snapshot ([`weir_storage::store::Store::snapshot`], the overrides of
//!    [`weir_identity::store::Identities::overrides`]) and gives tables over it; [`weir_query::events::table`] prunes
//!    files by the bounds in the table's log (`query/events/pruning.rs`), lets the scan filter rows by what cannot
//!    fail (`query/events/row_filter.rs`), adds the memtables, leaves out deleted events and resolves merged
//!    persons. What counts persons or looks at the events of each has them as numbers of four bytes, for which merges
//!    are looked up once ([`weir_query::persons::person_numbers`]).
//!    Lists of persons need no plan: [`weir_query::persons::people`] looks them up, and asks filters of columns in
//!    memory, which are brought up to date with who has changed ([`weir_identity::change_feed`]). They are read from
//!    the files of [`weir_query::persons::person_table`], which have a column for each property and are renewed in pieces; the files
//!    are asked one by one where a column does not fit.
//! 5. [`weir_query::kernel::view::View::sql`] plans, read only; `query::kernel::explain` says what the caller may see of a plan.
//!    [`weir_query::kernel::admission`] gives a slot. [`weir_query::kernel::run`] plans and runs within limits of memory and time
//!    (`query::guard` has those inside of functions and between operators), once more for little memory if
//!    that runs out, and stops when the caller hangs up; [`weir_query::output::rows::write`] writes the answer.
//!
//! # Flag evaluation
//!
//! 1. [`weir_http::routes::flags::flags`] decodes the body ([`weir_wire::encoding::decode`],
//!    [`weir_wire::flags::request::Request::parse`]) and takes the snapshot of the metadata
//!    ([`weir_metadata::Metadata::snapshot`]).
//! 2. [`weir_evaluation::Evaluator::load`] looks up the person and the groups, as of every
//!    acknowledged event ([`weir_identity::store::Identities::view`]), and, if a flag is to stay what it
//!    was across a login, the hash keys of the person ([`weir_metadata::Metadata::hash_keys`]).
//!    [`weir_evaluation::EvaluationContext::evaluate`] builds the [`weir_flags::subject::Subject`] and its cohorts
//!    ([`weir_flags::cohorts::Memberships`]).
//! 3. [`weir_flags::set::FlagSet::evaluate`] is pure: no lock, no file, no clock. What would take long by
//!    its [`weir_flags::effort`] runs beside the threads of sockets ([`weir_evaluation::Evaluator::run`]).
//! 4. [`weir_wire::flags::response::Response`] writes the answer in the version that was asked for.
//!
//! # Page
//!
//! 1. [`weir_http::routes::pages`] finds the page in its table, asks who visits it (a session of [`weir_metadata::sessions`], or a
//!    key) and whether they may, and loads what it shows by the functions of the endpoints, never over HTTP.
//! 2. [`weir_web`] makes markup of it: [`weir_web::frame`] is around every page and sent before queries run, [`weir_web::state`] reads and
//!    prints what a page asks as its address says it, [`weir_web::chart`] draws.
//!
//! # What always holds
//!
//! | invariant | checked by |
//! |---|---|
//! | Modules use only lower ones, and their files form no large circles; crates have one door each; files say what they are. | `tests/tidy.rs` |
//! | What was answered with 200 is there after a crash; what was not is absent or whole. | `storage/wal/tests/crash.rs`, `storage/delta/tests/crash.rs` on a simulated disk; `tests/server/crash.rs` with `kill -9` |
//! | Damage in the log is found, counted, and costs only what is damaged. | `storage/wal/tests/damage.rs` |
//! | Damage in a data file is found whatever bit of it changes, and names the file. | `storage/checksums/tests.rs`; `tests/server/damage.rs`; PyArrow in `tests/server/sdk.rs` |
//! | Whatever part of a data directory is lost or damaged, the server serves the rest and counts what is lost, or refuses to start and says how to go on. | `tests/server/damage.rs` |
//! | In whatever order the requests of several writers of a log in a bucket arrive, and whatever answers are lost, no acknowledged record is. | `storage/object_log/tests/explored.rs`, `storage/object_log/tests/faults.rs` |
//! | What was acknowledged survives the loss of the disk, and a server that wakes up late. | `tests/server/standby.rs` |
//! | No log is left behind, on a disk or in a bucket, with what was acknowledged and is nowhere else. | `tests/server/leaving.rs` |
//! | The bucket with the log and the database, as of one moment, are a backup of everything. | `tests/server/backup.rs` |
//! | After a failed sync the log takes nothing until a restart. | `storage/wal/tests.rs` |
//! | A record that cannot be published is passed by no flush, and the log is not cut over it. | `ingest/commit/tests.rs` |
//! | Files and log position move in one Delta commit, so no row is stored twice or lost. | `storage/delta/tests.rs`, `tests/server/crash.rs` |
//! | A commit of which the store gave no answer is settled before anything else, so its rows count once. | `storage/store/tests.rs`, `query/persons/person_table/tests.rs` |
//! | Whatever an object store does, rows in a bucket are there once: requests lost, answers lost, puts that arrive after their sender was killed. | `storage/store/tests/chaos.rs`, `tests/server/s3.rs` with `kill -9` |
//! | A store without atomic conditional puts is refused before anything is written. | `storage/probe.rs`, `tests/server/s3.rs` |
//! | What is cached of a bucket is what the bucket has, whatever of it is damaged. | `storage/cached/tests.rs` |
//! | A data directory keeps to the place of its tables, and no two to one. | `app/tables.rs`, `tests/server/s3.rs` |
//! | A move of tables changes nothing before the copy is whole, and goes on after an interruption. | `storage/copy.rs`, `tests/server/s3.rs` |
//! | Damage in the log of a table is found, counted, and costs only what is damaged. | `storage/delta/tests/damage.rs`, `tests/server/table_damage.rs` |
//! | The table stays readable for others, and theirs for us. | `storage/delta/tests/others.rs`, `tests/server/delta.rs`, `tests/server/sdk.rs` |
//! | The columns of the table are those of `schemas/arrow/events.v1.json`. | `event/schema.rs` |
//! | Persons come out as the rules say, in whatever batches the log is applied. | `identity/tests/sequences.rs` against the model beside it, `tests/server/identity.rs` |
//! | So do definitions; the first type of a property stays. | `ingest/definitions/tests.rs` |
//! | A process that ends in the middle of a record has its persons come out the same: the replay goes on there. | `identity/tests/histories.rs`, `identity/tests/sequences.rs` |
//! | An image of persons is the state as of its record, whatever is flushed and compacted while it is made. | `identity/tests/images.rs` |
//! | Whatever an object store loses, images in it are whole, and if one is damaged, the one before it counts; the log goes back to that. | `storage/images/tests.rs`, `app/images.rs`, `app/maintenance/images.rs` |
//! | A full disk costs nothing that was acknowledged, and capture is back by itself when there is room. | `tests/server/full_disk.rs` |
//! | A split person's events go by their distinct ids, whatever compaction folded before. | `identity/tests/sequences.rs` |
//! | Deleted events are in no answer, leave the files, and do not come back; later ones stay. | `app/maintenance/deletions/tests.rs` with power cuts, `tests/server/deletion.rs` with `kill -9` |
//! | What persons had leaves the files of the persons table in time, whatever is restarted. | `query/persons/person_table/tests/renewal.rs` over simulated time, `tests/server/person_columns.rs` with `kill -9` |
//! | The files of the persons table, with who has changed, are the persons of the store, whatever ends and crashes. | `query/persons/person_table/tests/renewal.rs`, `query/persons/people/tests.rs` |
//! | What a link with a password leads to is told to those who gave one, as long as it is there. | `metadata/tests/documents.rs`, `tests/server/sharing.rs` |
//! | A flag has the verdict that the SDKs compute. | `flags/set/tests.rs` and `flags/bucket.rs` on `tests/fixtures/flags` |
//! | So does one made through the management API, against the evaluators of released SDKs. | `tests/server/differential.rs` |
//! | That a scan leaves out files, pages or rows is not to be seen in any answer. | `query/events/pruning.rs`, `tests/server/scans.rs` |
//! | No project sees anything of another, by no endpoint of the table, and by no error of a query. | `tests/server/isolation.rs`, `tests/server/row_isolation.rs` |
//! | No key may more than its scopes, at no endpoint of the table. | `tests/server/errors.rs` |
//! | No page shows more than its visitor may see, and nothing of what was sent is markup or script in it. | `tests/server/pages.rs`, `tests/server/insight_pages.rs` |
//! | Every statement on metadata is taken by SQLite and by PostgreSQL. | `metadata/tests/statements.rs` |
//! | Servers that share a PostgreSQL database lose no edit and no entry of the log of changes. | `metadata/tests/servers.rs` |
//! | What such a server has read again in parts is what reading everything would give. | `metadata/tests/servers.rs` |
//! | While PostgreSQL is away, events are taken, flags evaluated and SQL answered; it passes by itself. | `metadata/tests/outage.rs`, `tests/server/postgres.rs` |
//! | A store moves to PostgreSQL whole and once, wherever that is interrupted. | `metadata/tests/transfer.rs`, `tests/server/postgres.rs` |
//! | A scheduled change of a flag is made once and whole, and as of who scheduled it. | `metadata/tests/schedules.rs`, `tests/server/scheduled_changes.rs` |
//! | An early access feature and the enrolment in its flag change together. | `metadata/tests/early_access.rs`, `tests/server/early_access.rs` |
//! | There is no change of a flag, a feature, a cohort, a definition, a document or a role without an entry in the log of changes: it is written in the same transaction. | `metadata/tests/rights.rs`, `tests/server/flag_management.rs`, `tests/server/activity.rs` |
//! | Nor of a person or a group by an operator: the entry is written before the change takes effect, under an id made from its place in the log, so that a replay does not repeat it. | `ingest/activity.rs`, `tests/server/activity.rs`, `tests/server/groups.rs` |
//! | Who is deleted leaves no place in a list and no value of a flag that was kept across a login. | `metadata/tests/cohorts.rs`, `tests/server/cohorts.rs` |
//! | Who may only look at flags changes none, by no endpoint of the table. | `tests/server/rights.rs`, `tests/server/flag_rights.rs` |
//! | Who was removed keeps no key, no role, no sign-in and nothing that is scheduled. | `metadata/tests/rights.rs`, `metadata/tests/sessions.rs` |
//! | What lasts, such as a stream, ends with the key, session or token by which it was asked for ([`weir_http::lasting`]). | `tests/server/revocation.rs` |
//! | No key lets anybody do, see or publish what it may not itself. | `tests/server/accounts.rs`, `tests/server/sharing.rs` |
//! | No guess at the password of a link keeps out who knows it. | `http/routes/documents/unlock.rs` |
//! | What a public token can make up is bounded, and costs nothing of what was there. | `metadata/tests/definitions.rs` |
//! | A filter means the same to lists and plans, and what it means to DuckDB; to flags as well, but for numbers that SDKs read in another way. | `tests/server/filters.rs`, `event/number.rs` |
//! | A value is the same number and the same text to SQL, expressions, filters, breakdowns and sums, whatever its column and however it was written. | `tests/server/property_access.rs` |
//! | Insights have the numbers that SQL has over the same files, and those of models. | `tests/server/oracle.rs` beside DuckDB; `tests/server/trends.rs` and those of other kinds |
//! | They have the numbers that PostHog publishes with its own tests. | `tests/server/published.rs` and those of retention and bins |
//! | They do not depend on how events came or where they are, and count merged persons once. | `tests/server/arrangements.rs`, `tests/server/merged_persons.rs` |
//! | A list of persons is that of one moment, and of every event acknowledged before, whatever is kept in memory. | `query/persons/people/tests.rs`, `tests/server/persons.rs` |
//! | Who asks which persons changed after a time misses none, whatever clocks and crashes do. | `metadata/tests/record_times.rs`, `tests/server/persons.rs` |
//! | Unmodified SDKs, current and old, are understood, in a browser too. | `tests/server/sdk.rs` |
//! | What is sent to the public endpoints is answered and stored as written down. | `tests/server/wire.rs` |
//! | Every endpoint is described in `schemas/openapi.json`, and nothing else. | `http/tests/described.rs` |
//! | Every answer is as described there, whatever is asked. | `tests/server/fuzz.rs` |
//! | Values of senders are as they wrote them, whatever their keys, and what was stored can be read again, however deep it is. | `event/json.rs`, `tests/server/nested_json.rs` with `kill -9` |
//! | No request, however wrong, brings the process down or takes more than its share. | lints against panics, `http/tests.rs`, `wire/encoding/tests.rs`, `http/budget.rs`, `ingest/memory_estimate/tests.rs`, `tests/server/capture.rs`, `tests/server/fuzz.rs`, `tests/server/limits.rs`, `tests/server/http2.rs` |
//! | No part of a statement is left out of its answer in silence. | `query/guard/ignored.rs` |
//! | Nor is a field of a node, of a filter or of a body. | `insights/known/tests.rs`, `http/openapi/bodies.rs`, `tests/server/unknown_fields.rs` |
//! | No pattern of a user takes more memory or time than its limits, and no query the threads of others. | `event/pattern.rs`, `query/guard/aside.rs`, `query/guard/watched.rs`, `tests/server/patterns.rs` |
//! | A function of ClickHouse is what is told of it, and what has its name and is not is refused. | `query/functions/tests.rs` with `src/guide/functions.md`, `tests/server/hogql_forms.rs` |
//! | No SQL takes more memory than queries may have, nor all slots; every function is in a class of `query/guard/functions.rs`. | `query/guard/tests.rs`, `tests/server/query_limits.rs`, `tests/server/hostile_sql.rs` |
//! | Want of descriptors, or of the permission to create a segment, refuses a write and passes; connections leave some descriptors to files. | `storage/wal/tests.rs`, `storage/durable/tests.rs`, `tests/server/limits.rs` |
//! | A command that reads a data directory changes no file in it, and answers as the server would. | `app/copy.rs`, `tests/server/commands.rs` after SIGKILL and after a clean end |
//! | A start that fails leaves nothing of which the operator is not told: the socket comes first, keys are made last and shown at once. | `tests/server/starts.rs` |
//! | Time comes from [`weir_base::clock`], tasks from [`weir_base::tasks`], settings from [`weir_base::config`]; no globals. | `.clippy.toml` |
//! | The server is ready when it takes events, and only then. | `tests/server/limits.rs` |
//! | The guide is true: its settings, columns and functions are those of the code, and every command in it runs. | `cli/help/tests.rs`, `guide.rs`, `query/functions/tests.rs`, `tests/server/guide.rs` |
//!
//! # Where does X go?
//!
//! | a new | goes to |
//! |---|---|
//! | endpoint | a line in `http/table.rs`, and in `http/routes/` an [`weir_http::operation::Operation`]: what it is told is an `input!` (its body a `body!`), what it gives a type of [`weir_api`]; `schemas/openapi.json` is made of these. For SDKs: `http/public.rs` |
//! | thing that SDKs learn at their start | `wire/remote_config.rs` |
//! | encoding or body shape of an SDK | `wire`; what it means: `ingest/normalize/` |
//! | name of an attribute of a span | `wire/otlp/mapping.rs` |
//! | place that reads JSON of others | `event/json.rs`: `read` what was sent, `restore` what was stored |
//! | spelling of a time | `event/time/spelling.rs` |
//! | column of events | the end of [`weir_event::schema::events_schema`], and `schemas/arrow` |
//! | rule about persons | `identity/decide.rs` |
//! | operation on persons or groups, of operators | `ingest/operation.rs`; its effect: `identity/decide/`; its entry in the log of changes: `ingest/activity.rs` |
//! | operator of properties | `event/predicate/operator.rs` |
//! | property of flags | `flags/definition.rs`, its checks: `metadata/flag_rules.rs` |
//! | product question, such as an insight | [`weir_insights`]: request, plan, shape of the answer; its fields: `insights/known/` |
//! | table for SQL | `query`, registered in `query/kernel/view.rs` |
//! | function for SQL | its class in `query/guard/functions.rs` |
//! | type that a value tells of its property | `ingest/definitions/value_type.rs` |
//! | thing that a sender should hear of | `ingest/warnings.rs`; [`weir_ingest::feedback`] keeps it |
//! | stored thing of the operator | a new migration in `schemas/metadata`, in SQL that both databases take; a file in `metadata` |
//! | background job | a decision in `storage`, its loop in [`weir_app::maintenance`] |
//! | setting | `base/config/`, with its range; the page `guide/settings.md` is made of it |
//! | page of the guide | `guide/`, and a line in `guide.rs` |
//! | metric | [`weir_base::telemetry::metrics`] |
//! | command | `cli/` |
//! | file access | [`weir_disk`] for what must be durable |

pub mod cli;
pub mod guide;
pub mod synth;
