//! Commands of the store's own: `seatrial kv get|put|append|delete|scan|txn|status|member|checkpoint|diff`.

mod cluster_tools;
mod shown;
mod shown_status;
mod store_session;
mod transaction_text;

use seatrial_kv_protocol::message::SCAN_MAX;
use seatrial_kv_protocol::{Answer, Answers, Failure, Outcome, Transaction};
use seatrial_suite::{SuiteError, SuiteTool, ToolArgument, ToolExit, ToolOption, ToolSetup};
use shown::ShownBytes;
use std::io::Read as _;
pub(crate) use store_session::{StoreSession, addresses, session_seed};

const KEY: ToolArgument = ToolArgument {
    name: "key",
    about: "The key",
    is_required: true,
};
const VALUE: ToolArgument = ToolArgument {
    name: "value",
    about: "The value; `-` reads it from standard input",
    is_required: false,
};
const FILE: ToolOption = ToolOption {
    name: "file",
    value_name: Some("FILE"),
    about: "Read the value from a file",
    default: None,
};
const SERVER: ToolOption = ToolOption {
    name: "server",
    value_name: Some("ADDRESSES"),
    about: "Addresses of nodes, separated by commas; they are tried in turn",
    default: Some("127.0.0.1:7400"),
};
const KEY_FILE: ToolOption = ToolOption {
    name: crate::KEY_FILE,
    value_name: Some("FILE"),
    about: "Key that nodes and clients share, 16 to 4,096 bytes in a file",
    default: None,
};
const TLS_CERT: ToolOption = ToolOption {
    name: seatrial_suite::TLS_CERT,
    value_name: Some("FILE"),
    about: "Certificate of this client in PEM; connections use TLS",
    default: None,
};
const TLS_KEY: ToolOption = ToolOption {
    name: seatrial_suite::TLS_KEY,
    value_name: Some("FILE"),
    about: "Private key of the certificate, in PEM",
    default: None,
};
const TLS_CA: ToolOption = ToolOption {
    name: seatrial_suite::TLS_CA,
    value_name: Some("FILE"),
    about: "Certificate of the authority that signs those of nodes and clients",
    default: None,
};
const TIMEOUT: ToolOption = ToolOption {
    name: "timeout",
    value_name: Some("SECONDS"),
    about: "Time limit at each server, 1 to 3600",
    default: Some("5"),
};
const JSON: ToolOption = ToolOption {
    name: "json",
    value_name: None,
    about: "One JSON document on standard output instead of text",
    default: None,
};
const HEX: ToolOption = ToolOption {
    name: "hex",
    value_name: None,
    about: "Keys and values are hexadecimal, as arguments and in the output",
    default: None,
};
const EXPECT: ToolOption = ToolOption {
    name: "expect",
    value_name: Some("VALUE"),
    about: "Write only if the key has this value; exit status 1 if not",
    default: None,
};
const ABSENT: ToolOption = ToolOption {
    name: "absent",
    value_name: None,
    about: "Write only if the key does not exist; exit status 1 if it does",
    default: None,
};
const DIGEST: ToolOption = ToolOption {
    name: "digest",
    value_name: None,
    about: "Also the digest of the state at an index, equal on all nodes",
    default: None,
};
const LIMIT: ToolOption = ToolOption {
    name: "limit",
    value_name: Some("N"),
    about: "Number of keys, 1 to 1000",
    default: Some("100"),
};

const AT: ToolOption = ToolOption {
    name: "at",
    value_name: Some("INDEX"),
    about: "Read the state at this index of the log, one that `kv status` shows as readable (`node kv --past-states`)",
    default: None,
};

/// How to reach the store.
const REACH: &[ToolOption] = &[SERVER, KEY_FILE, TLS_CERT, TLS_KEY, TLS_CA, TIMEOUT];
const SHOW: &[ToolOption] = &[HEX, JSON];

const EXITS: &str = "Exit status: 0 done, 1 no (absent, compare failed, wrong kind, list full), 2 unknown (it may have been \
executed), 254 error (usage, input, no server).";
const TXN_NOTES: &str = "One operation a line: read KEY, write KEY VALUE, append KEY VALUE, cas KEY OLD NEW (OLD `-`: the key \
must not exist), delete KEY, scan FROM TO LIMIT (TO `-`: no end). Keys and values with spaces stand in double quotes, with the \
escapes \\\\ \\\" \\n \\t \\xNN. A line that begins with `#` is a comment. All operations are executed, or none.\n\
Example: printf 'cas a 1 2\\nread b\\n' | seatrial kv txn\n\
Exit status: 0 done, 1 no (compare failed, wrong kind, list full), 2 unknown (it may have been executed), 254 error (usage, \
input, no server).";

const MEMBER_NOTES: &str = "A node joins in three steps: start it with the founding voters (`seatrial node kv --node 4 --voters 1,2,3 \
--peers …`), `kv member add n4=ADDRESS`, and, when `kv status` shows that it has caught up, `kv member promote n4`. Give the \
addresses of all nodes with --server: only the leader changes members.\n\
Exit status: 0 begun, 1 refused, 254 no server leads, or another error.";

/// The commands.
pub(crate) const TOOLS: &[SuiteTool] = &[
    SuiteTool {
        name: "get",
        about: "Print what a key holds: a register's value, or a list's elements, one a line",
        arguments: &[KEY],
        options: &[&[AT], REACH, SHOW],
        notes: EXITS,
        run: get,
    },
    SuiteTool {
        name: "put",
        about: "Write a register",
        arguments: &[KEY, VALUE],
        options: &[&[FILE, EXPECT, ABSENT], REACH, SHOW],
        notes: EXITS,
        run: put,
    },
    SuiteTool {
        name: "append",
        about: "Append an element to a list",
        arguments: &[KEY, VALUE],
        options: &[&[FILE], REACH, SHOW],
        notes: EXITS,
        run: append,
    },
    SuiteTool {
        name: "delete",
        about: "Delete a register or a list; no error if there is none",
        arguments: &[KEY],
        options: &[REACH, SHOW],
        notes: EXITS,
        run: |setup| {
            let mut transaction = Transaction::new();
            transaction.delete(&key(setup)?)?;
            execute(setup, transaction)
        },
    },
    SuiteTool {
        name: "scan",
        about: "Print the keys of a range in order, with what they hold",
        arguments: &[
            ToolArgument {
                name: "from",
                about: "The first key [default: the first of all]",
                is_required: false,
            },
            ToolArgument {
                name: "to",
                about: "The first key after the range [default: no end]",
                is_required: false,
            },
        ],
        options: &[&[LIMIT, AT], REACH, SHOW],
        notes: EXITS,
        run: scan,
    },
    SuiteTool {
        name: "txn",
        about: "Execute a transaction, given as text",
        arguments: &[ToolArgument {
            name: "file",
            about: "File of operations, one a line; `-` is standard input [default: -]",
            is_required: false,
        }],
        options: &[REACH, SHOW],
        notes: TXN_NOTES,
        run: txn,
    },
    SuiteTool {
        name: "status",
        about: "Print role, term, leader, positions, members and sizes of each server",
        arguments: &[],
        options: &[REACH, &[DIGEST, JSON]],
        notes: "Exit status: 0 all servers answered, 1 some, 254 none.",
        run: shown_status::run,
    },
    SuiteTool {
        name: "member",
        about: "Change the members of a cluster, one at a time, or its leader",
        arguments: &[
            ToolArgument {
                name: "change",
                about: "add (as a learner, which does not vote), promote, remove, or lead",
                is_required: true,
            },
            ToolArgument {
                name: "node",
                about: "The node, such as n4; with its address for add: n4=127.0.0.1:7404",
                is_required: true,
            },
        ],
        options: &[REACH],
        notes: MEMBER_NOTES,
        run: cluster_tools::member,
    },
    SuiteTool {
        name: "checkpoint",
        about: "Make each server write a checkpoint now",
        arguments: &[],
        options: &[REACH],
        notes: "Exit status: 0 begun at all servers, 1 refused by some, 254 error.",
        run: cluster_tools::checkpoint,
    },
    SuiteTool {
        name: "diff",
        about: "Compare two checkpoint files of nodes: DATA/files/checkpoint-…",
        arguments: &[
            ToolArgument {
                name: "first",
                about: "A checkpoint file",
                is_required: true,
            },
            ToolArgument {
                name: "second",
                about: "Another one",
                is_required: true,
            },
        ],
        options: &[&[HEX]],
        notes: "Checkpoints of one index are equal byte for byte on all nodes. The first 100 keys that differ are printed.\n\
Exit status: 0 equal, 1 different, 254 a file is damaged or no checkpoint.",
        run: cluster_tools::diff,
    },
];

fn key(setup: &ToolSetup<'_>) -> Result<Vec<u8>, SuiteError> {
    let key = argument(setup, KEY.name)?;
    key.ok_or_else(|| "the key is missing".into())
}

/// The bytes of an argument or option; in hexadecimal if that is asked for.
fn argument(setup: &ToolSetup<'_>, name: &str) -> Result<Option<Vec<u8>>, SuiteError> {
    let Some(value) = setup.values.get(name) else {
        return Ok(None);
    };
    if !setup.has(HEX.name) {
        return Ok(Some(value.as_encoded_bytes().to_vec()));
    }
    let text = value.to_string_lossy();
    let bytes = shown::from_hex(&text);
    let bytes = bytes.ok_or_else(|| format!("{name} is not hexadecimal: {text:?}"))?;
    Ok(Some(bytes))
}

/// The value of a write: an argument, a file, or standard input.
fn value(setup: &ToolSetup<'_>) -> Result<Vec<u8>, SuiteError> {
    let is_given = setup.has(VALUE.name);
    if let Some(path) = setup.values.path(FILE.name) {
        if is_given {
            return Err("give a value or --file, not both".into());
        }
        let bytes = std::fs::read(path);
        return bytes.map_err(|error| format!("{}: {error}", path.display()).into());
    }
    if setup.values.get(VALUE.name).is_some_and(|it| it == "-") {
        return standard_input();
    }
    let value = argument(setup, VALUE.name)?;
    value.ok_or_else(|| "the value is missing (or --file, or `-` for standard input)".into())
}

/// All of standard input, up to more than a transaction can hold.
fn standard_input() -> Result<Vec<u8>, SuiteError> {
    let mut bytes = Vec::new();
    let limit = 4 * seatrial_kv_protocol::message::MESSAGE_LENGTH_MAX as u64;
    let read = std::io::stdin().lock().take(limit).read_to_end(&mut bytes);
    read.map_err(|error| format!("standard input: {error}"))?;
    Ok(bytes)
}

/// A transaction of the present state, or of that of `--at`.
fn reading(setup: &ToolSetup<'_>) -> Result<Transaction, SuiteError> {
    let mut transaction = Transaction::new();
    if setup.has(AT.name) {
        transaction.at(setup.values.number(AT.name, 1..=u64::MAX, 0)?)?;
    }
    Ok(transaction)
}

fn get(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let mut transaction = reading(setup)?;
    transaction.read(&key(setup)?)?;
    let outcome = request(setup, transaction)?;
    let is_absent = |answers: &Answers| answers.iter().any(|it| it == Answer::Absent);
    if !matches!(&outcome, Outcome::Ok(answers) if is_absent(answers)) {
        return print(setup, &outcome);
    }
    // Not on standard output, where it could be a value.
    if setup.has(JSON.name) {
        print(setup, &outcome)?;
    } else {
        (setup.report)(format_args!("absent"));
    }
    Ok(ToolExit::Negative)
}

fn put(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let (key, value) = (key(setup)?, value(setup)?);
    let expected = argument(setup, EXPECT.name)?;
    let mut transaction = Transaction::new();
    match (&expected, setup.has(ABSENT.name)) {
        (Some(_), true) => return Err("give --expect or --absent, not both".into()),
        (None, false) => transaction.write(&key, &value)?,
        _ => transaction.compare_and_set(&key, expected.as_deref(), &value)?,
    }
    execute(setup, transaction)
}

fn append(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let mut transaction = Transaction::new();
    transaction.append(&key(setup)?, &value(setup)?)?;
    execute(setup, transaction)
}

fn scan(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let from = argument(setup, "from")?.unwrap_or_default();
    let to = argument(setup, "to")?;
    let limit = setup.values.number(LIMIT.name, 1..=SCAN_MAX as u64, 100)?;
    let mut transaction = reading(setup)?;
    transaction.scan(&from, to.as_deref(), limit as usize)?;
    execute(setup, transaction)
}

fn txn(setup: &ToolSetup<'_>) -> Result<ToolExit, SuiteError> {
    let path = setup.values.path("file").filter(|path| *path != "-");
    let bytes = match path {
        Some(path) => std::fs::read(path).map_err(|it| format!("{}: {it}", path.display()))?,
        None => standard_input()?,
    };
    let text = String::from_utf8(bytes).map_err(|_| "the transaction is not valid UTF-8")?;
    let transaction = transaction_text::parse(&text, setup.has(HEX.name))?;
    execute(setup, transaction)
}

/// Sends a transaction and prints its outcome.
fn execute(setup: &ToolSetup<'_>, transaction: Transaction) -> Result<ToolExit, SuiteError> {
    print(setup, &request(setup, transaction)?)
}

/// The outcome of a transaction at the first server that has a session for it.
fn request(setup: &ToolSetup<'_>, transaction: Transaction) -> Result<Outcome, SuiteError> {
    let runtime = runtime()?;
    runtime.block_on(StoreSession::request_once(setup, transaction))
}

/// The runtime of one command: this thread.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, SuiteError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    Ok(runtime.enable_all().build()?)
}

/// Prints an outcome.
fn print(setup: &ToolSetup<'_>, outcome: &Outcome) -> Result<ToolExit, SuiteError> {
    let form = ShownBytes {
        is_hex: setup.has(HEX.name),
    };
    if setup.has(JSON.name) {
        (setup.print)(format_args!("{}", form.outcome_json(outcome)));
    }
    match outcome {
        Outcome::Ok(answers) => {
            if !setup.has(JSON.name) {
                // The first answer is that to the choice of the state.
                let answers = answers.iter().skip(usize::from(setup.has(AT.name)));
                let lines = answers.flat_map(|answer| form.lines(&answer));
                lines.for_each(|line| (setup.print)(format_args!("{line}")));
            }
            Ok(ToolExit::Done)
        }
        Outcome::Unknown(doubt) => {
            let line = format_args!("unknown: {doubt}; the transaction may have been executed");
            (setup.report)(line);
            Ok(ToolExit::Unknown)
        }
        Outcome::Failed(
            failure @ (Failure::CompareFailed { operation }
            | Failure::WrongKind { operation }
            | Failure::ListFull { operation }
            | Failure::AnswerTooLong { operation }),
        ) => {
            (setup.report)(format_args!(
                "not executed: {failure} (operation {operation})"
            ));
            Ok(ToolExit::Negative)
        }
        Outcome::Failed(Failure::NoState) => Err(
            "not executed: no state is kept at that index (`kv status` shows those that are readable)".into(),
        ),
        Outcome::Failed(failure) => Err(format!("not executed: {failure}").into()),
    }
}
