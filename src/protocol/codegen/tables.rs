//! Emits static tables: the layout of every message, the API key and error code enums, and what the unit tests loop over.

use super::schema::{Message, Type, Versions};
use super::{screaming, snake};
use std::fmt::Write as _;

macro_rules! line {
    ($out:expr, $($arg:tt)*) => { let _ = writeln!($out, $($arg)*); };
}

/// Requests that a broker passes on to the active controller (Kafka's `ApiKeys.forwardable`).
const FORWARDABLE: &[i16] = &[
    19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 64, 67, 80, 81, 94,
];

fn static_name(message: &str, name: &str) -> String {
    if message == name {
        screaming(message)
    } else {
        format!("{}__{}", screaming(message), screaming(name))
    }
}

fn kind(message: &str, ty: &Type) -> String {
    match ty {
        Type::Struct(name) => format!("Kind::Struct(&{})", static_name(message, name)),
        Type::Array(element) => format!("Kind::Array(&{})", kind(message, element)),
        Type::Primitive(name) => format!(
            "Kind::{}",
            match name.as_str() {
                "bool" => "Bool",
                "int8" => "Int8",
                "int16" => "Int16",
                "uint16" => "Int16",
                "int32" => "Int32",
                "uint32" => "Int32",
                "int64" => "Int64",
                "float64" => "Float64",
                "uuid" => "Uuid",
                "string" => "String",
                "bytes" => "Bytes",
                "records" => "Records",
                _ => panic!("unknown type {name}"),
            }
        ),
    }
}

fn layout(out: &mut String, message: &Message) {
    for part in &message.structs {
        let fields: Vec<_> = part
            .fields
            .iter()
            .filter(|field| !field.versions.intersect(message.versions).is_empty())
            .collect();
        line!(
            out,
            "pub static {}: [Field; {}] = [",
            static_name(&message.name, &part.name),
            fields.len()
        );
        for field in fields {
            line!(
                out,
                "Field {{ name: \"{}\", kind: {}, versions: ({}, {}), nullable: ({}, {}), tag: {:?} }},",
                field.name,
                kind(&message.name, &field.kind),
                field.versions.min,
                field.versions.max,
                field.nullable.min,
                field.nullable.max,
                field.tag
            );
        }
        line!(out, "];");
    }
}

fn first_flexible(message: &Message) -> i16 {
    match message.flexible.is_empty() {
        true => i16::MAX,
        false => message.flexible.min,
    }
}

fn layout_value(message: &Message) -> String {
    format!(
        "Layout {{ name: \"{}\", versions: ({}, {}), first_flexible_version: {}, fields: &{} }}",
        message.name,
        message.versions.min,
        message.versions.max,
        first_flexible(message),
        screaming(&message.name)
    )
}

/// Static layouts of all messages, and the look-up of a request's by its key.
pub fn layouts(rpcs: &[Message], records: &[Message]) -> String {
    let mut out = String::new();
    for message in rpcs {
        layout(&mut out, message);
    }
    for (function, wanted) in [("request", "request"), ("response", "response")] {
        line!(out, "/// The layout of the {function} with this API key.");
        line!(
            out,
            "pub fn {function}(api_key: i16) -> Option<Layout> {{\nSome(match api_key {{"
        );
        for message in rpcs.iter().filter(|message| message.kind == wanted) {
            line!(out, "{} => {},", message.key.unwrap_or(-1), layout_value(message));
        }
        line!(out, "_ => return None,\n}})\n}}");
    }
    line!(
        out,
        "#[cfg(test)]\npub mod records {{\nuse super::{{Field, Kind, Layout}};"
    );
    for message in records {
        layout(&mut out, message);
    }
    line!(out, "pub fn all() -> Vec<Layout> {{ vec![");
    for message in records {
        line!(out, "{},", layout_value(message));
    }
    line!(out, "] }}\n}}");
    out
}

/// The `ApiKey` enum and its table.
pub fn api_keys(rpcs: &[Message]) -> String {
    let requests: Vec<(&str, &Message)> = rpcs
        .iter()
        .filter(|message| message.kind == "request")
        .map(|message| (message.name.trim_end_matches("Request"), message))
        .collect();
    let mut out = String::new();
    line!(
        out,
        "/// Every API of Kafka 4.4.\n#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]\n#[repr(i16)]\npub enum ApiKey {{"
    );
    for (name, message) in &requests {
        line!(out, "{name} = {},", message.key.unwrap_or(-1));
    }
    line!(out, "}}\nstatic TABLE: [ApiKeyInfo; {}] = [", requests.len());
    for (name, message) in &requests {
        let Versions { min, max } = message.versions;
        let key = message.key.unwrap_or(-1);
        line!(
            out,
            "ApiKeyInfo {{ key: ApiKey::{name}, name: \"{name}\", min_version: {min}, max_version: {max}, first_flexible_version: {}, \
             latest_version_unstable: {}, on_broker: {}, on_controller: {}, forwardable: {} }},",
            first_flexible(message),
            message.latest_version_unstable,
            message.listeners.iter().any(|listener| listener == "broker"),
            message.listeners.iter().any(|listener| listener == "controller"),
            FORWARDABLE.contains(&key)
        );
    }
    line!(out, "];");
    out
}

/// The `ErrorCode` enum with names and default messages.
pub fn error_codes(table: &str) -> String {
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split('\t').collect())
        .collect();
    let camel = |name: &str| -> String {
        name.split('_')
            .map(|word| {
                let (first, rest) = word.split_at(1);
                format!("{first}{}", rest.to_lowercase())
            })
            .collect()
    };
    let mut out = String::new();
    line!(
        out,
        "/// Every error code of Kafka 4.4.\n#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]\n#[repr(i16)]\npub enum ErrorCode {{"
    );
    for row in &rows {
        line!(out, "{} = {},", camel(row[1]), row[0]);
    }
    line!(out, "}}\nstatic TABLE: [ErrorCodeInfo; {}] = [", rows.len());
    for row in &rows {
        line!(
            out,
            "ErrorCodeInfo {{ code: ErrorCode::{}, name: \"{}\", retriable: {}, message: {:?} }},",
            camel(row[1]),
            row[1],
            row[2],
            row.get(4)
                .copied()
                .filter(|message| !message.is_empty())
                .unwrap_or(row[1])
        );
    }
    line!(out, "];");
    out
}

/// What the unit tests loop over: versions of every RPC type, and round trips.
pub fn message_tests(rpcs: &[Message], records: &[Message]) -> String {
    let mut out = String::new();
    line!(
        out,
        "fn versions() -> Vec<(&'static str, (i16, i16), VersionRange)> {{ vec!["
    );
    for message in rpcs.iter().filter(|message| message.kind != "header") {
        let Versions { min, max } = message.versions;
        line!(
            out,
            "(\"{0}\", ({min}, {max}), crate::protocol::messages::{0}::VERSIONS),",
            message.name
        );
    }
    line!(out, "] }}\nfn round_trips() -> Vec<(Layout, RoundTrip)> {{ vec![");
    for message in rpcs.iter().filter(|message| message.kind != "header") {
        let ty = format!("crate::protocol::messages::{}", message.name);
        let layout = layout_value(message).replace("fields: &", "fields: &layout::");
        line!(out, "({layout}, round_trip::<{ty}>),");
    }
    for message in records.iter().filter(|message| message.name != "QuorumStateData") {
        let family = match (
            message.kind.as_str(),
            message.module.as_str(),
            message.name.as_str(),
        ) {
            ("metadata", "metadata", _) => "metadata",
            (_, "group-coordinator", _) => "group",
            (_, "transaction-coordinator", _) => "transaction",
            (_, "share-coordinator", _) => "share",
            (_, _, "ConsumerProtocolAssignment" | "ConsumerProtocolSubscription") => "consumer_protocol",
            (_, _, "DefaultPrincipalData") => "principal",
            (_, _, "AbortedTxn") | (_, "storage", _) => "storage",
            _ => "control",
        };
        let ty = format!("crate::protocol::records::{family}::{}", snake(&message.name));
        let layout = layout_value(message).replace("fields: &", "fields: &layout::records::");
        line!(out, "({layout}, round_trip::<{ty}::{}>),", message.name);
    }
    line!(out, "] }}");
    out
}
