//! Weir: an event-analytics server.
//!
//! Events arrive over HTTP in the request formats of the PostHog SDKs, are durable when the 200 is sent, and become
//! Parquet files in a Delta table, from which persons, event definitions, feature flags and SQL are served. This page
//! is the map: the write path, the read path, invariants, and where new code belongs.
//!
//! # Bird's eye
//!
//! ```text
//!  edges         weir (cli, synth)  http  pg   arguments, synthetic events; sockets, JSON; clients of PostgreSQL
//!  composition   app                       opens and wires everything; flush, merge, vacuum
//!  product       insights                  lists, timelines, audiences, insights
//!  page          web                       markup, charts and queries in addresses, as pure functions
//!  answers       api                       the JSON of API responses and of query nodes, as types
//!  nodes         cluster                   one query on several nodes
//!  read path     query                     DataFusion over one snapshot; no layer below depends on DataFusion
//!  write path    ingest                    from a body to the 200; independent of the read path, and vice versa
//!  flags         evaluation                loads from the stores what a flag request needs
//!  commands      transfer                  copies a project of another server over its API
//!  between       progress                  position of the write path, for readers to wait (read-your-writes)
//!  engines       storage   metadata        log and tables; projects, keys, flags, definitions
//!  rules         flags   identity          flag evaluation; persons and their distinct ids
//!                import                    exports of other systems as events; used by the command line alone
//!  vocabulary    event   wire              ids, time, columns, places; JSON formats of SDKs
//!  foundations   base   disk               errors, clock, settings, telemetry, tasks; the file system
//!  tests alone   sim                       a disk that loses what was not synced
//! ```
//!
//! Each name is a member of the workspace, `weir-query` in `src/query`; its dependencies in `Cargo.toml` are the
//! layers, so a dependency that is not declared does not compile. Each begins with a page like this one.
//!
//! [`weir_app::App::open`] opens the process-wide state ([`weir_app::node::Node`]) and one log with everything that is
//! derived from it ([`weir_app::shard::Shard`]), and returns a cheap handle on both; commands that read without a
//! server open a [`weir_app::copy::WorkingCopy`]. There is no global state.
//!
//! A port for clients of PostgreSQL ([`weir_pg::Port`]) is beside HTTP, if a build has it and the operator sets it: it takes
//! the read path from step 3 on. It asks [`weir_pg::places`] where a project is read; a node of a cluster passes connections on
//! to the one that has the shard, over HTTP ([`weir_http::cluster::sessions`]).
//!
//! Sockets are served by one asynchronous runtime. Queries run on another, on which insights, and the parts of pages
//! that query, are computed, too ([`weir_query::kernel::engine::Engine::apart`]). Bodies are decoded, and large sets of
//! flags evaluated, on a pool of threads ([`weir_base::tasks::CpuPool`]); requests are parsed and responses written for
//! the API and pages on another (`http/beside.rs`). The log, the spare of its next segment, its replay at start, the
//! projector, flush, merge, the tables of persons and the record of warnings have one thread each.
//!
//! # Write path
//!
//! 1. [`weir_http::router::Router`] finds the endpoint in [`weir_http::public`];
//!    [`weir_http::routes::capture::capture`], or [`weir_http::routes::capture_v1::capture_v1`] for the newer protocol,
//!    or [`weir_http::routes::otel::export`] for traces, reads the bounded body and calls
//!    [`weir_ingest::Pipeline::accept`], detached from the connection, so that a disconnect interrupts no request half
//!    way. `accept` is the whole write path; read it first.
//! 2. `Pipeline::admit` refuses a request beyond the memory budget, before any work. The permit that it returns grows
//!    and shrinks with the memory that the body actually needs (`ingest/budget.rs`, `ingest/memory_estimate.rs`).
//! 3. [`weir_ingest::decoding::Decoding`], on the pool unless the body is small, is one pure function from bytes to
//!    columns: [`weir_wire::encoding::Decoder::decode`] undoes compression and wrapping, and converts spans to events
//!    ([`weir_wire::otlp`]), [`weir_ingest::prepare::Preparer::prepare`] reads the tape of [`weir_ingest::tape`],
//!    [`weir_ingest::normalize`] has the rules for one event, and [`weir_event::columns::Columns`] collects the values.
//!    Ids and times that the server generates come from the seed and time of [`weir_ingest::request::Received`].
//! 4. [`weir_ingest::log_record::LogRecord::encode`] makes the log record: the body as it was received, and the seed,
//!    the time and the hints from which the same columns can be derived again.
//! 5. The log thread ([`weir_ingest::commit`]) appends all requests that have queued up, syncs once, publishes each and
//!    wakes its waiter: the 200. [`weir_storage::log`] defines what a log is; [`weir_storage::wal`] stores it in
//!    segment files, [`weir_storage::object_log`] in a bucket, where a claim fences off the former writer, and
//!    [`weir_app::lease`] decides which server serves.
//! 6. Publication ([`weir_ingest::publish`]) drops retries by the window of recent events
//!    ([`weir_ingest::dedup::Window`]), makes the rows visible ([`weir_storage::store::Store::insert`]) and passes the
//!    changes of persons and definitions ([`weir_ingest::definitions`]) to the projector ([`weir_ingest::projector`]),
//!    which calls [`weir_identity::store::Identities::apply_noting`] and
//!    [`weir_metadata::Metadata::upsert_definitions`].
//! 7. [`weir_app::maintenance`]: [`weir_storage::store::Store::freeze`] and [`weir_storage::store::Store::flush`] turn
//!    memtables into Parquet files and one Delta commit, which also contains the log position up to which records are
//!    in files; then the log is cut. [`weir_storage::compaction::choose`] picks small files,
//!    [`weir_query::events::merge`] merges as many of them as fit into memory, page by page
//!    ([`weir_storage::parquet::pages`]), [`weir_storage::delta::DeltaTable::vacuum`] removes replaced files.
//!    [`weir_storage::tables`] locates all of this, in the data directory or in a bucket ([`weir_storage::remote`], in
//!    front of it [`weir_storage::cached`]), and [`weir_app::moving`] moves it from one to the other. Events that an
//!    operator has deleted ([`weir_identity::deletions`]), those of deleted projects ([`weir_metadata::removal`],
//!    [`weir_app::maintenance::projects`]) and those that are too old are left out by flushes and merges, and
//!    [`weir_app::maintenance::files::Files::erase`] rewrites the files that still contain them. If the disk of a node
//!    may be lost, persons go into a bucket as well: an image of the identity store
//!    ([`weir_identity::store::Identities::image`]) is put ([`weir_storage::images`]) when it is due
//!    ([`weir_app::maintenance::images`]), and the log is cut behind the last but one. [`weir_app::images`] restores
//!    the newest at start.
//!
//! An [`weir_ingest::operation::Operation`] on persons or groups, such as the split of
//! [`weir_http::routes::persons::split`], takes the same path from step 5 on ([`weir_ingest::Pipeline::operate`]), so
//! it is ordered with the events. It is recorded in the activity log ([`weir_metadata::Metadata::record_activity`])
//! before it takes effect.
//!
//! At start, [`weir_ingest::replay`] passes the log, from the position of the tables and the persons on, through steps
//! 3 and 6. New requests are logged meanwhile, no faster than the replay can follow, which reaches them in turn. After
//! a failure of the identity store, the changes of persons are derived from the log again without a restart
//! (`ingest/projector/recover.rs`).
//!
//! # Read path
//!
//! 1. An endpoint of [`weir_http::table`] is an [`weir_http::operation::Operation`], whose input
//!    [`weir_http::operation::serve`] reads from the request of a caller that [`weir_http::auth`] has authorized: a
//!    typed request for [`weir_insights`], for [`weir_query::persons::people`], or for
//!    [`weir_query::kernel::engine::Engine::lists`].
//! 2. [`weir_insights`] has the product queries: lists of events ([`weir_insights::events`]), of selected columns of
//!    events and persons ([`weir_insights::select`]), of groups and of definitions, timelines, sizes of cohorts and
//!    audiences, trends and paths. Each builds a plan over the tables of a [`weir_query::kernel::view::View`], and the
//!    JSON of its result. [`weir_insights::cache`] caches results while they are valid.
//! 3. [`weir_query::kernel::engine::Engine::wait`] waits until persons and definitions are as of the newest record
//!    acknowledged before the call ([`weir_progress::barrier::ReadBarrier`]).
//! 4. [`weir_query::kernel::engine::Engine::view`] takes one snapshot ([`weir_storage::store::Store::snapshot`], the
//!    overrides of [`weir_identity::store::Identities::overrides`]) and returns tables over it;
//!    [`weir_query::events::table`] prunes files by the bounds in the table's log (`query/events/pruning.rs`), pushes
//!    those filters into the scan that cannot fail (`query/events/row_filter.rs`), adds the memtables, leaves out
//!    deleted events and resolves merged persons. Queries that count persons, or read the events of each, use persons
//!    as numbers of four bytes, for which merges are looked up once ([`weir_query::persons::person_numbers`]). Lists of
//!    persons ([`weir_query::persons::people`]) are look-ups, or plans over the persons table, whose scan
//!    (`query/persons/person_scan.rs`) evaluates filters on cached columns of the files of
//!    [`weir_query::persons::person_table`]. The files have a column for each property and are renewed in pieces; persons
//!    that changed since ([`weir_identity::change_feed`]) are read from the store. A second table, for other engines, has
//!    a row for each distinct id.
//! 5. [`weir_query::kernel::view::View::sql`] plans, read only; `query::kernel::explain` restricts what the caller may
//!    see of a plan. [`weir_query::kernel::admission`] grants a slot. [`weir_query::kernel::run`] plans and runs within
//!    limits of memory and time (`query::guard` has those inside of functions and between operators), once more with a
//!    plan for little memory if that is used up, and stops when the client disconnects. A result in JSON is in memory as
//!    a whole; files are encoded while they are sent ([`weir_query::kernel::files`]), and other readers take batches as
//!    fast as they want ([`weir_query::kernel::engine::Engine::rows`]).
//! 6. A query that reads many bytes is planned over the workers of the server, if it has any
//!    ([`weir_query::kernel::distribution`], [`weir_cluster::node`]): what our operators and functions consist of is sent
//!    with the plan ([`weir_query::fragments`]; those of insights are in [`weir_insights::distributed`]), and each worker
//!    executes its part of every stage. What fails there is run again here.
//! 7. Insights that follow persons through their events read rows of histories ([`weir_query::events::histories`]), which
//!    are folded here, or in parts by workers.
//!
//! # Flag evaluation
//!
//! 1. [`weir_http::routes::flags::flags`] decodes the body ([`weir_wire::encoding::decode`],
//!    [`weir_wire::flags::request::Request::parse`]) and takes the snapshot of the metadata
//!    ([`weir_metadata::Metadata::snapshot`]).
//! 2. [`weir_evaluation::Evaluator::load`] looks up the person and the groups, as of every acknowledged event
//!    ([`weir_identity::store::Identities::view`]), and, if the value of a flag has to persist across a login, the hash
//!    keys of the person ([`weir_metadata::Metadata::hash_keys`]). [`weir_evaluation::EvaluationContext::evaluate`]
//!    builds the [`weir_flags::subject::Subject`] and its cohorts ([`weir_flags::cohorts::Memberships`]).
//! 3. [`weir_flags::set::FlagSet::evaluate`] is pure: no lock, no file, no clock. If its [`weir_flags::effort`] is
//!    large, it runs apart from the threads of sockets ([`weir_evaluation::Evaluator::run`]).
//! 4. [`weir_wire::flags::response::Response`] writes the response in the requested version.
//!
//! # Page
//!
//! 1. [`weir_http::routes::pages`] finds the page in its table, authenticates the visitor (by a session of
//!    [`weir_metadata::sessions`], or a key), checks the rights, and loads the data by the functions of the endpoints,
//!    never over HTTP.
//! 2. [`weir_web`] renders it: [`weir_web::frame`] is the layout around every page and sent before queries run,
//!    [`weir_web::state`] parses and prints the query of a page in its address, [`weir_web::chart`] draws.
//!
//! # Invariants
//!
//! Each with the tests that check it.
//!
//! - Modules use only lower ones, and their files form no large circles; crates have one door each; the head of each
//!   file describes it.
//!   `tests/tidy.rs`
//! - Requests that were answered with 200 are there after a crash; others are absent or whole.
//!   `storage/wal/tests/crash.rs`, `storage/delta/tests/crash.rs` on a simulated disk; `tests/server/crash.rs` with
//!   `kill -9`
//! - Damage in the log is found, counted, and costs only what is damaged.
//!   `storage/wal/tests/damage.rs`
//! - Damage in a data file is found whatever bit of it changes, and the error names the file.
//!   `storage/checksums/tests.rs`; `tests/server/damage.rs`; PyArrow in `tests/server/sdk.rs`
//! - Whatever part of a data directory is lost or damaged, the server serves the rest and counts the loss, or refuses
//!   to start with an error that explains how to continue.
//!   `tests/server/damage.rs`
//! - In whatever order the requests of several writers of a log in a bucket arrive, and whatever responses are lost, no
//!   acknowledged record is lost.
//!   `storage/object_log/tests/explored.rs`, `storage/object_log/tests/faults.rs`
//! - Acknowledged records survive the loss of the disk, and a former server that continues late.
//!   `tests/server/standby.rs`
//! - Whatever any server of a bucket has acknowledged can be read through every other one right after, also while servers are
//!   killed, hang and take over.
//!   `storage/object_log/tests/followed.rs`, `storage/store/tests/followed.rs`, `tests/server/followers.rs`,
//!   `tests/server/shards/sessions.rs`
//! - No log is left behind, on a disk or in a bucket, with acknowledged records that are nowhere else.
//!   `tests/server/leaving.rs`
//! - The bucket with the log and the database, as of one moment, are a backup of everything.
//!   `tests/server/backup.rs`
//! - After a failed sync the log takes nothing until a restart.
//!   `storage/wal/tests.rs`
//! - No flush passes a record that cannot be published, and the log is not cut over it.
//!   `ingest/commit/tests.rs`
//! - Files and log position change in one Delta commit, so no row is stored twice or lost.
//!   `storage/delta/tests.rs`, `tests/server/crash.rs`
//! - A commit without a response from the store is settled before anything else, so its rows count once.
//!   `storage/store/tests.rs`, `query/persons/person_table/tests.rs`
//! - Whatever an object store does, rows in a bucket are there once: lost requests, lost responses, puts that arrive
//!   after their sender was killed.
//!   `storage/store/tests/chaos.rs`, `tests/server/s3.rs` with `kill -9`
//! - A store without atomic conditional puts is refused before anything is written.
//!   `storage/probe.rs`, `tests/server/s3.rs`
//! - Cached data of a bucket equal the bucket's, whatever part of the cache is damaged.
//!   `storage/cached/tests.rs`
//! - A data directory always uses the same place of its tables, and no two directories use one place.
//!   `app/tables.rs`, `tests/server/s3.rs`
//! - A move of tables changes nothing before the copy is complete, and continues after an interruption.
//!   `storage/copy.rs`, `tests/server/s3.rs`
//! - Damage in the log of a table is found, counted, and costs only what is damaged.
//!   `storage/delta/tests/damage.rs`, `tests/server/table_damage.rs`
//! - Other Delta engines can read the table, and Weir reads what they write.
//!   `storage/delta/tests/others.rs`, `tests/server/delta.rs`, `tests/server/sdk.rs`
//! - The columns of the table are those of `schemas/arrow/events.v1.json`.
//!   `event/schema.rs`
//! - Every column of every table of SQL and of files is described, and nothing else is; files, results and the log of
//!   a table have the descriptions.
//!   `event/dictionary/tests.rs`, `tests/server/schema.rs` with PyArrow, Polars and `deltalake`
//! - Views over the live files count events and persons as SQL does, after merges and splits.
//!   `tests/server/views.rs` with DuckDB
//! - Persons follow the rules, in whatever batches the log is applied.
//!   `identity/tests/sequences.rs` against the model beside it, `tests/server/identity.rs`
//! - So do definitions; the first type of a property stays.
//!   `ingest/definitions/tests.rs`
//! - If a process ends in the middle of a record, its persons are the same afterwards: the replay continues there.
//!   `identity/tests/histories.rs`, `identity/tests/sequences.rs`
//! - An image of persons is the state as of its record, whatever is flushed and compacted while it is made.
//!   `identity/tests/images.rs`
//! - Whatever an object store loses, images in it are complete, and if one is damaged, the one before it is restored;
//!   the log goes back to that.
//!   `storage/images/tests.rs`, `app/images.rs`, `app/maintenance/images.rs`
//! - A full disk loses nothing that was acknowledged, and capture resumes by itself when there is space.
//!   `tests/server/full_disk.rs`
//! - A split person's events are assigned by their distinct ids, whatever compaction folded before.
//!   `identity/tests/sequences.rs`
//! - Deleted events are in no result, leave the files, and do not come back; later ones stay.
//!   `app/maintenance/deletions/tests.rs` with power cuts, `tests/server/deletion.rs` with `kill -9`
//! - A deleted project is in no result, leaves the files and does not come back, and changes nothing of others, not even
//!   numbers of persons; its id and its token are not given again.
//!   `identity/tests/gone.rs`, `metadata/tests/removal.rs`, `app/maintenance/deletions/tests.rs` with power cuts,
//!   `tests/server/project_deletion.rs` with `kill -9`
//! - Events older than their project keeps them are in no result and leave the files, and none comes back.
//!   `app/maintenance/deletions/tests.rs`, `tests/server/retention_by_age.rs`
//! - Imported events keep their times, and what a list of events returns is the same event when it is sent.
//!   `ingest/prepare/tests/imports.rs`, `tests/server/imported.rs`
//! - Former values of persons' properties leave the files of the persons table in time, whatever is restarted.
//!   `query/persons/person_table/tests/renewal.rs` over simulated time, `tests/server/person_columns.rs` with `kill -9`
//! - The files of the persons table, together with the changed persons, equal the persons of the store, whatever ends
//!   and crashes.
//!   `query/persons/person_table/tests/renewal.rs`, `query/persons/people/tests.rs`
//! - A resource shared by a link with a password is returned only to those who gave one, as long as the password
//!   exists.
//!   `metadata/tests/documents.rs`, `tests/server/sharing.rs`
//! - A flag has the value that the SDKs compute.
//!   `flags/set/tests.rs` and `flags/bucket.rs` on `tests/fixtures/flags`
//! - So does one that was created by the management API, compared with the evaluators of released SDKs.
//!   `tests/server/differential.rs`
//! - That a scan leaves out files, pages or rows changes no result.
//!   `query/events/pruning.rs`, `tests/server/scans.rs`
//! - No project sees anything of another, by no endpoint of the table, and by no error of a query.
//!   `tests/server/isolation.rs`, `tests/server/row_isolation.rs`
//! - Over the PostgreSQL port a key reads what it reads over HTTP, and changes nothing; each answer is that of HTTP, to
//!   every client.
//!   `tests/server/postgres_port.rs`, `tests/server/postgres_port/clients.rs`
//! - No client of it takes more than its share, before and after it has signed in, and no value is read as SQL.
//!   `pg/wire/connection.rs`, `pg/wire/frontend.rs`, `tests/server/postgres_port/attacks.rs`
//! - No key may do more than its scopes allow, at no endpoint of the table.
//!   `tests/server/errors.rs`
//! - No page shows more than its visitor may see, and no received data is markup or script in it.
//!   `tests/server/pages.rs`, `tests/server/insight_pages.rs`
//! - Every statement on metadata is accepted by SQLite and by PostgreSQL.
//!   `metadata/tests/statements.rs`
//! - Servers that share a PostgreSQL database lose no edit and no entry of the activity log.
//!   `metadata/tests/servers.rs`
//! - A partial reload of the metadata by such a server gives the same as a full one.
//!   `metadata/tests/servers.rs`
//! - While PostgreSQL is unavailable, events are accepted, flags evaluated and SQL queries run; the server recovers by
//!   itself.
//!   `metadata/tests/outage.rs`, `tests/server/postgres.rs`
//! - A store moves to PostgreSQL completely and once, wherever that is interrupted.
//!   `metadata/tests/transfer.rs`, `tests/server/postgres.rs`
//! - A scheduled change of a flag is made once and completely, with the rights of the user who scheduled it.
//!   `metadata/tests/schedules.rs`, `tests/server/scheduled_changes.rs`
//! - An early access feature and the enrolment in its flag change together.
//!   `metadata/tests/early_access.rs`, `tests/server/early_access.rs`
//! - There is no change of a flag, a feature, a cohort, a definition, a document or a role without an entry in the
//!   activity log: it is written in the same transaction.
//!   `metadata/tests/rights.rs`, `tests/server/flag_management.rs`, `tests/server/activity.rs`
//! - Nor of a person or a group by an operator: the entry is written before the change takes effect, under an id
//!   derived from its position in the log, so that a replay does not repeat it.
//!   `ingest/activity.rs`, `tests/server/activity.rs`, `tests/server/groups.rs`
//! - A deleted person leaves no membership of a static cohort and no flag value that was stored across a login.
//!   `metadata/tests/cohorts.rs`, `tests/server/cohorts.rs`
//! - Users who may only view flags change none, by no endpoint of the table.
//!   `tests/server/rights.rs`, `tests/server/flag_rights.rs`
//! - Removed members keep no key, no role, no session and no scheduled change.
//!   `metadata/tests/rights.rs`, `metadata/tests/sessions.rs`
//! - Long-lived responses, such as streams, end with the key, session or token of their request
//!   ([`weir_http::revocation`]).
//!   `tests/server/revocation.rs`
//! - An assistant sees what the API would show its key, with the same numbers, and changes a flag only as it was shown.
//!   `http/routes/mcp/token.rs`, `tests/server/mcp.rs` with released clients
//! - No key lets anybody do, see or publish what the key itself does not allow.
//!   `tests/server/accounts.rs`, `tests/server/sharing.rs`
//! - No guesses at the password of a link lock out those who have it.
//!   `http/routes/documents/unlock.rs`
//! - No answer changes with the promotion of a property, wherever its rows are.
//!   `query/events/promoted.rs`, `tests/server/promoted_columns.rs`, `tests/server/promoted_persons.rs`
//! - A column of a promoted property has one type for good in its table, whichever projects promote it, and there are few of
//!   them.
//!   `metadata/tests/promotions.rs`, `tests/server/promotions.rs`
//! - Data that a public token can create is bounded, and displaces no existing data.
//!   `metadata/tests/definitions.rs`
//! - A filter has the same meaning in lists and plans, and that of DuckDB; in flags as well, except for numbers that
//!   SDKs read in another way.
//!   `tests/server/filters.rs`, `event/number.rs`
//! - A value is the same number and the same text to SQL, expressions, filters, breakdowns and sums, whatever its
//!   column and however it was written.
//!   `tests/server/property_access.rs`
//! - Insights have the numbers that SQL has over the same files, and those of models.
//!   `tests/server/oracle.rs` beside DuckDB; `tests/server/trends.rs` and those of other kinds
//! - They have the numbers that PostHog publishes with its own tests.
//!   `tests/server/published.rs` and those of retention and bins
//! - They do not depend on how events arrived or where they are stored, and count merged persons once.
//!   `tests/server/arrangements.rs`, `tests/server/merged_persons.rs`
//! - Other engines that join the files of events with those of distinct ids count the server's persons, after merges,
//!   splits, deletions and crashes.
//!   `query/persons/person_table/tests/distinct_ids.rs`, `tests/server/distinct_id_files.rs` with DuckDB and Polars,
//!   `tests/server/engines.rs` with Sail, Daft and others
//! - A list of persons is that of one moment, and includes every event acknowledged before, whatever is cached in
//!   memory.
//!   `query/persons/people/tests.rs`, `tests/server/persons.rs`
//! - Requests for the persons changed after a time miss none, whatever clocks and crashes do.
//!   `metadata/tests/record_times.rs`, `tests/server/persons.rs`
//! - Unmodified SDKs, current and old, are understood, in a browser too.
//!   `tests/server/sdk.rs`
//! - Requests to the public endpoints are answered and stored as documented.
//!   `tests/server/wire.rs`
//! - Every endpoint is described in `schemas/openapi.json`, and nothing else.
//!   `http/tests/described.rs`
//! - Every response conforms to that description, whatever the request.
//!   `tests/server/fuzz.rs`
//! - Values of senders are stored as they were written, whatever their keys, and can be read again, however deeply
//!   nested.
//!   `event/json.rs`, `tests/server/nested_json.rs` with `kill -9`
//! - No request, however malformed, brings the process down or takes more than its share.
//!   lints against panics, `http/tests.rs`, `wire/encoding/tests.rs`, `http/budget.rs`,
//!   `ingest/memory_estimate/tests.rs`, `tests/server/capture.rs`, `tests/server/fuzz.rs`, `tests/server/limits.rs`,
//!   `tests/server/http2.rs`
//! - No part of a statement is ignored silently.
//!   `query/guard/ignored.rs`
//! - Nor is a field of a node, of a filter or of a body.
//!   `api/nodes/check/tests.rs`, `http/openapi/bodies.rs`, `tests/server/unknown_fields.rs`
//! - No pattern of a user takes more memory or time than its limits, and no query the threads of others.
//!   `event/pattern.rs`, `query/guard/aside.rs`, `query/guard/watched.rs`, `tests/server/patterns.rs`
//! - A function of ClickHouse behaves as documented for it; one with the same name and another behaviour is refused.
//!   `query/functions/tests.rs` with `src/guide/functions.md`, `tests/server/hogql_forms.rs`
//! - No SQL takes more memory than queries may have, nor all slots; every function is in a class of
//!   `query/guard/functions.rs`.
//!   `query/guard/tests.rs`, `tests/server/query_limits.rs`, `tests/server/hostile_sql.rs`
//! - A file with a result has every row of one moment, in memory that does not depend on their number, or breaks off
//!   visibly; its reader holds slots only for a limited time.
//!   `query/output/encoder.rs`, `storage/delta/tests/claims.rs`, `tests/server/streams.rs`
//! - A lack of descriptors, or of the permission to create a segment, refuses a write and is temporary; connections
//!   leave some descriptors to files.
//!   `storage/wal/tests.rs`, `storage/durable/tests.rs`, `tests/server/limits.rs`
//! - A command that reads a data directory changes no file in it, and returns the same as the server would.
//!   `app/copy.rs`, `tests/server/commands.rs` after SIGKILL and after a clean end
//! - A start that fails leaves nothing that was not shown to the operator: the socket comes first, keys are generated
//!   last and printed at once.
//!   `tests/server/starts.rs`
//! - Time comes from [`weir_base::clock`], tasks from [`weir_base::tasks`], settings from [`weir_base::config`]; no
//!   globals.
//!   `.clippy.toml`
//! - The server is ready when it accepts events, and only then.
//!   `tests/server/limits.rs`
//! - An import stores each row once and as it was, or tells why not, whatever is damaged and whenever it is interrupted; an
//!   export can be imported again.
//!   `cli/import/tests.rs`, `import/read/tests.rs`, `import/source/tests.rs`, `tests/server/import.rs`
//! - A copied project equals its source, object by object and event by event, whatever interrupts the copy, and a second
//!   copy changes nothing.
//!   `tests/server/transfer.rs`
//! - The guide is true: its settings, columns and functions are those of the code, and every command in it runs.
//!   `cli/help/tests.rs`, `guide.rs`, `query/functions/tests.rs`, `tests/server/guide.rs`
//!
//! # Where does X go?
//!
//! A new
//!
//! - endpoint: a line in `http/table.rs`, and in `http/routes/` an [`weir_http::operation::Operation`]: its parameters
//!   are an `input!` (its body a `body!`), its response a type of [`weir_api`]; `schemas/openapi.json` is generated
//!   from these. For SDKs: `http/public.rs`.
//! - tool for assistants: its arguments in `api/nodes/tools.rs`, a row of `http/routes/mcp/tools.rs`.
//! - type, setting or statement of clients of PostgreSQL: `pg/types.rs`, `pg/variables.rs`, `pg/statement.rs`; a table or
//!   function of its catalog: `pg/catalog/`.
//! - setting that SDKs load when they start: `wire/remote_config.rs`.
//! - encoding or body format of an SDK: `wire`; its meaning: `ingest/normalize/`.
//! - name of an attribute of a span: `wire/otlp/mapping.rs`.
//! - parser of untrusted JSON: `event/json.rs`: `read` for requests, `restore` for stored values.
//! - format of a time: `event/time/spelling.rs`.
//! - column of events: the end of [`weir_event::schema::events_schema`], `schemas/arrow`, and what it means in
//!   `event/dictionary/`; of another table: `event/dictionary/`.
//! - type or value of a column that an owner promotes: `event/promotion.rs`, and its formula in
//!   `query/events/promoted.rs`, whose number changes with it.
//! - rule about persons: `identity/decide.rs`.
//! - operation on persons or groups, of operators: `ingest/operation.rs`; its effect: `identity/decide/`; its entry in
//!   the activity log: `ingest/activity.rs`.
//! - operator of properties: `event/predicate/operator.rs`.
//! - property of flags: `flags/definition.rs`, its checks: `metadata/flag_rules.rs`.
//! - function with parameters, or fold of rows of histories, in plans of insights that workers execute:
//!   `insights/distributed.rs` names it.
//! - product query, such as an insight: [`weir_insights`]: request, plan, JSON of the result; its fields:
//!   `api/nodes/`.
//! - table for SQL: `query`, registered in `query/kernel/view.rs`.
//! - function for SQL: its class in `query/guard/functions.rs`.
//! - inferred type of a property: `ingest/definitions/value_type.rs`.
//! - warning for senders: `ingest/warnings.rs`; [`weir_ingest::feedback`] stores it.
//! - stored object of the operator: a new migration in `schemas/metadata`, in SQL that both databases accept; a file in
//!   `metadata`.
//! - background job: a decision in `storage`, its loop in [`weir_app::maintenance`].
//! - setting: `base/config/`, with its range; the page `guide/settings.md` is generated from it.
//! - page of the guide: `guide/`, and a line in `guide.rs`.
//! - metric: [`weir_base::telemetry::metrics`].
//! - command: `cli/`.
//! - system to import from: `import/source/`, its name in [`weir_import::source::Kind`].
//! - file access: [`weir_disk`] for what must be durable.

pub mod cli;
pub mod guide;
pub mod synth;
