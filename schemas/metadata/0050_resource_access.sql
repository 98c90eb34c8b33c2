-- What members of an organization may do with every object of a kind unless something gives them more.
-- `resource` is 'feature flags', `access_level` 21 (may look) or 37 (may change). No row: may change.
CREATE TABLE resource_access (
    id           BIGINT NOT NULL PRIMARY KEY,
    organization TEXT   NOT NULL REFERENCES organizations (id),
    resource     TEXT   NOT NULL,
    access_level BIGINT NOT NULL,
    created_by   BIGINT REFERENCES users (id),
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    UNIQUE (organization, resource)
);
