//! Who is who: persons and their distinct ids.
