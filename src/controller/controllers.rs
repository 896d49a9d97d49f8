//! ControllerRegistration: what each controller listens on and supports.
//!
//! Pure.

use super::shard::{Outcome, Shard};
use crate::protocol::messages::{ControllerRegistrationRequest, ControllerRegistrationResponse};
use crate::protocol::records::metadata::RegisterControllerRecord;
use crate::protocol::records::metadata::register_controller_record::{ControllerEndpoint, ControllerFeature};
use crate::protocol::{ApiError, ErrorCode};

impl Shard {
    pub fn register_controller(
        &self,
        request: &ControllerRegistrationRequest,
    ) -> Result<Outcome<ControllerRegistrationResponse>, ApiError> {
        if !self.metadata_version().is_controller_registration_supported() {
            return Err(ApiError::new(
                ErrorCode::UnsupportedVersion,
                "The current MetadataVersion is too old to support controller registrations.",
            ));
        }
        let listeners = request.listeners.iter().map(|listener| ControllerEndpoint {
            name: listener.name.clone(),
            host: listener.host.clone(),
            port: listener.port,
            security_protocol: listener.security_protocol,
            ..ControllerEndpoint::default()
        });
        let features = request.features.iter().map(|feature| ControllerFeature {
            name: feature.name.clone(),
            min_supported_version: feature.min_supported_version,
            max_supported_version: feature.max_supported_version,
            ..ControllerFeature::default()
        });
        let record = RegisterControllerRecord {
            controller_id: request.controller_id,
            incarnation_id: request.incarnation_id,
            zk_migration_ready: false,
            end_points: listeners.collect(),
            features: features.collect(),
            ..RegisterControllerRecord::default()
        };
        let mut response = ControllerRegistrationResponse::default();
        response.error_message = None;
        Ok(Outcome::atomic(vec![(record.into(), 0)], response))
    }
}
