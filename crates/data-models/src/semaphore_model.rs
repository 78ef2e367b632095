//! A semaphore.

use seatrial_history::{Op, Value};
use seatrial_linear::SequentialModel;
use seatrial_linear::{HistoryModel, ModelCall, Unfit, ValueNumbers, plain_value};

/// A semaphore with a number of permits: `acquire` and `release` of one permit, or of as many as the invocation's integer says.
/// Owners are not checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct SemaphoreModel {
    /// Permits; `None`: not known.
    pub permits: Option<u32>,
}

impl SemaphoreModel {
    /// The semaphore that `permits:3` names.
    pub fn by_name(name: &str) -> Option<SemaphoreModel> {
        let permits = name.strip_prefix("permits:")?.parse().ok()?;
        Some(SemaphoreModel {
            permits: Some(permits),
        })
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SemaphoreOperation {
    /// Takes this number of permits, which are free.
    Acquire(u32),
    /// Returns this number of permits, which are taken.
    Release(u32),
}

impl SequentialModel for SemaphoreModel {
    /// Permits that are taken.
    type State = u32;
    type Operation = SemaphoreOperation;

    fn initial(&self) -> u32 {
        0
    }

    fn step(&self, state: &u32, operation: &SemaphoreOperation) -> Option<u32> {
        match operation {
            SemaphoreOperation::Acquire(count) => {
                let taken = state.checked_add(*count)?;
                (taken <= self.permits.unwrap_or(u32::MAX)).then_some(taken)
            }
            SemaphoreOperation::Release(count) => state.checked_sub(*count),
        }
    }

    fn is_read(&self, operation: &SemaphoreOperation) -> bool {
        let (SemaphoreOperation::Acquire(count) | SemaphoreOperation::Release(count)) = operation;
        *count == 0
    }
}

impl HistoryModel for SemaphoreModel {
    fn name(&self) -> &'static str {
        "semaphore"
    }

    fn consistency_model(&self) -> String {
        match self.permits {
            Some(permits) => format!("permits:{permits}"),
            None => "linearizable".into(),
        }
    }

    fn certificate_type(&self) -> Option<String> {
        let permits = self.permits?;
        Some(format!("{} permits:{permits}", self.name()))
    }

    fn missing_parameter(&self) -> Option<String> {
        let is_missing = self.permits.is_none();
        is_missing
            .then(|| "the number of permits is not known: name it with --model permits:N".into())
    }

    fn operation(
        &self,
        invocation: &Op,
        _: Option<&Op>,
        _: &mut ValueNumbers,
    ) -> Result<Option<SemaphoreOperation>, Unfit> {
        let count = match plain_value(&invocation.value) {
            Value::Nil => 1,
            Value::Int(count) => u32::try_from(*count).map_err(|_| {
                Unfit::new(invocation, format_args!("{count} is no number of permits"))
            })?,
            other => {
                let reason =
                    format_args!("`{}` needs a number of permits, not {other}", invocation.f);
                return Err(Unfit::new(invocation, reason));
            }
        };
        match invocation.f.as_str() {
            "acquire" => Ok(Some(SemaphoreOperation::Acquire(count))),
            "release" => Ok(Some(SemaphoreOperation::Release(count))),
            _ => Err(Unfit::function(invocation, "semaphore")),
        }
    }

    /// An acquisition of unknown outcome is needed only if permits are released.
    fn drop_unobserved(&self, calls: &mut Vec<ModelCall<SemaphoreOperation>>) {
        let releases = |call: &ModelCall<SemaphoreOperation>| {
            matches!(call.operation, SemaphoreOperation::Release(_))
        };
        if !calls.iter().any(releases) {
            calls.retain(ModelCall::is_certain);
        }
    }

    fn argument(&self, operation: &SemaphoreOperation, _: &ValueNumbers) -> String {
        match operation {
            SemaphoreOperation::Acquire(count) | SemaphoreOperation::Release(count) => {
                format!(" {count}")
            }
        }
    }

    fn describe_state(&self, state: &u32, _: &ValueNumbers) -> String {
        match self.permits {
            Some(permits) => format!("{state} of {permits} permits are taken"),
            None => format!("{state} permits are taken"),
        }
    }
}
