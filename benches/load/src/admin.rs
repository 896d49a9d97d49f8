//! Commands that set the scene: topics, the first record after a start, idle connections.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::batch::{self, Codec};
use crate::histogram::Latencies;
use crate::wire::{self, Answer, FetchLimits, Request};
use crate::{Arguments, now_ns};

const TOPIC_ALREADY_EXISTS: i16 = 36;
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

pub fn connect_to(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| address.to_string())?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(CALL_TIMEOUT))?;
    Ok(stream)
}

type Configs = Vec<(String, String)>;

/// `name=value,name=value`
fn parse_configs(text: &str) -> Result<Configs> {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair
                .split_once('=')
                .with_context(|| format!("--configs {pair}"))?;
            Ok((name.to_string(), value.to_string()))
        })
        .collect()
}

fn create_topics(stream: &mut TcpStream, names: &[String], partitions: i32, configs: &Configs) -> Result<()> {
    let mut request = Request::new(wire::CREATE_TOPICS, 4);
    request.i32(names.len() as i32);
    for name in names {
        request
            .string(name.as_bytes())
            .i32(partitions)
            .i16(1)
            .i32(0)
            .i32(configs.len() as i32);
        for (name, value) in configs {
            request.string(name.as_bytes()).string(value.as_bytes());
        }
    }
    request.i32(60_000).i8(0);
    let answer = wire::call(stream, &request.frame(0))?;
    let mut answer = Answer::new(&answer);
    answer.i32()?; // throttle
    for _ in 0..answer.i32()? {
        let name = String::from_utf8_lossy(answer.string()?).into_owned();
        let error = answer.i16()?;
        let message = String::from_utf8_lossy(answer.string()?).into_owned();
        if error != 0 && error != TOPIC_ALREADY_EXISTS {
            bail!("topic {name}: error {error} {message}");
        }
    }
    Ok(())
}

/// How many partitions of the topics have a leader, as the broker tells it.
fn led_partitions(stream: &mut TcpStream, names: &[String]) -> Result<usize> {
    let mut request = Request::new(wire::METADATA, 4);
    request.i32(names.len() as i32);
    for name in names {
        request.string(name.as_bytes());
    }
    request.i8(0);
    let answer = wire::call(stream, &request.frame(0))?;
    let mut answer = Answer::new(&answer);
    answer.i32()?; // throttle
    for _ in 0..answer.i32()? {
        answer.i32()?;
        answer.string()?;
        answer.i32()?;
        answer.string()?;
    }
    answer.string()?;
    answer.i32()?;
    let mut led = 0;
    for _ in 0..answer.i32()? {
        answer.i16()?;
        answer.string()?;
        answer.take(1)?;
        for _ in 0..answer.i32()? {
            let error = answer.i16()?;
            answer.i32()?;
            let leader = answer.i32()?;
            for _ in 0..2 {
                let nodes = answer.i32()?;
                answer.take(4 * nodes.max(0) as usize)?;
            }
            led += usize::from(error == 0 && leader >= 0);
        }
    }
    Ok(led)
}

/// Whether every partition of the topic answers a Fetch: metadata tells of a leader before it has become one.
fn all_answer(stream: &mut TcpStream, topic: &str, partitions: i32) -> Result<bool> {
    let limits = FetchLimits {
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: 1,
        partition_max_bytes: 1,
    };
    let asked: Vec<(i32, i64)> = (0..partitions).map(|partition| (partition, 0)).collect();
    let answer = wire::call(stream, &wire::fetch(topic, &asked, &limits))?;
    let mut answer = Answer::new(&answer);
    answer.take(wire::fetch_answer_head(topic) - 4)?;
    for _ in 0..partitions {
        answer.i32()?;
        if answer.i16()? != 0 {
            return Ok(false);
        }
        answer.take(3 * 8 + 4 + 4)?;
        let records = answer.i32()?;
        answer.take(records.max(0) as usize)?;
    }
    Ok(true)
}

/// Creates topics in batches and waits until every partition answers.
pub fn create(mut arguments: Arguments) -> Result<()> {
    let address = arguments.address()?;
    let topic: String = arguments.require("topic")?;
    let topics: usize = arguments.get("topics", 1)?;
    let partitions: i32 = arguments.get("partitions", 1)?;
    let batch: usize = arguments.get("batch", 10)?;
    let configs = parse_configs(&arguments.get("configs", String::new())?)?;
    arguments.finish()?;
    let start = Instant::now();
    let mut stream = connect_to(address)?;
    let names: Vec<String> = match topics {
        1 => vec![topic],
        _ => (0..topics).map(|index| format!("{topic}-{index}")).collect(),
    };
    for names in names.chunks(batch) {
        create_topics(&mut stream, names, partitions, &configs)?;
        let wait = || match start.elapsed() > CALL_TIMEOUT {
            true => bail!("partitions without a leader after {CALL_TIMEOUT:?}"),
            false => {
                sleep(Duration::from_millis(5));
                Ok(())
            }
        };
        while led_partitions(&mut stream, names)? < names.len() * partitions as usize {
            wait()?;
        }
        for name in names {
            while !all_answer(&mut stream, name, partitions)? {
                wait()?;
            }
        }
    }
    println!("{{\"seconds\":{:.3}}}", start.elapsed().as_secs_f64());
    Ok(())
}

fn try_first(address: SocketAddr, topic: &str, batch: &[u8]) -> Result<()> {
    let mut stream = connect_to(address)?;
    create_topics(&mut stream, &[topic.to_string()], 1, &Vec::new())?;
    loop {
        let mut frame = wire::produce_head(topic, 0, 1, batch.len());
        frame.extend_from_slice(batch);
        let answer = wire::call(&mut stream, &frame)?;
        if wire::read_i16(&answer, wire::produce_error_at(topic)) == 0 {
            return Ok(());
        }
        sleep(Duration::from_micros(500));
    }
}

/// Tries until a record is acknowledged: what a user waits for after a start.
pub fn first(mut arguments: Arguments) -> Result<()> {
    let address = arguments.address()?;
    let topic: String = arguments.require("topic")?;
    let timeout_s: u64 = arguments.get("timeout", 60)?;
    arguments.finish()?;
    let batch = batch::build(Codec::None, 1, 100)?;
    println!("ready");
    let start = Instant::now();
    while let Err(error) = try_first(address, &topic, &batch) {
        if start.elapsed().as_secs() > timeout_s {
            return Err(error);
        }
        sleep(Duration::from_micros(500));
    }
    println!("{{\"acknowledged_ns\":{}}}", now_ns());
    Ok(())
}

/// Fetches of one batch each, at random offsets of partition 0, one after the other on one connection.
pub fn seek(mut arguments: Arguments) -> Result<()> {
    let address = arguments.address()?;
    let topic: String = arguments.require("topic")?;
    let count: u64 = arguments.get("count", 2000)?;
    arguments.finish()?;
    let limits = FetchLimits {
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: 1,
        partition_max_bytes: 1,
    };
    let head = wire::fetch_answer_head(&topic);
    let mut stream = connect_to(address)?;
    let answer = wire::call(&mut stream, &wire::fetch(&topic, &[(0, 0)], &limits))?;
    let end = wire::read_i64(&answer, head + 6);
    if end <= 0 {
        bail!("topic {topic} is empty");
    }
    let mut latencies = Latencies::new()?;
    let mut random = 12_345u64;
    for _ in 0..count {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let offset = ((random >> 16) % end as u64) as i64;
        let frame = wire::fetch(&topic, &[(0, offset)], &limits);
        let before = now_ns();
        let answer = wire::call(&mut stream, &frame)?;
        latencies.record(now_ns() - before);
        let records_at = head + 4 + 2 + 3 * 8 + 4 + 4 + 4;
        if wire::read_i16(&answer, head + 4) != 0 || answer.len() < records_at + 61 {
            bail!("offset {offset} of {end}: no batch");
        }
        let base = wire::read_i64(&answer, records_at);
        let last = base + i64::from(wire::read_i32(&answer, records_at + 23));
        if !(base..=last).contains(&offset) {
            bail!("offset {offset}: the batch of {base} to {last} came");
        }
    }
    println!("{{\"count\":{count},\"fetch_us\":{}}}", latencies.to_json());
    Ok(())
}

/// Opens connections, each proved by an answer, and holds them.
pub fn connect(mut arguments: Arguments) -> Result<()> {
    let address = arguments.address()?;
    let count: usize = arguments.require("connections")?;
    arguments.finish()?;
    let start = Instant::now();
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = connect_to(address)?;
        wire::call(&mut stream, &Request::new(wire::API_VERSIONS, 0).frame(0))?;
        held.push(stream);
    }
    println!("{{\"seconds\":{:.3}}}", start.elapsed().as_secs_f64());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
