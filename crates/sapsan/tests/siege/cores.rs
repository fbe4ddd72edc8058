//! The server has half of the machine's cores and all clients the others: in earnest attackers do not run on the server's cores,
//! and what is measured is what they cost the server. A machine with a single core is shared.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Begins something as a program of the server: what this thread starts meanwhile stays on the server's cores. This thread goes on
/// on those of the clients.
pub(crate) fn of_server<T>(begin: impl FnOnce() -> T) -> T {
    let Some((server, clients)) = halves() else { return begin() };
    run_on(&server);
    let begun = begin();
    run_on(&clients);
    begun
}

fn run_on(cores: &CpuSet) {
    sched_setaffinity(None, cores).expect("cores of this machine");
}

/// The cores of the server and those of the clients, by those that this process has.
fn halves() -> Option<(CpuSet, CpuSet)> {
    static CORES: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    let cores = CORES.get_or_init(|| {
        // Asked for before any thread is confined.
        let all = sched_getaffinity(None).expect("this thread's cores");
        (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect()
    });
    let (first, others) = cores.split_at(cores.len() / 2);
    let set = |cores: &[usize]| {
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
        set
    };
    (!first.is_empty()).then(|| (set(first), set(others)))
}
