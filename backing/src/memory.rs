//! Memory that was freed and that the allocator keeps.

/// Gives freed memory back to the machine. It walks through all that the allocator holds, so it
/// is for times in which nobody waits.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    trim();
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn trim() {
    // SAFETY: takes a number only, and any thread may call it at any time.
    let _ = unsafe { libc::malloc_trim(0) };
}
