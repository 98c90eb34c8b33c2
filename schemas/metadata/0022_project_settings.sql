-- The day on which weeks begin, 0 for Sunday and 1 for Monday, and the filters by which questions
-- leave out the operator's own traffic, as a JSON array.
ALTER TABLE projects ADD COLUMN week_start_day BIGINT NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN test_account_filters TEXT NOT NULL DEFAULT '[]';
