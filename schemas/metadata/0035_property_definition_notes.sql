-- What people noted about the properties of one key. A definition without a row has none of it. `tags`
-- is a JSON array of texts. `verified_by` and `updated_by` are users. `verified` and `hidden` are never
-- both true.
CREATE TABLE property_definition_notes (
    definition  TEXT    NOT NULL PRIMARY KEY REFERENCES property_definitions (id) ON DELETE CASCADE,
    tags        TEXT    NOT NULL,
    description TEXT,
    verified    BOOLEAN NOT NULL,
    verified_at BIGINT,
    verified_by BIGINT  REFERENCES users (id),
    hidden      BOOLEAN NOT NULL,
    updated_at  BIGINT  NOT NULL,
    updated_by  BIGINT  REFERENCES users (id)
);
