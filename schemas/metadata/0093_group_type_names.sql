-- What people call one group of a type, and several; nobody named it otherwise where there is none.
ALTER TABLE group_types ADD COLUMN name_singular TEXT;
ALTER TABLE group_types ADD COLUMN name_plural TEXT;
