//! `kavka health [--bootstrap-server HOST:PORT]`: connects as a client, asks for ApiVersions and Metadata, and says by the exit
//! code whether the node there serves clients. For health checks of containers; it never hangs. Without an address it asks the
//! node that `docker` runs in this environment: by the KAFKA_* variables, and with none of them localhost:9092.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::config::listeners::parse_host_port;
use crate::protocol::messages::{ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse};
use crate::protocol::{ApiKey, Decodable, Encodable};

use super::docker::Health;
use super::{CliError, docker};

/// Until a health check's own limit (Docker's is 30 s) there must be an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_SIZE_MAX: usize = 16 * 1024 * 1024;

pub(super) fn run(arguments: Vec<OsString>) -> Result<(), CliError> {
    use lexopt::Arg::Long;
    let mut server = None;
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(CliError::new)? {
        match argument {
            Long("bootstrap-server") => {
                let value = parser.value().map_err(CliError::new)?;
                server = Some(value.to_string_lossy().into_owned());
            }
            other => return Err(CliError::new(format!("kavka health: {}", other.unexpected()))),
        }
    }
    let node = match server {
        Some(server) => Health::Broker(
            parse_host_port(&server).ok_or_else(|| CliError::new(format!("{server}: expected HOST:PORT")))?,
        ),
        None => docker::health_address(super::environment())?,
    };
    let (checked, (host, port)) = match &node {
        Health::Broker(address) => (check_broker(address), address),
        Health::Controller(address) => (check_controller(address), address),
    };
    checked.map_err(|error| CliError::new(format!("{host}:{port}: {error}")))
}

/// A controller serves no Metadata: it is healthy when it answers.
fn check_controller((host, port): &(String, u16)) -> Result<(), CliError> {
    check_api_versions(&mut connect(host, *port)?)
}

fn check_api_versions(stream: &mut TcpStream) -> Result<(), CliError> {
    // Version 0, which every node answers.
    let versions: ApiVersionsResponse = call(stream, ApiKey::ApiVersions, 0, &ApiVersionsRequest::default())?;
    match versions.error_code {
        0 => Ok(()),
        code => Err(CliError::new(format!("ApiVersions answered error {code}"))),
    }
}

fn check_broker((host, port): &(String, u16)) -> Result<(), CliError> {
    let mut stream = connect(host, *port)?;
    check_api_versions(&mut stream)?;
    // An empty list of topics asks for the brokers only.
    let request = MetadataRequest::default().with_topics(Some(Vec::new()));
    let metadata: MetadataResponse = call(&mut stream, ApiKey::Metadata, 1, &request)?;
    if metadata.brokers.is_empty() {
        return Err(CliError::new("no broker is registered and unfenced"));
    }
    Ok(())
}

fn connect(host: &str, port: u16) -> Result<TcpStream, CliError> {
    let mut last = CliError::new("the name has no address");
    for address in (host, port).to_socket_addrs().map_err(CliError::new)? {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(TIMEOUT)).map_err(CliError::new)?;
                stream.set_write_timeout(Some(TIMEOUT)).map_err(CliError::new)?;
                return Ok(stream);
            }
            Err(error) => last = CliError::new(error),
        }
    }
    Err(last)
}

/// One request with a version-1 header, one response with a version-0 header: both versions used here are not flexible.
fn call<Request: Encodable, Response: Decodable>(
    stream: &mut TcpStream,
    api_key: ApiKey,
    version: i16,
    request: &Request,
) -> Result<Response, CliError> {
    const CORRELATION_ID: i32 = 1;
    const CLIENT_ID: &str = "kavka-health";
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    frame.put_i16(api_key as i16);
    frame.put_i16(version);
    frame.put_i32(CORRELATION_ID);
    frame.put_i16(CLIENT_ID.len() as i16);
    frame.put_slice(CLIENT_ID.as_bytes());
    request.encode(&mut frame, version).map_err(CliError::new)?;
    let size = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&size.to_be_bytes());
    stream.write_all(&frame).map_err(CliError::new)?;

    let mut size = [0; 4];
    stream.read_exact(&mut size).map_err(CliError::new)?;
    let size = u32::from_be_bytes(size) as usize;
    if !(4..=RESPONSE_SIZE_MAX).contains(&size) {
        return Err(CliError::new(format!(
            "a response of {size} bytes: that is no Kafka node"
        )));
    }
    let mut body = vec![0; size];
    stream.read_exact(&mut body).map_err(CliError::new)?;
    let mut body = Bytes::from(body);
    if body.get_i32() != CORRELATION_ID {
        return Err(CliError::new(
            "the answer to another request: that is no Kafka node",
        ));
    }
    Response::decode(&mut body, version).map_err(CliError::new)
}

#[cfg(test)]
mod health_test {
    use std::net::TcpListener;

    use super::*;
    use crate::protocol::messages::BrokerId;
    use crate::protocol::messages::metadata_response::MetadataResponseBroker;

    /// A listener that answers each connection's requests with the given bodies.
    fn server(bodies: Vec<Vec<u8>>) -> (String, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for body in bodies {
                let mut size = [0; 4];
                stream.read_exact(&mut size).unwrap();
                let mut request = vec![0; u32::from_be_bytes(size) as usize];
                stream.read_exact(&mut request).unwrap();
                let mut frame = ((body.len() + 4) as u32).to_be_bytes().to_vec();
                frame.extend_from_slice(&request[4..8]);
                frame.extend_from_slice(&body);
                stream.write_all(&frame).unwrap();
            }
        });
        address
    }

    fn encoded(message: &impl Encodable, version: i16) -> Vec<u8> {
        let mut buffer = BytesMut::new();
        message.encode(&mut buffer, version).unwrap();
        buffer.to_vec()
    }

    #[test]
    fn node_with_a_broker_is_healthy() {
        let broker = MetadataResponseBroker::default().with_node_id(BrokerId(1));
        let metadata = MetadataResponse::default().with_brokers(vec![broker]);
        let versions = encoded(&ApiVersionsResponse::default(), 0);
        check_broker(&server(vec![versions.clone(), encoded(&metadata, 1)])).unwrap();
        check_controller(&server(vec![versions])).unwrap();
    }

    #[test]
    fn node_without_brokers_or_with_nonsense_is_not() {
        let versions = encoded(&ApiVersionsResponse::default(), 0);
        let message = |bodies| check_broker(&server(bodies)).unwrap_err().to_string();
        let metadata = encoded(&MetadataResponse::default(), 1);
        assert_eq!(
            message(vec![versions, metadata]),
            "no broker is registered and unfenced"
        );
        assert!(!message(vec![vec![1]]).is_empty());
        assert!(run(vec!["--bootstrap-server".into(), "127.0.0.1".into()]).is_err());
    }

    #[test]
    fn nobody_listening_is_not_healthy() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
        drop(listener);
        assert!(check_broker(&address).is_err());
    }
}
