//! Exceptions that clients threw, and other errors, by frequency.

use crate::{Aims, Checker, Details, Figures, FoldChecker, OnlineChecker, Verdict, check_source};
use seatrial_history::{Chunk, FixedMap, Fold, History, OpType, Order, Value};
use serde::Serialize;
use std::ops::ControlFlow;

/// Counts the exceptions of operations of unknown outcome by class, and the errors of all completions, each with an example:
/// Jepsen's `unhandled-exceptions`. Always valid.
///
/// An exception is the extra field `exception` of an `info` completion; its class is the `type` of the first entry of its `via`,
/// as Clojure prints a throwable, or the field itself when it has another shape. An error is the extra field `error`; its class
/// is its first word (`[:indeterminate "…"]`), or its text. Memory: one entry for each of the first `CLASSES_MAX` classes.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnhandledExceptions;

/// Classes that are distinguished; operations of further ones are counted together.
const CLASSES_MAX: usize = 256;
/// Characters of a class, and of an example.
const CLASS_LENGTH_MAX: usize = 160;
const EXAMPLE_LENGTH_MAX: usize = 2_000;

/// Figures of [`UnhandledExceptions`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExceptionFigures {
    /// Classes of exceptions, the most frequent first.
    pub exceptions: Vec<ExceptionClass>,
    /// Classes of errors, the most frequent first.
    pub errors: Vec<ExceptionClass>,
    /// Operations with exceptions or errors of further classes.
    pub others: u64,
}

/// Operations that ended with exceptions or errors of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExceptionClass {
    /// The class.
    pub class: String,
    /// Their number.
    pub count: u64,
    /// Index of the first of them.
    pub index: u64,
    /// The first of them, shortened.
    pub example: String,
}

/// The counts so far.
#[derive(Default)]
struct ExceptionCounts {
    exceptions: FixedMap<String, ExceptionClass>,
    errors: FixedMap<String, ExceptionClass>,
    others: u64,
}

/// Counts one more of this class.
fn count(
    classes: &mut FixedMap<String, ExceptionClass>,
    others: &mut u64,
    class: String,
    index: u64,
    example: impl FnOnce() -> String,
) {
    if let Some(known) = classes.get_mut(&class) {
        known.count += 1;
    } else if classes.len() < CLASSES_MAX {
        let example = ExceptionClass {
            class: class.clone(),
            count: 1,
            index,
            example: shortened(example(), EXAMPLE_LENGTH_MAX),
        };
        classes.insert(class, example);
    } else {
        *others += 1;
    }
}

fn shortened(mut text: String, length_max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(length_max) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.to_string(),
        Value::Word(word) => word.as_str().to_owned(),
        value => value.to_string(),
    }
}

/// A member of a map by name, which JSON has as text and EDN as a keyword.
fn member<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Map(pairs) = value else {
        return None;
    };
    let is_it = |key: &Value| match key {
        Value::Word(word) => *word == *name,
        Value::Text(text) => **text == *name,
        _ => false,
    };
    pairs.iter().find(|(key, _)| is_it(key)).map(|pair| &pair.1)
}

/// The class of an exception.
fn class_of_exception(exception: &Value) -> String {
    let first = member(exception, "via").and_then(|via| match via {
        Value::List(via) => via.first(),
        _ => None,
    });
    let class = first.and_then(|first| member(first, "type"));
    let class = class.or_else(|| member(exception, "type"));
    shortened(text(class.unwrap_or(exception)), CLASS_LENGTH_MAX)
}

/// The class of an error.
fn class_of_error(error: &Value) -> String {
    let class = match error {
        Value::List(items) => items.first().unwrap_or(error),
        error => error,
    };
    shortened(text(class), CLASS_LENGTH_MAX)
}

/// The fold of [`UnhandledExceptions`].
struct ExceptionFold;

impl Fold for ExceptionFold {
    type Accumulator = ExceptionCounts;
    type Output = Verdict;

    fn name(&self) -> String {
        "unhandled-exceptions".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> ExceptionCounts {
        ExceptionCounts::default()
    }

    fn reduce(&self, counts: &mut ExceptionCounts, chunk: &Chunk) -> ControlFlow<()> {
        if !chunk.has_extra() {
            return ControlFlow::Continue(());
        }
        for (place, kind) in chunk.kinds().iter().enumerate() {
            if *kind == OpType::Invoke {
                continue;
            }
            let index = chunk.index(place);
            let example = || chunk.op(place).to_string();
            for (name, tape) in chunk.extra(place) {
                if name == "exception" && *kind == OpType::Info {
                    let class = class_of_exception(&tape.to_value());
                    let classes = &mut counts.exceptions;
                    count(classes, &mut counts.others, class, index, example);
                } else if name == "error" {
                    let class = class_of_error(&tape.to_value());
                    count(
                        &mut counts.errors,
                        &mut counts.others,
                        class,
                        index,
                        example,
                    );
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Never called: a linear fold has one accumulator.
    fn combine(&self, _: &mut ExceptionCounts, _: ExceptionCounts) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn finish(&self, counts: ExceptionCounts) -> Verdict {
        let sorted = |classes: FixedMap<String, ExceptionClass>| {
            let mut classes: Vec<ExceptionClass> = classes.into_values().collect();
            classes.sort_by_key(|one| (std::cmp::Reverse(one.count), one.index));
            classes
        };
        let mut verdict = Verdict::valid("unhandled-exceptions");
        verdict.details = Details::of(Figures::Exceptions(ExceptionFigures {
            exceptions: sorted(counts.exceptions),
            errors: sorted(counts.errors),
            others: counts.others,
        }));
        verdict
    }
}

impl Checker for UnhandledExceptions {
    fn name(&self) -> &'static str {
        "unhandled-exceptions"
    }

    fn check(&self, history: &History) -> Verdict {
        match check_source(self, history, &Aims::default()) {
            Ok(checked) => checked.verdict,
            Err(error) => Verdict::valid(self.name()).unknown(error.to_string()),
        }
    }

    fn start(&self, _: &Aims) -> Box<dyn OnlineChecker> {
        Box::new(FoldChecker::new("unhandled-exceptions", ExceptionFold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Validity;
    use seatrial_interchange::import::{self, Format, ImportOptions};

    #[test]
    fn exceptions_are_counted_by_class_with_the_first_as_example() {
        let text = br#"
            {:process 0 :type :invoke :f :read :value nil}
            {:process 0 :type :info :f :read :value nil :exception {:via [{:type java.net.SocketException :message "reset"} {:type x}]} :error [:indeterminate "reset"]}
            {:process 1 :type :invoke :f :write :value 1}
            {:process 1 :type :info :f :write :value 1 :exception {:via [{:type java.io.IOException}]} :error :timeout}
            {:process 2 :type :invoke :f :read :value nil}
            {:process 2 :type :info :f :read :value nil :exception {:via [{:type java.net.SocketException}]} :error :timeout}
            {:process 3 :type :invoke :f :read :value nil}
            {:process 3 :type :fail :f :read :value nil :exception "not counted" :error "refused"}"#;
        let history = import::read("run.edn", text, Format::Edn, ImportOptions::default()).unwrap();
        let verdict = UnhandledExceptions.check(&history);
        assert_eq!(verdict.valid, Validity::Valid);
        let Figures::Exceptions(figures) = verdict.details.figures else {
            panic!("no figures");
        };
        let short = |classes: &[ExceptionClass]| -> Vec<(String, u64, u64)> {
            let classes = classes.iter();
            let classes = classes.map(|one| (one.class.clone(), one.count, one.index));
            classes.collect()
        };
        let expected = [
            ("java.net.SocketException", 2, 1),
            ("java.io.IOException", 1, 3),
        ];
        let expected = expected.map(|(class, count, index)| (class.to_owned(), count, index));
        assert_eq!(short(&figures.exceptions), expected);
        let expected = [
            ("timeout", 2, 3),
            ("indeterminate", 1, 1),
            ("refused", 1, 7),
        ];
        let expected = expected.map(|(class, count, index)| (class.to_owned(), count, index));
        assert_eq!(short(&figures.errors), expected);
        assert!(figures.exceptions[0].example.contains(":index 1"));
    }
}
