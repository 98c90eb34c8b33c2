//! Records of the log as they were prepared when they were accepted: for the replay at start, and for
//! the deriver when the identity store has lost what it applied last.

use std::sync::Arc;

use crate::geoip::Places;
use crate::ingest::decoding::Decoding;
use crate::ingest::envelope::Envelope;
use crate::ingest::operation::Operation;
use crate::ingest::prepare::Prepared;
use crate::ingest::prepare::ProjectFacts;
use crate::metadata::Metadata;

/// Reads records again.
#[derive(Clone, Debug)]
pub(super) struct Rereader {
    pub(super) decoding: Arc<Decoding>,
    pub(super) metadata: Metadata,
}

impl Rereader {
    /// What a record was made of.
    ///
    /// # Errors
    ///
    /// Why it cannot be read. Its checksum is right, so it is not damaged: another program can read it.
    pub(super) fn prepared(&self, payload: Vec<u8>) -> Result<Prepared, String> {
        if Operation::is_in(&payload) {
            let operation = Operation::decode(&payload);
            return operation.and_then(Operation::prepare).map_err(|error| error.to_string());
        }
        let envelope = Envelope::decode(payload).map_err(|error| error.to_string())?;
        let facts = ProjectFacts {
            anonymize_ips: envelope.anonymize_ips,
            places: Places::Found(Arc::new(envelope.places.into_iter().collect())),
            ..self.decoding.facts(&self.metadata.snapshot(), envelope.project)
        };
        let project = |_: &str| Some(facts.clone());
        self.decoding
            .prepare_again(envelope.body, &envelope.hints, &envelope.received, &project)
            .map_err(|error| error.to_string())
    }
}
