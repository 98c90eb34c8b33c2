-- Features that people may try before everybody gets them; each has a flag, in which they enrol. `id` is a
-- UUID, `stage` as the API names it, `payload` JSON.
CREATE TABLE early_access_features (
    id                TEXT   NOT NULL PRIMARY KEY,
    project_id        BIGINT NOT NULL REFERENCES projects (id),
    flag_id           BIGINT NOT NULL UNIQUE REFERENCES feature_flags (id),
    name              TEXT   NOT NULL,
    description       TEXT   NOT NULL,
    stage             TEXT   NOT NULL,
    documentation_url TEXT   NOT NULL,
    payload           TEXT   NOT NULL,
    created_by        BIGINT REFERENCES users (id),
    created_at        BIGINT NOT NULL
);
