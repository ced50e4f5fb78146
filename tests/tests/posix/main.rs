//! POSIX and Linux semantics, tested directly.
//!
//! Cases that pjdfstest and fsx do not reach: sparse files, fallocate, locks, mappings shared by
//! processes, extended attributes, directories that change under readdir.

use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{Need, Suite, python};

mod contents;
mod names;
mod rights;
mod sharing;
mod space;
mod stale;
mod times;
mod xattrs;

fn main() -> ExitCode {
    let suite = Suite::new("posix")
        .need(Need::Command("setfacl"))
        .need(Need::Command("getfacl"))
        .need(Need::Command("flock"))
        .need(Need::File(python()))
        .limit(Duration::from_secs(180))
        .test(
            "append_from_two_handles_loses_nothing",
            contents::append_from_two_handles,
        )
        .test(
            "concurrent_appenders_lose_nothing",
            contents::concurrent_appenders,
        )
        .test(
            "open_with_truncation_empties",
            contents::open_with_truncation,
        )
        .test("direct_io_and_page_cache_agree", contents::direct_io)
        .test(
            "asynchronous_direct_writes_leave_no_stale_pages",
            stale::pages,
        )
        .test(
            "every_way_of_writing_shows_in_the_times",
            times::times_of_writes,
        )
        .test(
            "mapped_writes_show_in_the_times",
            sharing::times_of_mapped_writes,
        )
        .test(
            "truncated_bytes_do_not_come_back",
            contents::truncate_down_and_up,
        )
        .test("files_beyond_4_gib_and_1_tib", contents::sparse_giants)
        .test(
            "size_is_right_in_mid_write_from_every_handle",
            contents::size_in_mid_write,
        )
        .test(
            "unlinked_but_open_file_lives_on",
            contents::unlinked_but_open,
        )
        .test(
            "replaced_file_lives_on_in_open_handles",
            contents::replaced_but_open,
        )
        .test("nanosecond_times_are_kept", times::nanosecond_times)
        .test("times_do_not_run_backwards", times::order_of_times)
        .test(
            "explicit_times_survive_writeback",
            times::explicit_times_survive_writeback,
        )
        .test(
            "times_of_direct_and_cached_writes_are_kept",
            times::times_of_mixed_writes,
        )
        .test("killed_readers_are_not_logged", contents::killed_readers)
        .test("vectored_and_positioned_io_agree", contents::small_pieces)
        .test(
            "chunks_partly_noise_partly_constant",
            contents::mixed_chunks,
        )
        .test(
            "fallocate_allocates_keeps_size_punches_and_zeroes",
            space::fallocate_modes,
        )
        .test("fallocate_refuses_nonsense", space::fallocate_refusals)
        .test("seek_finds_holes_and_data", space::seek_hole_and_data)
        .test("copy_file_range_copies", space::copy_ranges)
        .test("statfs_is_sane", space::statfs_is_sane)
        .test(
            "blocks_count_what_is_written",
            space::blocks_count_what_is_written,
        )
        .test(
            "xattrs_create_replace_list_remove",
            xattrs::create_replace_list_remove,
        )
        .test("xattr_limits", xattrs::limits)
        .test("xattr_namespaces", xattrs::namespaces)
        .test("default_acl_is_inherited", rights::default_acl_is_inherited)
        .test(
            "acl_decides_access_and_chmod_changes_its_mask",
            rights::acl_decides_access,
        )
        .test(
            "setid_bits_are_cleared_by_write_truncate_and_chown",
            rights::setid_bits_are_cleared,
        )
        .test(
            "capabilities_are_dropped_by_any_write",
            rights::capabilities_are_dropped,
        )
        .test(
            "setgid_directory_passes_its_group_on",
            rights::setgid_directory,
        )
        .test(
            "sticky_directory_protects_the_files_of_others",
            rights::sticky_directory,
        )
        .test("names_of_255_bytes_and_any_byte", names::any_bytes)
        .test("rename_noreplace_and_exchange", names::rename_flags)
        .test(
            "directories_move_with_their_parents",
            names::directories_move,
        )
        .test("special_files_and_links", names::special_files)
        .test(
            "readdir_is_stable_while_entries_come_and_go",
            names::readdir_under_change,
        )
        .test(
            "deleting_while_listing_empties_the_directory",
            names::delete_while_listing,
        )
        .test(
            "everything_survives_a_remount",
            names::everything_survives_a_remount,
        )
        .test(
            "shared_mapping_is_coherent_between_processes",
            sharing::shared_mapping,
        )
        .test("flock_excludes_other_processes", sharing::flock_excludes)
        .test("fcntl_locks_exclude_other_processes", sharing::fcntl_locks)
        .test("two_thousand_mapped_handles", sharing::two_thousand_handles)
        .limit(Duration::from_secs(400))
        .test("memory_stays_within_its_bound", sharing::memory_bound);
    suite.run()
}
