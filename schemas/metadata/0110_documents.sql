-- What users save beside events: actions, insights, annotations, dashboards. `kind` is one of these, `fields` a
-- JSON object that the program reads as a whole; nothing selects by what is in it. Ids count up in each kind.
CREATE TABLE documents (
    kind        TEXT    NOT NULL,
    id          BIGINT  NOT NULL,
    project_id  BIGINT  NOT NULL REFERENCES projects (id),
    deleted     BOOLEAN NOT NULL,
    created_by  BIGINT REFERENCES users (id),
    created_at  BIGINT  NOT NULL,
    updated_by  BIGINT REFERENCES users (id),
    updated_at  BIGINT  NOT NULL,
    fields      TEXT    NOT NULL,
    PRIMARY KEY (kind, id)
);

CREATE INDEX documents_of_project ON documents (project_id, kind, id);

-- When a user last looked at a document.
CREATE TABLE document_views (
    project_id  BIGINT  NOT NULL REFERENCES projects (id),
    kind        TEXT    NOT NULL,
    user_id     BIGINT  NOT NULL REFERENCES users (id),
    document_id BIGINT  NOT NULL,
    viewed_at   BIGINT  NOT NULL,
    PRIMARY KEY (kind, user_id, document_id)
);
