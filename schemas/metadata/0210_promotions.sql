-- Properties of events and of persons that projects promote to columns of a table, `events` or `persons`; it replaces the table
-- of properties of events alone. A column is one of all projects, so that `kind`, its type (text, number or boolean), is the
-- same in all rows of a key of a table.
CREATE TABLE promotions (
    project_id BIGINT NOT NULL REFERENCES projects (id),
    of_table   TEXT   NOT NULL,
    key        TEXT   NOT NULL,
    kind       TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (project_id, of_table, key)
);

INSERT INTO promotions (project_id, of_table, key, kind, created_at)
SELECT project_id, 'events', key, kind, created_at FROM promoted_properties;

DROP TABLE promoted_properties;
