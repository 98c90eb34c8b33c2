-- Who changed what, written with the change. `scope` is the kind of the object (`FeatureFlag`,
-- `Cohort`, `Role`, `Person`, `EventDefinition`, ...), `item` its id as text, `activity` is `created`,
-- `updated` or `deleted`, `detail` a JSON object with the name of the object and the fields that
-- changed, each with its value before and after. `position` grows with time. Rows are never changed.
CREATE TABLE activity (
    position   BIGINT NOT NULL PRIMARY KEY,
    id         TEXT   NOT NULL UNIQUE,
    project_id BIGINT NOT NULL REFERENCES projects (id),
    user_id    BIGINT REFERENCES users (id),
    scope      TEXT   NOT NULL,
    item       TEXT   NOT NULL,
    activity   TEXT   NOT NULL,
    detail     TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE INDEX activity_by_item ON activity (project_id, scope, item, position);
CREATE INDEX activity_by_project ON activity (project_id, position);
