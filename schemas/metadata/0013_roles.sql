-- Groups of users with rights to flags. `id` is a UUID. `feature_flags_access_level` is 21 (may look)
-- or 37 (may change every flag).
CREATE TABLE roles (
    id                         TEXT   NOT NULL PRIMARY KEY,
    organization               TEXT   NOT NULL REFERENCES organizations (id),
    name                       TEXT   NOT NULL,
    feature_flags_access_level BIGINT NOT NULL,
    created_by                 BIGINT REFERENCES users (id),
    created_at                 BIGINT NOT NULL,
    UNIQUE (organization, name)
);

-- The users of a role. `id` is a UUID.
CREATE TABLE role_members (
    id         TEXT   NOT NULL PRIMARY KEY,
    role       TEXT   NOT NULL REFERENCES roles (id),
    user_id    BIGINT NOT NULL REFERENCES users (id),
    joined_at  BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (role, user_id)
);

-- Roles that may change one flag.
CREATE TABLE flag_role_access (
    id         BIGINT NOT NULL PRIMARY KEY,
    flag_id    BIGINT NOT NULL REFERENCES feature_flags (id),
    role       TEXT   NOT NULL REFERENCES roles (id),
    added_at   BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (flag_id, role)
);
