//! Endpoints of a node: `listeners`, `advertised.listeners`, `listener.security.protocol.map`, and the lists of controllers.
//!
//! Names of listeners are upper case, as Kafka normalises them. An empty host means every interface (Kafka's null).

use std::collections::BTreeMap;
use std::fmt;

use super::ConfigError;

/// How a listener's connections are secured; the numbers are those of the metadata records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum SecurityProtocol {
    Plaintext = 0,
    Ssl = 1,
    SaslPlaintext = 2,
    SaslSsl = 3,
}

impl SecurityProtocol {
    pub fn id(self) -> i16 {
        self as i16
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Ssl => "SSL",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
        }
    }

    /// Any case, as `SecurityProtocol.forName`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Plaintext, Self::Ssl, Self::SaslPlaintext, Self::SaslSsl]
            .into_iter()
            .find(|protocol| protocol.name().eq_ignore_ascii_case(name))
    }
}

/// One listener with its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub listener_name: String,
    pub security_protocol: SecurityProtocol,
    /// Empty: every interface.
    pub host: String,
    /// 0 only in `listeners`: the system picks one.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(
                formatter,
                "{}://[{}]:{}",
                self.listener_name, self.host, self.port
            )
        } else {
            write!(formatter, "{}://{}:{}", self.listener_name, self.host, self.port)
        }
    }
}

/// One of `controller.quorum.voters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumVoter {
    pub id: i32,
    pub host: String,
    pub port: u16,
}

/// The names of `listener.security.protocol.map`, upper case, each with its protocol.
pub type SecurityProtocolMap = BTreeMap<String, SecurityProtocol>;

/// Parses `listener.security.protocol.map`.
pub fn parse_security_protocol_map(entries: &[String]) -> Result<SecurityProtocolMap, ConfigError> {
    const KEY: &str = "listener.security.protocol.map";
    let mut map = SecurityProtocolMap::new();
    for entry in entries {
        let (name, protocol) = entry.rsplit_once(':').ok_or_else(|| {
            ConfigError::invalid(
                KEY,
                entry,
                "Each entry should be in the form `{listener}:{protocol}`",
            )
        })?;
        let protocol = SecurityProtocol::from_name(protocol.trim()).ok_or_else(|| {
            ConfigError::rule(format!(
                "Invalid security protocol `{}` defined in {KEY}",
                protocol.trim()
            ))
        })?;
        map.insert(name.trim().to_uppercase(), protocol);
    }
    Ok(map)
}

/// Parses the list of `listeners` or `advertised.listeners`; `key` names it in messages.
pub fn parse_endpoints(
    key: &str,
    entries: &[String],
    map: &SecurityProtocolMap,
) -> Result<Vec<Endpoint>, ConfigError> {
    let refuse = |expected: String| {
        Err(ConfigError::invalid(
            key,
            format!("[{}]", entries.join(", ")),
            expected,
        ))
    };
    let mut endpoints: Vec<Endpoint> = Vec::with_capacity(entries.len());
    for entry in entries {
        let Some((name, host, port)) = split_endpoint(entry) else {
            return refuse(format!(
                "Unable to parse {entry} to a broker endpoint: expected NAME://host:port"
            ));
        };
        let Ok(port) = u16::try_from(port) else {
            return refuse(format!("{entry} has a port that is not between 0 and 65535"));
        };
        let listener_name = name.to_uppercase();
        let Some(security_protocol) = map.get(&listener_name).copied() else {
            return refuse(format!(
                "No security protocol defined for listener {listener_name}"
            ));
        };
        endpoints.push(Endpoint {
            listener_name,
            security_protocol,
            host,
            port,
        });
    }
    if has_duplicate(endpoints.iter().map(|endpoint| &endpoint.listener_name)) {
        return refuse("Each listener must have a different name".to_owned());
    }
    Ok(endpoints)
}

/// `listeners` binds each of its ports, so they must differ (0 lets the system pick).
pub fn require_different_ports(key: &str, endpoints: &[Endpoint]) -> Result<(), ConfigError> {
    let is_v4 = |endpoint: &Endpoint| endpoint.host.parse::<std::net::Ipv4Addr>().is_ok();
    let is_v6 = |endpoint: &Endpoint| endpoint.host.parse::<std::net::Ipv6Addr>().is_ok();
    for (index, endpoint) in endpoints
        .iter()
        .enumerate()
        .filter(|(_, endpoint)| endpoint.port != 0)
    {
        for other in endpoints[index + 1..]
            .iter()
            .filter(|other| other.port == endpoint.port)
        {
            let share_by_family = (is_v4(endpoint) && is_v6(other)) || (is_v6(endpoint) && is_v4(other));
            if !share_by_family {
                let text: Vec<String> = endpoints.iter().map(Endpoint::to_string).collect();
                return Err(ConfigError::invalid(
                    key,
                    format!("[{}]", text.join(", ")),
                    "Each listener must have a different port",
                ));
            }
        }
    }
    Ok(())
}

/// Parses `controller.quorum.voters`.
pub fn parse_quorum_voters(entries: &[String]) -> Result<Vec<QuorumVoter>, ConfigError> {
    const KEY: &str = "controller.quorum.voters";
    const FORM: &str = "Each entry should be in the form `{id}@{host}:{port}`.";
    let mut voters: BTreeMap<i32, QuorumVoter> = BTreeMap::new();
    for entry in entries {
        let (id, address) = entry
            .split_once('@')
            .ok_or_else(|| ConfigError::rule(format!("Invalid configuration value for {KEY}. {FORM}")))?;
        let id = id.trim().parse().map_err(|_| {
            ConfigError::rule(format!(
                "Failed to parse voter ID as an integer from {} for {KEY}. {FORM}",
                id.trim()
            ))
        })?;
        let (host, port) = parse_host_port(address).ok_or_else(|| {
            ConfigError::rule(format!(
                "Failed to parse host name from entry {entry} for the configuration {KEY}. {FORM}"
            ))
        })?;
        if host == "0.0.0.0" {
            return Err(ConfigError::rule(format!(
                "Host string ({host}) is not routeable (in {KEY}={entry})"
            )));
        }
        voters.insert(id, QuorumVoter { id, host, port });
    }
    Ok(voters.into_values().collect())
}

/// Parses `controller.quorum.bootstrap.servers`.
pub fn parse_bootstrap_servers(entries: &[String]) -> Result<Vec<(String, u16)>, ConfigError> {
    const KEY: &str = "controller.quorum.bootstrap.servers";
    entries
        .iter()
        .map(|entry| {
            parse_host_port(entry).ok_or_else(|| {
                ConfigError::rule(format!(
                    "Failed to parse host name from {entry} for the configuration {KEY}. \
                     Each entry should be in the form \"{{host}}:{{port}}\""
                ))
            })
        })
        .collect()
}

/// `host:port` or `[v6]:port`.
pub fn parse_host_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = split_host_port(text.trim())?;
    let port = u16::try_from(port).ok()?;
    if host.is_empty() { None } else { Some((host, port)) }
}

/// What a node registers: an unset host is the machine's name, port 0 the port that its listener was bound to.
pub fn resolve_advertised(
    endpoints: &[Endpoint],
    bound_port: impl Fn(&str) -> Option<u16>,
    host_name: &str,
) -> Vec<Endpoint> {
    endpoints
        .iter()
        .map(|endpoint| {
            let mut resolved = endpoint.clone();
            if resolved.host.is_empty() {
                resolved.host = host_name.to_owned();
            }
            if resolved.port == 0 {
                resolved.port = bound_port(&resolved.listener_name).unwrap_or(0);
            }
            resolved
        })
        .collect()
}

fn split_endpoint(entry: &str) -> Option<(&str, String, i64)> {
    let (name, address) = entry.split_once("://")?;
    if name.is_empty() {
        return None;
    }
    let (host, port) = split_host_port(address)?;
    Some((name, host, port))
}

fn split_host_port(text: &str) -> Option<(String, i64)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None if host.contains(':') && host.parse::<std::net::Ipv6Addr>().is_err() => return None,
        None => host,
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
    host.bytes().all(is_host).then(|| (host.to_owned(), port))
}

fn has_duplicate<T: PartialEq>(items: impl Iterator<Item = T>) -> bool {
    let items: Vec<T> = items.collect();
    items
        .iter()
        .enumerate()
        .any(|(index, item)| items[index + 1..].contains(item))
}
