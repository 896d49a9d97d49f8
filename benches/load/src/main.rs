//! The lean load generator of `scripts/bench`: one thread, raw sockets, batches built before the clock starts.
//!
//! It speaks the few requests it needs by itself (`wire.rs`), so that it costs next to nothing beside the broker it
//! measures, and so that it cannot inherit a mistake of kavka's own encoder. Every command prints one line of JSON.
//!
//!     kavka-load run       --address A --topic T ...   produce, fetch, both; closed loop or a fixed rate
//!     kavka-load create    --address A --topic T --topics 10 --partitions 100
//!     kavka-load first     --address A --topic T       retry until a record is acknowledged; prints the monotonic time
//!     kavka-load seek      --address A --topic T       fetch single batches at random offsets of partition 0
//!     kavka-load keyed     --address A --topic T --bytes B --keys K   records for a compacted topic
//!     kavka-load digest    --directory D               of the records in a partition's folder
//!     kavka-load connect   --address A --connections N hold idle connections until stdin ends
//!     kavka-load join      --address A --group G --topic T --members 500 --protocol classic|consumer
//!     kavka-load commits   --address A --topic T       commits of many groups, for some seconds
//!     kavka-load fill      --address A --topic T       a million commits
//!     kavka-load fetched   --address A --topic T --group G   retry until a committed offset is answered
//!     kavka-load transactions --address A --topic T --producers N   transactions in a closed loop, for some seconds
//!     kavka-load bare      --address A --directory D   the limit: socket to file, file to socket by sendfile, no more

mod admin;
mod bare;
mod batch;
mod closed;
mod group;
mod histogram;
mod keyed;
mod member;
mod run;
mod transactions;
mod wire;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};

/// The command's `--name value` pairs; every name must be asked for.
pub struct Arguments {
    values: HashMap<String, String>,
}

impl Arguments {
    fn parse() -> Result<(String, Arguments)> {
        let mut parser = lexopt::Parser::from_env();
        let mut command = None;
        let mut values = HashMap::new();
        while let Some(argument) = parser.next()? {
            match argument {
                lexopt::Arg::Value(value) if command.is_none() => {
                    command = Some(value.to_string_lossy().into_owned());
                }
                lexopt::Arg::Long(name) => {
                    let name = name.to_string();
                    let value = parser.value()?.to_string_lossy().into_owned();
                    values.insert(name, value);
                }
                other => return Err(other.unexpected().into()),
            }
        }
        Ok((
            command.ok_or_else(|| anyhow!("no command"))?,
            Arguments { values },
        ))
    }

    pub fn get<T: FromStr>(&mut self, name: &str, default: T) -> Result<T> {
        match self.values.remove(name) {
            Some(text) => text
                .parse()
                .map_err(|_| anyhow!("--{name} {text}: not such a value")),
            None => Ok(default),
        }
    }

    pub fn require<T: FromStr>(&mut self, name: &str) -> Result<T> {
        let text = self
            .values
            .remove(name)
            .with_context(|| format!("--{name} is missing"))?;
        text.parse()
            .map_err(|_| anyhow!("--{name} {text}: not such a value"))
    }

    pub fn address(&mut self) -> Result<SocketAddr> {
        self.require("address")
    }

    pub fn finish(self) -> Result<()> {
        match self.values.keys().next() {
            Some(name) => bail!("unknown option --{name}"),
            None => Ok(()),
        }
    }
}

/// Nanoseconds of CLOCK_MONOTONIC: the same clock in every process of the machine.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn main() -> Result<()> {
    let (command, arguments) = Arguments::parse()?;
    match command.as_str() {
        "run" => run::run(arguments),
        "create" => admin::create(arguments),
        "first" => admin::first(arguments),
        "seek" => admin::seek(arguments),
        "keyed" => keyed::produce(arguments),
        "digest" => keyed::digest(arguments),
        "connect" => admin::connect(arguments),
        "join" => member::join(arguments),
        "commits" => group::commits(arguments),
        "fill" => group::fill(arguments),
        "fetched" => group::fetched(arguments),
        "transactions" => transactions::run(arguments),
        "bare" => bare::serve(arguments),
        other => bail!("unknown command {other}"),
    }
}
