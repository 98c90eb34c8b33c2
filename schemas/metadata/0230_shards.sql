-- The shard that a project lives in, for good; a server of an earlier version makes projects in the first one.
ALTER TABLE projects ADD COLUMN shard BIGINT NOT NULL DEFAULT 0;
-- The shards of one bucket, which alone may be used with this database then, numbered from 0 without gaps; without rows there is
-- the first one alone. With each the URL of the node that is to have it, and that of the node that is ready to take it; empty if
-- any may, and if none is.
CREATE TABLE shards (
    shard  BIGINT NOT NULL PRIMARY KEY,
    wanted TEXT   NOT NULL DEFAULT '',
    ready  TEXT   NOT NULL DEFAULT '',
    bucket TEXT   NOT NULL DEFAULT ''
);
-- Nodes that serve shards, with the version of the program, and a number that each raises while it runs: a row whose number
-- stands still may be deleted. One that drains is to have no shards, the others at most as many as they say.
CREATE TABLE nodes (
    url         TEXT    NOT NULL PRIMARY KEY,
    build       TEXT    NOT NULL,
    beat        BIGINT  NOT NULL,
    is_draining BOOLEAN NOT NULL DEFAULT FALSE,
    shards_max  BIGINT  NOT NULL
);
