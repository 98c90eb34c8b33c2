//! Flag request and response shapes, all supported versions.
