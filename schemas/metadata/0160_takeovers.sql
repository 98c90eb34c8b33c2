-- That this database was filled from a file, by a digest of what the file had: whoever was interrupted after that moves
-- the same file again, and nothing is copied twice. Never more than one row.
CREATE TABLE takeovers (
    digest   TEXT   NOT NULL PRIMARY KEY,
    moved_at BIGINT NOT NULL
);
