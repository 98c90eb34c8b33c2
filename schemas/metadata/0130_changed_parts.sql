-- What each change of the number in `revision` was about, so that servers on one PostgreSQL database read that anew and
-- nothing else: the id of a project, or 0 for what belongs to none. The last thousand numbers are kept; a number without
-- a row may have changed anything.
CREATE TABLE changed_parts (
    number BIGINT NOT NULL,
    part   BIGINT NOT NULL,
    PRIMARY KEY (number, part)
);
