-- Passwords of links. A link asks for one of them where `password_required` says so, also if it has none. `enabled_at`
-- is when the link was last turned on: what was let in before is not let in after. Ids count up in each link and are
-- never reused; `last_password` is the last one that was given. Of a password only a slow hash is stored.
ALTER TABLE shares ADD COLUMN password_required BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE shares ADD COLUMN enabled_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE shares ADD COLUMN last_password BIGINT NOT NULL DEFAULT 0;

CREATE TABLE share_passwords (
    kind        TEXT    NOT NULL,
    document_id BIGINT  NOT NULL,
    id          BIGINT  NOT NULL,
    project_id  BIGINT  NOT NULL REFERENCES projects (id),
    hash        TEXT    NOT NULL,
    note        TEXT    NOT NULL,
    created_by  BIGINT  NOT NULL REFERENCES users (id),
    created_at  BIGINT  NOT NULL,
    PRIMARY KEY (kind, document_id, id)
);

CREATE INDEX share_passwords_of_project ON share_passwords (project_id, kind);
