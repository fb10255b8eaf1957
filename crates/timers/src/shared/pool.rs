//! The origin of slots: pages that are never unmapped, and free lists of each thread.
//!
//! A thread takes and gives slots from lists of its own, without an atomic operation. A list is as
//! long as a page; whole lists go to and from the common pool, so that slots armed by one thread
//! and dropped by another do not pile up. Memory therefore follows the peak of timers armed at one
//! time, plus two lists per thread.
#![expect(unsafe_code, reason = "slots are reached by pointers into pages")]

use super::slot::{Handle, Slot};
use super::sweep::Directory;
use std::cell::Cell;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A pointer to a slot of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRef(NonNull<Slot>);

/// 127 slots, behind the number of the page in the place of the 128th.
#[repr(C, align(4096))]
struct Page {
    number: u32,
    slots: [Slot; LIST_SLOTS as usize],
}

/// Free slots, linked through their waker words.
#[derive(Clone, Copy, Debug)]
struct List {
    head: Option<SlotRef>,
    count: u32,
}

/// The slots that no thread keeps for itself.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Full lists, linked through their first slots.
    full: Option<SlotRef>,
    /// Slots given singly: at most one list's worth.
    loose: List,
    pages: u32,
}

/// The free slots of one thread, and the number of its inbox.
#[derive(Debug)]
struct Local {
    list: Cell<List>,
    /// A full list, so that a thread at a border does not go to the pool each time.
    spare: Cell<Option<SlotRef>>,
    inbox: Cell<usize>,
}

/// The pages the sweeper has seen slots of.
#[derive(Debug)]
pub(crate) struct Pages(Vec<Option<NonNull<Page>>>);

// SAFETY: all of a slot is atomic, and the page lives as long as the process.
unsafe impl Send for SlotRef {}
// SAFETY: as above.
unsafe impl Sync for SlotRef {}
// SAFETY: the pointers are only followed to slots and to the number of a page, which never changes.
unsafe impl Send for Pages {}

/// Takes a free slot.
///
/// Shape: allocates a page when neither the thread nor the pool has one; when that fails the
/// process is aborted, as everywhere in Rust.
#[inline]
pub(crate) fn take() -> SlotRef {
    LOCAL
        .try_with(Local::take)
        .unwrap_or_else(|_| lock().take_one())
}

/// Gives back a slot that is disarmed and unclaimed.
#[inline]
pub(crate) fn give(slot: SlotRef) {
    // A thread that is ending has no list any more.
    if LOCAL.try_with(|local| local.give(slot)).is_err() {
        give_to_all(slot);
    }
}

/// Gives back a slot on behalf of no thread in particular.
pub(crate) fn give_to_all(slot: SlotRef) {
    lock().give_one(slot);
}

/// The inbox this thread uses; `choose` chooses it once.
pub(crate) fn inbox_of_thread(choose: impl FnOnce() -> usize) -> usize {
    LOCAL
        .try_with(|local| {
            if local.inbox.get() == usize::MAX {
                local.inbox.set(choose());
            }
            local.inbox.get()
        })
        .unwrap_or(0)
}

/// Returns the number of slots ever made.
pub(crate) fn slots_made() -> usize {
    lock().pages as usize * LIST_SLOTS as usize
}

/// Locks the common pool. No other lock is taken while it is held.
pub(crate) fn lock() -> MutexGuard<'static, Pool> {
    // Nothing panics while it is held; what a panic could leave is still a list.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SlotRef {
    fn page(self) -> NonNull<Page> {
        let page = self
            .0
            .as_ptr()
            .map_addr(|address| address & !(PAGE_BYTES - 1));
        // SAFETY: a slot lies within its page, behind the page's beginning, which is not null.
        unsafe { NonNull::new_unchecked(page.cast()) }
    }

    fn as_link(slot: Option<Self>) -> *mut () {
        slot.map_or(std::ptr::null_mut(), |slot| slot.0.as_ptr().cast())
    }

    fn of_link(link: *mut ()) -> Option<Self> {
        NonNull::new(link.cast()).map(Self)
    }
}

impl Deref for SlotRef {
    type Target = Slot;

    #[inline]
    fn deref(&self) -> &Slot {
        // SAFETY: it points to an initialised slot of a page that is never freed, and slots are
        // only ever reached by shared references.
        unsafe { self.0.as_ref() }
    }
}

impl Handle for SlotRef {
    fn id(&self) -> u32 {
        let within = self.0.as_ptr().addr() & (PAGE_BYTES - 1);
        // SAFETY: the number was written before any slot of the page was given out.
        let number = unsafe { (*self.page().as_ptr()).number };
        number << SLOT_BITS | (within / size_of::<Slot>()) as u32
    }
}

impl Directory for Pages {
    type Handle = SlotRef;

    fn learn(&mut self, slot: &SlotRef) {
        let number = (slot.id() >> SLOT_BITS) as usize;
        if number >= self.0.len() {
            self.0.resize(number + 1, None);
        }
        self.0[number] = Some(slot.page());
    }

    #[inline]
    fn slot(&self, id: u32) -> SlotRef {
        let page = self.0[(id >> SLOT_BITS) as usize].expect("the wheel knows slots from inboxes");
        let place = (id & ((1 << SLOT_BITS) - 1)) as usize;
        // SAFETY: an id was made of a slot of this page, so the place lies within it.
        SlotRef(unsafe { page.cast::<Slot>().add(place) })
    }
}

impl Pages {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }
}

impl List {
    const EMPTY: Self = Self {
        head: None,
        count: 0,
    };

    #[inline]
    fn push(&mut self, slot: SlotRef) {
        slot.link_free(SlotRef::as_link(self.head));
        self.head = Some(slot);
        self.count += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<SlotRef> {
        let slot = self.head?;
        self.head = SlotRef::of_link(slot.next_free());
        self.count -= 1;
        Some(slot)
    }
}

impl Local {
    #[inline]
    fn take(&self) -> SlotRef {
        let list = self.list.get();
        let Some(slot) = list.head else {
            return self.refill();
        };
        self.list.set(List {
            head: SlotRef::of_link(slot.next_free()),
            count: list.count - 1,
        });
        slot
    }

    #[inline]
    fn give(&self, slot: SlotRef) {
        let list = self.list.get();
        if list.count == LIST_SLOTS {
            return self.spill(slot);
        }
        slot.link_free(SlotRef::as_link(list.head));
        self.list.set(List {
            head: Some(slot),
            count: list.count + 1,
        });
    }

    /// Takes a slot when the list is empty.
    #[cold]
    fn refill(&self) -> SlotRef {
        let spare = self.spare.take();
        let mut list = spare.map_or_else(|| lock().take_list(), List::full);
        let slot = list.pop().expect("a list of the pool is not empty");
        self.list.set(list);
        slot
    }

    /// Gives a slot when the list is full.
    #[cold]
    fn spill(&self, slot: SlotRef) {
        if let Some(spare) = self.spare.replace(self.list.get().head) {
            lock().give_list(spare);
        }
        let mut list = List::EMPTY;
        list.push(slot);
        self.list.set(list);
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let mut pool = lock();
        if let Some(spare) = self.spare.take() {
            pool.give_list(spare);
        }
        let mut list = self.list.replace(List::EMPTY);
        while let Some(slot) = list.pop() {
            pool.give_one(slot);
        }
    }
}

impl List {
    const fn full(head: SlotRef) -> Self {
        Self {
            head: Some(head),
            count: LIST_SLOTS,
        }
    }
}

impl Pool {
    #[cold]
    fn take_list(&mut self) -> List {
        if let Some(head) = self.full {
            self.full = SlotRef::of_link(head.next_list());
            return List::full(head);
        }
        if self.loose.count > 0 {
            return std::mem::replace(&mut self.loose, List::EMPTY);
        }
        self.new_page()
    }

    #[cold]
    fn give_list(&mut self, head: SlotRef) {
        head.link_list(SlotRef::as_link(self.full));
        self.full = Some(head);
    }

    #[cold]
    fn take_one(&mut self) -> SlotRef {
        if self.loose.count == 0 {
            self.loose = self.take_list();
        }
        self.loose.pop().expect("a list of the pool is not empty")
    }

    #[cold]
    fn give_one(&mut self, slot: SlotRef) {
        if self.loose.count == LIST_SLOTS {
            let full = std::mem::replace(&mut self.loose, List::EMPTY);
            full.head.into_iter().for_each(|head| self.give_list(head));
        }
        self.loose.push(slot);
    }

    fn new_page(&mut self) -> List {
        let page = NonNull::from(Box::leak(Box::<Page>::new_uninit())).cast::<Page>();
        // SAFETY: the memory is the page's, newly allocated and not shared yet.
        unsafe { (&raw mut (*page.as_ptr()).number).write(self.pages) };
        self.pages += 1;
        assert!(self.pages < 1 << (32 - SLOT_BITS), "4 billion timers");
        let mut list = List::EMPTY;
        for place in (1..=LIST_SLOTS as usize).rev() {
            // SAFETY: the places 1 to 127 of a page are its slots, as the assertion below checks.
            let slot = unsafe { page.cast::<Slot>().add(place) };
            // SAFETY: as above, and no other thread has the slot yet.
            unsafe { slot.write(Slot::new()) };
            list.push(SlotRef(slot));
        }
        list
    }
}

thread_local! {
    static LOCAL: Local = const {
        Local {
            list: Cell::new(List::EMPTY),
            spare: Cell::new(None),
            inbox: Cell::new(usize::MAX),
        }
    };
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    full: None,
    loose: List::EMPTY,
    pages: 0,
});

const PAGE_BYTES: usize = 4096;
const SLOT_BITS: u32 = 7;
/// Slots of a page, which are also the most of a list.
const LIST_SLOTS: u32 = (1 << SLOT_BITS) - 1;

const _: () = assert!(size_of::<Page>() == PAGE_BYTES && align_of::<Page>() == PAGE_BYTES);
const _: () = assert!(std::mem::offset_of!(Page, slots) == size_of::<Slot>());
