//! The pure half of the road, with its limits and the decoders it keeps: [`Decoding`] turns a body
//! into columns and into the record of the log. No clock, no files, no threads.

use bytes::Bytes;
use parking_lot::Mutex;

use crate::config::Config;
use crate::event::id::ProjectId;
use crate::geoip::Places;
use crate::ingest::CaptureRequest;
use crate::ingest::IngestError;
use crate::ingest::envelope::Envelope;
use crate::ingest::prepare::Prepared;
use crate::ingest::prepare::Preparer;
use crate::ingest::prepare::ProjectFacts;
use crate::ingest::prepare::Protocol;
use crate::ingest::prepare::Received;
use crate::metadata::snapshot::Snapshot as MetadataSnapshot;
use crate::wire::capture_v1::BODY_PLAIN_MAX_BYTES;
use crate::wire::encoding::DecodeError;
use crate::wire::encoding::Decoded;
use crate::wire::encoding::Decoder;
use crate::wire::encoding::hints::Hints;

/// Decoders that are kept for the next bodies.
const DECODERS_MAX: usize = 64;

/// What a body of the log may unpack to: more than any setting allowed.
const REPLAY_PLAIN_MAX_BYTES: u64 = 1 << 32;

/// A request that waits for nothing but its place in the log.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) head: Vec<u8>,
    pub(super) body: Bytes,
    pub(super) prepared: Prepared,
}

/// Decoders and the preparer, with their limits: everything that the pure half needs.
#[derive(Debug)]
pub struct Decoding {
    preparer: Preparer,
    places: Places,
    decoders: Mutex<Vec<Decoder>>,
    body_plain_max_bytes: u64,
}

impl Decoding {
    /// With the limits of `config`; events get the places of their addresses from `places`.
    pub fn new(config: &Config, places: Places) -> Self {
        Self {
            preparer: Preparer::default(),
            places,
            decoders: Mutex::new(Vec::new()),
            body_plain_max_bytes: config.http.body_plain_max_bytes.as_u64(),
        }
    }

    /// What columns need to know of a project.
    pub fn facts(&self, metadata: &MetadataSnapshot, project: ProjectId) -> ProjectFacts {
        ProjectFacts {
            id: project,
            group_types: metadata.group_types(project).to_vec(),
            anonymize_ips: metadata.project(project).is_some_and(|project| project.anonymize_ips),
            places: self.places.clone(),
        }
    }

    /// Decodes a body that was acknowledged, whatever the limits are now, and reads it into columns.
    /// Pure.
    ///
    /// # Errors
    ///
    /// The body's wrapping or its contents: the log holds what no version of this program accepted.
    pub fn prepare_again(
        &self,
        body: Bytes,
        hints: &Hints,
        received: &Received,
        project: &dyn Fn(&str) -> Option<ProjectFacts>,
    ) -> Result<Prepared, IngestError> {
        let decoded = self.decode(body, hints, REPLAY_PLAIN_MAX_BYTES)?;
        Ok(self.preparer.prepare(decoded.into_vec(), received, project)?)
    }

    fn decode(&self, body: Bytes, hints: &Hints, limit_bytes: u64) -> Result<Decoded, DecodeError> {
        let mut decoder = self.decoders.lock().pop().unwrap_or_default();
        let decoded = decoder.decode(body, hints, limit_bytes);
        let mut decoders = self.decoders.lock();
        if decoders.len() < DECODERS_MAX {
            decoders.push(decoder);
        }
        decoded
    }

    /// The project of a body, by the token in it.
    ///
    /// # Errors
    ///
    /// As [`Decoding::ready`], where the events are not looked at.
    pub(super) fn project_of(
        &self,
        body: Bytes,
        hints: &Hints,
        metadata: &MetadataSnapshot,
    ) -> Result<ProjectId, IngestError> {
        let decoded = self.decode(body, hints, self.body_plain_max_bytes)?;
        let project = |token: &str| Some(metadata.project_by_token(token)?.id);
        Ok(self.preparer.project_of(decoded.as_ref(), &project)?)
    }

    /// Columns and log record of a request, if its body unpacks to at most `plain_max_bytes` and what
    /// the settings allow.
    ///
    /// # Errors
    ///
    /// The body's wrapping or its contents.
    pub(super) fn ready(
        &self,
        request: &CaptureRequest,
        received: &Received,
        metadata: &MetadataSnapshot,
        plain_max_bytes: u64,
    ) -> Result<Ready, IngestError> {
        let project = |token: &str| {
            let project = metadata.project_by_token(token)?;
            Some(self.facts(metadata, project.id))
        };
        let in_header = request.token.as_deref();
        let project = |in_body: &str| project(in_header.unwrap_or(in_body));
        let allowed = match received.protocol {
            Protocol::V0 { .. } => self.body_plain_max_bytes,
            Protocol::V1 { .. } => self.body_plain_max_bytes.min(BODY_PLAIN_MAX_BYTES),
        };
        let limit_bytes = allowed.min(plain_max_bytes);
        let decoded = self.decode(request.body.clone(), &request.hints, limit_bytes)?;
        let mut prepared = self.preparer.prepare(decoded.into_vec(), received, &project)?;
        let envelope = Envelope {
            project: prepared.project,
            received: received.clone(),
            anonymize_ips: prepared.anonymize_ips,
            places: std::mem::take(&mut prepared.places),
            hints: request.hints.clone(),
            body: request.body.clone(),
        };
        let (head, body) = envelope.encode();
        Ok(Ready { head, body, prepared })
    }
}
