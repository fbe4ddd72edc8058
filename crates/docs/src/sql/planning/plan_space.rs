//! The plans of all prepared queries, within one limit of bytes. If they do not fit, the least recently used ones are evicted.
//!
//! A query has a plan for each set of present optional parameters, and there may be thousands of queries. A plan is made on
//! first use, in about a tenth of a millisecond, and kept in its query's list. A thread remembers the plans that it used last
//! ([`NearPlans`]), so that most executions find theirs without a lock.
//!
//! Invariants:
//!
//! - A plan counts from its insertion into a list until its memory is freed. So it counts while an execution or a thread still
//!   holds it, even after its eviction.
//! - A plan that has no room even after [`EVICTIONS_MAX`] evictions is used once and not kept.
//! - A plan made from counts that have moved meanwhile is not inserted ([`Plans::forget`]).
//! - The lock of the space is taken before that of a list. Neither is held while a plan is made.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::plan::Plan;

/// Default limit of the bytes of all plans.
pub const PLAN_BYTES_DEFAULT: usize = 16 << 20;
/// Most plans that are evicted to make room for one.
const EVICTIONS_MAX: usize = 64;
/// Stale places allowed in the queue, beyond twice the number of plans, before they are swept.
const GONE_MAX: usize = 64;
/// Plans that a thread remembers: all plans of two queries with five optional parameters.
const NEAR_MAX: usize = 64;

/// The space of all plans. Cheap to clone; the default has room for [`PLAN_BYTES_DEFAULT`].
#[derive(Clone)]
pub struct PlanSpace {
    shared: Arc<Shared>,
}

struct Shared {
    bytes_max: usize,
    bytes: AtomicUsize,
    kept: AtomicUsize,
    made: AtomicU64,
    evicted: AtomicU64,
    /// Kept plans, in the order in which they were made or last examined. Lists change only under this lock.
    queue: Mutex<VecDeque<Place>>,
}

/// A plan's list and key, and its last use when the queue last examined it.
struct Place {
    list: Weak<Mutex<List>>,
    key: u32,
    seen: u64,
}

/// The plans of one query, by key.
type List = Vec<(u32, Arc<KeptPlan>)>;

pub(crate) struct KeptPlan {
    plan: Plan,
    bytes: usize,
    /// The value of `made` at its last use.
    used: AtomicU64,
    /// It was not removed from its list.
    is_listed: AtomicBool,
    shared: Arc<Shared>,
}

impl KeptPlan {
    #[inline]
    fn note_use(&self) {
        let now = self.shared.made.load(Ordering::Relaxed);
        if self.used.load(Ordering::Relaxed) != now {
            self.used.store(now, Ordering::Relaxed);
        }
    }
}

impl Drop for KeptPlan {
    fn drop(&mut self) {
        self.shared.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.shared.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The plans of one query.
pub(crate) struct Plans {
    list: Arc<Mutex<List>>,
    /// How often its plans were dropped.
    generation: AtomicU64,
    space: PlanSpace,
}

/// A plan that is in use.
pub(crate) enum PlanInUse {
    Kept(Arc<KeptPlan>),
    /// There is no room to keep it.
    Own(Box<Plan>),
}

impl Deref for PlanInUse {
    type Target = Plan;
    #[inline]
    fn deref(&self) -> &Plan {
        match self {
            PlanInUse::Kept(kept) => &kept.plan,
            PlanInUse::Own(plan) => plan,
        }
    }
}

/// The plans that a thread used last, by their query's number and their key.
pub(crate) struct NearPlans {
    near: [Option<Near>; NEAR_MAX],
}

impl Default for NearPlans {
    fn default() -> NearPlans {
        NearPlans { near: [const { None }; NEAR_MAX] }
    }
}

struct Near {
    query: usize,
    key: u32,
    kept: Arc<KeptPlan>,
}

impl NearPlans {
    #[inline]
    fn place(&mut self, query: usize, key: u32) -> &mut Option<Near> {
        &mut self.near[query.wrapping_add(key as usize) % NEAR_MAX]
    }

    /// Takes a plan for an execution, unless it was removed from its list.
    #[inline]
    pub(in crate::sql) fn take(&mut self, query: usize, key: u32) -> Option<PlanInUse> {
        let near = self.place(query, key).take_if(|near| near.query == query && near.key == key)?;
        near.kept.note_use();
        near.kept.is_listed.load(Ordering::Relaxed).then_some(PlanInUse::Kept(near.kept))
    }

    /// Puts a plan back, or remembers a new one.
    #[inline]
    pub(in crate::sql) fn put(&mut self, query: usize, key: u32, held: PlanInUse) {
        if let PlanInUse::Kept(kept) = held {
            *self.place(query, key) = Some(Near { query, key, kept });
        }
    }
}

fn locked(list: &Mutex<List>) -> MutexGuard<'_, List> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of a key in a list, or where to insert it.
fn find(list: &List, key: u32) -> Result<usize, usize> {
    list.binary_search_by_key(&key, |(key, _)| *key)
}

impl Default for PlanSpace {
    fn default() -> PlanSpace {
        PlanSpace::new(PLAN_BYTES_DEFAULT)
    }
}

impl std::fmt::Debug for PlanSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlanSpace").field("bytes", &self.bytes()).field("bytes_max", &self.shared.bytes_max).finish()
    }
}

impl PlanSpace {
    /// Room for `bytes_max` bytes of plans.
    pub fn new(bytes_max: usize) -> PlanSpace {
        PlanSpace {
            shared: Arc::new(Shared {
                bytes_max,
                bytes: AtomicUsize::new(0),
                kept: AtomicUsize::new(0),
                made: AtomicU64::new(0),
                evicted: AtomicU64::new(0),
                queue: Mutex::default(),
            }),
        }
    }

    /// Bytes of all kept plans.
    pub fn bytes(&self) -> usize {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// How many plans have been made.
    pub fn made(&self) -> u64 {
        self.shared.made.load(Ordering::Relaxed)
    }

    /// How many plans were evicted for lack of room.
    pub fn evicted(&self) -> u64 {
        self.shared.evicted.load(Ordering::Relaxed)
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Place>> {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evicts plans until there is room for `bytes` more; returns whether there is.
    fn make_room(&self, queue: &mut VecDeque<Place>, bytes: usize) -> bool {
        let mut looks = queue.len() + EVICTIONS_MAX;
        let mut evictions = 0;
        while self.bytes() + bytes > self.shared.bytes_max {
            let Some(mut place) = queue.pop_front().filter(|_| looks > 0 && evictions < EVICTIONS_MAX) else {
                return false;
            };
            looks -= 1;
            let Some(list) = place.list.upgrade() else { continue };
            let mut list = locked(&list);
            let Ok(at) = find(&list, place.key) else { continue };
            let used = list[at].1.used.load(Ordering::Relaxed);
            if used > place.seen {
                // It was used since it was last examined: it moves to the end of the queue.
                place.seen = used;
                queue.push_back(place);
                continue;
            }
            let (_, kept) = list.remove(at);
            kept.is_listed.store(false, Ordering::Relaxed);
            evictions += 1;
            self.shared.evicted.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Removes places of plans that no longer exist: dropped queries leave theirs behind.
    fn sweep(&self, queue: &mut VecDeque<Place>) {
        if queue.len() > 2 * self.shared.kept.load(Ordering::Relaxed) + GONE_MAX {
            queue.retain(|place| place.list.upgrade().is_some_and(|list| find(&locked(&list), place.key).is_ok()));
        }
    }
}

impl Plans {
    /// Without plans.
    pub(crate) fn new(space: PlanSpace) -> Plans {
        Plans { list: Arc::default(), generation: AtomicU64::new(0), space }
    }

    /// The kept plan of a key, or a new one.
    pub(crate) fn get(&self, key: u32, make: impl FnOnce() -> Plan) -> PlanInUse {
        let list = locked(&self.list);
        if let Ok(at) = find(&list, key) {
            list[at].1.note_use();
            return PlanInUse::Kept(Arc::clone(&list[at].1));
        }
        drop(list);
        self.make(key, make)
    }

    #[cold]
    fn make(&self, key: u32, make: impl FnOnce() -> Plan) -> PlanInUse {
        let generation = self.generation.load(Ordering::Acquire);
        let plan = make();
        let bytes = size_of::<KeptPlan>() + plan.bytes();
        let (shared, mut queue) = (&self.space.shared, self.space.queue());
        let now = shared.made.fetch_add(1, Ordering::Relaxed) + 1;
        let list = locked(&self.list);
        if let Ok(at) = find(&list, key) {
            // Another thread was first.
            return PlanInUse::Kept(Arc::clone(&list[at].1));
        }
        drop(list);
        let is_current = self.generation.load(Ordering::Acquire) == generation;
        if !is_current || !self.space.make_room(&mut queue, bytes) {
            return PlanInUse::Own(Box::new(plan));
        }
        shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        shared.kept.fetch_add(1, Ordering::Relaxed);
        let (used, is_listed) = (AtomicU64::new(now), AtomicBool::new(true));
        let kept = Arc::new(KeptPlan { plan, bytes, used, is_listed, shared: Arc::clone(shared) });
        let mut list = locked(&self.list);
        let (Ok(at) | Err(at)) = find(&list, key);
        list.insert(at, (key, Arc::clone(&kept)));
        drop(list);
        queue.push_back(Place { list: Arc::downgrade(&self.list), key, seen: now });
        self.space.sweep(&mut queue);
        PlanInUse::Kept(kept)
    }

    /// Drops all plans: the counts from which they were made are outdated.
    pub(crate) fn forget(&self) {
        let _queue = self.space.queue();
        self.generation.fetch_add(1, Ordering::AcqRel);
        for (_, kept) in locked(&self.list).drain(..) {
            kept.is_listed.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Plans {
    fn drop(&mut self) {
        // Threads that remember these plans drop them at their next access to that slot.
        for (_, kept) in locked(&self.list).drain(..) {
            kept.is_listed.store(false, Ordering::Relaxed);
        }
    }
}
