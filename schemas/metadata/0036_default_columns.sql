-- Columns in which lists of such events are shown, a JSON array of texts.
ALTER TABLE event_definition_notes ADD COLUMN default_columns TEXT NOT NULL DEFAULT '[]';
