//! The pure part of the write path, with its limits and pooled decoders: [`Decoding`] turns a body
//! into columns and into the log record. No clock, no files, no threads.

use bytes::Bytes;
use parking_lot::Mutex;

use crate::budget::MemoryPermit;
use crate::error::IngestError;
use crate::log_record::LogRecord;
use crate::prepare::Preparer;
use crate::prepared::Prepared;
use crate::project_facts::ProjectFacts;
use crate::request::{CaptureRequest, Protocol, Received};
use weir_base::config::Config;
use weir_event::geoip::Places;
use weir_event::id::ProjectId;
use weir_metadata::snapshot::Snapshot as MetadataSnapshot;
use weir_wire::capture_v1::BODY_PLAIN_MAX_BYTES;
use weir_wire::encoding::error::DecodeError;
use weir_wire::encoding::hints::Hints;
use weir_wire::encoding::{Decoded, Decoder};

/// Decoders that are kept in the pool.
const DECODERS_MAX: usize = 64;

/// Limit of a decoded body that is read from the log: above the limit that any setting allowed.
const REPLAY_PLAIN_MAX_BYTES: u64 = 1 << 32;

/// Bytes that any body may decode to before its permit grows: as much as one thread may use.
const UNPACKED_FREELY_BYTES: u64 = 8 << 20;

/// A request that is ready for the WAL.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) head: Vec<u8>,
    pub(super) body: Bytes,
    pub(super) prepared: Prepared,
}

/// Pooled decoders and the preparer, with their limits.
#[derive(Debug)]
pub struct Decoding {
    preparer: Preparer,
    places: Places,
    decoders: Mutex<Vec<Decoder>>,
    body_plain_max_bytes: u64,
}

impl Decoding {
    /// With the limits of `config`; `places` finds the places of addresses.
    pub fn new(config: &Config, places: Places) -> Self {
        Self {
            preparer: Preparer::default(),
            places,
            decoders: Mutex::new(Vec::new()),
            body_plain_max_bytes: config.http.body_plain_max_bytes.as_u64(),
        }
    }

    /// What building columns needs of a project.
    pub fn facts(&self, metadata: &MetadataSnapshot, project: ProjectId) -> ProjectFacts {
        ProjectFacts {
            id: project,
            group_types: metadata.group_types(project).to_vec(),
            anonymize_ips: metadata.project(project).is_some_and(|project| project.anonymize_ips),
            places: self.places.clone(),
        }
    }

    /// Decodes a body that was acknowledged, regardless of the current limits, and reads it into columns.
    /// Pure.
    ///
    /// # Errors
    ///
    /// The body cannot be decoded or read: no version of this program accepted it.
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

    /// Decodes within `permit`. A body that decodes to more than the permit covers is decoded again, with
    /// a permit for the whole limit.
    fn decode_within(
        &self,
        body: &Bytes,
        hints: &Hints,
        limit_bytes: u64,
        permit: &mut MemoryPermit,
    ) -> Result<Decoded, IngestError> {
        let first_bytes = limit_bytes.min(permit.bytes().max(UNPACKED_FREELY_BYTES));
        match self.decode(body.clone(), hints, first_bytes) {
            Err(DecodeError::TooLarge { .. }) if first_bytes < limit_bytes => {
                permit.cover(limit_bytes)?;
                Ok(self.decode(body.clone(), hints, limit_bytes)?)
            }
            decoded => Ok(decoded?),
        }
    }

    /// The project of a body, found by the token in it.
    ///
    /// # Errors
    ///
    /// As [`Decoding::ready`], but the events are not examined.
    pub(super) fn project_of(
        &self,
        body: &Bytes,
        hints: &Hints,
        metadata: &MetadataSnapshot,
        permit: &mut MemoryPermit,
    ) -> Result<ProjectId, IngestError> {
        let decoded = self.decode_within(body, hints, self.body_plain_max_bytes, permit)?;
        let project = |token: &str| Some(metadata.project_by_token(token)?.id);
        Ok(self.preparer.project_of(decoded.as_ref(), &project, permit)?)
    }

    /// Columns and log record of a request, if its body decodes to at most `plain_max_bytes` and to no
    /// more than the settings allow. Resizes `permit` to what they use.
    ///
    /// # Errors
    ///
    /// The body cannot be decoded or read, or other requests hold the memory that it needs.
    pub(super) fn ready(
        &self,
        request: &CaptureRequest,
        received: &Received,
        metadata: &MetadataSnapshot,
        plain_max_bytes: u64,
        permit: &mut MemoryPermit,
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
        let decoded = self.decode_within(&request.body, &request.hints, limit_bytes, permit)?;
        let decoded = decoded.into_vec();
        let plain_bytes = u64::try_from(decoded.len()).unwrap_or(u64::MAX);
        let mut prepared = self.preparer.prepare_within(decoded, received, &project, permit)?;
        permit.settle(plain_bytes, prepared.held_bytes())?;
        let log_record = LogRecord {
            project: prepared.project,
            received: received.clone(),
            anonymize_ips: prepared.anonymize_ips,
            places: std::mem::take(&mut prepared.places),
            hints: request.hints.clone(),
            body: request.body.clone(),
        };
        let (head, body) = log_record.encode();
        Ok(Ready { head, body, prepared })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;
    use clap::Parser;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::{Decoding, UNPACKED_FREELY_BYTES};
    use crate::budget::Budget;
    use crate::error::IngestError;
    use weir_base::config::Config;
    use weir_event::geoip::Places;
    use weir_wire::encoding::hints::{Hints, PathKind};

    const MIB: u64 = 1 << 20;

    #[derive(clap::Parser)]
    struct Settings {
        #[command(flatten)]
        config: Config,
    }

    fn zeros(mib: usize) -> Bytes {
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        (0..mib).for_each(|_| out.write_all(&[b' '; 1 << 20]).unwrap());
        out.finish().unwrap().into()
    }

    #[test]
    fn what_unpacks_to_more_than_it_seemed_to_needs_room_for_it() {
        let decoding = Decoding::new(&Settings::parse_from(["weir"]).config, Places::Unknown);
        let hints = Hints::new("", None, None, PathKind::Modern);
        let budget = Budget::new(50 * MIB);
        let decode = |body: &Bytes, limit_bytes: u64| {
            let mut permit = budget.admit(1).unwrap();
            let decoded = decoding.decode_within(body, &hints, limit_bytes, &mut permit)?;
            Ok::<_, IngestError>((decoded.as_ref().len(), permit.bytes()))
        };
        let (small, large) = (zeros(7), zeros(20));
        assert!(UNPACKED_FREELY_BYTES == 8 * MIB && large.len() < 1 << 20);
        assert_eq!(decode(&small, 30 * MIB).unwrap(), (7 << 20, 1024), "no need to look");
        assert_eq!(decode(&large, 30 * MIB).unwrap(), (20 << 20, 30 * MIB + 1024));
        assert!(matches!(decode(&large, 10 * MIB), Err(IngestError::Decode(_))));
        assert!(matches!(decode(&large, 5 * MIB), Err(IngestError::Decode(_))));
        let _others = budget.admit(30 * MIB).unwrap();
        assert_eq!(decode(&small, 30 * MIB).unwrap().0, 7 << 20);
        assert!(matches!(decode(&large, 30 * MIB), Err(IngestError::Overloaded(_))));
    }
}
