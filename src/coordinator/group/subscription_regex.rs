//! Regular expressions that consumers subscribe by (KIP-848: `SubscribedTopicRegex`), in the syntax of RE2/J. Pure.
//!
//! Apache Kafka reads them with RE2/J and matches the whole name of a topic, internal ones too. The crate `regex` is as linear in time, but
//! its syntax is another one: it takes what RE2/J refuses (set operations, `a**`, `(?x)`), refuses what RE2/J takes
//! (`\Q...\E`, octal escapes, `{,3}` for itself), and reads `[a[b]` and `\d` otherwise. So the expression is read here by RE2's
//! rules, with RE2/J's errors, and written again in a form that has nothing special left.
//!
//! Names of topics are ASCII and have no line ends. So a character class is a set of 128 bits; of Unicode there is no more to know than which classes
//! exist; the flags `m`, `s` and `U` and lazy repetitions make no difference. [`ascii_set`] has the classes.
//!
//! A difference remains, on purpose: an expression that grows beyond [`SIZE_MAX_BYTES`] when its repetitions are written out, or nests
//! deeper than [`NESTING_MAX`], is refused; RE2/J takes it and the memory that it needs.

mod ascii_set;
mod parser;

use regex::bytes::{Regex, RegexBuilder};

/// Of an expression that is ready to match.
const SIZE_MAX_BYTES: usize = 2 << 20;
const NESTING_MAX: u32 = 500;

/// A valid expression.
#[derive(Debug, Clone)]
pub struct SubscriptionRegex(Regex);

/// What is wrong with an expression, in RE2/J's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegexError {
    #[error("invalid character class range")]
    CharacterRange,
    #[error("invalid escape sequence")]
    Escape,
    #[error("invalid named capture")]
    NamedCapture,
    #[error("duplicate capture group name")]
    DuplicateName,
    #[error("invalid or unsupported Perl syntax")]
    PerlSyntax,
    #[error("invalid nested repetition operator")]
    NestedRepetition,
    #[error("invalid repeat count")]
    RepeatCount,
    #[error("missing closing ]")]
    MissingBracket,
    #[error("missing closing )")]
    MissingParenthesis,
    #[error("missing argument to repetition operator")]
    MissingRepeatArgument,
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    /// A closing parenthesis too many.
    #[error("regexp/syntax: internal error")]
    UnexpectedParenthesis,
    /// Ours alone.
    #[error("expression too large")]
    TooLarge,
}

impl SubscriptionRegex {
    pub fn new(expression: &str) -> Result<Self, RegexError> {
        let plain = parser::parse(expression)?;
        RegexBuilder::new(&format!(r"\A(?:{plain})\z"))
            .unicode(false)
            .size_limit(SIZE_MAX_BYTES)
            .nest_limit(NESTING_MAX)
            .build()
            .map(Self)
            .map_err(|_| RegexError::TooLarge)
    }

    /// Whether the whole name matches.
    pub fn matches(&self, topic: &str) -> bool {
        self.0.is_match(topic.as_bytes())
    }
}

#[cfg(test)]
#[path = "subscription_regex_test.rs"]
mod subscription_regex_test;
