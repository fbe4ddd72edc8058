//! A query over the travels collections with a little data.
#![no_main]

use std::sync::LazyLock;

use docs::catalog::Catalog;

#[path = "../../crates/docs/tests/fuzz_check/mod.rs"]
mod fuzz_check;
#[path = "../../crates/docs/tests/sql_memory/mod.rs"]
mod sql_memory;

static DATA: LazyLock<(sql_memory::Memory, Catalog)> = LazyLock::new(|| {
    let memory = fuzz_check::little();
    let plain = fuzz_check::without_indexes(&memory.catalog);
    (memory, plain)
});

libfuzzer_sys::fuzz_target!(|sql: &str| {
    let (memory, plain) = &*DATA;
    fuzz_check::check_sql(memory, plain, sql);
});
