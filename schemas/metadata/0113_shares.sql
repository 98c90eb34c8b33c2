-- Links to documents, for whoever has the token. It is shown to the people of the project, so it is stored; it is
-- looked up by its hash, so that the time of a look-up tells nothing of it. `settings` is a JSON object.
CREATE TABLE shares (
    kind        TEXT    NOT NULL,
    document_id BIGINT  NOT NULL,
    project_id  BIGINT  NOT NULL REFERENCES projects (id),
    enabled     BOOLEAN NOT NULL,
    token       TEXT    NOT NULL,
    token_hash  TEXT    NOT NULL UNIQUE,
    settings    TEXT    NOT NULL,
    created_at  BIGINT  NOT NULL,
    updated_at  BIGINT  NOT NULL,
    PRIMARY KEY (kind, document_id)
);

CREATE INDEX shares_of_project ON shares (project_id, kind);
