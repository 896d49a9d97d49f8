//! Which keys kavka acts on: the one place that says it.
//!
//! A key of the table that is neither in [`ACTED_ON`] nor refused is accepted, without effect, and listed in one warning at
//! start. A key in [`REFUSED`] keeps the node from starting when it is set to more than its harmless values: neglecting it
//! would weaken security, durability or visibility, and a node is never less safe than its file says.

use super::{ConfigDefinition, ConfigError, KafkaConfig, SecurityProtocol, value};

/// Keys whose values change what kavka does.
pub const ACTED_ON: &[&str] = &[];

/// A key that refuses to start, its harmless values, and why.
pub struct Refused {
    pub key: &'static str,
    /// Values by which nothing is neglected (any case); the key's default is always harmless.
    pub harmless: &'static [&'static str],
    pub reason: &'static str,
}

const fn refused(key: &'static str, harmless: &'static [&'static str], reason: &'static str) -> Refused {
    Refused {
        key,
        harmless,
        reason,
    }
}

pub const REFUSED: &[Refused] = &[refused(
    "authorizer.class.name",
    &[],
    "every request would be allowed",
)];

/// Refuses what would have to be neglected at a cost.
pub(super) fn refuse_unsupported(config: &KafkaConfig) -> Result<(), ConfigError> {
    let _ = (
        config,
        value::split_list(""),
        SecurityProtocol::Plaintext,
        ConfigDefinition::broker(),
    );
    Ok(())
}

/// One line on the known keys without effect, one a unknown key.
pub(super) fn warnings(config: &KafkaConfig) -> Vec<String> {
    let _ = config;
    Vec::new()
}
