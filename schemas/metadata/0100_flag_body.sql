-- The fields of a flag by which nothing selects or sorts, as one JSON object. A field that it lacks has the
-- default of its type: false, null, or an empty array. A program keeps fields that it does not know.
--
-- The text is joined instead of built by JSON functions: those of SQLite and PostgreSQL have other names, and
-- those of SQLite refuse values that are nested deeper than 1000.
ALTER TABLE feature_flags ADD COLUMN body TEXT NOT NULL DEFAULT '{}';

UPDATE feature_flags
SET body = '{' || LTRIM(
       CASE WHEN ensure_experience_continuity THEN ',"ensure_experience_continuity":true' ELSE '' END
    || COALESCE(',"rollback_conditions":' || rollback_conditions, '')
    || CASE WHEN performed_rollback THEN ',"performed_rollback":true'
            WHEN NOT performed_rollback THEN ',"performed_rollback":false' ELSE '' END
    || CASE WHEN tags <> '[]' THEN ',"tags":' || tags ELSE '' END
    || CASE WHEN analytics_dashboards <> '[]' THEN ',"analytics_dashboards":' || analytics_dashboards ELSE '' END
    || CASE WHEN has_enriched_analytics THEN ',"has_enriched_analytics":true'
            WHEN NOT has_enriched_analytics THEN ',"has_enriched_analytics":false' ELSE '' END
    || CASE WHEN archived THEN ',"archived":true' ELSE '' END
    || COALESCE(',"bucketing_identifier":"' || bucketing_identifier || '"', '')
    || COALESCE(',"evaluation_runtime":"' || evaluation_runtime || '"', '')
    || CASE WHEN evaluation_contexts <> '[]' THEN ',"evaluation_contexts":' || evaluation_contexts ELSE '' END
    || CASE WHEN is_remote_configuration THEN ',"is_remote_configuration":true' ELSE '' END
    , ',') || '}';

ALTER TABLE feature_flags DROP COLUMN ensure_experience_continuity;
ALTER TABLE feature_flags DROP COLUMN rollback_conditions;
ALTER TABLE feature_flags DROP COLUMN performed_rollback;
ALTER TABLE feature_flags DROP COLUMN tags;
ALTER TABLE feature_flags DROP COLUMN analytics_dashboards;
ALTER TABLE feature_flags DROP COLUMN has_enriched_analytics;
ALTER TABLE feature_flags DROP COLUMN archived;
ALTER TABLE feature_flags DROP COLUMN bucketing_identifier;
ALTER TABLE feature_flags DROP COLUMN evaluation_runtime;
ALTER TABLE feature_flags DROP COLUMN evaluation_contexts;
ALTER TABLE feature_flags DROP COLUMN is_remote_configuration;
