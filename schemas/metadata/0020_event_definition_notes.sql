-- What people noted about the events of one name. A definition without a row has none of it. `owner`,
-- `verified_by` and `updated_by` are users. `verified` and `hidden` are never both true.
CREATE TABLE event_definition_notes (
    definition  TEXT    NOT NULL PRIMARY KEY REFERENCES event_definitions (id) ON DELETE CASCADE,
    description TEXT,
    owner       BIGINT  REFERENCES users (id),
    verified    BOOLEAN NOT NULL,
    verified_at BIGINT,
    verified_by BIGINT  REFERENCES users (id),
    hidden      BOOLEAN NOT NULL,
    updated_at  BIGINT  NOT NULL,
    updated_by  BIGINT  REFERENCES users (id)
);
