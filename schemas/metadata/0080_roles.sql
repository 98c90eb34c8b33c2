-- The flags of a role are looked up by it.
CREATE INDEX flag_role_access_by_role ON flag_role_access (role);

-- Who was removed from an organization has no roles.
DELETE FROM role_members WHERE user_id IN (SELECT id FROM users WHERE removed_at IS NOT NULL);
