-- Workers that execute parts of the queries of the servers of a bucket, and a number that each raises while it runs: a row
-- whose number stands still for minutes may be deleted.
CREATE TABLE workers (
    bucket TEXT   NOT NULL,
    url    TEXT   NOT NULL,
    beat   BIGINT NOT NULL,
    PRIMARY KEY (bucket, url)
);
