-- Workers that execute parts of the queries of the servers of a bucket, and a number that each raises while it runs: a row
-- whose number stands still for minutes may be deleted. A URL of the machine itself is of one host alone, and is there once
-- for each; other URLs have no host.
CREATE TABLE workers (
    bucket TEXT   NOT NULL,
    url    TEXT   NOT NULL,
    host   TEXT   NOT NULL,
    beat   BIGINT NOT NULL,
    PRIMARY KEY (bucket, url, host)
);
