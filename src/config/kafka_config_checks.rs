//! What keys must be to each other (Kafka's `KafkaConfig.validateValues`), once each is valid by itself.

use super::super::group_bounds;
use super::*;

impl KafkaConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let log = &self.log_config;
        require(log.segment_ms >= 1, || {
            "log.roll.ms must be greater than or equal to 1".to_owned()
        })?;
        require(log.segment_jitter_ms >= 0, || {
            "log.roll.jitter.ms must be greater than or equal to 0".to_owned()
        })?;
        require(log.retention_ms >= 1 || log.retention_ms == -1, || {
            "log.retention.ms must be unlimited (-1) or, greater than or equal to 1".to_owned()
        })?;
        group_bounds::check(|key| self.sources.typed(key), |key| self.sources.typed(key))?;
        let cleaner_threads: i32 = self.sources.typed("log.cleaner.threads")?;
        let dedupe_buffer_size: i64 = self.sources.typed("log.cleaner.dedupe.buffer.size")?;
        require(
            dedupe_buffer_size / i64::from(cleaner_threads.max(1)) > 1024 * 1024,
            || "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.".to_owned(),
        )?;
        require(
            self.replica_fetch_wait_max_ms <= self.replica_socket_timeout_ms,
            || {
                "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary \
             socket timeouts"
                .to_owned()
            },
        )?;
        require(
            i64::from(self.replica_fetch_wait_max_ms) <= self.replica_lag_time_max_ms,
            || {
                "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent \
             frequent changes in ISR"
                .to_owned()
            },
        )?;
        self.check_quorum()?;
        self.check_listeners()?;
        self.check_connections()?;
        self.check_log_dirs()
    }

    fn check_quorum(&self) -> Result<(), ConfigError> {
        let voter_ids: Vec<i32> = self
            .controller_quorum_voters
            .iter()
            .map(|voter| voter.id)
            .collect();
        let ids_text = || {
            voter_ids
                .iter()
                .map(i32::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        require(
            !voter_ids.is_empty() || !self.controller_quorum_bootstrap_servers.is_empty(),
            || {
                "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap \
             controllers or controller.quorum.voters must contain a parseable set of controllers."
                .to_owned()
            },
        )?;
        if self.is_controller() {
            require(voter_ids.is_empty() || voter_ids.contains(&self.node_id), || {
                format!(
                    "If process.roles contains the 'controller' role, the node id {} must be included in the set of \
                     voters controller.quorum.voters=Set({})",
                    self.node_id,
                    ids_text()
                )
            })
        } else {
            require(!voter_ids.contains(&self.node_id), || {
                format!(
                    "If process.roles contains just the 'broker' role, the node id {} must not be included in the set \
                     of voters controller.quorum.voters=Set({})",
                    self.node_id,
                    ids_text()
                )
            })?;
            require(!self.controller_quorum_auto_join_enable, || {
                "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' \
                 role."
                .to_owned()
            })
        }
    }

    fn check_listeners(&self) -> Result<(), ConfigError> {
        let bound: Vec<&str> = self
            .listeners
            .iter()
            .map(|endpoint| endpoint.listener_name.as_str())
            .collect();
        if self.is_controller() {
            if !self.is_broker() {
                require(self.broker_listeners().next().is_none(), || {
                    "The listeners config must only contain KRaft controller listeners from \
                     controller.listener.names when process.roles=controller"
                        .to_owned()
                })?;
            }
            require(!self.advertised_controller_listeners.is_empty(), || {
                "controller.listener.names must contain at least one value appearing in the 'listeners' \
                 configuration when running the KRaft controller role"
                    .to_owned()
            })?;
            require(
                self.controller_listener_names
                    .iter()
                    .all(|name| bound.contains(&name.as_str())),
                || {
                    "controller.listener.names must only contain values appearing in the 'listeners' configuration when \
                 running the KRaft controller role"
                    .to_owned()
                },
            )?;
        } else {
            require(self.controller_listeners().next().is_none(), || {
                "controller.listener.names must not contain a value appearing in the 'listeners' configuration when \
                 running KRaft with just the broker role"
                    .to_owned()
            })?;
            for name in &self.controller_listener_names {
                require(self.listener_security_protocol_map.contains_key(name), || {
                    format!(
                        "Controller listener with name {name} defined in controller.listener.names not found in \
                         listener.security.protocol.map  (an explicit security mapping for each controller listener \
                         is required if listener.security.protocol.map is non-empty, or if there are security \
                         protocols other than PLAINTEXT in use)"
                    )
                })?;
            }
        }
        if self.is_broker() {
            self.check_advertised_broker_listeners(&bound)?;
        }
        let mut advertised = self
            .advertised_broker_listeners
            .iter()
            .chain(&self.advertised_controller_listeners);
        require(advertised.all(|endpoint| endpoint.host != "0.0.0.0"), || {
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
                .to_owned()
        })?;
        self.check_early_start_listeners(&bound)
    }

    fn check_advertised_broker_listeners(&self, bound: &[&str]) -> Result<(), ConfigError> {
        let advertised: Vec<&str> = self
            .advertised_broker_listeners
            .iter()
            .map(|endpoint| endpoint.listener_name.as_str())
            .collect();
        require(!advertised.is_empty(), || {
            "There must be at least one broker advertised listener. Perhaps all listeners appear in \
             controller.listener.names?"
                .to_owned()
        })?;
        require(
            advertised.contains(&self.inter_broker_listener_name.as_str()),
            || {
                format!(
                    "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid \
                 options based on currently configured listeners are {}",
                    advertised.join(",")
                )
            },
        )?;
        require(advertised.iter().all(|name| bound.contains(name)), || {
            format!(
                "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. \
                 Found {}. The valid options based on the current configuration are {}",
                advertised.join(","),
                bound.join(",")
            )
        })
    }

    fn check_early_start_listeners(&self, bound: &[&str]) -> Result<(), ConfigError> {
        let early: Option<Vec<String>> = self.sources.typed("early.start.listeners")?;
        for name in early.unwrap_or_default().iter().map(|name| name.to_uppercase()) {
            require(
                bound.contains(&name.as_str()) || self.controller_listener_names.contains(&name),
                || {
                    format!(
                        "early.start.listeners contains listener {name}, but this is not contained in listeners or \
                     controller.listener.names"
                    )
                },
            )?;
        }
        Ok(())
    }

    fn check_connections(&self) -> Result<(), ConfigError> {
        let queued = self.queued_max_request_bytes;
        require(
            queued <= 0 || queued >= i64::from(self.socket_request_max_bytes),
            || "queued.max.request.bytes must be larger or equal to socket.request.max.bytes".to_owned(),
        )?;
        require(
            self.max_connections_per_ip != 0 || !self.max_connections_per_ip_overrides.is_empty(),
            || {
                "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
                .to_owned()
            },
        )?;
        let delay_ms: i32 = self.sources.typed("connection.failed.authentication.delay.ms")?;
        let idle_ms = self.connections_max_idle_ms;
        require(idle_ms < 0 || i64::from(delay_ms) < idle_ms, || {
            format!(
                "connection.failed.authentication.delay.ms={delay_ms} should always be less than \
                 connections.max.idle.ms={idle_ms} to prevent failed authentication responses from timing out"
            )
        })?;
        let protocols: Vec<String> = self.sources.typed("group.coordinator.rebalance.protocols")?;
        require(protocols.iter().any(|protocol| protocol == "classic"), || {
            "Disabling the 'classic' protocol is not supported.".to_owned()
        })?;
        require((0..=4).contains(&self.offsets_topic_compression_codec), || {
            format!(
                "Unknown compression type id: {}",
                self.offsets_topic_compression_codec
            )
        })
    }

    fn check_log_dirs(&self) -> Result<(), ConfigError> {
        let cordoned: Vec<String> = self.sources.typed("cordoned.log.dirs")?;
        let missing: Vec<&str> = cordoned
            .iter()
            .map(String::as_str)
            .filter(|dir| *dir != "*" && !self.log_dirs.iter().any(|log_dir| log_dir == Path::new(dir)))
            .collect();
        require(missing.is_empty(), || {
            format!(
                "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : {}",
                missing.join(", ")
            )
        })
    }
}

fn require(holds: bool, message: impl FnOnce() -> String) -> Result<(), ConfigError> {
    if holds {
        Ok(())
    } else {
        Err(ConfigError::Requirement { message: message() })
    }
}
