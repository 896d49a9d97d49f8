//! `metadata.version` and what each level allows (KIP-584, KIP-778): record versions and gates.
//!
//! Pure. The one place that maps a level to record versions; nobody else compares level numbers.

/// A finalized `metadata.version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetadataVersion(pub i16);

impl MetadataVersion {
    pub const FEATURE_NAME: &'static str = "metadata.version";
    /// 3.3-IV3, the lowest that Kafka 4.x serves.
    pub const MINIMUM: Self = Self(7);
    /// 4.4-IV2.
    pub const LATEST_PRODUCTION: Self = Self(33);

    pub const fn level(self) -> i16 {
        self.0
    }

    /// Whether a level above `low` up to `high` brought new records or fields: `high` cannot be lowered to `low` then.
    pub fn has_changed_metadata_between(low: i16, high: i16) -> bool {
        const CHANGED: [i16; 10] = [8, 11, 13, 14, 15, 17, 23, 30, 32, 33];
        CHANGED.iter().any(|level| low < *level && *level <= high)
    }

    pub fn is_scram_supported(self) -> bool {
        self.0 >= 11
    }

    /// Below it, every ISR shrink bumps the leader epoch.
    pub fn is_leader_epoch_bump_on_isr_shrink_needed(self) -> bool {
        self.0 < 12
    }

    pub fn is_metadata_transaction_supported(self) -> bool {
        self.0 >= 13
    }

    pub fn is_delegation_token_supported(self) -> bool {
        self.0 >= 14
    }

    pub fn is_controller_registration_supported(self) -> bool {
        self.0 >= 15
    }

    pub fn is_directory_assignment_supported(self) -> bool {
        self.0 >= 17
    }

    /// The first level with eligible leader replicas.
    pub const ELR_MINIMUM: Self = Self(23);

    pub fn is_elr_supported(self) -> bool {
        self >= Self::ELR_MINIMUM
    }

    pub fn is_cordoned_log_dirs_supported(self) -> bool {
        self.0 >= 30
    }

    pub fn is_controller_unregistration_supported(self) -> bool {
        self.0 >= 33
    }

    pub fn register_broker_record_version(self) -> i16 {
        match self.0 {
            30.. => 4,
            17..30 => 3,
            8..17 => 2,
            _ => 1,
        }
    }

    /// Of PartitionRecord and PartitionChangeRecord both.
    pub fn partition_record_version(self) -> i16 {
        match self.0 {
            23.. => 2,
            17..23 => 1,
            _ => 0,
        }
    }
}

/// Name of the feature of KIP-966.
pub const ELIGIBLE_LEADER_REPLICAS_VERSION: &str = "eligible.leader.replicas.version";
/// Name of the feature of consumer groups (KIP-848).
pub const GROUP_VERSION: &str = "group.version";
/// Name of the feature that lives in control records only (KIP-853).
pub const KRAFT_VERSION: &str = "kraft.version";
/// Name of the feature that says what producers' transactions are like (KIP-890).
pub const TRANSACTION_VERSION: &str = "transaction.version";
