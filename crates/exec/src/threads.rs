//! A persistent thread pool for kernels that last microseconds.
//!
//! Contract: [`Pool::run`] returns when every task has finished; which thread ran a task is unspecified, so a task must
//! write only what belongs to its index and no result may depend on the thread count. A call made from inside a task,
//! or while another thread is using the pool, runs inline on its caller.

use std::any::Any;
use std::cell::UnsafeCell;
use std::hint;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long an idle worker polls for the next job before it parks: longer than the serial gaps between the kernels of
/// one forward pass, short enough that an idle engine uses no CPU.
const SPIN: Duration = Duration::from_micros(50);
/// Polls between two looks at the clock.
const POLLS: u32 = 64;
/// Tasks per thread that [`Pool::par_ranges`] makes at most: enough to even out a late thread.
const TASKS_PER_THREAD: usize = 4;

/// Bit of the state word that says that a job accepts workers; the bits below count those inside.
const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;
/// Lowest bit of the job number.
const EPOCH: u64 = 1 << 32;

/// The borrowed closure of the running job, its lifetime erased.
#[derive(Clone, Copy)]
struct Job {
    body: *const (dyn Fn(usize) + Sync),
    tasks: usize,
}

struct Shared {
    /// `job number << 32 | open << 31 | workers inside`.
    state: AtomicU64,
    /// Written by the owner while no worker is inside and the job is closed; read by workers inside.
    job: UnsafeCell<Option<Job>>,
    next: AtomicUsize,
    /// Set while some thread is inside [`Pool::run`] with this pool's workers.
    owned: AtomicBool,
    stop: AtomicBool,
    /// The owner, once it has stopped polling for the last worker.
    waiter: Mutex<Option<Thread>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    sleeping: Vec<AtomicBool>,
}

// SAFETY: `job` is written only by the thread that holds `owned`, before it opens the job, and is read only by workers
// counted in `state`; the owner closes the job and waits for that count to reach zero before it returns or writes again.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` refers to a `Sync` closure that outlives every read (see above).
unsafe impl Send for Shared {}

/// Worker threads that live as long as the pool. See the module's contract.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

impl Pool {
    /// A pool of `threads` threads in total, the caller's included; 0 counts as 1. Where the system refuses a thread
    /// the pool is smaller, which changes no result.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let extra = threads.saturating_sub(1);
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            owned: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            waiter: Mutex::new(None),
            panic: Mutex::new(None),
            sleeping: (0..extra).map(|_| AtomicBool::new(false)).collect(),
        });
        let workers = (0..extra)
            .map_while(|index| {
                let shared = Arc::clone(&shared);
                thread::Builder::new().name(format!("kernel-{index}")).spawn(move || worker(&shared, index)).ok()
            })
            .collect();
        Self { shared, workers }
    }

    /// Threads that share a job, the caller's included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body(i)` once for every `i` in `0..tasks` and returns when all calls have ended.
    ///
    /// # Panics
    /// With the first panic of a task, after every started task has ended; tasks not yet started are skipped.
    pub fn run<F: Fn(usize) + Sync>(&self, tasks: usize, body: F) {
        let alone = tasks <= 1 || self.workers.is_empty();
        if alone || self.shared.owned.swap(true, Ordering::Acquire) {
            (0..tasks).for_each(body);
            return;
        }
        self.share(tasks, &body);
    }

    fn share(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. The pointer is read by workers counted inside the job alone, and this
        // function closes the job and waits until none is inside before it returns or unwinds.
        let body: *const (dyn Fn(usize) + Sync) =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(body) };
        let job = Job { body, tasks };
        // SAFETY: this thread holds `owned` and the job is closed with no worker inside: nobody else reads the cell.
        unsafe { *shared.job.get() = Some(job) };
        shared.next.store(0, Ordering::Relaxed);
        let number = (shared.state.load(Ordering::Relaxed) & !(EPOCH - 1)).wrapping_add(EPOCH);
        shared.state.store(number | OPEN, Ordering::SeqCst);
        for (sleeping, handle) in shared.sleeping.iter().zip(&self.workers) {
            if sleeping.load(Ordering::SeqCst) && sleeping.swap(false, Ordering::SeqCst) {
                handle.thread().unpark();
            }
        }
        work(shared, job);
        shared.state.fetch_and(!OPEN, Ordering::SeqCst);
        wait_empty(shared);
        let panicked = lock(&shared.panic).take();
        shared.owned.store(false, Ordering::Release);
        if let Some(payload) = panicked {
            panic::resume_unwind(payload);
        }
    }

    /// Splits `0..len` into ranges whose length is a multiple of `grain` (the last may be shorter) and calls `body` on
    /// each. A `grain` of 0 counts as 1. Where the cuts fall depends on the thread count: `body` must give every index
    /// the same value wherever its range begins.
    pub fn par_ranges<F: Fn(Range<usize>) + Sync>(&self, len: usize, grain: usize, body: F) {
        let grains = len.div_ceil(grain.max(1));
        let tasks = grains.min(if self.workers.is_empty() { 1 } else { self.threads() * TASKS_PER_THREAD });
        let Some(step) = grains.checked_div(tasks) else { return };
        let longer = grains - step * tasks;
        self.run(tasks, |task| {
            let first = task * step + task.min(longer);
            let last = first + step + usize::from(task < longer);
            body(first * grain.max(1)..(last * grain.max(1)).min(len));
        });
    }

    /// Calls `body(i, chunk)` for every `chunk`-long piece of `data` (the last may be shorter), `i` counting pieces.
    ///
    /// # Panics
    /// If `chunk` is 0, or as [`Pool::run`] does.
    pub fn par_chunks_mut<T: Send, F: Fn(usize, &mut [T]) + Sync>(&self, data: &mut [T], chunk: usize, body: F) {
        assert!(chunk > 0, "pieces must hold at least one element");
        let shared = Shares::new(data);
        let len = shared.len;
        self.par_ranges(len.div_ceil(chunk), 1, |range| {
            for index in range {
                let (first, last) = (index * chunk, (index * chunk + chunk).min(len));
                // SAFETY: pieces do not overlap and each index is handed out once.
                body(index, unsafe { shared.slice(first..last) });
            }
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for handle in self.workers.drain(..) {
            handle.thread().unpark();
            // A worker catches the panics of its tasks, so joining cannot fail; nothing would be left to do if it did.
            let _ = handle.join();
        }
    }
}

/// A mutable slice that the tasks of one job write in disjoint parts.
pub(crate) struct Shares<'a, T> {
    data: *mut T,
    len: usize,
    life: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `slice` and `ptr`, whose callers keep the parts of different tasks disjoint.
unsafe impl<T: Send> Sync for Shares<'_, T> {}

impl<'a, T> Shares<'a, T> {
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Self { data: data.as_mut_ptr(), len: data.len(), life: std::marker::PhantomData }
    }

    /// The part `range`.
    ///
    /// # Safety
    /// No element of `range` may be reachable through another live reference.
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part outside the shared slice");
        // SAFETY: in bounds by the assertion, exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) }
    }

    /// The address of element `index`, which may be one past the end.
    pub(crate) fn ptr(&self, index: usize) -> *mut T {
        assert!(index <= self.len, "element outside the shared slice");
        self.data.wrapping_add(index)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes tasks until none is left. A panic is kept for the owner and cancels what has not started.
fn work(shared: &Shared, job: Job) {
    let taken = panic::catch_unwind(AssertUnwindSafe(|| {
        loop {
            let task = shared.next.fetch_add(1, Ordering::Relaxed);
            if task >= job.tasks {
                break;
            }
            // SAFETY: the caller is the owner or a worker counted inside the job, so the closure is alive.
            unsafe { (*job.body)(task) };
        }
    }));
    if let Err(payload) = taken {
        shared.next.store(job.tasks, Ordering::Relaxed);
        lock(&shared.panic).get_or_insert(payload);
    }
}

/// Waits until no worker is inside the closed job.
fn wait_empty(shared: &Shared) {
    let started = Instant::now();
    loop {
        for _ in 0..POLLS {
            if shared.state.load(Ordering::SeqCst) & INSIDE == 0 {
                return;
            }
            hint::spin_loop();
        }
        if started.elapsed() > SPIN {
            break;
        }
    }
    *lock(&shared.waiter) = Some(thread::current());
    while shared.state.load(Ordering::SeqCst) & INSIDE != 0 {
        thread::park();
    }
    *lock(&shared.waiter) = None;
}

fn worker(shared: &Shared, index: usize) {
    let mut done = 0;
    while let Some(state) = next_job(shared, index, done) {
        done = state & !(EPOCH - 1);
        let mut seen = state;
        while seen & OPEN != 0 && seen & !(EPOCH - 1) == done {
            match shared.state.compare_exchange_weak(seen, seen + 1, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    // SAFETY: counted inside an open job: the owner wrote the cell before opening it and neither
                    // returns nor writes again before this worker has left.
                    if let Some(job) = unsafe { *shared.job.get() } {
                        work(shared, job);
                    }
                    let left = shared.state.fetch_sub(1, Ordering::SeqCst);
                    if left & INSIDE == 1
                        && left & OPEN == 0
                        && let Some(owner) = &*lock(&shared.waiter)
                    {
                        owner.unpark();
                    }
                    break;
                }
                Err(now) => seen = now,
            }
        }
    }
}

/// The state word of an open job other than `done`, or `None` when the pool is being dropped.
fn next_job(shared: &Shared, index: usize, done: u64) -> Option<u64> {
    let fresh = || {
        let state = shared.state.load(Ordering::SeqCst);
        (state & OPEN != 0 && state & !(EPOCH - 1) != done).then_some(state)
    };
    let mut started = Instant::now();
    loop {
        for _ in 0..POLLS {
            if let Some(state) = fresh() {
                return Some(state);
            }
            hint::spin_loop();
        }
        if shared.stop.load(Ordering::SeqCst) {
            return None;
        }
        if started.elapsed() > SPIN {
            shared.sleeping[index].store(true, Ordering::SeqCst);
            while fresh().is_none()
                && !shared.stop.load(Ordering::SeqCst)
                && shared.sleeping[index].load(Ordering::SeqCst)
            {
                thread::park();
            }
            shared.sleeping[index].store(false, Ordering::SeqCst);
            started = Instant::now();
        }
    }
}
