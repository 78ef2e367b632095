//! A snapshot of the tasks of an executor, for debugging.

use super::job::Work;
use super::label::Label;
use super::state::{State, TaskId, TaskState};
use std::sync::Arc;

/// A task as it was at one moment.
#[derive(Clone, Debug)]
pub struct TaskView {
    /// Which one.
    pub id: TaskId,
    /// Name and data.
    pub label: Label,
    /// How far it was; never [`TaskState::Done`].
    pub state: TaskState,
    /// The dependencies that were not done, in the order that they were named in.
    pub dependencies: Vec<TaskId>,
}

/// All tasks that were pending or running at one moment, in order of age. Taking it costs time and memory for each.
#[derive(Clone, Debug)]
pub struct Snapshot {
    tasks: Vec<TaskView>,
}

impl Snapshot {
    pub(super) fn of(state: &State<Arc<dyn Work>>) -> Snapshot {
        let tasks = state.tasks().into_iter();
        let tasks = tasks.map(|(id, work, state, dependencies)| TaskView {
            id,
            label: work.label().clone(),
            state,
            dependencies,
        });
        Snapshot {
            tasks: tasks.collect(),
        }
    }

    /// All of them, the oldest first.
    pub fn tasks(&self) -> &[TaskView] {
        &self.tasks
    }

    /// This one, if it was not done.
    pub fn task(&self, id: TaskId) -> Option<&TaskView> {
        let place = self.tasks.binary_search_by_key(&id, |task| task.id);
        place.ok().map(|place| &self.tasks[place])
    }

    /// How many were in this state.
    pub fn count(&self, state: TaskState) -> usize {
        let with = self.tasks.iter().filter(|task| task.state == state);
        with.count()
    }
}
