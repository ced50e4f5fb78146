//! The engines under test.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shale_backing::PosixBacking;
use shale_index::engine::replicated::memory::MemoryServer;
use shale_index::engine::replicated::{Options, Replicated, Sabotage, import};
use shale_index::engine::{self, Embedded};
use shale_index::kv::{Import, Lease};
use shale_index::testing::conformance::Fixture;
use shale_index::{Error, Kv};
use tempfile::TempDir;

/// The embedded engine and its directory.
pub(crate) struct InDirectory {
    kv: Arc<dyn Kv>,
    _dir: TempDir,
}

pub(crate) fn embedded() -> InDirectory {
    let dir = TempDir::new().unwrap();
    let backing = Arc::new(PosixBacking::new(dir.path()));
    let (kv, _) = Embedded::open(backing, engine::Options::default()).unwrap();
    InDirectory {
        kv: Arc::new(kv),
        _dir: dir,
    }
}

impl Fixture for InDirectory {
    fn session(&self) -> Arc<dyn Kv> {
        Arc::clone(&self.kv)
    }

    fn shared(&self) -> bool {
        false
    }
}

/// Sessions of a server in memory.
pub(crate) struct Servers {
    server: MemoryServer,
    options: Options,
    /// Seed and share of the faults that every client suffers.
    faults: Option<(u64, u32)>,
    clients: Mutex<HashMap<Lease, MemoryServer>>,
}

impl Servers {
    pub(crate) fn new() -> Self {
        Self::broken(Sabotage::None)
    }

    pub(crate) fn broken(sabotage: Sabotage) -> Self {
        let options = Options {
            prefix: b"/shale/test/".to_vec(),
            pause: Duration::from_micros(100),
            sabotage,
            ..Options::default()
        };
        Self {
            server: MemoryServer::new(),
            options,
            faults: None,
            clients: Mutex::default(),
        }
    }

    pub(crate) fn unreliable(seed: u64, per_mille: u32) -> Self {
        let servers = Self::new();
        servers.server.confuse_watches(seed);
        Self {
            faults: Some((seed, per_mille)),
            ..servers
        }
    }

    fn client(&self) -> MemoryServer {
        let client = self.server.client();
        let number = self.clients.lock().unwrap().len() as u64;
        if let Some((seed, per_mille)) = self.faults {
            client.inject_randomly(seed.wrapping_add(number << 32), per_mille);
        }
        client
    }

    fn client_of(&self, session: Lease) -> MemoryServer {
        self.clients.lock().unwrap()[&session].clone()
    }
}

impl Fixture for Servers {
    fn session(&self) -> Arc<dyn Kv> {
        let client = self.client();
        let kv = Replicated::open(client.clone(), self.options.clone()).unwrap();
        self.clients.lock().unwrap().insert(kv.lease(), client);
        Arc::new(kv)
    }

    fn shared(&self) -> bool {
        true
    }

    fn freeze_past_lease(&self, session: Lease) -> bool {
        self.client_of(session).freeze();
        self.server.expire(session.0.cast_signed());
        true
    }

    fn thaw(&self, session: Lease) {
        self.client_of(session).thaw();
    }

    fn lose_answers(&self, session: Lease, per_mille: u32) -> bool {
        self.client_of(session)
            .inject_randomly(session.0, per_mille);
        true
    }

    fn compact(&self) -> bool {
        self.server.compact();
        true
    }

    fn lag_watches(&self, lag: bool) -> bool {
        self.server.lag_watches(lag);
        true
    }

    fn break_watches(&self, broken: bool) -> bool {
        self.server.break_watches(broken);
        true
    }

    fn import(&self, pairs: Vec<Import>) -> Option<Result<(), Error>> {
        Some(import(self.client(), self.options.clone(), pairs, 0))
    }
}
