-- Properties of events that projects promote to columns of the events table. A column is one of all projects, so that `kind`,
-- its type (text, number or boolean), is the same in all rows of a key.
CREATE TABLE promoted_properties (
    project_id BIGINT NOT NULL REFERENCES projects (id),
    key        TEXT   NOT NULL,
    kind       TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (project_id, key)
);
