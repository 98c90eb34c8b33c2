-- Properties of persons that projects promote to columns of the persons table, as those of events in `promoted_properties`. That
-- table stays as it is, for servers of earlier versions on the same database; these know nothing of this one, whose rows
-- therefore go with their project by themselves.
CREATE TABLE promoted_person_properties (
    project_id BIGINT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    key        TEXT   NOT NULL,
    kind       TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (project_id, key)
);
