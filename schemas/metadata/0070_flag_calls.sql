-- When SDKs last said that they called a flag; a flag without a row was never called. It is no column of
-- the flag, because it is no change of the flag: servers that evaluate flags need not load them again.
CREATE TABLE flag_calls (
    flag_id        BIGINT NOT NULL PRIMARY KEY REFERENCES feature_flags (id) ON DELETE CASCADE,
    project_id     BIGINT NOT NULL REFERENCES projects (id),
    last_called_at BIGINT NOT NULL
);

CREATE INDEX flag_calls_by_project ON flag_calls (project_id);
