//! Views that may still be read, as a checkpoint must know before it reuses freed pages.
//!
//! A view has a [`Hold`], which reports when the last reference to the view is dropped. After a checkpoint has seen
//! that, it overwrites pages that were read through the view a moment ago. So that observation must be ordered after
//! all those reads: the hold stores with release, and [`Held`] loads with acquire. The count of an `Arc`, read through
//! a `Weak`, does not guarantee this order.

use crate::base::sync::atomic::Ordering;
use crate::base::sync::modelled::{Arc, atomic::AtomicBool};
use crate::tree::format::page::PageNo;

/// Belongs to a view, and is dropped with it.
pub(in crate::tree) struct Hold {
    is_gone: Arc<AtomicBool>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::Release);
    }
}

/// A view that was held when it was last checked.
struct HeldView {
    sequence: u64,
    /// The directories of its space map, which records the pages that it reaches.
    directories: Vec<PageNo>,
    is_gone: Arc<AtomicBool>,
}

/// The views of one file.
#[derive(Default)]
pub(in crate::tree) struct Held {
    views: Vec<HeldView>,
}

impl Held {
    /// Registers a view.
    pub(in crate::tree) fn hold(&mut self, sequence: u64, directories: Vec<PageNo>) -> Hold {
        let is_gone = Arc::new(AtomicBool::new(false));
        self.views.push(HeldView { sequence, directories, is_gone: Arc::clone(&is_gone) });
        Hold { is_gone }
    }

    /// Forgets the views that are dropped.
    pub(in crate::tree) fn forget_gone(&mut self) {
        self.views.retain(|view| !view.is_gone.load(Ordering::Acquire));
    }

    /// Sequence of the oldest view that is held.
    pub(in crate::tree) fn oldest(&self) -> Option<u64> {
        self.there().map(|view| view.sequence).min()
    }

    /// Space map directories of the held views before a sequence.
    pub(in crate::tree) fn before(&self, sequence: u64) -> impl Iterator<Item = &[PageNo]> {
        self.there().filter(move |view| view.sequence < sequence).map(|view| view.directories.as_slice())
    }

    fn there(&self) -> impl Iterator<Item = &HeldView> {
        self.views.iter().filter(|view| !view.is_gone.load(Ordering::Acquire))
    }
}

/// A page that is read through a view, and written again after the view is dropped, in every interleaving.
#[cfg(all(test, feature = "loom"))]
mod model {
    #![allow(unsafe_code)] // Loom's cell reports unordered accesses; for that it has to be shared.

    use super::*;
    use crate::base::readers::Published;
    use loom::cell::UnsafeCell;
    use loom::thread::spawn;

    /// Read and written only so that loom checks the order.
    #[derive(Clone)]
    struct Page(Arc<UnsafeCell<()>>);

    // SAFETY: it has no content; loom checks whether two threads use it at once.
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

    /// A page that a published view reaches, and the view that follows it.
    fn published() -> (Held, Page, std::sync::Arc<Published<View>>, View) {
        let (mut held, page, view) = views();
        let next = View { page: Page::new(), _hold: held.hold(2, Vec::new()) };
        (held, page, Published::new(view, 1), next)
    }

    /// Like a checkpoint with a page that it freed. Returns whether it was free.
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
            let (held, page, published, next) = published();
            let slot = published.register().expect("a free slot");
            let reading = spawn(move || slot.load().read());
            published.reserve().expect("room").replace(next);
            published.reclaim();
            write_if_free(&held, &page);
            reading.join().expect("the reader's checks hold");
        });
    }

    #[test]
    fn what_another_thread_frees_is_seen_free_by_the_checkpoint() {
        loom::model(|| {
            let (held, page, published, next) = published();
            let slot = published.register().expect("a free slot");
            slot.load().read();
            published.reserve().expect("room").replace(next);
            let reclaiming = {
                let published = std::sync::Arc::clone(&published);
                spawn(move || assert_eq!(published.reclaim(), 1))
            };
            write_if_free(&held, &page);
            reclaiming.join().expect("nothing fails");
        });
    }
}
