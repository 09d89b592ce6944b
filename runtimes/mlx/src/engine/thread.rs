//! The one thread that MLX computes on. A stream of MLX belongs to the thread that made it, and each thread that touches one
//! leaves a worker behind for good: so every model of the process shares this thread.
#![expect(unsafe_code, reason = "hands a borrowing job to another thread and waits for it")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use sf_abi_sdk::{Code, Fault};

type Job = Box<dyn FnOnce() + Send>;

/// Starts the thread at the first call.
fn jobs() -> Result<&'static Sender<Job>, Fault> {
    static JOBS: OnceLock<Option<Sender<Job>>> = OnceLock::new();
    let start = || {
        let (sender, receiver) = channel::<Job>();
        let work = move || receiver.into_iter().for_each(|job| job());
        std::thread::Builder::new().name("mlx".to_owned()).spawn(work).ok().map(|_| sender)
    };
    let words = "the thread that MLX runs on could not be started";
    JOBS.get_or_init(start).as_ref().ok_or_else(|| Fault::new(Code::NomemHost, words))
}

/// Runs `work` on MLX's thread and waits for it; a panic goes on here.
pub(super) fn on_mlx<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Fault> {
    let jobs = jobs()?;
    let (answer, answered) = channel();
    let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
        let done = catch_unwind(AssertUnwindSafe(work));
        let _ = answer.send(done);
    });
    // SAFETY: only the lifetime changes. The job and what it borrows outlive its run: this function returns no sooner
    // than `recv` below did, which is when the job has sent its answer or was dropped unrun.
    let job: Job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
    let gone = || Fault::new(Code::Fatal, "the thread that MLX runs on has ended");
    jobs.send(job).map_err(|_| gone())?;
    match answered.recv().map_err(|_| gone())? {
        Ok(value) => Ok(value),
        Err(panic) => resume_unwind(panic),
    }
}

/// A value that is made, used and dropped on MLX's thread only.
#[derive(Debug)]
pub(super) struct Confined<T: 'static>(Option<Box<T>>);

// SAFETY: the value is only reached through `with` and `drop`, on MLX's thread.
unsafe impl<T> Send for Confined<T> {}

/// Carries a value to MLX's thread or away from it, where nobody touches it.
struct Carried<T>(T);

// SAFETY: whoever holds it only moves it; `Confined` opens it on MLX's thread alone.
unsafe impl<T> Send for Carried<T> {}

impl<T> Carried<T> {
    /// By a method, so that a closure takes the whole of it and not the field.
    fn open(self) -> T {
        self.0
    }
}

impl<T> Confined<T> {
    /// Makes the value.
    pub(super) fn make(make: impl FnOnce() -> Result<T, Fault> + Send) -> Result<Confined<T>, Fault> {
        let made = on_mlx(|| make().map(|value| Carried(Box::new(value))))??;
        Ok(Confined(Some(made.open())))
    }

    /// Uses the value.
    pub(super) fn with<R: Send>(
        &mut self,
        f: impl FnOnce(&mut T) -> Result<R, Fault> + Send,
    ) -> Result<R, Fault> {
        let value = Carried(self.0.as_deref_mut().expect("it is taken by drop alone"));
        on_mlx(move || f(value.open()))?
    }

    /// Makes another value of it.
    pub(super) fn map<U>(
        mut self,
        f: impl FnOnce(T) -> Result<U, Fault> + Send,
    ) -> Result<Confined<U>, Fault> {
        let value = Carried(self.0.take().expect("it is taken by drop alone"));
        Confined::make(move || f(*value.open()))
    }
}

impl<T: 'static> Drop for Confined<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take().map(Carried) {
            // Without the thread there is nothing left that could free it.
            let _ = on_mlx(move || drop(value.open()));
        }
    }
}
