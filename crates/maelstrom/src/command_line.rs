//! Maelstrom's command line: `maelstrom test` with its option names, as words of `seatrial test maelstrom`.

use std::ffi::OsString;

/// An option of Maelstrom and what it becomes.
struct Rename {
    /// Its names there.
    names: &'static [&'static str],
    /// What it becomes.
    here: RenameTarget,
}

/// What an option of Maelstrom becomes.
#[derive(Clone, Copy)]
enum RenameTarget {
    /// The option of this name, with the same value.
    Option(&'static str),
    /// A number of client threads; `4n` is four times the number of nodes.
    Concurrency,
    /// The longest transaction.
    TransactionLength,
    /// A switch without effect: logs and messages are always written.
    Switch,
}

const fn rename(names: &'static [&'static str], here: RenameTarget) -> Rename {
    Rename { names, here }
}

/// Maelstrom's options (its README, "CLI options"). Others are passed on as they are, so that those of `test` work too.
const RENAMES: [Rename; 19] = [
    rename(&["-w", "--workload"], RenameTarget::Option("--workload")),
    rename(&["--bin"], RenameTarget::Option("--bin")),
    rename(&["--node-count"], RenameTarget::Option("--nodes")),
    rename(&["--time-limit"], RenameTarget::Option("--time")),
    rename(&["-r", "--rate"], RenameTarget::Option("--rate")),
    rename(&["-c", "--concurrency"], RenameTarget::Concurrency),
    rename(&["--latency"], RenameTarget::Option("--latency")),
    rename(&["--latency-dist"], RenameTarget::Option("--latency-dist")),
    rename(&["--nemesis"], RenameTarget::Option("--faults")),
    rename(&["--nemesis-interval"], RenameTarget::Option("--interval")),
    rename(&["--consistency-models"], RenameTarget::Option("--model")),
    rename(&["--key-count"], RenameTarget::Option("--keys")),
    rename(&["--max-txn-length"], RenameTarget::TransactionLength),
    rename(
        &["--max-writes-per-key"],
        RenameTarget::Option("--writes-per-key"),
    ),
    rename(&["--topology"], RenameTarget::Option("--topology")),
    rename(&["--timeout"], RenameTarget::Option("--timeout")),
    rename(&["--log-stderr"], RenameTarget::Switch),
    rename(&["--log-net-send"], RenameTarget::Switch),
    rename(&["--log-net-recv"], RenameTarget::Switch),
];

/// Maelstrom's defaults, where `test` has others.
const DEFAULTS: [(&str, &str); 5] = [
    ("--rate", "5"),
    ("--time", "10"),
    ("--timeout", "5"),
    ("--faults", "none"),
    ("--workload", "lin-kv"),
];

/// Number of nodes, unless `--node-count` says otherwise.
const NODES: u64 = super::NODES as u64;

/// The words of `seatrial test maelstrom` for those after `seatrial maelstrom test`. Words that are no options, and all after
/// `--`, are arguments of the program under test.
///
/// # Errors
///
/// An option without its value, or a value that is none.
pub(crate) fn translate(words: &[OsString]) -> Result<Vec<OsString>, String> {
    let mut parsed = ParsedWords::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if text == "--" {
            parsed.arguments.extend(words.by_ref().cloned());
        } else if text.starts_with('-') && text.len() > 1 {
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(OsString::from(value))),
                None => (text.into_owned(), None),
            };
            parsed.option(&name, value, &mut words)?;
        } else {
            parsed.arguments.push(word.clone());
        }
    }
    parsed.words()
}

/// The command line so far.
#[derive(Default)]
struct ParsedWords {
    /// Options of `test` with their values.
    options: Vec<(String, OsString)>,
    /// Switches of `test`.
    switches: Vec<String>,
    /// Arguments of the program under test.
    arguments: Vec<OsString>,
    concurrency: Option<String>,
}

/// Switches of `test`, which take no value.
const SWITCHES: [&str; 8] = [
    "--json",
    "-q",
    "--quiet",
    "-v",
    "--verbose",
    "--stop-on-violation",
    "--accept-undecided",
    "--help",
];

impl ParsedWords {
    /// Adds the option `name`, whose value is `value` or the next word.
    fn option<'a>(
        &mut self,
        name: &str,
        value: Option<OsString>,
        words: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<(), String> {
        let row = RENAMES.iter().find(|row| row.names.contains(&name));
        let target = row.map(|row| row.here);
        if matches!(target, Some(RenameTarget::Switch)) {
            return Ok(());
        }
        if target.is_none() && SWITCHES.contains(&name) {
            self.switches.push(name.to_owned());
            return Ok(());
        }
        let value = value.or_else(|| words.next().cloned());
        let value = value.ok_or_else(|| format!("{name} takes a value"))?;
        match target {
            Some(RenameTarget::Option(here)) => self.options.push((here.to_owned(), value)),
            Some(RenameTarget::Concurrency) => {
                self.concurrency = Some(value.to_string_lossy().into_owned());
            }
            Some(RenameTarget::TransactionLength) => {
                let mut range = OsString::from("1..");
                range.push(value);
                self.options.push(("--txn-length".into(), range));
            }
            Some(RenameTarget::Switch) | None => self.options.push((name.to_owned(), value)),
        }
        Ok(())
    }

    fn value(&self, name: &str) -> Option<&OsString> {
        let mut options = self.options.iter().rev();
        options
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    fn words(mut self) -> Result<Vec<OsString>, String> {
        let nodes = match self.value("--nodes") {
            None => NODES,
            Some(count) => {
                let text = count.to_string_lossy();
                let number = text.parse().ok().filter(|&number: &u64| number > 0);
                number.ok_or_else(|| format!("--node-count takes a whole number, not {text}"))?
            }
        };
        let threads = threads(self.concurrency.as_deref().unwrap_or("1n"), nodes)?;
        let concurrency = ("--concurrency".to_owned(), threads.to_string().into());
        self.options.push(concurrency);
        for (name, value) in DEFAULTS {
            if self.value(name).is_none() {
                self.options.push((name.to_owned(), value.into()));
            }
        }
        if !self.arguments.is_empty() {
            let joined = self.arguments.join(&OsString::from(" "));
            self.options.push(("--bin-args".into(), joined));
        }
        let mut words = vec![OsString::from("test"), OsString::from("maelstrom")];
        for (name, value) in self.options {
            words.extend([OsString::from(name), value]);
        }
        words.extend(self.switches.into_iter().map(OsString::from));
        Ok(words)
    }
}

/// A number of threads: `10`, or `4n` for four times the number of nodes.
fn threads(text: &str, nodes: u64) -> Result<u64, String> {
    let (number, factor) = match text.strip_suffix('n') {
        Some(number) => (number, nodes),
        None => (text, 1),
    };
    let threads = number.parse::<u64>().ok();
    let threads = threads.and_then(|number| number.checked_mul(factor));
    threads
        .filter(|&threads| threads > 0)
        .ok_or_else(|| format!("--concurrency takes a number such as 10 or 4n, not {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<String, String> {
        let words: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
        let translated = translate(&words)?;
        let texts = translated.iter().map(|word| word.to_string_lossy());
        Ok(texts.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn the_readme_of_maelstrom_works() {
        let line = "-w txn-list-append --bin ./node --time-limit 30 --node-count 3 --concurrency 4n \
                    --rate 100 --nemesis partition --nemesis-interval 5 --consistency-models serializable \
                    --max-txn-length 6 --key-count=12 --log-stderr --seed 4";
        assert_eq!(
            translated(line).unwrap(),
            "test maelstrom --workload txn-list-append --bin ./node --time 30 --nodes 3 --rate 100 \
             --faults partition --interval 5 --model serializable --txn-length 1..6 --keys 12 --seed 4 \
             --concurrency 12 --timeout 5"
        );
    }

    #[test]
    fn defaults_are_those_of_maelstrom() {
        assert_eq!(
            translated("--bin ./echo.py --json verbose -- --x 1").unwrap(),
            "test maelstrom --bin ./echo.py --concurrency 5 --rate 5 --time 10 --timeout 5 --faults none \
             --workload lin-kv --bin-args verbose --x 1 --json"
        );
    }

    #[test]
    fn wrong_values_are_named() {
        for (line, expected) in [
            ("--bin", "--bin takes a value"),
            (
                "-c 4m",
                "--concurrency takes a number such as 10 or 4n, not 4m",
            ),
            (
                "-c 0n",
                "--concurrency takes a number such as 10 or 4n, not 0n",
            ),
            ("--node-count x", "--node-count takes a whole number, not x"),
        ] {
            assert_eq!(translated(line).unwrap_err(), expected);
        }
    }
}
