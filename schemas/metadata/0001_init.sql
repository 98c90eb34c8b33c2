-- The metadata store. The text runs unchanged on SQLite and PostgreSQL, so it keeps to what both
-- read the same way: TEXT, BIGINT, BOOLEAN, no sequences, no arrays, no JSON type.
--
-- times    BIGINT, microseconds since 1970-01-01T00:00:00Z
-- JSON     TEXT
-- ids      made by the program, in the transaction that inserts the row
--
-- A file in this directory is never edited once released; a change is a new file.

-- Whoever owns projects. `id` is a UUID.
CREATE TABLE organizations (
    id         TEXT   NOT NULL PRIMARY KEY,
    name       TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);

-- What the events of one application go into. `api_token` is the public write token of its SDKs.
-- `person_display_name_properties` is a JSON array of property names, or NULL for the defaults.
CREATE TABLE projects (
    id                             BIGINT NOT NULL PRIMARY KEY,
    organization                   TEXT   NOT NULL REFERENCES organizations (id),
    name                           TEXT   NOT NULL,
    api_token                      TEXT   NOT NULL UNIQUE,
    timezone                       TEXT   NOT NULL,
    person_display_name_properties TEXT,
    created_at                     BIGINT NOT NULL
);

CREATE INDEX projects_by_organization ON projects (organization);

-- People who manage projects, not those whom events are about. `uuid` and `distinct_id` are what
-- the API shows of them. `current_project` is what `@current` means in a path.
CREATE TABLE users (
    id                BIGINT  NOT NULL PRIMARY KEY,
    organization      TEXT    NOT NULL REFERENCES organizations (id),
    uuid              TEXT    NOT NULL UNIQUE,
    distinct_id       TEXT    NOT NULL UNIQUE,
    first_name        TEXT    NOT NULL,
    email             TEXT    NOT NULL UNIQUE,
    is_email_verified BOOLEAN NOT NULL,
    current_project   BIGINT  REFERENCES projects (id),
    created_at        BIGINT  NOT NULL
);

-- Private keys of the management API. The value itself is never stored: `value_sha256` is the
-- lower-case hex SHA-256 of it, `mask` what may be shown. A plain hash is enough, since generated
-- values hold 256 random bits. `scopes` is a JSON array, or NULL for full access. `fixed` marks the
-- key that the operator's settings give. Revoked rows stay, so that an id never means two keys.
CREATE TABLE personal_keys (
    id           BIGINT  NOT NULL PRIMARY KEY,
    user_id      BIGINT  NOT NULL REFERENCES users (id),
    label        TEXT    NOT NULL,
    value_sha256 TEXT    NOT NULL UNIQUE,
    mask         TEXT    NOT NULL,
    scopes       TEXT,
    fixed        BOOLEAN NOT NULL,
    created_at   BIGINT  NOT NULL,
    last_used_at BIGINT,
    revoked_at   BIGINT
);

-- Feature flags, the soft-deleted ones included. `filters` is the JSON of the release conditions
-- as the client gave it; `rollback_conditions` is JSON, `tags` a JSON array of strings,
-- `analytics_dashboards` a JSON array of integers. `version` starts at 1 and grows with each update.
CREATE TABLE feature_flags (
    id                           BIGINT  NOT NULL PRIMARY KEY,
    project_id                   BIGINT  NOT NULL REFERENCES projects (id),
    name                         TEXT    NOT NULL,
    key                          TEXT    NOT NULL,
    filters                      TEXT    NOT NULL,
    active                       BOOLEAN NOT NULL,
    deleted                      BOOLEAN NOT NULL,
    created_by                   BIGINT  REFERENCES users (id),
    created_at                   BIGINT  NOT NULL,
    updated_at                   BIGINT  NOT NULL,
    version                      BIGINT  NOT NULL,
    ensure_experience_continuity BOOLEAN NOT NULL,
    rollback_conditions          TEXT,
    performed_rollback           BOOLEAN,
    tags                         TEXT    NOT NULL,
    usage_dashboard              BIGINT,
    analytics_dashboards         TEXT    NOT NULL,
    has_enriched_analytics       BOOLEAN
);

-- A key names at most one live flag of a project. Deleted flags keep theirs, to be restored by it.
CREATE UNIQUE INDEX feature_flags_live_key ON feature_flags (project_id, key) WHERE NOT deleted;
CREATE INDEX feature_flags_by_key ON feature_flags (project_id, key);

-- Names of events that were seen, with what is known of them. `id` is a UUID computed from project
-- and name, so that events taken in again give the same id. `tags` is a JSON array of strings.
CREATE TABLE event_definitions (
    id            TEXT    NOT NULL PRIMARY KEY,
    project_id    BIGINT  NOT NULL REFERENCES projects (id),
    name          TEXT    NOT NULL,
    created_at    BIGINT  NOT NULL,
    last_seen_at  BIGINT,
    tags          TEXT    NOT NULL,
    post_to_slack BOOLEAN NOT NULL,
    UNIQUE (project_id, name)
);
