//! Reads log records again as they were prepared when they were accepted: for the replay at start, and
//! for the projector when it recovers the identity store.

use std::sync::Arc;

use crate::decoding::Decoding;
use crate::log_record::LogRecord;
use crate::operation::Operation;
use crate::prepared::Prepared;
use crate::project_facts::ProjectFacts;
use weir_event::geoip::Places;
use weir_metadata::Metadata;

/// Decodes and prepares log records again.
#[derive(Clone, Debug)]
pub(super) struct Rereader {
    pub(super) decoding: Arc<Decoding>,
    pub(super) metadata: Metadata,
}

impl Rereader {
    /// Prepares the record again.
    ///
    /// # Errors
    ///
    /// Why it cannot be read. Its checksum is right, so it is not damaged: another program wrote it.
    pub(super) fn prepared(&self, payload: Vec<u8>) -> Result<Prepared, String> {
        if Operation::is_in(&payload) {
            let operation = Operation::decode(&payload);
            return operation.and_then(Operation::prepare).map_err(|error| error.to_string());
        }
        let log_record = LogRecord::decode(payload).map_err(|error| error.to_string())?;
        let facts = ProjectFacts {
            anonymize_ips: log_record.anonymize_ips,
            places: Places::Found(Arc::new(log_record.places.into_iter().collect())),
            ..self.decoding.facts(&self.metadata.snapshot(), log_record.project)
        };
        let project = |_: &str| Some(facts.clone());
        self.decoding
            .prepare_again(log_record.body, &log_record.hints, &log_record.received, &project)
            .map_err(|error| error.to_string())
    }
}
