//! Generates Rust from `src/protocol/schemas` into `OUT_DIR`: the record types, the RPC types that the kafka-protocol
//! crate lacks, the API key and error code enums, and static layouts of every message.
//!
//! The generated code leans on `src/protocol/wire.rs`; nothing is generated that a function there can do.

#[path = "src/protocol/codegen/mod.rs"]
mod codegen;

use std::path::Path;
use std::{env, fs};

fn main() {
    let schemas = Path::new("src/protocol/schemas");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/protocol/codegen");
    println!("cargo:rerun-if-changed=src/protocol/schemas");
    let read = |name: &str| match fs::read_to_string(schemas.join(name)) {
        Ok(text) => text,
        Err(error) => panic!("{name}: {error}"),
    };
    let rpcs = codegen::schema::parse(&read("rpc.schema"));
    let records = codegen::schema::parse(&read("records.schema"));
    let out = env::var("OUT_DIR").unwrap_or_else(|error| panic!("OUT_DIR: {error}"));
    let write = |name: &str, text: String| {
        if let Err(error) = fs::write(Path::new(&out).join(name), text) {
            panic!("{name}: {error}");
        }
    };
    write("messages.rs", codegen::types::messages(&rpcs));
    write("records.rs", codegen::types::records(&records));
    write("layouts.rs", codegen::tables::layouts(&rpcs, &records));
    write("api_keys.rs", codegen::tables::api_keys(&rpcs));
    write(
        "error_codes.rs",
        codegen::tables::error_codes(&read("errors.tsv")),
    );
    write(
        "versions_test.rs",
        codegen::tables::message_tests(&rpcs, &records),
    );
}
