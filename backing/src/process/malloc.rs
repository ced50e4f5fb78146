//! Freed memory that the allocator still holds.

/// Returns freed memory to the machine. It walks through everything the allocator holds, so call
/// it only when no request is waiting.
pub fn release_memory() {
    #[cfg(target_env = "gnu")]
    trim();
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn trim() {
    // SAFETY: takes a number only, and any thread may call it at any time.
    let _ = unsafe { libc::malloc_trim(0) };
}
