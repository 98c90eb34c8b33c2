-- For servers that share one database. One row: its lock is that of all writes on PostgreSQL, and its number rises with
-- each change of what servers keep in memory. SQLite has both itself.
CREATE TABLE revision (
    number BIGINT NOT NULL
);

INSERT INTO revision (number) VALUES (0);

-- As `record_times` was, for the log of each server: records of different logs have nothing in common. The name of a log
-- is that of its server in the transactions of the tables; rows without one are taken over by the next server that
-- starts.
CREATE TABLE log_times (
    log      TEXT   NOT NULL,
    minute   BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    PRIMARY KEY (log, minute)
);

INSERT INTO log_times (log, minute, sequence) SELECT '', minute, sequence FROM record_times;

DROP TABLE record_times;
