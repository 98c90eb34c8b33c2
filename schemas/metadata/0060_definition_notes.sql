-- What people noted about a definition, of events or of properties, in one table; it replaces one table
-- for each. A definition without a row has none of it. `definition` is the id of either; `owner`,
-- `verified_by` and `updated_by` are users. `verified` and `hidden` are never both true.
-- `default_columns` is a JSON array of texts.
CREATE TABLE definition_notes (
    definition      TEXT    NOT NULL PRIMARY KEY,
    project_id      BIGINT  NOT NULL REFERENCES projects (id),
    description     TEXT,
    owner           BIGINT  REFERENCES users (id),
    verified        BOOLEAN NOT NULL,
    verified_at     BIGINT,
    verified_by     BIGINT  REFERENCES users (id),
    hidden          BOOLEAN NOT NULL,
    updated_at      BIGINT  NOT NULL,
    updated_by      BIGINT  REFERENCES users (id),
    default_columns TEXT    NOT NULL
);

CREATE INDEX definition_notes_by_project ON definition_notes (project_id);

-- Labels of properties, as those of events: a JSON array of texts.
ALTER TABLE property_definitions ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';

UPDATE property_definitions
SET tags = (SELECT tags FROM property_definition_notes n WHERE n.definition = property_definitions.id)
WHERE id IN (SELECT definition FROM property_definition_notes);

INSERT INTO definition_notes
SELECT n.definition, d.project_id, n.description, n.owner, n.verified, n.verified_at, n.verified_by,
       n.hidden, n.updated_at, n.updated_by, n.default_columns
FROM event_definition_notes n JOIN event_definitions d ON d.id = n.definition;

INSERT INTO definition_notes
SELECT n.definition, d.project_id, n.description, NULL, n.verified, n.verified_at, n.verified_by,
       n.hidden, n.updated_at, n.updated_by, '[]'
FROM property_definition_notes n JOIN property_definitions d ON d.id = n.definition;

DROP TABLE event_definition_notes;
DROP TABLE property_definition_notes;
