//! How many connections there may be: `max.connections` in all, `max.connections.per.ip` from one address (Kafka's `ConnectionQuotas`).
//!
//! Over the address's limit a connection is closed at once; over the total the accept loop waits for one to end, except on
//! the inter-broker listener when there are others: brokers must always reach each other.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::NetworkError;

#[derive(Debug)]
pub struct ConnectionQuota {
    per_ip_max: usize,
    per_ip_overrides: HashMap<IpAddr, usize>,
    per_ip: Mutex<HashMap<IpAddr, usize>>,
    /// `None`: no limit that a machine could reach.
    total: Option<Arc<Semaphore>>,
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
pub struct ConnectionSlot {
    quota: Arc<ConnectionQuota>,
    address: IpAddr,
    _total: Option<OwnedSemaphorePermit>,
}

impl ConnectionQuota {
    pub fn new(max_connections: i32, per_ip_max: i32, overrides: &str) -> Result<Arc<Self>, NetworkError> {
        let max_connections = usize::try_from(max_connections).unwrap_or(0);
        Ok(Arc::new(Self {
            per_ip_max: usize::try_from(per_ip_max).unwrap_or(0),
            per_ip_overrides: parse_overrides(overrides)?,
            per_ip: Mutex::default(),
            total: (max_connections < i32::MAX as usize).then(|| Arc::new(Semaphore::new(max_connections))),
        }))
    }

    fn limit_of(&self, address: IpAddr) -> usize {
        self.per_ip_overrides
            .get(&address)
            .copied()
            .unwrap_or(self.per_ip_max)
    }

    /// A place for a connection from `address`, waiting for the total unless `is_protected`; the error is the address's limit.
    pub async fn admit(
        self: &Arc<Self>,
        address: IpAddr,
        is_protected: bool,
    ) -> Result<ConnectionSlot, usize> {
        let total = match &self.total {
            Some(total) if !is_protected => total.clone().acquire_owned().await.ok(),
            _ => None,
        };
        let limit = self.limit_of(address);
        let mut per_ip = self.per_ip.lock().unwrap_or_else(PoisonError::into_inner);
        let count = per_ip.entry(address).or_default();
        if *count >= limit {
            if *count == 0 {
                per_ip.remove(&address);
            }
            return Err(limit);
        }
        *count += 1;
        Ok(ConnectionSlot {
            quota: self.clone(),
            address,
            _total: total,
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut per_ip = self.quota.per_ip.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = per_ip.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                per_ip.remove(&self.address);
            }
        }
    }
}

/// `host:count,...`; host names stand for all their addresses.
fn parse_overrides(text: &str) -> Result<HashMap<IpAddr, usize>, NetworkError> {
    let mut overrides = HashMap::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let failed = |reason: &str| NetworkError::PerIpOverride {
            entry: entry.to_owned(),
            reason: reason.to_owned(),
        };
        let (host, count) = entry
            .rsplit_once(':')
            .ok_or_else(|| failed("expected host:count"))?;
        let count = count
            .trim()
            .parse()
            .map_err(|_| failed("the count is not a number"))?;
        let host = host.trim().trim_start_matches('[').trim_end_matches(']');
        let addresses = (host, 0u16)
            .to_socket_addrs()
            .map_err(|error| failed(&error.to_string()))?;
        overrides.extend(addresses.map(|address| (address.ip().to_canonical(), count)));
    }
    Ok(overrides)
}

#[cfg(test)]
mod connection_quota_test {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn address_at_its_limit_is_refused_until_a_slot_is_dropped() {
        let quota = ConnectionQuota::new(i32::MAX, 2, "127.0.0.2:1").unwrap();
        let first = quota.admit(ip("127.0.0.1"), false).await.unwrap();
        let _second = quota.admit(ip("127.0.0.1"), false).await.unwrap();
        assert_eq!(quota.admit(ip("127.0.0.1"), false).await.unwrap_err(), 2);
        let _other = quota.admit(ip("127.0.0.2"), false).await.unwrap();
        assert_eq!(quota.admit(ip("127.0.0.2"), false).await.unwrap_err(), 1);
        drop(first);
        assert!(quota.admit(ip("127.0.0.1"), false).await.is_ok());
    }

    #[tokio::test]
    async fn total_reached_waits_but_not_on_the_protected_listener() {
        let quota = ConnectionQuota::new(1, i32::MAX, "").unwrap();
        let only = quota.admit(ip("127.0.0.1"), false).await.unwrap();
        let waiting = quota.admit(ip("127.0.0.1"), false);
        tokio::pin!(waiting);
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("admitted over the total"),
            slot = quota.admit(ip("127.0.0.1"), true) => assert!(slot.is_ok()),
        }
        drop(only);
        assert!(waiting.await.is_ok());
    }

    #[test]
    fn override_without_a_count_is_refused() {
        assert!(ConnectionQuota::new(1, 1, "127.0.0.1").is_err());
        assert!(ConnectionQuota::new(1, 1, "127.0.0.1:x").is_err());
    }
}
