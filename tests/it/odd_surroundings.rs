//! What surrounds the process is odd: nobody reads its output, its environment is no text.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use kafka_protocol::messages::ApiVersionsRequest;

use crate::support::client::Client;
use crate::support::node::{Node, kavka_command, wait_until};

/// `kavka 2>&1 | head -1`: every later line has nobody to read it, also the lines that say so.
#[test]
fn node_whose_output_is_not_read_goes_on() {
    let mut node = Node::start_unread(&[]);
    for _ in 0..3 {
        let mut stream = TcpStream::connect(node.address()).unwrap();
        // No such API: the connection is closed with a line.
        stream
            .write_all(&[0, 0, 0, 8, 0x7f, 0xff, 0, 0, 0, 0, 0, 1])
            .unwrap();
        wait_until("the connection is closed", || {
            stream.read(&mut [0; 1]).is_ok_and(|count| count == 0)
        });
    }
    let answer = Client::connect(node.address()).call(0, &ApiVersionsRequest::default());
    assert_eq!(answer.error_code, 0);
    node.terminate();
}

#[test]
fn environment_that_is_no_text_is_no_panic() {
    let odd = OsStr::from_bytes(b"caf\xe9");
    let output = kavka_command(&[Path::new("health"), Path::new("--bootstrap-server=localhost:1")])
        .env(odd, odd)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let output = kavka_command(&[Path::new("docker-run"), Path::new("KAFKA_NODE_ID=x")])
        .env("KAFKA_PROCESS_ROLES", odd)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}
