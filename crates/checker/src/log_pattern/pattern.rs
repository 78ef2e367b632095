//! Regular expressions, matched in linear time.

use std::fmt;

/// A regular expression: literals, `.`, classes (`[a-z]`, `[^…]`, `\d`, `\w`, `\s` and their opposites), groups, `|`, `*`, `+`,
/// `?`, `{m,n}`, `^`, `$`, `\b`, and `(?i)` at the beginning. No captures and no references back.
///
/// Compiled to a program of at most `STEPS_MAX` steps; all its states are followed at once (Thompson, 1968), so that a match
/// takes the length of the text times the length of the program, whatever the expression.
pub struct Pattern {
    text: String,
    steps: Vec<Step>,
    ignores_case: bool,
}

/// Why a regular expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("regular expression, character {at}: {reason}")]
pub struct PatternError {
    /// The character, from 1.
    pub at: usize,
    /// What is wrong.
    pub reason: &'static str,
}

/// Steps of a program.
const STEPS_MAX: usize = 10_000;
/// Nested groups.
const DEPTH_MAX: usize = 100;

/// A step of a program; the next one follows, unless it says otherwise.
#[derive(Clone, Debug)]
enum Step {
    /// Consumes one character of these ranges, or of none of them.
    Class(Vec<(char, char)>, bool),
    /// Continues at both places.
    Split(usize, usize),
    Jump(usize),
    Begin,
    End,
    /// Between a character of a word and another one, or not.
    Boundary(bool),
    Match,
}

/// A parsed expression.
#[derive(Clone, Debug)]
enum Expression {
    Step(Step),
    Sequence(Vec<Expression>),
    Either(Vec<Expression>),
    Repeat(Box<Expression>, u32, Option<u32>),
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}

impl Pattern {
    /// Compiles an expression.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        let (body, ignores_case) = match text.strip_prefix("(?i)") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let mut parser = PatternParser {
            letters: body.chars().collect(),
            at: 0,
            depth: 0,
        };
        let expression = parser.either()?;
        if parser.at < parser.letters.len() {
            return Err(parser.error("`)` without `(`"));
        }
        let mut steps = Vec::new();
        compile(&expression, &mut steps).ok_or_else(|| parser.error("too long when expanded"))?;
        steps.push(Step::Match);
        Ok(Pattern {
            text: text.to_owned(),
            steps,
            ignores_case,
        })
    }

    /// The expression as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Does it match some part of a line?
    pub fn is_match(&self, line: &str) -> bool {
        let mut now = StateSet::new(self.steps.len());
        let mut next = StateSet::new(self.steps.len());
        let mut before: Option<char> = None;
        let mut letters = line.chars();
        loop {
            let letter = letters.next();
            // A match may begin anywhere.
            if self.enter(0, before, letter, &mut now) {
                return true;
            }
            let Some(letter) = letter else {
                return false;
            };
            next.clear();
            let after = letters.clone().next();
            for place in 0..now.states.len() {
                let state = now.states[place];
                if let Step::Class(ranges, is_negated) = &self.steps[state]
                    && self.has(ranges, letter) != *is_negated
                    && self.enter(state + 1, Some(letter), after, &mut next)
                {
                    return true;
                }
            }
            std::mem::swap(&mut now, &mut next);
            before = Some(letter);
        }
    }

    fn has(&self, ranges: &[(char, char)], letter: char) -> bool {
        let has = |letter: char| {
            ranges
                .iter()
                .any(|&(first, last)| first <= letter && letter <= last)
        };
        has(letter)
            || (self.ignores_case
                && (letter.to_lowercase().any(has) || letter.to_uppercase().any(has)))
    }

    /// Adds a state and all that are reached from it without a character. True when one of them is a match.
    fn enter(
        &self,
        state: usize,
        before: Option<char>,
        after: Option<char>,
        set: &mut StateSet,
    ) -> bool {
        let is_word = |letter: Option<char>| {
            letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
        };
        let mut waiting = vec![state];
        while let Some(state) = waiting.pop() {
            if !set.insert(state) {
                continue;
            }
            let may_pass = match &self.steps[state] {
                Step::Match => return true,
                Step::Class(..) => false,
                Step::Split(one, other) => {
                    waiting.extend([*other, *one]);
                    false
                }
                Step::Jump(to) => {
                    waiting.push(*to);
                    false
                }
                Step::Begin => before.is_none(),
                Step::End => after.is_none(),
                Step::Boundary(wanted) => (is_word(before) != is_word(after)) == *wanted,
            };
            if may_pass {
                waiting.push(state + 1);
            }
        }
        false
    }
}

/// States in the order in which they were added, each once.
struct StateSet {
    states: Vec<usize>,
    is_in: Vec<bool>,
}

impl StateSet {
    fn new(count: usize) -> StateSet {
        StateSet {
            states: Vec::new(),
            is_in: vec![false; count],
        }
    }

    fn insert(&mut self, state: usize) -> bool {
        let is_new = !std::mem::replace(&mut self.is_in[state], true);
        if is_new {
            self.states.push(state);
        }
        is_new
    }

    fn clear(&mut self) {
        for state in self.states.drain(..) {
            self.is_in[state] = false;
        }
    }
}

/// Appends the steps of an expression; `None` when there are too many.
fn compile(expression: &Expression, steps: &mut Vec<Step>) -> Option<()> {
    if steps.len() > STEPS_MAX {
        return None;
    }
    match expression {
        Expression::Step(step) => steps.push(step.clone()),
        Expression::Sequence(parts) => {
            for part in parts {
                compile(part, steps)?;
            }
        }
        Expression::Either(parts) => {
            let mut ends = Vec::new();
            for (number, part) in parts.iter().enumerate() {
                let split = steps.len();
                if number + 1 < parts.len() {
                    steps.push(Step::Split(split + 1, 0));
                }
                compile(part, steps)?;
                if number + 1 < parts.len() {
                    ends.push(steps.len());
                    steps.push(Step::Jump(0));
                    steps[split] = Step::Split(split + 1, steps.len());
                }
            }
            let end = steps.len();
            for jump in ends {
                steps[jump] = Step::Jump(end);
            }
        }
        Expression::Repeat(part, least, most) => {
            for _ in 0..*least {
                compile(part, steps)?;
            }
            match most {
                None => {
                    let split = steps.len();
                    steps.push(Step::Split(split + 1, 0));
                    compile(part, steps)?;
                    steps.push(Step::Jump(split));
                    steps[split] = Step::Split(split + 1, steps.len());
                }
                Some(most) => {
                    let mut splits = Vec::new();
                    for _ in *least..*most {
                        splits.push(steps.len());
                        steps.push(Step::Split(steps.len() + 1, 0));
                        compile(part, steps)?;
                    }
                    let end = steps.len();
                    for split in splits {
                        steps[split] = Step::Split(split + 1, end);
                    }
                }
            }
        }
    }
    (steps.len() <= STEPS_MAX).then_some(())
}

/// Reads an expression, character by character.
struct PatternParser {
    letters: Vec<char>,
    at: usize,
    depth: usize,
}

/// Ranges of characters.
type Ranges = Vec<(char, char)>;

impl PatternParser {
    fn error(&self, reason: &'static str) -> PatternError {
        PatternError {
            at: self.at + 1,
            reason,
        }
    }

    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn take(&mut self, letter: char) -> bool {
        let is_it = self.peek() == Some(letter);
        self.at += usize::from(is_it);
        is_it
    }

    fn either(&mut self) -> Result<Expression, PatternError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("groups nest too deep"));
        }
        let mut parts = vec![self.sequence()?];
        while self.take('|') {
            parts.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(match parts.len() {
            1 => parts.swap_remove(0),
            _ => Expression::Either(parts),
        })
    }

    fn sequence(&mut self) -> Result<Expression, PatternError> {
        let mut parts = Vec::new();
        while let Some(letter) = self.peek() {
            if letter == '|' || letter == ')' {
                break;
            }
            let part = self.part()?;
            parts.push(self.repeated(part)?);
        }
        Ok(Expression::Sequence(parts))
    }

    fn repeated(&mut self, part: Expression) -> Result<Expression, PatternError> {
        let (least, most) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => return self.counted(part),
            _ => return Ok(part),
        };
        self.at += 1;
        // A lazy repetition matches the same lines.
        self.take('?');
        self.refuse_second()?;
        Ok(Expression::Repeat(Box::new(part), least, most))
    }

    fn refuse_second(&self) -> Result<(), PatternError> {
        match self.peek() {
            Some('*' | '+' | '?') => Err(self.error("a repetition of a repetition")),
            _ => Ok(()),
        }
    }

    /// `{m}`, `{m,}` or `{m,n}`.
    fn counted(&mut self, part: Expression) -> Result<Expression, PatternError> {
        self.at += 1;
        let least = self
            .number()
            .ok_or_else(|| self.error("expected a number"))?;
        let most = match self.take(',') {
            true if self.peek() == Some('}') => None,
            true => Some(
                self.number()
                    .ok_or_else(|| self.error("expected a number"))?,
            ),
            false => Some(least),
        };
        if !self.take('}') {
            return Err(self.error("expected `}`"));
        }
        if most.is_some_and(|most| most < least) {
            return Err(self.error("the second number is smaller than the first"));
        }
        self.take('?');
        self.refuse_second()?;
        Ok(Expression::Repeat(Box::new(part), least, most))
    }

    fn number(&mut self) -> Option<u32> {
        let begin = self.at;
        while self.peek().is_some_and(|letter| letter.is_ascii_digit()) {
            self.at += 1;
        }
        let text: String = self.letters[begin..self.at].iter().collect();
        text.parse().ok().filter(|number| *number <= 1_000)
    }

    fn part(&mut self) -> Result<Expression, PatternError> {
        let letter = self.peek().unwrap_or_default();
        self.at += 1;
        let step = match letter {
            '(' => {
                if self.take('?') && !self.take(':') {
                    return Err(self.error("expected `(?:`"));
                }
                let inside = self.either()?;
                if !self.take(')') {
                    return Err(self.error("expected `)`"));
                }
                return Ok(inside);
            }
            '*' | '+' | '?' | '{' => {
                self.at -= 1;
                return Err(self.error("nothing to repeat"));
            }
            '.' => Step::Class(Vec::new(), true),
            '^' => Step::Begin,
            '$' => Step::End,
            '[' => self.class()?,
            '\\' => {
                if let Some(letter @ ('b' | 'B')) = self.peek() {
                    self.at += 1;
                    Step::Boundary(letter == 'b')
                } else {
                    let (ranges, is_negated) = self.escape()?;
                    Step::Class(ranges, is_negated)
                }
            }
            letter => Step::Class(vec![(letter, letter)], false),
        };
        Ok(Expression::Step(step))
    }

    /// What follows a backslash: ranges, or all but them.
    fn escape(&mut self) -> Result<(Ranges, bool), PatternError> {
        let Some(letter) = self.peek() else {
            return Err(self.error("nothing after `\\`"));
        };
        self.at += 1;
        let same = |letter: char| Ok((vec![(letter, letter)], false));
        let named = |ranges: &[(char, char)]| Ok((ranges.to_vec(), letter.is_ascii_uppercase()));
        match letter {
            'n' => same('\n'),
            't' => same('\t'),
            'r' => same('\r'),
            'd' | 'D' => named(&[('0', '9')]),
            'w' | 'W' => named(&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')]),
            's' | 'S' => named(&[('\t', '\r'), (' ', ' ')]),
            letter if letter.is_alphanumeric() => {
                self.at -= 1;
                Err(self.error("unknown escape"))
            }
            letter => same(letter),
        }
    }

    /// The rest of a class in brackets.
    fn class(&mut self) -> Result<Step, PatternError> {
        let is_negated = self.take('^');
        let mut ranges: Ranges = Vec::new();
        let mut is_first = true;
        loop {
            let Some(letter) = self.peek() else {
                return Err(self.error("expected `]`"));
            };
            if letter == ']' && !is_first {
                self.at += 1;
                return Ok(Step::Class(ranges, is_negated));
            }
            is_first = false;
            self.at += 1;
            let first = if letter == '\\' {
                match self.escape()? {
                    (one, false) if one.len() == 1 && one[0].0 == one[0].1 => one[0].0,
                    (_, true) => return Err(self.error("an opposite inside of brackets")),
                    (several, false) => {
                        ranges.extend(several);
                        continue;
                    }
                }
            } else {
                letter
            };
            let is_range = self.peek() == Some('-')
                && self
                    .letters
                    .get(self.at + 1)
                    .is_some_and(|next| *next != ']');
            if !is_range {
                ranges.push((first, first));
                continue;
            }
            self.at += 1;
            let mut last = self.letters[self.at];
            self.at += 1;
            if last == '\\' {
                match self.escape()? {
                    (one, false) if one.len() == 1 && one[0].0 == one[0].1 => last = one[0].0,
                    _ => return Err(self.error("a class as the end of a range")),
                }
            }
            if last < first {
                return Err(self.error("the range is empty"));
            }
            ranges.push((first, last));
        }
    }
}

#[cfg(test)]
mod tests;
