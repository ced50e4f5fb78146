//! Priorities of threads for processor and device.

/// How a thread competes with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Yields to threads that answer requests.
    Background,
    /// Yields to all other threads, but gets its share of the device.
    Low,
    /// Runs only when processor and device are otherwise idle.
    Idle,
}

/// Sets the priority of the calling thread; threads that it starts inherit it. A refusal is
/// ignored: the thread works at any priority.
pub fn set_priority(priority: Priority) {
    let (nice, io) = match priority {
        Priority::Background => (5, None),
        Priority::Low => (15, Some(io_priority(CLASS_BEST_EFFORT, 7))),
        Priority::Idle => (19, Some(io_priority(CLASS_IDLE, 0))),
    };
    set_nice(nice);
    if let Some(io) = io {
        set_io(io);
    }
}

const CLASS_BEST_EFFORT: i32 = 2;
const CLASS_IDLE: i32 = 3;
const CLASS_SHIFT: i32 = 13;
const WHO_PROCESS: i32 = 1;
/// The calling thread.
const SELF: i32 = 0;

fn io_priority(class: i32, level: i32) -> i32 {
    class << CLASS_SHIFT | level
}

#[allow(unsafe_code)]
fn set_nice(nice: i32) {
    // SAFETY: takes numbers only; on Linux the process 0 is the calling thread.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

#[allow(unsafe_code)]
fn set_io(priority: i32) {
    // SAFETY: takes numbers only.
    let _ = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, SELF, priority) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_the_priority_and_its_parent_keeps_its_own() {
        let nice = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let rest = stat.rsplit(')').next().unwrap().to_owned();
            rest.split_whitespace()
                .nth(16)
                .unwrap()
                .parse::<i32>()
                .unwrap()
        };
        let before = nice();
        let inside = std::thread::spawn(move || {
            set_priority(Priority::Idle);
            nice()
        })
        .join()
        .unwrap();
        assert_eq!(inside, 19);
        assert_eq!(nice(), before);
    }
}
