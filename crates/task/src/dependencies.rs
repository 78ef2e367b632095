//! What a task may depend on: nothing, tasks, and tuples and lists of them.

use super::error::TaskError;
use super::handle::Task;
use super::task_graph::TaskId;
use std::cell::Cell;
use std::sync::Arc;

mod sealed {
    /// Sealed: `list` and `hold` are called on the way into the executor's lock, so they must not be foreign code.
    pub trait Sealed {}
}

/// The dependencies of a task: `()`, a [`Task`] or a reference to one, a slice or vector of tasks, or a tuple of up to six of
/// these. The body receives values of the same shape: `()`, [`Arc`]s, vectors, tuples.
pub trait Dependencies: sealed::Sealed {
    /// Handles that the task keeps until it runs.
    type Held: Send + 'static;
    /// Argument of a body: the values of all dependencies.
    type Values;
    /// Argument of a catching body: a [`Result`] in place of each value.
    type Results;

    /// Converts into handles that the task owns.
    fn hold(self) -> Self::Held;

    /// Appends the ids of all tasks.
    fn list(held: &Self::Held, ids: &mut Vec<TaskId>);

    /// The values, or the first error in the order of the dependencies. All must be done.
    fn values(held: Self::Held) -> Result<Self::Values, TaskError>;

    /// The outcomes. All must be done.
    fn results(held: Self::Held) -> Self::Results;
}

impl<A> sealed::Sealed for Task<A> {}

impl<A: Send + Sync + 'static> Dependencies for Task<A> {
    type Held = Task<A>;
    type Values = Arc<A>;
    type Results = Result<Arc<A>, TaskError>;

    fn hold(self) -> Task<A> {
        self
    }

    fn list(held: &Task<A>, ids: &mut Vec<TaskId>) {
        ids.push(held.id());
    }

    fn values(held: Task<A>) -> Result<Arc<A>, TaskError> {
        Self::results(held)
    }

    fn results(held: Task<A>) -> Result<Arc<A>, TaskError> {
        held.outcome()
            .expect("a task runs when its dependencies are done")
    }
}

impl<A> sealed::Sealed for &Task<A> {}

impl<A: Send + Sync + 'static> Dependencies for &Task<A> {
    type Held = Task<A>;
    type Values = Arc<A>;
    type Results = Result<Arc<A>, TaskError>;

    fn hold(self) -> Task<A> {
        self.clone()
    }

    fn list(held: &Task<A>, ids: &mut Vec<TaskId>) {
        Task::<A>::list(held, ids);
    }

    fn values(held: Task<A>) -> Result<Arc<A>, TaskError> {
        Task::<A>::values(held)
    }

    fn results(held: Task<A>) -> Result<Arc<A>, TaskError> {
        Task::<A>::results(held)
    }
}

impl<A> sealed::Sealed for Vec<Task<A>> {}

impl<A: Send + Sync + 'static> Dependencies for Vec<Task<A>> {
    type Held = Vec<Task<A>>;
    type Values = Vec<Arc<A>>;
    type Results = Vec<Result<Arc<A>, TaskError>>;

    fn hold(self) -> Vec<Task<A>> {
        self
    }

    fn list(held: &Vec<Task<A>>, ids: &mut Vec<TaskId>) {
        ids.extend(held.iter().map(Task::id));
    }

    fn values(held: Vec<Task<A>>) -> Result<Vec<Arc<A>>, TaskError> {
        held.into_iter().map(Task::<A>::values).collect()
    }

    fn results(held: Vec<Task<A>>) -> Vec<Result<Arc<A>, TaskError>> {
        held.into_iter().map(Task::<A>::results).collect()
    }
}

impl<A> sealed::Sealed for &[Task<A>] {}

impl<A: Send + Sync + 'static> Dependencies for &[Task<A>] {
    type Held = Vec<Task<A>>;
    type Values = Vec<Arc<A>>;
    type Results = Vec<Result<Arc<A>, TaskError>>;

    fn hold(self) -> Vec<Task<A>> {
        self.to_vec()
    }

    fn list(held: &Vec<Task<A>>, ids: &mut Vec<TaskId>) {
        Vec::<Task<A>>::list(held, ids);
    }

    fn values(held: Vec<Task<A>>) -> Result<Vec<Arc<A>>, TaskError> {
        Vec::<Task<A>>::values(held)
    }

    fn results(held: Vec<Task<A>>) -> Vec<Result<Arc<A>, TaskError>> {
        Vec::<Task<A>>::results(held)
    }
}

impl<A> sealed::Sealed for &Vec<Task<A>> {}

impl<A: Send + Sync + 'static> Dependencies for &Vec<Task<A>> {
    type Held = Vec<Task<A>>;
    type Values = Vec<Arc<A>>;
    type Results = Vec<Result<Arc<A>, TaskError>>;

    fn hold(self) -> Vec<Task<A>> {
        self.clone()
    }

    fn list(held: &Vec<Task<A>>, ids: &mut Vec<TaskId>) {
        Vec::<Task<A>>::list(held, ids);
    }

    fn values(held: Vec<Task<A>>) -> Result<Vec<Arc<A>>, TaskError> {
        Vec::<Task<A>>::values(held)
    }

    fn results(held: Vec<Task<A>>) -> Vec<Result<Arc<A>, TaskError>> {
        Vec::<Task<A>>::results(held)
    }
}

impl sealed::Sealed for () {}

impl Dependencies for () {
    type Held = ();
    type Values = ();
    type Results = ();

    fn hold(self) {}

    fn list((): &(), _ids: &mut Vec<TaskId>) {}

    fn values((): ()) -> Result<(), TaskError> {
        Ok(())
    }

    fn results((): ()) {}
}

thread_local! {
    static SCRATCH: Cell<Vec<TaskId>> = const { Cell::new(Vec::new()) };
}

/// The ids of dependencies, in memory that each thread reuses: a submission allocates only the task.
pub(super) struct Ids(Vec<TaskId>);

impl Ids {
    pub(super) fn of<D: Dependencies>(held: &D::Held) -> Ids {
        let mut ids = SCRATCH.take();
        ids.clear();
        D::list(held, &mut ids);
        Ids(ids)
    }

    pub(super) fn as_slice(&self) -> &[TaskId] {
        &self.0
    }
}

impl Drop for Ids {
    fn drop(&mut self) {
        SCRATCH.set(std::mem::take(&mut self.0));
    }
}

macro_rules! tuple {
    ($($each:ident $place:tt),+) => {
        impl<$($each: sealed::Sealed),+> sealed::Sealed for ($($each,)+) {}

        impl<$($each: Dependencies),+> Dependencies for ($($each,)+) {
            type Held = ($($each::Held,)+);
            type Values = ($($each::Values,)+);
            type Results = ($($each::Results,)+);

            fn hold(self) -> Self::Held {
                ($(self.$place.hold(),)+)
            }

            fn list(held: &Self::Held, ids: &mut Vec<TaskId>) {
                $($each::list(&held.$place, ids);)+
            }

            fn values(held: Self::Held) -> Result<Self::Values, TaskError> {
                Ok(($($each::values(held.$place)?,)+))
            }

            fn results(held: Self::Held) -> Self::Results {
                ($($each::results(held.$place),)+)
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
