-- How many questions named an event, by day (since 1970, UTC). Of events without a definition nothing is
-- kept.
CREATE TABLE event_usage (
    definition TEXT   NOT NULL REFERENCES event_definitions (id) ON DELETE CASCADE,
    day        BIGINT NOT NULL,
    count      BIGINT NOT NULL,
    PRIMARY KEY (definition, day)
);

CREATE INDEX event_usage_by_day ON event_usage (day);
