-- Where the holder of a lease takes requests that other servers pass on, and the secret with which it does; empty if they
-- cannot.
ALTER TABLE leases ADD COLUMN url TEXT NOT NULL DEFAULT '';
ALTER TABLE leases ADD COLUMN secret TEXT NOT NULL DEFAULT '';
