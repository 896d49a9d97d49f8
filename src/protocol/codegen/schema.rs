//! Parser of the schema files; their first lines describe the format. A mistake in a schema stops the build.

/// Inclusive range of versions; empty when `min > max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    pub min: i16,
    pub max: i16,
}

impl Versions {
    pub const NONE: Versions = Versions { min: 1, max: 0 };

    /// `3-13`, `9+`, `4` or `none`.
    pub fn parse(text: &str) -> Versions {
        let number = |digits: &str| -> i16 {
            digits
                .parse()
                .unwrap_or_else(|_| panic!("versions `{text}`: not a number: `{digits}`"))
        };
        if text == "none" {
            Versions::NONE
        } else if let Some(min) = text.strip_suffix('+') {
            Versions {
                min: number(min),
                max: i16::MAX,
            }
        } else if let Some((min, max)) = text.split_once('-') {
            Versions {
                min: number(min),
                max: number(max),
            }
        } else {
            Versions {
                min: number(text),
                max: number(text),
            }
        }
    }

    pub fn is_empty(self) -> bool {
        self.min > self.max
    }

    pub fn intersect(self, other: Versions) -> Versions {
        Versions {
            min: self.min.max(other.min),
            max: self.max.min(other.max),
        }
    }

    pub fn covers(self, other: Versions) -> bool {
        other.is_empty() || self.min <= other.min && other.max <= self.max
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// `bool`, `int32`, `string`, `uuid`, ...
    Primitive(String),
    Struct(String),
    Array(Box<Type>),
}

#[derive(Debug, Clone)]
pub struct Field {
    pub name: String,
    pub kind: Type,
    /// Versions in which the field exists, on the wire as a tagged field or in order.
    pub versions: Versions,
    pub nullable: Versions,
    pub tag: Option<u32>,
    pub ignorable: bool,
    pub default: Option<String>,
    pub entity: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Struct {
    pub name: String,
    pub fields: Vec<Field>,
}

#[derive(Debug, Clone)]
pub struct Message {
    pub name: String,
    /// `request`, `response`, `metadata`, `coordinator-key`, `coordinator-value`, `data` or `header`.
    pub kind: String,
    pub key: Option<i16>,
    pub versions: Versions,
    pub flexible: Versions,
    pub listeners: Vec<String>,
    pub module: String,
    pub latest_version_unstable: bool,
    /// The message itself first, then its structs in order of appearance.
    pub structs: Vec<Struct>,
}

const PRIMITIVES: &[&str] = &[
    "bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "string", "bytes", "records",
    "uuid",
];

fn parse_type(text: &str) -> Type {
    if let Some(element) = text.strip_prefix("[]") {
        Type::Array(Box::new(parse_type(element)))
    } else if PRIMITIVES.contains(&text) {
        Type::Primitive(text.into())
    } else {
        Type::Struct(text.into())
    }
}

fn struct_name(kind: &Type) -> Option<&str> {
    match kind {
        Type::Struct(name) => Some(name),
        Type::Array(element) => struct_name(element),
        Type::Primitive(_) => None,
    }
}

fn parse_field(line: &str) -> Field {
    let mut words = line.split_whitespace();
    let mut next = || {
        words
            .next()
            .unwrap_or_else(|| panic!("field cut short: `{line}`"))
    };
    let mut field = Field {
        name: next().into(),
        kind: parse_type(next()),
        versions: Versions::parse(next()),
        nullable: Versions::NONE,
        tag: None,
        ignorable: false,
        default: None,
        entity: None,
    };
    for word in words {
        match word.split_once('=') {
            None if word == "ignorable" => field.ignorable = true,
            None if word == "mapkey" || word == "zerocopy" => {}
            Some(("nullable", versions)) => field.nullable = Versions::parse(versions),
            // JSON's null: the same as no default; a null default is the string "null".
            Some(("default", "None")) => {}
            Some(("default", value)) => field.default = Some(value.into()),
            Some(("entity", name)) => field.entity = Some(name.into()),
            // The only field-level override is in the request header, which is not generated.
            Some(("flexible", "none")) => {}
            Some(("tag", tag)) => {
                let Some((number, versions)) = tag.split_once('@') else {
                    panic!("tag without versions: `{line}`")
                };
                field.tag = Some(number.parse().unwrap_or_else(|_| panic!("bad tag: `{line}`")));
                // A tagged field exists only where it is tagged.
                field.versions = field.versions.intersect(Versions::parse(versions));
            }
            _ => panic!("unknown word `{word}` in `{line}`"),
        }
    }
    field
}

fn parse_head(line: &str) -> Message {
    let mut words = line.split_whitespace();
    let mut next = || {
        words
            .next()
            .unwrap_or_else(|| panic!("message cut short: `{line}`"))
    };
    let mut message = Message {
        name: next().into(),
        kind: next().into(),
        key: None,
        versions: Versions::NONE,
        flexible: Versions::NONE,
        listeners: Vec::new(),
        module: String::new(),
        latest_version_unstable: false,
        structs: Vec::new(),
    };
    for word in words {
        match word.split_once('=') {
            None if word == "latest-unstable" => message.latest_version_unstable = true,
            Some(("key", key)) => {
                message.key = Some(key.parse().unwrap_or_else(|_| panic!("bad key: `{line}`")))
            }
            Some(("versions", versions)) => message.versions = Versions::parse(versions),
            Some(("flexible", versions)) => message.flexible = Versions::parse(versions),
            Some(("listeners", names)) => message.listeners = names.split(',').map(String::from).collect(),
            Some(("module", name)) => message.module = name.into(),
            _ => panic!("unknown word `{word}` in `{line}`"),
        }
    }
    message.structs.push(Struct {
        name: message.name.clone(),
        fields: Vec::new(),
    });
    message
}

/// Parses a whole schema file.
pub fn parse(text: &str) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    // Index into `structs` of the struct that lines of each depth belong to; depth 1 is the message itself.
    let mut owners: Vec<usize> = Vec::new();
    for line in text.lines() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let depth = (line.len() - line.trim_start().len()) / 2;
        if depth == 0 {
            messages.push(parse_head(line));
            owners = vec![0];
            continue;
        }
        let Some(message) = messages.last_mut() else {
            panic!("field before any message: `{line}`")
        };
        owners.truncate(depth);
        let words: Vec<&str> = line.split_whitespace().collect();
        let opened = if words[0] == "struct" {
            Some(words[1].to_string())
        } else {
            let field = parse_field(line);
            let opened = struct_name(&field.kind).map(String::from);
            let owner = *owners
                .last()
                .unwrap_or_else(|| panic!("bad indentation: `{line}`"));
            message.structs[owner].fields.push(field);
            opened
        };
        // Fields of the next depth, if any follow, belong to this struct.
        if let Some(name) = opened {
            let index = match message.structs.iter().position(|known| known.name == name) {
                Some(index) => index,
                None => {
                    message.structs.push(Struct {
                        name,
                        fields: Vec::new(),
                    });
                    message.structs.len() - 1
                }
            };
            owners.push(index);
        }
    }
    messages
}
