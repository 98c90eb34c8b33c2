//! Seeded projects, persons, sessions, events.
