-- Sign-ins of the page. Of links and cookies only hashes are stored. A session with a key has the rights of that
-- key and ends with it; one without a key has those of its user. Ids are never reused.
CREATE TABLE sign_in_links (
    value_sha256 TEXT   NOT NULL PRIMARY KEY,
    user_id      BIGINT NOT NULL REFERENCES users (id),
    expires_at   BIGINT NOT NULL
);

CREATE TABLE sessions (
    id           BIGINT NOT NULL PRIMARY KEY,
    value_sha256 TEXT   NOT NULL UNIQUE,
    user_id      BIGINT NOT NULL REFERENCES users (id),
    key_id       BIGINT REFERENCES personal_keys (id),
    client       TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    used_at      BIGINT NOT NULL,
    ended_at     BIGINT
);

CREATE INDEX sessions_of_user ON sessions (user_id, ended_at);
