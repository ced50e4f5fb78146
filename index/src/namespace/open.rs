//! Beginning and ending a session.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use super::memory::Memory;
use super::numbers::InoBlock;
use super::{Namespace, ROOT};
use crate::kv::{Compare, Op, Outcome, Txn};
use crate::schema::{self, Inode, MapRoot, Time, encode_number, keys};
use crate::{Error, Kv};

impl Namespace {
    /// Opens the namespace in an engine and begins a session, numbered `min_session` at least. An
    /// empty engine gets a root directory that belongs to `owner`.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn open(kv: Arc<dyn Kv>, min_session: u64, owner: (u32, u32)) -> Result<Self, Error> {
        let key = keys::session(kv.lease());
        let session = loop {
            let mut txn = Txn::new();
            txn.compare(Compare::Absent(key.clone()));
            txn.ops.push(Op::Put {
                key: key.clone(),
                value: encode_number(0),
                lease: Some(kv.lease()),
            });
            if kv.get(&keys::inode(ROOT))?.is_none() {
                txn.compare(Compare::Absent(keys::inode(ROOT)));
                txn.put(keys::inode(ROOT), root(owner).encode());
            }
            if let Outcome::Committed(version) = kv.commit(&txn)? {
                // Before anything carries the number: a crash must not give it to another one.
                kv.sync(version)?;
                if kv.is_shared() && version < min_session {
                    return Err(Error::Refused(
                        "the packs of the store are newer than its metadata, which was restored \
                         from a backup or belongs to another store"
                            .to_owned(),
                    ));
                }
                break version.max(min_session);
            }
            if kv.get(&key)?.is_some() {
                return Err(Error::SessionEnded("it has begun already".to_owned()));
            }
        };
        let mut namespace = Self {
            session,
            session_key: key,
            shared: kv.is_shared(),
            ..Self::over(kv)
        };
        // The commit that began the session has taken its first block.
        if namespace.is_free(session)? {
            namespace.inos = Mutex::new(InoBlock::new(session));
        }
        Ok(namespace)
    }

    /// The namespace in an engine that is only read. No session begins, and every change fails
    /// where the engine refuses it. `old_format` says that the keys are those of format 2.
    #[must_use]
    pub fn read_only(kv: Arc<dyn Kv>, old_format: bool) -> Self {
        Self {
            shared: kv.is_shared(),
            old_format,
            ..Self::over(kv)
        }
    }

    fn over(kv: Arc<dyn Kv>) -> Self {
        Self {
            session: 0,
            session_key: keys::session(kv.lease()),
            shared: false,
            old_format: false,
            moves: RwLock::new(()),
            inos: Mutex::default(),
            next_seq: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            parents: Mutex::new(HashMap::new()),
            memory: Memory::default(),
            fence: OnceLock::new(),
            named: Mutex::default(),
            kv,
        }
    }

    /// Takes back what says that this session is alive. Nothing may be changed afterwards.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn end_session(&self) -> Result<(), Error> {
        self.transact(|transaction| {
            let key = self.session_key.clone();
            transaction.txn().delete(key);
            Ok(())
        })
    }

    /// Numbers of the sessions that have not ended.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn live_sessions(&self) -> Result<Vec<u64>, Error> {
        let (start, end) = keys::sessions();
        let found = self.kv.range(&start, &end, usize::MAX)?;
        Ok(found.iter().map(|(_, value)| value.created).collect())
    }
}

fn root(owner: (u32, u32)) -> Inode {
    let now = Time::now();
    Inode {
        ino: ROOT,
        mode: schema::S_IFDIR | 0o755,
        uid: owner.0,
        gid: owner.1,
        rdev: 0,
        nlink: 2,
        size: 0,
        stored: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        parent: ROOT,
        chunk_shift: 20,
        phase: schema::Phase::New,
        target: Vec::new(),
        map: MapRoot::Inline(Vec::new()),
        since: 0,
    }
}
