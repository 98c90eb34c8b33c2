-- What is hashed (`distinct_id` or `device_id`), where a flag may be evaluated (`server`, `client`,
-- `all`), in which contexts (JSON array of strings; empty: everywhere), whether it is read by its
-- payload alone, who changed it last, when an SDK last said that it called it.
ALTER TABLE feature_flags ADD COLUMN bucketing_identifier TEXT;
ALTER TABLE feature_flags ADD COLUMN evaluation_runtime TEXT;
ALTER TABLE feature_flags ADD COLUMN evaluation_contexts TEXT NOT NULL DEFAULT '[]';
ALTER TABLE feature_flags ADD COLUMN is_remote_configuration BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE feature_flags ADD COLUMN archived BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE feature_flags ADD COLUMN last_modified_by BIGINT;

-- What all flags of a project share. `property_matching_version` is 1 or 2. `secret_key_sha256` is
-- the lower-case hex SHA-256 of the project's secret key, `secret_key_mask` what may be shown of it.
-- A project without a row has the defaults: 1, and no key.
CREATE TABLE flag_settings (
    project_id                BIGINT NOT NULL PRIMARY KEY REFERENCES projects (id),
    property_matching_version BIGINT NOT NULL,
    secret_key_sha256         TEXT   UNIQUE,
    secret_key_mask           TEXT
);

-- What a person keeps hashing after a login, for flags that keep their value across it. One row per
-- distinct id, so that rows follow their id through every merge of persons. The first row counts.
CREATE TABLE hash_keys (
    project_id  BIGINT NOT NULL REFERENCES projects (id),
    distinct_id TEXT   NOT NULL,
    flag_key    TEXT   NOT NULL,
    hash_key    TEXT   NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (project_id, distinct_id, flag_key)
);
