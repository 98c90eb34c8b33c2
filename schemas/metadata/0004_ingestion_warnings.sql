-- What ingestion did otherwise than its sender may have meant, counted by kind and day. `day` is the
-- number of days since 1970-01-01. `samples` is a JSON array of the newest few, newest first, each
-- {"at": microseconds, "details": {...}}. Rows beyond the setting's age are removed.
CREATE TABLE ingestion_warnings (
    project_id    BIGINT NOT NULL REFERENCES projects (id),
    kind          TEXT   NOT NULL,
    day           BIGINT NOT NULL,
    count         BIGINT NOT NULL,
    first_seen_at BIGINT NOT NULL,
    last_seen_at  BIGINT NOT NULL,
    samples       TEXT   NOT NULL,
    PRIMARY KEY (project_id, kind, day)
);
