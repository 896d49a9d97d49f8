//! A blocking client that speaks one request at a time over a raw socket, in any version.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use super::node::PATIENCE;

/// A connection to a node.
pub struct Client {
    stream: TcpStream,
    correlation_id: i32,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client {
            stream,
            correlation_id: 0,
        }
    }

    /// A connection, if the node listens.
    pub fn try_connect(address: SocketAddr) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client {
            stream,
            correlation_id: 0,
        })
    }

    /// Like `call`, but `None` when the connection ends before the response.
    pub fn try_call<R: Request>(&mut self, version: i16, request: &R) -> Option<R::Response> {
        self.correlation_id += 1;
        let frame = encode_request(version, self.correlation_id, request);
        self.stream.write_all(&frame).ok()?;
        let frame = self.try_receive_frame()?;
        Some(decode_response::<R>(version, self.correlation_id, frame))
    }

    /// The socket, for tests that send what no client would.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends a request and returns its decoded response.
    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.send(version, request);
        self.receive::<R>(version)
    }

    /// Sends without waiting for the response.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) {
        self.correlation_id += 1;
        let frame = encode_request(version, self.correlation_id, request);
        self.stream.write_all(&frame).unwrap();
    }

    /// Receives the response of an earlier `send`.
    pub fn receive<R: Request>(&mut self, version: i16) -> R::Response {
        let mut frame = self.receive_frame();
        let header = ResponseHeader::decode(&mut frame, R::Response::header_version(version)).unwrap();
        assert!(header.correlation_id <= self.correlation_id && header.correlation_id > 0);
        let response = R::Response::decode(&mut frame, version).unwrap();
        assert!(
            !frame.has_remaining(),
            "{} bytes after the response",
            frame.remaining()
        );
        response
    }

    /// One frame without its length.
    pub fn receive_frame(&mut self) -> Bytes {
        self.try_receive_frame().expect("the connection was closed")
    }

    /// One frame, or `None` when the peer closed the connection.
    pub fn try_receive_frame(&mut self) -> Option<Bytes> {
        let mut length = [0; 4];
        if self.stream.read_exact(&mut length).is_err() {
            return None;
        }
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut frame).ok()?;
        Some(Bytes::from(frame))
    }
}

fn decode_response<R: Request>(version: i16, last_correlation_id: i32, mut frame: Bytes) -> R::Response {
    let header = ResponseHeader::decode(&mut frame, R::Response::header_version(version)).unwrap();
    assert!((1..=last_correlation_id).contains(&header.correlation_id));
    let response = R::Response::decode(&mut frame, version).unwrap();
    assert!(
        !frame.has_remaining(),
        "{} bytes after the response",
        frame.remaining()
    );
    response
}

/// A request as it goes over the wire, with its length.
pub fn encode_request<R: Request>(version: i16, correlation_id: i32, request: &R) -> Bytes {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_static_str("kavka-it")));
    let mut body = BytesMut::new();
    header.encode(&mut body, R::header_version(version)).unwrap();
    request.encode(&mut body, version).unwrap();
    let mut frame = BytesMut::with_capacity(body.len() + 4);
    frame.put_u32(body.len() as u32);
    frame.put(body);
    frame.freeze()
}
