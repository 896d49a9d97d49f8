//! What `kafka-dump-log.sh` prints of a record's key and value, by the decoder that was asked for.

use crate::record::Record;

use super::record_json::{self, DecodeError, Json, Reader};

/// How keys and values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RecordDecoder {
    /// As text.
    #[default]
    Text,
    Offsets,
    TransactionLog,
    ClusterMetadata,
    ShareGroupState,
}

/// What is printed after `key: ` and ` payload: `.
pub(super) struct Printed {
    pub key: Option<String>,
    pub payload: Option<String>,
}

impl RecordDecoder {
    pub fn print(self, record: &Record) -> Printed {
        match self {
            RecordDecoder::Text => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                Printed {
                    key: record.key.as_deref().map(text),
                    payload: record.value.as_deref().map(text),
                }
            }
            RecordDecoder::ClusterMetadata => Printed {
                key: None,
                payload: Some(cluster_metadata(record)),
            },
            RecordDecoder::Offsets => coordinator(record, "group-coordinator", "offset topic"),
            RecordDecoder::TransactionLog => {
                coordinator(record, "transaction-coordinator", "transaction log")
            }
            RecordDecoder::ShareGroupState => {
                coordinator(record, "share-coordinator", "share group state topic")
            }
        }
    }
}

/// A control record of the quorum: its name and its JSON; `None` for kinds without one.
pub(super) fn quorum_control(name: &'static str, record: &Record) -> Option<String> {
    let schema = match name {
        "LEADER_CHANGE" => "LeaderChangeMessage",
        "SNAPSHOT_HEADER" => "SnapshotHeaderRecord",
        "SNAPSHOT_FOOTER" => "SnapshotFooterRecord",
        "KRAFT_VERSION" => "KRaftVersionRecord",
        "KRAFT_VOTERS" => "VotersRecord",
        _ => return None,
    };
    let printed = match name {
        "LEADER_CHANGE" => "LeaderChange:",
        "SNAPSHOT_HEADER" => "SnapshotHeader",
        "SNAPSHOT_FOOTER" => "SnapshotFooter",
        "KRAFT_VERSION" => "KRaftVersion",
        _ => "KRaftVoters",
    };
    // The version is the message's own first field.
    let value = record.value.as_deref()?;
    let version = Reader { rest: value }.i16().ok()?;
    let json = record_json::decode(record_json::by_name(schema)?, version, value);
    Some(match json {
        Ok(json) => format!("{printed} {}", json.text()),
        Err(error) => format!("{printed} {error}"),
    })
}

fn cluster_metadata(record: &Record) -> String {
    let decoded = || -> Result<String, DecodeError> {
        let mut reader = Reader {
            rest: record.value.as_deref().unwrap_or_default(),
        };
        let _frame_version = reader.unsigned_varint()?;
        let (key, version) = (reader.unsigned_varint()? as i16, reader.unsigned_varint()? as i16);
        let message = record_json::by_key("metadata", "metadata", key).ok_or(DecodeError::Version {
            name: format!("metadata record {key}"),
            version,
        })?;
        let data = record_json::decode(message, version, reader.rest)?;
        let fields = vec![
            (
                "type".to_owned(),
                Json::Text(record_json::screaming_snake(&message.name)),
            ),
            ("version".to_owned(), Json::Number(i64::from(version))),
            ("data".to_owned(), data),
        ];
        Ok(Json::Object(fields).text())
    };
    decoded().unwrap_or_else(|error| format!("Error at {}, skipping. {error}", record.offset))
}

fn coordinator(record: &Record, module: &str, topic: &str) -> Printed {
    let Some(key) = record.key.as_deref() else {
        let key = format!(
            "Failed to decode message at offset {} using {topic} decoder (message had a missing key)",
            record.offset
        );
        return Printed {
            key: Some(key),
            payload: None,
        };
    };
    let decoded = || -> Result<Printed, DecodeError> {
        let mut reader = Reader { rest: key };
        let record_type = reader.i16()?;
        let Some(schema) = record_json::by_key("coordinator-key", module, record_type) else {
            let key = format!(
                "Unknown record type {record_type} at offset {}, skipping.",
                record.offset
            );
            return Ok(Printed {
                key: Some(key),
                payload: None,
            });
        };
        let key = versioned("type", record_type, record_json::decode(schema, 0, reader.rest)?);
        let payload = match record.value.as_deref() {
            Some(value) => coordinator_value(module, record_type, value)?,
            None => "<DELETE>".to_owned(),
        };
        Ok(Printed {
            key: Some(key),
            payload: Some(payload),
        })
    };
    decoded().unwrap_or_else(|error| Printed {
        key: Some(format!("Error at offset {}, skipping. {error}", record.offset)),
        payload: None,
    })
}

fn coordinator_value(module: &str, record_type: i16, value: &[u8]) -> Result<String, DecodeError> {
    let mut reader = Reader { rest: value };
    let version = reader.i16()?;
    let schema =
        record_json::by_key("coordinator-value", module, record_type).ok_or(DecodeError::Version {
            name: format!("record type {record_type}"),
            version,
        })?;
    let mut json = record_json::decode(schema, version, reader.rest)?;
    match schema.name.as_str() {
        "GroupMetadataValue" => open_members(&mut json),
        "TransactionLogValue" => name_transaction_status(&mut json),
        _ => {}
    }
    Ok(versioned("version", version, json))
}

/// The number is a text there.
fn versioned(name: &str, number: i16, data: Json) -> String {
    Json::Object(vec![
        (name.to_owned(), Json::Text(number.to_string())),
        ("data".to_owned(), data),
    ])
    .text()
}

/// Members of a consumer group carry what the clients' own protocol says; what does not decode stays as bytes.
fn open_members(json: &mut Json) {
    if json.get_mut("protocolType") != Some(&mut Json::Text("consumer".to_owned())) {
        return;
    }
    let Some(Json::Array(members)) = json.get_mut("members") else {
        return;
    };
    for member in members {
        for (field, schema) in [
            ("subscription", "ConsumerProtocolSubscription"),
            ("assignment", "ConsumerProtocolAssignment"),
        ] {
            let Some(value) = member.get_mut(field) else {
                continue;
            };
            let Json::Bytes(bytes) = &*value else { continue };
            let mut reader = Reader { rest: bytes };
            let decoded = reader.i16().ok().and_then(|version| {
                record_json::decode_prefix(record_json::by_name(schema)?, version, &mut reader).ok()
            });
            if let Some(decoded) = decoded {
                *value = decoded;
            }
        }
    }
}

fn name_transaction_status(json: &mut Json) {
    const NAMES: &[&str] = &[
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ];
    if let Some(status) = json.get_mut("transactionStatus")
        && let Json::Number(number) = *status
        && let Some(name) = usize::try_from(number).ok().and_then(|number| NAMES.get(number))
    {
        *status = Json::Text((*name).to_owned());
    }
}
