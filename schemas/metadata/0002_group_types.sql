-- The group types of a project in the order of first sight: `position` is the number of the column
-- `group_<position>` of the events table. Rows are never changed or removed.
CREATE TABLE group_types (
    project_id BIGINT NOT NULL REFERENCES projects (id),
    position   BIGINT NOT NULL,
    name       TEXT   NOT NULL,
    PRIMARY KEY (project_id, position),
    UNIQUE (project_id, name)
);
