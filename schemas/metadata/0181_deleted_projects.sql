-- Projects that were deleted; nothing else is left of them here. Servers remove their events and persons by this list, so a
-- row is never removed.
CREATE TABLE deleted_projects (
    id           BIGINT NOT NULL PRIMARY KEY,
    organization TEXT   NOT NULL REFERENCES organizations (id),
    deleted_by   BIGINT REFERENCES users (id),
    deleted_at   BIGINT NOT NULL
);

-- Tokens that are no longer those of a project: rotated, or of a deleted project. No project gets one again. `hash` is the
-- lower-case hex SHA-256 of the token.
CREATE TABLE retired_tokens (
    hash       TEXT   NOT NULL PRIMARY KEY,
    project_id BIGINT NOT NULL,
    retired_at BIGINT NOT NULL
);

-- The highest id that rows of a table had before a project was deleted with them, so that none is given again. `name` is
-- the table, and for documents the kind as well.
CREATE TABLE used_ids (
    name    TEXT   NOT NULL PRIMARY KEY,
    highest BIGINT NOT NULL
);

-- Days for which events are kept, or NULL for all; and the time before which none is kept, whatever the days are now:
-- what was left out once does not come back.
ALTER TABLE projects ADD COLUMN event_retention_days BIGINT;
ALTER TABLE projects ADD COLUMN events_kept_from BIGINT;
