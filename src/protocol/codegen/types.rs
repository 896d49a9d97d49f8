//! Emits the structs with their encoding and decoding, and the enums over records.

use super::schema::{Field, Message, Struct, Type, Versions};
use super::{GENERATED_RPCS, snake};
use std::fmt::Write as _;

const PRELUDE: &str = "#[allow(unused_imports)] use crate::protocol::prelude::*;\n";

/// How fields with an entity type are typed: the crate's newtypes in RPCs, plain values in records.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    Rpc,
    Record,
}

macro_rules! line {
    ($out:expr, $($arg:tt)*) => { let _ = writeln!($out, $($arg)*); };
}

fn primitive(name: &str, entity: Option<&str>, style: Style) -> &'static str {
    match (name, entity) {
        ("string", Some("topicName")) if style == Style::Rpc => "TopicName",
        ("string", Some("groupId")) if style == Style::Rpc => "GroupId",
        ("string", Some("transactionalId")) if style == Style::Rpc => "TransactionalId",
        ("int32", Some("brokerId")) if style == Style::Rpc => "BrokerId",
        ("int64", Some("producerId")) if style == Style::Rpc => "ProducerId",
        ("string", _) => "StrBytes",
        ("bool", _) => "bool",
        ("int8", _) => "i8",
        ("int16", _) => "i16",
        ("uint16", _) => "u16",
        ("int32", _) => "i32",
        ("uint32", _) => "u32",
        ("int64", _) => "i64",
        ("float64", _) => "f64",
        ("bytes" | "records", _) => "Bytes",
        ("uuid", _) => "Uuid",
        _ => panic!("no Rust type for {name}"),
    }
}

fn bare_type(kind: &Type, entity: Option<&str>, style: Style) -> String {
    match kind {
        Type::Primitive(name) => primitive(name, entity, style).into(),
        Type::Struct(name) => name.clone(),
        Type::Array(element) => format!("Vec<{}>", bare_type(element, entity, style)),
    }
}

/// A field as one message sees it: versions cut to the message's.
struct Seen<'a> {
    field: &'a Field,
    name: String,
    rust_type: String,
    optional: bool,
    valid: Versions,
    style: Style,
}

impl<'a> Seen<'a> {
    fn new(field: &'a Field, valid: Versions, style: Style) -> Option<Seen<'a>> {
        let versions = field.versions.intersect(valid);
        if versions.is_empty() {
            return None;
        }
        let optional = !field.nullable.intersect(versions).is_empty();
        let bare = bare_type(&field.kind, field.entity.as_deref(), style);
        Some(Seen {
            field,
            name: snake(&field.name),
            rust_type: if optional { format!("Option<{bare}>") } else { bare },
            optional,
            valid,
            style,
        })
    }

    fn present(&self) -> String {
        condition(self.field.versions, self.valid)
    }

    fn nullable(&self) -> String {
        condition(self.field.nullable, self.valid.intersect(self.field.versions))
    }

    fn default_is_null(&self) -> bool {
        self.field.default.as_deref() == Some("null")
    }

    fn bare_default(&self) -> String {
        let Type::Primitive(name) = &self.field.kind else {
            return "Default::default()".into();
        };
        let rust = primitive(name, self.field.entity.as_deref(), self.style);
        match (rust, self.field.default.as_deref()) {
            (_, None) | (_, Some("\"\"")) => "Default::default()".into(),
            ("bool", Some(value)) => value.to_lowercase(),
            ("StrBytes", Some(value)) => format!("StrBytes::from_static_str({value})"),
            ("BrokerId" | "ProducerId", Some(value)) => format!("{rust}({value})"),
            (_, Some(value)) => value.into(),
        }
    }

    fn default(&self) -> String {
        if !self.optional {
            self.bare_default()
        } else if self.default_is_null() {
            "None".into()
        } else {
            format!("Some({})", self.bare_default())
        }
    }

    fn differs_from_default(&self) -> String {
        let name = &self.name;
        if self.optional {
            return if self.default_is_null() {
                format!("self.{name}.is_some()")
            } else {
                format!("self.{name} != {}", self.default())
            };
        }
        match &self.field.kind {
            Type::Array(_) => format!("!self.{name}.is_empty()"),
            Type::Primitive(kind) if matches!(kind.as_str(), "string" | "bytes" | "records") => {
                format!("!self.{name}.is_empty()")
            }
            Type::Primitive(kind) if kind == "bool" => match self.bare_default().as_str() {
                "true" => format!("!self.{name}"),
                _ => format!("self.{name}"),
            },
            Type::Primitive(kind) if kind == "uuid" => format!("!self.{name}.is_nil()"),
            Type::Struct(kind) => format!("self.{name} != {kind}::default()"),
            Type::Primitive(_) => match (self.rust_type.as_str(), self.bare_default().as_str()) {
                ("BrokerId" | "ProducerId", "Default::default()") => format!("self.{name}.0 != 0"),
                ("f64", "Default::default()") => format!("self.{name} != 0.0"),
                (_, "Default::default()") => format!("self.{name} != 0"),
                (_, value) => format!("self.{name} != {value}"),
            },
        }
    }

    /// Null has an encoding of its own where a struct is a tagged field.
    fn is_tagged_struct(&self) -> bool {
        self.optional && self.field.tag.is_some() && matches!(self.field.kind, Type::Struct(_))
    }

    fn write(&self, flexible: &str) -> String {
        if self.is_tagged_struct() {
            format!("write_tagged_struct(&self.{}, w, v)", self.name)
        } else if self.optional {
            format!(
                "write_nullable(&self.{}, {}, w, v, {flexible})",
                self.name,
                self.nullable()
            )
        } else {
            format!("self.{}.write(w, v, {flexible})", self.name)
        }
    }

    fn read(&self, reader: &str, flexible: &str) -> String {
        if self.is_tagged_struct() {
            format!("read_tagged_struct({reader}, v)?")
        } else if self.optional {
            format!("read_nullable({}, {reader}, v, {flexible})?", self.nullable())
        } else {
            format!("Wire::read({reader}, v, {flexible})?")
        }
    }
}

/// Rust condition on `v`: `true`, `false`, or a comparison.
fn condition(versions: Versions, valid: Versions) -> String {
    let cut = versions.intersect(valid);
    if cut.is_empty() {
        "false".into()
    } else if versions.covers(valid) {
        "true".into()
    } else if cut.max >= valid.max {
        format!("v >= {}", cut.min)
    } else if cut.min <= valid.min {
        format!("v <= {}", cut.max)
    } else {
        format!("({}..={}).contains(&v)", cut.min, cut.max)
    }
}

fn definition(out: &mut String, name: &str, fields: &[Seen], tagged: bool, style: Style) {
    line!(out, "#[derive(Debug, Clone, PartialEq)]\npub struct {name} {{");
    for field in fields {
        line!(out, "pub {}: {},", field.name, field.rust_type);
    }
    if tagged {
        line!(out, "pub unknown_tagged_fields: BTreeMap<i32, Bytes>,");
    }
    line!(
        out,
        "}}\nimpl Default for {name} {{\nfn default() -> Self {{\nSelf {{"
    );
    for field in fields {
        line!(out, "{}: {},", field.name, field.default());
    }
    if tagged {
        line!(out, "unknown_tagged_fields: BTreeMap::new(),");
    }
    line!(out, "}}\n}}\n}}");
    if style == Style::Rpc {
        line!(out, "impl {name} {{");
        for field in fields {
            let (name, bare) = (&field.name, field.name.trim_start_matches('_'));
            line!(
                out,
                "pub fn with_{bare}(mut self, value: {}) -> Self {{ self.{name} = value; self }}",
                field.rust_type
            );
        }
        line!(out, "}}");
    }
}

fn wire(out: &mut String, name: &str, fields: &[Seen], tagged: bool) {
    let in_order = || fields.iter().filter(|field| field.field.tag.is_none());
    let mut with_tag: Vec<(u32, &Seen)> = fields
        .iter()
        .filter_map(|field| Some((field.field.tag?, field)))
        .collect();
    with_tag.sort_by_key(|(tag, _)| *tag);

    line!(out, "impl Wire for {name} {{");
    line!(
        out,
        "fn write(&self, w: &mut dyn Sink, v: i16, flexible: bool) -> WireResult<()> {{"
    );
    for field in in_order() {
        write_in_order(out, name, field);
    }
    if tagged {
        line!(out, "if flexible {{");
        for (tag, field) in &with_tag {
            line!(
                out,
                "let t{tag} = ({}) && {};",
                field.present(),
                field.differs_from_default()
            );
        }
        let count: String = with_tag
            .iter()
            .map(|(tag, _)| format!("t{tag} as usize + "))
            .collect();
        line!(
            out,
            "let mut tags = TagWriter::begin(w, &self.unknown_tagged_fields, {count}0);"
        );
        for (tag, field) in &with_tag {
            line!(
                out,
                "if t{tag} {{ tags.field({tag}, &|w| {})?; }}",
                field.write("true")
            );
        }
        line!(out, "tags.end();\n}}");
    }
    // A tagged field that is set in a version without it is refused, as one in order is.
    for (_, field) in &with_tag {
        if !field.field.ignorable && field.present() != "true" {
            let (absent, differs) = (field.present(), field.differs_from_default());
            line!(
                out,
                "if !({absent}) && {differs} {{ return Err(not_in_version(\"{name}.{}\", v)); }}",
                field.name
            );
        }
    }
    line!(out, "Ok(())\n}}");

    line!(
        out,
        "fn read(r: &mut Reader, v: i16, flexible: bool) -> WireResult<Self> {{"
    );
    line!(out, "let mut m = Self::default();");
    for field in in_order() {
        let read = format!("m.{} = {};", field.name, field.read("r", "flexible"));
        match field.present().as_str() {
            "true" => {
                line!(out, "{read}");
            }
            present => {
                line!(out, "if {present} {{ {read} }}");
            }
        }
    }
    if tagged {
        line!(
            out,
            "if flexible {{\nfor _ in 0..r.tag_count()? {{\nlet (tag, mut t) = r.tag()?;\nmatch tag {{"
        );
        for (tag, field) in &with_tag {
            let guard = match field.present().as_str() {
                "true" => String::new(),
                present => format!(" if {present}"),
            };
            line!(
                out,
                "{tag}{guard} => {{ m.{} = {}; t.end()?; }}",
                field.name,
                field.read("&mut t", "true")
            );
        }
        line!(
            out,
            "_ => {{ m.unknown_tagged_fields.insert(tag as i32, t.rest()); }}\n}}\n}}\n}}"
        );
    }
    line!(out, "Ok(m)\n}}\nstruct_nulls!();\n}}");
}

fn write_in_order(out: &mut String, owner: &str, field: &Seen) {
    let write = field.write("flexible");
    match field.present().as_str() {
        "true" => {
            line!(out, "{write}?;");
        }
        present => {
            line!(out, "if {present} {{ {write}?; }}");
            if !field.field.ignorable {
                let differs = field.differs_from_default();
                line!(
                    out,
                    "else if {differs} {{ return Err(not_in_version(\"{owner}.{}\", v)); }}",
                    field.name
                );
            }
        }
    }
}

fn structs(out: &mut String, message: &Message, style: Style) {
    let tagged = !message.flexible.intersect(message.versions).is_empty();
    for Struct { name, fields } in &message.structs {
        let seen: Vec<Seen> = fields
            .iter()
            .filter_map(|field| Seen::new(field, message.versions, style))
            .collect();
        definition(out, name, &seen, tagged, style);
        wire(out, name, &seen, tagged);
    }
    let first_flexible = if tagged { message.flexible.min } else { i16::MAX };
    let Versions { min, max } = message.versions;
    line!(out, "message!({}, {min}, {max}, {first_flexible});", message.name);
}

fn module(out: &mut String, message: &Message, style: Style) {
    let name = snake(&message.name);
    line!(
        out,
        "#[allow(unused_variables, unused_mut, clippy::all)]\npub mod {name} {{\n{PRELUDE}"
    );
    structs(out, message, style);
    line!(out, "}}\npub use {name}::{};", message.name);
}

/// The RPC types of [`GENERATED_RPCS`], and the crate's names of the others.
pub fn messages(rpcs: &[Message]) -> String {
    let mut out = String::new();
    for request in rpcs.iter().filter(|message| message.kind == "request") {
        let name = request.name.trim_end_matches("Request");
        if !GENERATED_RPCS.contains(&name) {
            for full in [format!("{name}Request"), format!("{name}Response")] {
                line!(
                    out,
                    "pub use kafka_protocol::messages::{{{}, {full}}};",
                    snake(&full)
                );
            }
            continue;
        }
        let response_name = format!("{name}Response");
        let Some(response) = rpcs.iter().find(|message| message.name == response_name) else {
            panic!("{response_name} is missing")
        };
        module(&mut out, request, Style::Rpc);
        module(&mut out, response, Style::Rpc);
        let first_flexible = |message: &Message| match message.flexible.is_empty() {
            true => i16::MAX,
            false => message.flexible.min,
        };
        // An ApiVersions response never has a flexible header: the client does not know the version yet (KIP-511).
        let response_flexible = match name {
            "ApiVersions" => i16::MAX,
            _ => first_flexible(response),
        };
        line!(
            out,
            "rpc!({name}Request, {name}Response, {}, {}, {response_flexible});",
            request.key.unwrap_or(-1),
            first_flexible(request)
        );
    }
    out
}

/// Where a record's type lives under `protocol::records`; `None`: not generated.
fn record_module(message: &Message) -> Option<&'static str> {
    match (
        message.kind.as_str(),
        message.module.as_str(),
        message.name.as_str(),
    ) {
        ("metadata", "metadata", _) => Some("metadata"),
        ("coordinator-key" | "coordinator-value", "group-coordinator", _) => Some("group"),
        ("coordinator-key" | "coordinator-value", "transaction-coordinator", _) => Some("transaction"),
        ("coordinator-key" | "coordinator-value", "share-coordinator", _) => Some("share"),
        ("data", _, "ConsumerProtocolAssignment" | "ConsumerProtocolSubscription") => {
            Some("consumer_protocol")
        }
        ("data", _, "DefaultPrincipalData") => Some("principal"),
        ("data", "clients", "AbortedTxn") | (_, "storage", _) => Some("storage"),
        ("data", "clients", _) => Some("control"),
        _ => None,
    }
}

/// Enum over messages that are told apart by their key: `read` picks the variant, `write` writes the body only.
fn record_enum(out: &mut String, name: &str, suffix: &str, messages: &[&Message]) {
    let variant = |message: &Message| message.name.trim_end_matches(suffix).to_string();
    line!(
        out,
        "#[derive(Debug, Clone, PartialEq)]\n#[allow(clippy::large_enum_variant)]\npub enum {name} {{"
    );
    for message in messages {
        line!(out, "{}({}),", variant(message), message.name);
    }
    line!(
        out,
        "/// A record of a type or version that is not known here: kept as it came.\nUnknown(UnknownRecord),\n}}"
    );
    for message in messages {
        let (variant, ty) = (variant(message), &message.name);
        line!(
            out,
            "impl From<{ty}> for {name} {{ fn from(value: {ty}) -> Self {{ Self::{variant}(value) }} }}"
        );
    }
    line!(out, "impl {name} {{");
    line!(
        out,
        "/// The number that tells this type of record from others.\npub fn record_type(&self) -> i16 {{ match self {{"
    );
    for message in messages {
        line!(
            out,
            "Self::{}(_) => {},",
            variant(message),
            message.key.unwrap_or(-1)
        );
    }
    line!(out, "Self::Unknown(unknown) => unknown.record_type,\n}} }}");
    line!(
        out,
        "/// Kafka's name of the type of record.\npub fn name(&self) -> &'static str {{ match self {{"
    );
    for message in messages {
        line!(out, "Self::{}(_) => \"{}\",", variant(message), message.name);
    }
    line!(out, "Self::Unknown(_) => \"Unknown\",\n}} }}");
    line!(
        out,
        "/// The newest version of this type of record that Kafka 4.4 knows.\npub fn highest_version(&self) -> i16 {{ match self {{"
    );
    for message in messages {
        line!(out, "Self::{}(_) => {},", variant(message), message.versions.max);
    }
    line!(out, "Self::Unknown(unknown) => unknown.version,\n}} }}");
    line!(
        out,
        "pub(super) fn write(&self, w: &mut dyn Sink, version: i16) -> WireResult<()> {{ match self {{"
    );
    for message in messages {
        line!(
            out,
            "Self::{}(record) => write_message(record, w, version),",
            variant(message)
        );
    }
    line!(
        out,
        "Self::Unknown(unknown) => {{ w.put(&unknown.body); Ok(()) }}\n}} }}"
    );
    line!(
        out,
        "pub(super) fn read(record_type: i16, r: &mut Reader, version: i16) -> WireResult<Self> {{\nOk(match record_type {{"
    );
    for message in messages {
        line!(
            out,
            "{} if {}::knows(version) => Self::{}(read_message(r, version)?),",
            message.key.unwrap_or(-1),
            message.name,
            variant(message)
        );
    }
    line!(
        out,
        "_ => Self::Unknown(UnknownRecord {{ record_type, version, body: r.rest() }}),\n}})\n}}\n}}"
    );
}

/// All record types, a module for each family.
pub fn records(records: &[Message]) -> String {
    let mut out = String::new();
    let families = [
        "metadata",
        "group",
        "transaction",
        "share",
        "control",
        "consumer_protocol",
        "principal",
        "storage",
    ];
    for family in families {
        let members: Vec<&Message> = records
            .iter()
            .filter(|message| record_module(message) == Some(family))
            .collect();
        line!(out, "pub mod {family} {{\n{PRELUDE}");
        for message in &members {
            module(&mut out, message, Style::Record);
        }
        let of_kind = |kind: &str| -> Vec<&Message> {
            members
                .iter()
                .copied()
                .filter(|message| message.kind == kind)
                .collect()
        };
        let title = match family {
            "group" => "GroupRecord",
            "transaction" => "TransactionRecord",
            "share" => "ShareRecord",
            _ => "",
        };
        if family == "metadata" {
            record_enum(&mut out, "MetadataRecord", "Record", &of_kind("metadata"));
        } else if !title.is_empty() {
            record_enum(
                &mut out,
                &format!("{title}Key"),
                "Key",
                &of_kind("coordinator-key"),
            );
            record_enum(
                &mut out,
                &format!("{title}Value"),
                "Value",
                &of_kind("coordinator-value"),
            );
        }
        line!(out, "}}");
    }
    out
}
