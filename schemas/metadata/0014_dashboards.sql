-- Dashboards of the usage of a flag. `is_enriched` once the parts for richer events were added.
CREATE TABLE usage_dashboards (
    id          BIGINT  NOT NULL PRIMARY KEY,
    project_id  BIGINT  NOT NULL REFERENCES projects (id),
    name        TEXT    NOT NULL,
    is_enriched BOOLEAN NOT NULL,
    created_at  BIGINT  NOT NULL
);
