-- Keys of properties that were seen. `kind`: 1 property of events, 2 of persons, 3 of groups.
-- `group_type_index` is -1 unless the kind is 3. `property_type` is NULL until a value told it, and
-- does not change afterwards. `id` is a UUID computed from the other columns but that one.
CREATE TABLE property_definitions (
    id               TEXT   NOT NULL PRIMARY KEY,
    project_id       BIGINT NOT NULL REFERENCES projects (id),
    kind             BIGINT NOT NULL,
    group_type_index BIGINT NOT NULL,
    name             TEXT   NOT NULL,
    property_type    TEXT,
    UNIQUE (project_id, kind, group_type_index, name)
);

-- Which property was seen on events of which name.
CREATE TABLE event_properties (
    project_id BIGINT NOT NULL REFERENCES projects (id),
    event      TEXT   NOT NULL,
    property   TEXT   NOT NULL,
    PRIMARY KEY (project_id, event, property)
);
