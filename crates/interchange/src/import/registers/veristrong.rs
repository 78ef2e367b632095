//! VeriStrong's text of list-append histories: a line with the number of lines that follow, then
//! `SESSION TRANSACTION A KEY ELEMENT` for an append and `SESSION TRANSACTION R KEY n e1 … en` for a read.
//!
//! All numbers have 64 bits with sign. Operations of a transaction stand in program order, transactions of a session in
//! the order of their first lines.

use super::InputFault;
use super::bytes::Bytes;
use super::draft::DraftAccessKind;
use super::line::{LineFault, LineParser};
use super::transaction_assembly::TransactionAssembly;
use crate::import::SourcePosition;
use seatrial_history::TransactionSink;
use seatrial_machine::counted;
use std::io::Read;

/// Longest line: a read of some million elements.
const LINE_LENGTH_MAX: usize = 64 << 20;

/// Reads such a text.
pub(super) struct VeriStrong {
    assembly: TransactionAssembly,
    /// Lines that must follow; `None` before the first line.
    left: Option<u64>,
}

impl VeriStrong {
    pub(super) fn new() -> VeriStrong {
        VeriStrong {
            assembly: TransactionAssembly::new(),
            left: None,
        }
    }

    /// Passes the next transaction to `sink`.
    pub(super) fn advance<R: Read, S: TransactionSink + ?Sized>(
        &mut self,
        input: &mut Bytes<R>,
        sink: &mut S,
        place: &mut SourcePosition,
    ) -> Result<bool, InputFault> {
        while !self.assembly.is_ready() {
            let (length, ends) = input.line_length(LINE_LENGTH_MAX)?;
            if !ends {
                input.finish()?;
            }
            let number = input.line;
            let mut line = LineParser::new(&input.rest()[..length]);
            if !line.is_over() {
                self.take(&mut line, number)
                    .map_err(|(at, problem)| input.fault(at, problem))?;
            }
            if ends {
                input.consume(length + 1);
                input.line += 1;
                continue;
            }
            if let Some(left @ 1..) = self.left {
                let problem = format!("the file ends; missing: {}", counted(left, "line"));
                return Err(input.fault(length, problem));
            }
            input.consume(length);
            if !self.assembly.finish() {
                return Ok(false);
            }
            break;
        }
        *place = self.assembly.emit(sink)?;
        Ok(true)
    }

    fn take(&mut self, line: &mut LineParser<'_>, number: u64) -> Result<(), LineFault> {
        let Some(left) = self.left else {
            self.left = Some(line.natural("the number of lines")?);
            return ended(line);
        };
        let Some(left) = left.checked_sub(1) else {
            return line.fault("the end of the file");
        };
        self.left = Some(left);
        let start = line.at();
        let session = line.natural("a session")?;
        line.skip_blank();
        let transaction = line.int("a transaction")?;
        line.skip_blank();
        let whole = |problem| (start, problem);
        self.assembly
            .select(session, Some(transaction), number)
            .map_err(whole)?;
        let appends = match line.peek() {
            Some(b'A') => true,
            Some(b'R') => false,
            _ => return line.fault("`A` or `R`"),
        };
        line.expect(if appends { b'A' } else { b'R' })?;
        line.skip_blank();
        let key = line.int("a key")?;
        line.skip_blank();
        if appends {
            let element = line.int("an element")?;
            self.assembly
                .add(DraftAccessKind::Append, key, element)
                .map_err(whole)?;
            return ended(line);
        }
        let count = line.natural("the number of elements")?;
        for _ in 0..count {
            line.skip_blank();
            let element = line.int("an element")?;
            self.assembly.element(element).map_err(whole)?;
        }
        self.assembly
            .add(DraftAccessKind::ReadList, key, count.cast_signed())
            .map_err(whole)?;
        ended(line)
    }
}

fn ended(line: &mut LineParser<'_>) -> Result<(), LineFault> {
    if line.is_over() {
        return Ok(());
    }
    line.fault("the end of the line")
}

/// Does a text begin in this format?
pub(super) fn is_veristrong(text: &[u8]) -> bool {
    let mut parser = VeriStrong::new();
    let mut lines = text
        .split(|&byte| byte == b'\n')
        .map(LineParser::new)
        .filter_map(|mut line| (!line.is_over()).then_some(line));
    // The second line may be cut off, but not before its elements.
    let counts = lines.next();
    let first = lines.next();
    let (Some(mut counts), Some(mut first)) = (counts, first) else {
        return false;
    };
    if parser.take(&mut counts, 1).is_err() {
        return false;
    }
    let mut fields = || {
        first.int("a session").ok()?;
        first.skip_blank();
        first.int("a transaction").ok()?;
        first.skip_blank();
        first.peek()
    };
    matches!(fields(), Some(b'A' | b'R'))
}
