//! Which views may still be read: what a checkpoint asks before it gives freed pages out again.
//!
//! A view carries a [`Hold`], which says when the last one who had the view is gone. Once the checkpoint has seen that, it
//! writes over pages that were read through the view a moment ago. So seeing it must come after all those reads: the hold
//! says so with release, and [`Held`] looks with acquire. The count of an `Arc`, asked through a `Weak`, promises no such
//! thing.

use std::sync::atomic::Ordering;

#[cfg(feature = "loom")]
use loom::sync::{Arc, atomic::AtomicBool};
#[cfg(not(feature = "loom"))]
use std::sync::{Arc, atomic::AtomicBool};

use super::page::PageNo;

/// Belongs to a view, and goes with it.
pub(super) struct Hold {
    is_gone: Arc<AtomicBool>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::Release);
    }
}

/// A view that was held when it was last looked at.
struct HeldView {
    sequence: u64,
    /// Where its space map lies: of which pages it reaches.
    directories: Vec<PageNo>,
    is_gone: Arc<AtomicBool>,
}

/// The views of one file.
#[derive(Default)]
pub(super) struct Held {
    views: Vec<HeldView>,
}

impl Held {
    /// A view comes up.
    pub(super) fn hold(&mut self, sequence: u64, directories: Vec<PageNo>) -> Hold {
        let is_gone = Arc::new(AtomicBool::new(false));
        self.views.push(HeldView { sequence, directories, is_gone: Arc::clone(&is_gone) });
        Hold { is_gone }
    }

    /// Forgets those that nobody has any more.
    pub(super) fn forget_gone(&mut self) {
        self.views.retain(|view| !view.is_gone.load(Ordering::Acquire));
    }

    /// Sequence of the oldest one that somebody has.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.there().map(|view| view.sequence).min()
    }

    /// Where the space maps lie of those before a sequence that somebody has.
    pub(super) fn before(&self, sequence: u64) -> impl Iterator<Item = &[PageNo]> {
        self.there().filter(move |view| view.sequence < sequence).map(|view| view.directories.as_slice())
    }

    fn there(&self) -> impl Iterator<Item = &HeldView> {
        self.views.iter().filter(|view| !view.is_gone.load(Ordering::Acquire))
    }
}

/// A page that is read through a view, and written again once nobody has it: in every interleaving.
#[cfg(all(test, feature = "loom"))]
mod model {
    #![allow(unsafe_code)] // Loom's cell tells of what is not ordered: it wants to be shared for that.

    use super::*;
    use crate::readers::Published;
    use loom::cell::UnsafeCell;
    use loom::thread::spawn;

    /// Looked at and written only for loom to see the order.
    #[derive(Clone)]
    struct Page(Arc<UnsafeCell<()>>);

    // SAFETY: nothing is in it; whether two threads use it at once is what loom is asked.
    unsafe impl Send for Page {}
    // SAFETY: as above.
    unsafe impl Sync for Page {}

    impl Page {
        fn new() -> Page {
            Page(Arc::new(UnsafeCell::new(())))
        }
    }

    /// A view that reaches one page.
    struct View {
        page: Page,
        _hold: Hold,
    }

    impl View {
        fn read(&self) {
            self.page.0.with(|_| ());
        }
    }

    fn views() -> (Held, Page, View) {
        let page = Page::new();
        let mut held = Held::default();
        let view = View { page: page.clone(), _hold: held.hold(1, Vec::new()) };
        (held, page, view)
    }

    /// What a checkpoint does with a page that it freed. Whether it was free.
    fn write_if_free(held: &Held, page: &Page) -> bool {
        let is_free = held.oldest().is_none_or(|oldest| oldest > 1);
        if is_free {
            page.0.with_mut(|_| ());
        }
        is_free
    }

    #[test]
    fn a_page_is_written_again_only_after_who_copied_it_is_done() {
        loom::model(|| {
            let (held, page, view) = views();
            let copying = spawn(move || view.read());
            write_if_free(&held, &page);
            copying.join().expect("the reader's checks hold");
            assert!(write_if_free(&held, &page), "nobody has it any more");
        });
    }

    #[test]
    fn a_page_is_written_again_only_after_who_pinned_its_generation_is_done() {
        loom::model(|| {
            let (mut held, page, view) = views();
            let next = View { page: Page::new(), _hold: held.hold(2, Vec::new()) };
            let published = Published::new(view, 1);
            let slot = published.register().expect("a free slot");
            let reading = spawn(move || slot.load().read());
            published.replace(next).expect("room");
            published.reclaim();
            write_if_free(&held, &page);
            reading.join().expect("the reader's checks hold");
        });
    }

    #[test]
    fn what_another_thread_frees_is_seen_free_by_the_checkpoint() {
        loom::model(|| {
            let (mut held, page, view) = views();
            let next = View { page: Page::new(), _hold: held.hold(2, Vec::new()) };
            let published = Published::new(view, 1);
            let slot = published.register().expect("a free slot");
            slot.load().read();
            published.replace(next).expect("room");
            let reclaiming = {
                let published = std::sync::Arc::clone(&published);
                spawn(move || assert_eq!(published.reclaim(), 1))
            };
            write_if_free(&held, &page);
            reclaiming.join().expect("nothing fails");
        });
    }
}
