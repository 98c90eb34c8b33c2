-- Whether SDKs may leave out of `$feature_flag_called` what the flag does not need.
ALTER TABLE flag_settings ADD COLUMN minimal_flag_called_events BOOLEAN NOT NULL DEFAULT FALSE;
