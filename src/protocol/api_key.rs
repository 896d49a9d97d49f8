//! The API keys of Kafka 4.4 with their versions. Which of them kavka serves is the router table's to say.

use std::ops::RangeInclusive;

/// What Kafka 4.4 says about an API.
#[derive(Debug, Clone, Copy)]
pub struct ApiKeyInfo {
    pub key: ApiKey,
    pub name: &'static str,
    pub min_version: i16,
    pub max_version: i16,
    /// `i16::MAX` if no version is flexible.
    pub first_flexible_version: i16,
    pub latest_version_unstable: bool,
    pub on_broker: bool,
    pub on_controller: bool,
    /// A broker passes the request on to the active controller.
    pub forwardable: bool,
}

include!(concat!(env!("OUT_DIR"), "/api_keys.rs"));

impl ApiKey {
    /// All keys in ascending order.
    pub fn all() -> impl Iterator<Item = ApiKey> {
        TABLE.iter().map(|info| info.key)
    }

    pub fn from_code(code: i16) -> Option<ApiKey> {
        TABLE
            .binary_search_by_key(&code, |info| info.key as i16)
            .ok()
            .map(|index| TABLE[index].key)
    }

    pub fn code(self) -> i16 {
        self as i16
    }

    pub fn info(self) -> &'static ApiKeyInfo {
        match TABLE.binary_search_by_key(&(self as i16), |info| info.key as i16) {
            Ok(index) => &TABLE[index],
            // Every variant has its row: both come from one list.
            Err(_) => unreachable!("no row for {self:?}"),
        }
    }

    pub fn name(self) -> &'static str {
        self.info().name
    }

    pub fn valid_versions(self) -> RangeInclusive<i16> {
        self.info().min_version..=self.info().max_version
    }

    pub fn is_flexible(self, version: i16) -> bool {
        version >= self.info().first_flexible_version
    }

    pub fn request_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// An ApiVersions response never has a flexible header (KIP-511).
    pub fn response_header_version(self, version: i16) -> i16 {
        i16::from(self != ApiKey::ApiVersions && self.is_flexible(version))
    }

    pub fn is_forwardable(self) -> bool {
        self.info().forwardable
    }
}
