-- The first record of the log whose effect on persons was begun in a minute (since 1970, UTC). What
-- changed after a time is told by it: rows of persons have the record that changed them last.
CREATE TABLE record_times (
    minute   BIGINT NOT NULL PRIMARY KEY,
    sequence BIGINT NOT NULL
);
