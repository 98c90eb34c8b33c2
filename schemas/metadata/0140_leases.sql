-- Who does what one server at a time is to do, and a number that it raises about once a second: whoever sees it stand
-- still for some seconds may take over. An empty holder is nobody.
CREATE TABLE leases (
    name   TEXT   PRIMARY KEY,
    holder TEXT   NOT NULL,
    beat   BIGINT NOT NULL
);
