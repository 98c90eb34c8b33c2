-- The property that is shown beside such events; none for properties.
ALTER TABLE definition_notes ADD COLUMN primary_property TEXT;
