-- Changes of flags that are to be made at a time, and those that were. `payload` is JSON:
-- {"operation": "update_status" | "add_release_condition" | "update_variants", "value": ...}.
-- A change is due at `scheduled_at`, and over once `executed_at` is set, whether it was made or
-- failed for good (`failure_reason`). A recurring one moves `scheduled_at` on instead, by
-- `recurrence_interval` (`daily`, `weekly`, `monthly`, `yearly`) or by `cron_expression` in `timezone`,
-- until `end_date`. After a failure that may pass it is tried again, not before `not_before`. The flag
-- may be gone: ids of flags are not given again while a change names them.
CREATE TABLE scheduled_changes (
    id                  BIGINT  NOT NULL PRIMARY KEY,
    project_id          BIGINT  NOT NULL REFERENCES projects (id),
    flag_id             BIGINT  NOT NULL,
    payload             TEXT    NOT NULL,
    scheduled_at        BIGINT  NOT NULL,
    is_recurring        BOOLEAN NOT NULL,
    recurrence_interval TEXT,
    cron_expression     TEXT,
    end_date            BIGINT,
    timezone            TEXT    NOT NULL,
    executed_at         BIGINT,
    last_executed_at    BIGINT,
    failure_reason      TEXT,
    failure_count       BIGINT  NOT NULL,
    not_before          BIGINT,
    created_by          BIGINT  NOT NULL REFERENCES users (id),
    created_at          BIGINT  NOT NULL,
    updated_at          BIGINT  NOT NULL
);

CREATE INDEX scheduled_changes_due ON scheduled_changes (scheduled_at) WHERE executed_at IS NULL;
CREATE INDEX scheduled_changes_by_project ON scheduled_changes (project_id, id);
CREATE INDEX scheduled_changes_by_flag ON scheduled_changes (flag_id);
