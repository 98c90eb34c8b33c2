-- The holder that has opened what it has the lease of; an earlier holder, or nobody, while the present one does not yet.
ALTER TABLE leases ADD COLUMN opened_by TEXT NOT NULL DEFAULT '';
