-- Whether the addresses of clients are left out of a project's events, once their place was found.
ALTER TABLE projects ADD COLUMN anonymize_ips BOOLEAN NOT NULL DEFAULT FALSE;
