-- Dashboards of the usage of flags are dashboards like all others. Their names consist of the keys of flags, which
-- need no escapes in JSON.
INSERT INTO documents
    (kind, id, project_id, deleted, created_by, created_at, updated_by, updated_at, fields)
SELECT 'dashboard', id, project_id, FALSE, NULL, created_at, NULL, created_at,
       '{"name":"' || name || '"' || CASE WHEN is_enriched THEN ',"is_enriched":true' ELSE '' END || '}'
FROM usage_dashboards
WHERE TRUE;

DROP TABLE usage_dashboards;
