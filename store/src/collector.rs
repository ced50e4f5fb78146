//! A thread that rewrites packs of which little is alive.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use shale_backing::{Priority, set_priority};

use crate::frames::FrameEncoder;
use crate::store::Inner;
use crate::{Error, Store};

/// How often it looks for packs by itself.
const TICK: Duration = Duration::from_secs(1);

/// What the thread is asked to do, and what it has done.
#[derive(Debug, Default)]
pub(crate) struct Control {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    /// Rewrite everything of which less than so many percent is alive.
    requested: Option<u64>,
    running: bool,
}

impl Control {
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// What to do next; `None` to end. The inner option is the percentage that was asked for.
    fn next(&self) -> Option<Option<u64>> {
        let mut state = self.state.lock();
        state.running = false;
        if !state.stop && state.requested.is_none() {
            self.wake.wait_for(&mut state, TICK);
        }
        if state.stop {
            return None;
        }
        state.running = true;
        Some(state.requested.take())
    }
}

impl Store {
    /// Asks for packs to be rewritten of which less than `percent` is alive.
    pub fn collect(&self, percent: u64) {
        let control = &self.inner.collector;
        control.state.lock().requested = Some(percent);
        control.wake.notify_all();
    }

    /// Whether packs are being rewritten, or are going to be because somebody asked for it.
    #[must_use]
    pub fn is_collecting(&self) -> bool {
        let state = self.inner.collector.state.lock();
        state.requested.is_some() || state.running
    }

    /// Stored bytes that nothing needs any more, in packs that do not grow.
    #[must_use]
    pub fn garbage(&self) -> u64 {
        let packs = &self.inner.frames.packs;
        packs
            .live()
            .into_iter()
            .filter(|&(pack, _)| packs.is_quiet(pack))
            .filter_map(|(pack, live)| Some(packs.len(pack).ok()?.saturating_sub(live)))
            .sum()
    }
}

pub(crate) fn work(inner: &Inner) {
    set_priority(Priority::Low);
    let mut encoder = FrameEncoder::new();
    while let Some(percent) = inner.collector.next() {
        match catch_unwind(AssertUnwindSafe(|| pass(inner, percent, &mut encoder))) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => tracing::warn!("collecting garbage is put off: {e}"),
            Err(_) => tracing::error!("collecting garbage panicked; please report this"),
        }
    }
}

fn pass(inner: &Inner, percent: Option<u64>, encoder: &mut FrameEncoder) -> Result<(), Error> {
    if percent.is_some() {
        // What has been written so far takes part.
        inner.frames.packs.roll();
        inner.committer.run()?;
    } else if !inner.frames.packs.take_shrunk() {
        return Ok(());
    }
    while !inner.collector.is_stopped() && inner.check().is_ok() {
        let Some(pack) = inner.worst_pack(percent)? else {
            return Ok(());
        };
        let live = inner.frames.packs.live().get(&pack).copied();
        inner.rewrite(pack, encoder)?;
        let counters = &inner.frames.packs.counters;
        counters.packs_rewritten.one();
        counters.bytes_rewritten.add(live.unwrap_or(0));
        // The committer deletes it, once that is durable.
        inner.committer.run()?;
        if inner
            .frames
            .packs
            .live()
            .get(&pack)
            .is_some_and(|&live| live > 0)
        {
            // Something in it cannot be moved: do not try for ever.
            return Ok(());
        }
    }
    Ok(())
}
