//! Transactions as text, one operation a line.

use super::shown::from_hex;
use seatrial_kv_protocol::Transaction;
use seatrial_suite::SuiteError;

/// A word of a line.
#[derive(Debug, PartialEq, Eq)]
struct Word {
    text: Vec<u8>,
    is_quoted: bool,
}

/// Parses a transaction; with `is_hex` all keys and values are hexadecimal.
pub(super) fn parse(text: &str, is_hex: bool) -> Result<Transaction, SuiteError> {
    let mut transaction = Transaction::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let added = words(line).and_then(|words| add(&mut transaction, &words, is_hex));
        added.map_err(|reason| format!("line {}: {reason}: {line}", index + 1))?;
    }
    if transaction.is_empty() {
        return Err("the transaction has no operation".into());
    }
    Ok(transaction)
}

/// Splits a line into words: `"…"` with escapes, or anything without a space.
fn words(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut letters = line.chars().peekable();
    loop {
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
        let Some(first) = letters.next() else {
            return Ok(words);
        };
        let mut text = Vec::new();
        if first != '"' {
            let mut push =
                |letter: char| text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            push(first);
            while let Some(letter) = letters.next_if(|letter| !letter.is_whitespace()) {
                push(letter);
            }
            words.push(Word {
                text,
                is_quoted: false,
            });
            continue;
        }
        loop {
            match letters.next().ok_or("a quote has no end")? {
                '"' => break,
                '\\' => text.push(escape(&mut letters)?),
                letter => text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if letters.peek().is_some_and(|letter| !letter.is_whitespace()) {
            return Err("a space is missing after a quote".to_owned());
        }
        words.push(Word {
            text,
            is_quoted: true,
        });
    }
}

/// The byte of an escape, after its backslash.
fn escape(letters: &mut impl Iterator<Item = char>) -> Result<u8, String> {
    match letters.next() {
        Some('n') => Ok(b'\n'),
        Some('t') => Ok(b'\t'),
        Some(letter @ ('\\' | '"')) => Ok(letter as u8),
        Some('x') => {
            let digits: String = letters.take(2).collect();
            let byte = from_hex(&digits).and_then(|bytes| bytes.first().copied());
            byte.ok_or_else(|| format!("\\x takes two hexadecimal digits, not {digits:?}"))
        }
        _ => Err("escapes are \\\\ \\\" \\n \\t \\xNN".to_owned()),
    }
}

/// Adds the operation of a line.
fn add(transaction: &mut Transaction, words: &[Word], is_hex: bool) -> Result<(), String> {
    let Some((verb, rest)) = words.split_first() else {
        return Ok(());
    };
    let bytes = |word: &Word| -> Result<Vec<u8>, String> {
        if !is_hex {
            return Ok(word.text.clone());
        }
        let text = String::from_utf8_lossy(&word.text);
        from_hex(&text).ok_or_else(|| format!("not hexadecimal: {text:?}"))
    };
    // A bare hyphen stands for nothing; the text "-" is quoted.
    let optional = |word: &Word| match word {
        Word {
            text,
            is_quoted: false,
        } if text == b"-" => Ok(None),
        word => bytes(word).map(Some),
    };
    let added = match (verb.text.as_slice(), rest) {
        (b"at", [index]) => {
            let digits = String::from_utf8_lossy(&index.text);
            let index = digits.parse();
            transaction.at(index.map_err(|_| format!("{digits:?} is no index"))?)
        }
        (b"read", [key]) => transaction.read(&bytes(key)?),
        (b"write", [key, value]) => transaction.write(&bytes(key)?, &bytes(value)?),
        (b"append", [key, value]) => transaction.append(&bytes(key)?, &bytes(value)?),
        (b"cas", [key, old, new]) => {
            transaction.compare_and_set(&bytes(key)?, optional(old)?.as_deref(), &bytes(new)?)
        }
        (b"delete", [key]) => transaction.delete(&bytes(key)?),
        (b"scan", [from, to, limit]) => {
            let limit = std::str::from_utf8(&limit.text).ok();
            let limit = limit.and_then(|text| text.parse().ok());
            let limit = limit.ok_or("the limit of a scan is a whole number")?;
            transaction.scan(&bytes(from)?, optional(to)?.as_deref(), limit)
        }
        _ => {
            return Err("an operation is read KEY, write KEY VALUE, append KEY VALUE, cas KEY OLD NEW, delete KEY, or \
                        scan FROM TO LIMIT"
                .to_owned());
        }
    };
    added.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_kv_protocol::Operation;

    #[test]
    fn every_operation_is_parsed() {
        let text = "# a comment\nread k\n\n write k \"a b\\x00\\n\"\nappend l \"\"\ncas k - new\ncas k \"-\" new\n\
                    delete k\nscan a - 10\n";
        let transaction = parse(text, false).unwrap();
        let operations: Vec<Operation<'_>> =
            transaction.operations().collect::<Result<_, _>>().unwrap();
        let cas = |expected| Operation::CompareAndSet {
            key: b"k",
            expected,
            value: b"new",
        };
        let expected = [
            Operation::Read { key: b"k" },
            Operation::Write {
                key: b"k",
                value: b"a b\0\n",
            },
            Operation::Append {
                key: b"l",
                value: b"",
            },
            cas(None),
            cas(Some(b"-")),
            Operation::Delete { key: b"k" },
            Operation::Scan {
                from: b"a",
                to: None,
                limit: 10,
            },
        ];
        assert_eq!(operations, expected);
        let transaction = parse("write 6b ff00", true).unwrap();
        let operation = transaction.operations().next().unwrap().unwrap();
        let expected = Operation::Write {
            key: b"k",
            value: b"\xff\0",
        };
        assert_eq!(operation, expected);
    }

    #[test]
    fn wrong_lines_are_refused_with_their_number() {
        for (text, reason) in [
            ("", "no operation"),
            ("read a\nreed b", "line 2: an operation is read KEY"),
            ("read", "line 1: an operation"),
            ("read \"a", "a quote has no end"),
            ("read \"a\"b", "a space is missing"),
            ("read \"\\x1\"", "two hexadecimal digits"),
            ("read \"\\q\"", "escapes are"),
            ("scan a b c", "whole number"),
            ("scan a b 0", "scan of 0 keys"),
        ] {
            let error = parse(text, false).unwrap_err().to_string();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
        assert!(
            parse("read 6", true)
                .unwrap_err()
                .to_string()
                .contains("not hexadecimal")
        );
    }
}
