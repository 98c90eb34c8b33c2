-- Cohorts: sets of persons, the soft-deleted ones included. `filters` is JSON:
-- {"properties": {"type": "AND" | "OR", "values": [...]}}. A static cohort is a list of members, in
-- `cohort_members`, by the uuid that the person had when it was added. `count` is the number of
-- members as of `last_calculation`, or NULL before the first.
CREATE TABLE cohorts (
    id                 BIGINT  NOT NULL PRIMARY KEY,
    project_id         BIGINT  NOT NULL REFERENCES projects (id),
    name               TEXT    NOT NULL,
    description        TEXT    NOT NULL,
    filters            TEXT    NOT NULL,
    is_static          BOOLEAN NOT NULL,
    deleted            BOOLEAN NOT NULL,
    created_by         BIGINT  REFERENCES users (id),
    created_at         BIGINT  NOT NULL,
    version            BIGINT  NOT NULL,
    count              BIGINT,
    last_calculation   BIGINT,
    errors_calculating BIGINT  NOT NULL
);

CREATE INDEX cohorts_by_project ON cohorts (project_id);

CREATE TABLE cohort_members (
    cohort_id BIGINT NOT NULL REFERENCES cohorts (id),
    person    TEXT   NOT NULL,
    PRIMARY KEY (cohort_id, person)
);
