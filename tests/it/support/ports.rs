//! Ports that belong to one test at a time, over all processes that run tests on the machine.
//!
//! A port is not found by listening on 0 and closing: a process that another thread is starting right then has that socket until it
//! becomes its program, and accepts connections meanwhile, which are closed without an answer. Nor may it be one that the system gives
//! to clients: a connection that is tried until the node listens may connect to itself.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};
use socket2::{Domain, SockAddr, Socket, Type};

/// Systems give clients none below 32,768.
const PORTS: Range<u32> = 10_000..32_768;

/// A port on 127.0.0.1 that nobody listens on, and that no other test gets while this is there.
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    pub fn free() -> Port {
        static FIRST: OnceLock<u32> = OnceLock::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let first = *FIRST.get_or_init(|| RandomState::new().hash_one(0) as u32 % PORTS.len() as u32);
        for _ in PORTS {
            let position = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS.len() as u32;
            let number = u16::try_from(PORTS.start + position).unwrap();
            if let Some(lock) = lock_of(number)
                && nobody_listens_on(number)
            {
                return Port { number, _lock: lock };
            }
        }
        panic!("every port of {PORTS:?} is taken");
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

/// `None`: another test has it. The lock ends with the file, or the process.
fn lock_of(number: u16) -> Option<File> {
    let directory = std::env::temp_dir().join("kavka-test-ports");
    std::fs::create_dir_all(&directory).unwrap();
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(directory.join(number.to_string()))
        .ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// By the rules by which a node binds. The socket does not listen: it accepts nothing and keeps no node from the port.
fn nobody_listens_on(number: u16) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    let address = std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, number));
    socket.bind(&SockAddr::from(address)).is_ok()
}

mod ports_test {
    use std::collections::HashSet;
    use std::net::{TcpListener, TcpStream};
    use std::process::Command;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn no_port_is_handed_out_twice_nor_one_that_is_listened_on() {
        let ports: Vec<Port> = (0..200).map(|_| Port::free()).collect();
        let numbers: HashSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        assert!(ports.iter().all(|port| lock_of(port.number()).is_none()));
        let listener = TcpListener::bind(("127.0.0.1", ports[0].number())).unwrap();
        assert!(!nobody_listens_on(listener.local_addr().unwrap().port()));
    }

    /// Of those that were listened on and closed one in a hundred was open.
    #[test]
    fn port_is_closed_while_other_threads_start_processes() {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        Command::new("true").status().unwrap();
                    }
                });
            }
            let open = (0..1000).filter(|_| TcpStream::connect(("127.0.0.1", Port::free().number())).is_ok());
            let open = open.count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(open, 0);
        });
    }
}
