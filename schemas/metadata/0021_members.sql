-- What users may do in their organization: 1 member, 8 admin, 15 owner (PostHog's numbers). Those who
-- were removed keep their rows, because others name them; their keys are revoked.
ALTER TABLE users ADD COLUMN level BIGINT NOT NULL DEFAULT 15;
ALTER TABLE users ADD COLUMN removed_at BIGINT;

-- The projects that a key is limited to, as a JSON array of their ids; NULL for all of its user's.
ALTER TABLE personal_keys ADD COLUMN projects TEXT;
