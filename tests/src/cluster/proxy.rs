//! A TCP proxy between a client and a server of gRPC, which loses what it is told to lose.
//!
//! It reads the frames of HTTP/2 that the server sends, so that an answer can be lost after the
//! server has done what it was asked for: the connection is closed when the first frame of the
//! answer arrives, and not when the server acknowledges bytes of the request.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Outcome, Rng};

/// Length, type, flags and stream of a frame.
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;

/// The proxy; its connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    is_cut: AtomicBool,
    is_over: AtomicBool,
    is_held: AtomicBool,
    delay_ms: AtomicU64,
    /// Answers to lose from now on.
    to_lose: AtomicU64,
    /// One answer in so many is lost; 0 for none.
    one_in: AtomicU64,
    lost: AtomicU64,
    rng: Mutex<Rng>,
    open: Mutex<Vec<Arc<Connection>>>,
}

#[derive(Debug)]
struct Connection {
    client: TcpStream,
    server: TcpStream,
}

impl Connection {
    fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl Proxy {
    /// Listens on a port of its own.
    pub fn start(target: SocketAddr, seed: u64) -> Outcome<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            is_cut: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            delay_ms: AtomicU64::new(0),
            to_lose: AtomicU64::new(0),
            one_in: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            rng: Mutex::new(Rng::new(seed)),
            open: Mutex::new(Vec::new()),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accepting.accept(&listener));
        Ok(Self { address, shared })
    }

    /// Where clients connect.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends all connections and accepts none.
    pub fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::SeqCst);
        self.shared.close_all();
    }

    /// Accepts connections again.
    pub fn join(&self) {
        self.shared.is_cut.store(false, Ordering::SeqCst);
    }

    /// Keeps everything that is sent, in both directions, until this is called with `false`.
    pub fn hold(&self, held: bool) {
        self.shared.is_held.store(held, Ordering::SeqCst);
    }

    /// Holds back every frame of the server for this long.
    pub fn delay(&self, delay: Duration) {
        let ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.shared.delay_ms.store(ms, Ordering::SeqCst);
    }

    /// Loses the next answers: each ends its connection.
    pub fn lose_next(&self, answers: u64) {
        self.shared.to_lose.store(answers, Ordering::SeqCst);
    }

    /// Loses one answer in so many, by chance; 0 for none.
    pub fn lose_one_in(&self, answers: u64) {
        self.shared.one_in.store(answers, Ordering::SeqCst);
    }

    /// Answers lost so far.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.hold(false);
        self.cut();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming().flatten() {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            if self.is_cut.load(Ordering::SeqCst) {
                continue;
            }
            // A client that is not served sees its connection end.
            let _ = self.connect(client);
        }
    }

    fn connect(self: &Arc<Self>, client: TcpStream) -> std::io::Result<()> {
        let server = TcpStream::connect_timeout(&self.target, Duration::from_secs(1))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let connection = Arc::new(Connection { client, server });
        self.connections().push(Arc::clone(&connection));
        let (shared, asking) = (Arc::clone(self), Arc::clone(&connection));
        std::thread::spawn(move || {
            let _ = shared.ask(&asking.client, &asking.server);
            asking.close();
        });
        let shared = Arc::clone(self);
        std::thread::spawn(move || {
            let _ = shared.answer(&connection.server, &connection.client);
            connection.close();
            shared
                .connections()
                .retain(|open| !Arc::ptr_eq(open, &connection));
        });
        Ok(())
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes on what the client sends.
    fn ask(&self, mut client: &TcpStream, mut server: &TcpStream) -> std::io::Result<()> {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let length = client.read(&mut bytes)?;
            if length == 0 {
                return Ok(());
            }
            self.wait_while_held();
            server.write_all(&bytes[..length])?;
        }
    }

    fn wait_while_held(&self) {
        while self.is_held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Passes frames of the server on until one is to be lost.
    fn answer(&self, mut server: &TcpStream, mut client: &TcpStream) -> std::io::Result<()> {
        let mut frame = vec![0; FRAME_HEADER];
        loop {
            frame.truncate(FRAME_HEADER);
            server.read_exact(&mut frame)?;
            let length =
                usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2]);
            frame.resize(FRAME_HEADER + length, 0);
            server.read_exact(&mut frame[FRAME_HEADER..])?;
            if frame[3] == HEADERS && self.is_lost() {
                return Ok(());
            }
            let delay = self.delay_ms.load(Ordering::SeqCst);
            if delay > 0 {
                std::thread::sleep(Duration::from_millis(delay));
            }
            self.wait_while_held();
            client.write_all(&frame)?;
        }
    }

    fn is_lost(&self) -> bool {
        let fewer = |left: u64| left.checked_sub(1);
        let is_next = self
            .to_lose
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer)
            .is_ok();
        let one_in = self.one_in.load(Ordering::SeqCst);
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let is_lost = is_next || (one_in > 0 && rng.below(one_in) == 0);
        self.lost.fetch_add(u64::from(is_lost), Ordering::SeqCst);
        is_lost
    }

    fn close_all(&self) {
        for connection in self.connections().drain(..) {
            connection.close();
        }
    }
}
