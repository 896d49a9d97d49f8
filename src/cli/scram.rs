//! `kavka format --add-scram`: a SCRAM user for a new cluster's first metadata records (KIP-900, RFC 5802).
//!
//! `SCRAM-SHA-256=[name=alice,password=alice-secret]`, or with `iterations`, `salt` and `saltedpassword`. Only keys derived from
//! the password are kept.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256, Sha512};

use crate::protocol::StrBytes;
use crate::protocol::records::metadata::UserScramCredentialRecord;

use super::CliError;

const MIN_ITERATIONS: i32 = 4096;
const MAX_ITERATIONS: i32 = 16384;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mechanism {
    Sha256,
    Sha512,
}

impl Mechanism {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "SCRAM-SHA-256" => Some(Self::Sha256),
            "SCRAM-SHA-512" => Some(Self::Sha512),
            _ => None,
        }
    }

    fn java_name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM_SHA_256",
            Self::Sha512 => "SCRAM_SHA_512",
        }
    }

    /// The number in the record.
    fn id(self) -> i8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    fn hash(self, data: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(data).to_vec(),
            Self::Sha512 => Sha512::digest(data).to_vec(),
        }
    }

    fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        // An HMAC takes keys of every length.
        match self {
            Self::Sha256 => {
                Hmac::<Sha256>::new_from_slice(key).map_or_else(|_| Vec::new(), |mac| digest(mac, parts))
            }
            Self::Sha512 => {
                Hmac::<Sha512>::new_from_slice(key).map_or_else(|_| Vec::new(), |mac| digest(mac, parts))
            }
        }
    }

    /// RFC 5802's Hi: PBKDF2 with one block.
    fn salted_password(self, password: &str, salt: &[u8], iterations: i32) -> Vec<u8> {
        let mut block = self.hmac(password.as_bytes(), &[salt, &[0, 0, 0, 1]]);
        let mut salted = block.clone();
        for _ in 1..iterations {
            block = self.hmac(password.as_bytes(), &[&block]);
            salted
                .iter_mut()
                .zip(&block)
                .for_each(|(byte, next)| *byte ^= next);
        }
        salted
    }
}

fn digest<M: Mac>(mut mac: M, parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

/// Parses one `--add-scram`; `random` makes a salt where none is given.
pub(super) fn parse(
    argument: &str,
    random: impl FnMut() -> u128,
) -> Result<UserScramCredentialRecord, CliError> {
    let argument = argument.trim();
    let (name, configuration) = argument.split_once('=').ok_or_else(|| {
        CliError::new(format!(
            "Failed to find equals sign in SCRAM argument '{argument}'"
        ))
    })?;
    let mechanism = Mechanism::from_name(name)
        .ok_or_else(|| CliError::new(format!("The add-scram mechanism {name} is not supported.")))?;
    let inner = configuration
        .strip_prefix('[')
        .ok_or_else(|| CliError::new("Expected configuration string to start with ["))?
        .strip_suffix(']')
        .ok_or_else(|| CliError::new("Expected configuration string to end with ]"))?;
    let mut components = components(inner)?;
    let record = record(mechanism, &mut components, random)?;
    if components.is_empty() {
        return Ok(record);
    }
    let unknown: Vec<String> = components.into_keys().collect();
    Err(CliError::new(format!(
        "Unknown SCRAM configurations: {}",
        unknown.join(", ")
    )))
}

fn components(text: &str) -> Result<BTreeMap<String, String>, CliError> {
    text.split(',')
        .map(|component| {
            let (key, value) = component.split_once('=').ok_or_else(|| {
                CliError::new(format!("No equals sign found in SCRAM component: {component}"))
            })?;
            let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            Ok((key.to_owned(), quoted.unwrap_or(value).to_owned()))
        })
        .collect()
}

fn record(
    mechanism: Mechanism,
    components: &mut BTreeMap<String, String>,
    random: impl FnMut() -> u128,
) -> Result<UserScramCredentialRecord, CliError> {
    let name = components
        .remove("name")
        .ok_or_else(|| CliError::new("You must supply 'name' to add-scram"))?;
    let salt = match components.remove("salt") {
        Some(text) => Some(
            STANDARD
                .decode(&text)
                .map_err(|_| CliError::new(format!("Failed to decode given salt: {text}")))?,
        ),
        None => None,
    };
    let iterations = match components.remove("iterations") {
        Some(text) => text
            .parse()
            .map_err(|_| CliError::new(format!("Failed to parse iterations count: {text}")))?,
        None => MIN_ITERATIONS,
    };
    for (is_outside, bound) in [
        (iterations < MIN_ITERATIONS, format!(">= {MIN_ITERATIONS}")),
        (iterations > MAX_ITERATIONS, format!("<= {MAX_ITERATIONS}")),
    ] {
        if is_outside {
            return Err(CliError::new(format!(
                "The 'iterations' value must be {bound} for add-scram using {}",
                mechanism.java_name()
            )));
        }
    }
    let (password, salted_password) = (components.remove("password"), components.remove("saltedpassword"));
    let (salt, salted_password) = match (password, salted_password, salt) {
        (Some(password), _, salt) => {
            let salt = salt.unwrap_or_else(|| random_salt(random));
            let salted_password = mechanism.salted_password(&password, &salt, iterations);
            (salt, salted_password)
        }
        (None, Some(_), None) => {
            return Err(CliError::new(
                "You must supply 'salt' with 'saltedpassword' to add-scram",
            ));
        }
        (None, Some(text), Some(salt)) => {
            // The text is a secret: the message does not repeat it.
            let salted_password = STANDARD
                .decode(&text)
                .map_err(|_| CliError::new("Failed to decode given saltedPassword"))?;
            (salt, salted_password)
        }
        (None, None, _) => {
            return Err(CliError::new(
                "You must supply one of 'password' or 'saltedpassword' to add-scram",
            ));
        }
    };
    let client_key = mechanism.hmac(&salted_password, &[b"Client Key"]);
    Ok(UserScramCredentialRecord {
        name: StrBytes::from_string(name),
        mechanism: mechanism.id(),
        salt: Bytes::from(salt),
        stored_key: Bytes::from(mechanism.hash(&client_key)),
        server_key: Bytes::from(mechanism.hmac(&salted_password, &[b"Server Key"])),
        iterations,
        ..UserScramCredentialRecord::default()
    })
}

/// Text, as Kafka's own salts are.
fn random_salt(mut random: impl FnMut() -> u128) -> Vec<u8> {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut number = random();
    let mut salt = Vec::with_capacity(26);
    while number > 0 {
        salt.push(DIGITS[(number % 36) as usize]);
        number /= 36;
    }
    salt
}

/// As Java prints the record.
pub(super) fn describe(record: &UserScramCredentialRecord) -> String {
    let bytes = |bytes: &[u8]| {
        let numbers: Vec<String> = bytes.iter().map(|byte| (*byte as i8).to_string()).collect();
        format!("[{}]", numbers.join(", "))
    };
    format!(
        "UserScramCredentialRecord(name='{}', mechanism={}, salt={}, storedKey={}, serverKey={}, iterations={})",
        record.name.as_str(),
        record.mechanism,
        bytes(&record.salt),
        bytes(&record.stored_key),
        bytes(&record.server_key),
        record.iterations
    )
}

#[cfg(test)]
mod scram_test {
    use super::*;

    fn parsed(argument: &str) -> Result<UserScramCredentialRecord, String> {
        parse(argument, || 1 << 100).map_err(|error| error.to_string())
    }

    /// The user `svc-bootstrap` of tests/golden/single, made by Kafka.
    #[test]
    fn keys_are_those_that_kafka_derives() {
        let record = parsed(
            "SCRAM-SHA-256=[name=svc-bootstrap,password=bootstrap-secret,salt=\"c2FsdC1mb3ItZ29sZGVuLWRhdGE=\",iterations=4096]",
        )
        .unwrap();
        assert_eq!(
            STANDARD.encode(&record.stored_key),
            "cT+ZhIMA9WX3pV3ujSNtNeLtZjWkh9PqPDMN+TyIJzU="
        );
        assert_eq!(
            STANDARD.encode(&record.server_key),
            "jb14gW+nSYUjh/EyCoX9b+EY1rIdR8d1C+Al5C+G+to="
        );
        assert_eq!(
            (record.name.as_str(), record.mechanism, record.iterations),
            ("svc-bootstrap", 1, 4096)
        );
    }

    #[test]
    fn salt_is_made_where_none_is_given_and_keys_have_the_hashs_length() {
        let record = parsed("SCRAM-SHA-512=[name=a,password=b]").unwrap();
        assert!(!record.salt.is_empty());
        assert_eq!(
            (record.mechanism, record.stored_key.len(), record.server_key.len()),
            (2, 64, 64)
        );
    }

    #[test]
    fn bad_arguments_refused_with_kafkas_messages() {
        for (argument, message) in [
            ("foo", "Failed to find equals sign in SCRAM argument 'foo'"),
            (
                "SCRAM-SHA-1=[name=a]",
                "The add-scram mechanism SCRAM-SHA-1 is not supported.",
            ),
            (
                "SCRAM-SHA-256=name=a",
                "Expected configuration string to start with [",
            ),
            (
                "SCRAM-SHA-256=[name=a",
                "Expected configuration string to end with ]",
            ),
            (
                "SCRAM-SHA-256=[name]",
                "No equals sign found in SCRAM component: name",
            ),
            (
                "SCRAM-SHA-256=[password=a]",
                "You must supply 'name' to add-scram",
            ),
            (
                "SCRAM-SHA-256=[name=a]",
                "You must supply one of 'password' or 'saltedpassword' to add-scram",
            ),
            (
                "SCRAM-SHA-256=[name=a,saltedpassword=YQ==]",
                "You must supply 'salt' with 'saltedpassword' to add-scram",
            ),
            (
                "SCRAM-SHA-256=[name=a,password=b,iterations=1]",
                "The 'iterations' value must be >= 4096 for add-scram using SCRAM_SHA_256",
            ),
            (
                "SCRAM-SHA-256=[name=a,password=b,iterations=99999]",
                "The 'iterations' value must be <= 16384 for add-scram using SCRAM_SHA_256",
            ),
            (
                "SCRAM-SHA-256=[name=a,password=b,x=y]",
                "Unknown SCRAM configurations: x",
            ),
        ] {
            assert_eq!(parsed(argument), Err(message.to_owned()));
        }
    }
}
