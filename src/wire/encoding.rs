//! Undo gzip, lz64, zstd, base64, form bodies; bounded.
