//! What the active controller knows of brokers beyond the log: sessions, how far they have read, who is on the way out.
//!
//! Pure: times are handed in (monotonic milliseconds). This is soft state (`BrokerHeartbeatManager`): it begins anew with
//! each leadership, from the registrations. It never decides anything about partitions.
//!
//! ```text
//! FENCED --caught up, does not want to be fenced--> UNFENCED --wants fence or session over--> FENCED
//! FENCED --wants shut down--> SHUTDOWN_NOW          UNFENCED --wants shut down, leads nothing--> SHUTDOWN_NOW
//! UNFENCED --wants shut down, leads partitions--> CONTROLLED_SHUTDOWN
//! CONTROLLED_SHUTDOWN --leads nothing, and every active broker has read past its shutdown offset--> SHUTDOWN_NOW
//! ```

use std::collections::BTreeMap;

/// `BrokerControlState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerControlState {
    Fenced,
    Unfenced,
    ControlledShutdown,
    ShutdownNow,
}

impl BrokerControlState {
    pub fn is_fenced(self) -> bool {
        matches!(self, Self::Fenced | Self::ShutdownNow)
    }
}

/// What a heartbeat says.
#[derive(Debug, Clone, Copy)]
pub struct HeartbeatWish {
    pub current_metadata_offset: i64,
    pub want_fence: bool,
    pub want_shut_down: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BrokerHeartbeatState {
    fenced: bool,
    metadata_offset: i64,
    /// Log end when it entered controlled shutdown.
    controlled_shutdown_offset: Option<i64>,
}

/// All brokers with soft state.
#[derive(Debug, Clone)]
pub struct Heartbeats {
    session_timeout_ms: i64,
    brokers: BTreeMap<i32, BrokerHeartbeatState>,
    /// Last contact, by broker and its epoch: a heartbeat of an older incarnation keeps no newer one alive.
    contacts: BTreeMap<(i32, i64), i64>,
}

impl Heartbeats {
    pub fn new(session_timeout_ms: i64) -> Self {
        Self {
            session_timeout_ms,
            brokers: BTreeMap::new(),
            contacts: BTreeMap::new(),
        }
    }

    /// A registration was decided, or found at activation.
    pub fn register(&mut self, broker_id: i32, fenced: bool) {
        let metadata_offset = match self.brokers.get(&broker_id) {
            Some(broker) if broker.fenced != fenced => broker.metadata_offset,
            Some(_) | None => -1,
        };
        self.touch(broker_id, fenced, metadata_offset);
    }

    pub fn remove(&mut self, broker_id: i32) {
        self.brokers.remove(&broker_id);
    }

    /// A heartbeat was answered.
    pub fn touch(&mut self, broker_id: i32, fenced: bool, metadata_offset: i64) {
        let broker = self.brokers.entry(broker_id).or_insert(BrokerHeartbeatState {
            fenced,
            metadata_offset,
            controlled_shutdown_offset: None,
        });
        broker.fenced = fenced;
        broker.metadata_offset = metadata_offset;
        if fenced {
            // A fenced broker leaves controlled shutdown; its next heartbeat lets it go at once.
            broker.controlled_shutdown_offset = None;
        }
    }

    pub fn fence(&mut self, broker_id: i32) {
        if let Some(broker) = self.brokers.get_mut(&broker_id) {
            broker.fenced = true;
        }
    }

    /// Remembers once where the log ended when the broker entered controlled shutdown.
    pub fn maybe_set_controlled_shutdown_offset(&mut self, broker_id: i32, offset: i64) {
        if let Some(broker) = self.brokers.get_mut(&broker_id)
            && !broker.fenced
        {
            broker.controlled_shutdown_offset.get_or_insert(offset);
        }
    }

    pub fn is_shutting_down(&self, broker_id: i32) -> bool {
        self.brokers
            .get(&broker_id)
            .is_some_and(|broker| broker.controlled_shutdown_offset.is_some())
    }

    pub fn update_contact_time(&mut self, broker_id: i32, broker_epoch: i64, now_ms: i64) {
        self.contacts.insert((broker_id, broker_epoch), now_ms);
    }

    pub fn has_valid_session(&self, broker_id: i32, broker_epoch: i64, now_ms: i64) -> bool {
        self.contacts
            .get(&(broker_id, broker_epoch))
            .is_some_and(|contact| !self.is_expired(*contact, now_ms))
    }

    fn is_expired(&self, contact_ms: i64, now_ms: i64) -> bool {
        contact_ms + self.session_timeout_ms < now_ms
    }

    /// Forgets one contact that is too old, and says whose.
    pub fn maybe_remove_expired(&mut self, now_ms: i64) -> Option<(i32, i64)> {
        let expired = self
            .contacts
            .iter()
            .find(|(_, contact)| self.is_expired(**contact, now_ms))
            .map(|(broker, _)| *broker)?;
        self.contacts.remove(&expired);
        Some(expired)
    }

    /// The lowest offset that any active broker has read up to.
    fn lowest_active_offset(&self) -> i64 {
        self.brokers
            .values()
            .filter(|broker| !broker.fenced && broker.controlled_shutdown_offset.is_none())
            .map(|broker| broker.metadata_offset)
            .min()
            .unwrap_or(i64::MAX)
    }

    fn current_state(broker: &BrokerHeartbeatState) -> BrokerControlState {
        if broker.controlled_shutdown_offset.is_some() {
            BrokerControlState::ControlledShutdown
        } else if broker.fenced {
            BrokerControlState::Fenced
        } else {
            BrokerControlState::Unfenced
        }
    }

    /// The state the broker is in and the one its heartbeat leads to; `None` for a broker without soft state.
    pub fn next_state(
        &self,
        broker_id: i32,
        wish: HeartbeatWish,
        register_broker_record_offset: i64,
        has_leaderships: bool,
    ) -> Option<(BrokerControlState, BrokerControlState)> {
        let broker = self.brokers.get(&broker_id)?;
        let current = Self::current_state(broker);
        let next = match current {
            BrokerControlState::Fenced if wish.want_shut_down => BrokerControlState::ShutdownNow,
            BrokerControlState::Fenced
                if !wish.want_fence && wish.current_metadata_offset >= register_broker_record_offset =>
            {
                BrokerControlState::Unfenced
            }
            BrokerControlState::Fenced => BrokerControlState::Fenced,
            BrokerControlState::Unfenced => match (wish.want_fence, wish.want_shut_down) {
                (true, true) => BrokerControlState::ShutdownNow,
                (true, false) => BrokerControlState::Fenced,
                (false, true) if has_leaderships => BrokerControlState::ControlledShutdown,
                (false, true) => BrokerControlState::ShutdownNow,
                (false, false) => BrokerControlState::Unfenced,
            },
            BrokerControlState::ControlledShutdown => {
                let reached = broker
                    .controlled_shutdown_offset
                    .is_some_and(|offset| offset <= self.lowest_active_offset());
                if !has_leaderships && reached {
                    BrokerControlState::ShutdownNow
                } else {
                    BrokerControlState::ControlledShutdown
                }
            }
            BrokerControlState::ShutdownNow => BrokerControlState::ShutdownNow,
        };
        Some((current, next))
    }
}

#[cfg(test)]
#[path = "heartbeats_test.rs"]
mod heartbeats_test;
