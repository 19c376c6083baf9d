//! What is wrong with a system file, said the way a compiler says it.
//!
//! Contract: one [`Diagnostic`] for each thing that is wrong; it names file, line, column, key and
//! value, and says what would be right. Made by the readers of this crate, printed by the command
//! line (`Display`, or serialized for `--json`).

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The system can't run like this.
    Error,
    /// The system runs, but hardly as its author meant it.
    Warning,
}

/// One thing that is wrong in a system file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// The system file, or a file that it includes.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key, such as `link[0].tcp.control.listen`; empty where the file as a whole is meant.
    pub key: String,
    /// What is wrong, with the value.
    pub problem: String,
    /// What would be right, as an instruction.
    pub mend: String,
    /// The source line, without its end.
    #[serde(skip)]
    source_line: String,
    /// Characters to underline from `column` on, at least 1.
    #[serde(skip)]
    underline_chars: usize,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file.display(), self.line, self.column)?;
        if self.severity == Severity::Warning {
            write!(f, "warning: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}; {}", self.problem, self.mend)?;
        if self.source_line.trim().is_empty() {
            return Ok(());
        }
        let number = self.line.to_string();
        // Tabs are kept in the indent, so that the caret stands below its character whatever a
        // tab's width is.
        let indent: String = self
            .source_line
            .chars()
            .take(self.column - 1)
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        write!(
            f,
            "\n{number} | {}\n{:width$} | {indent}{}",
            self.source_line,
            "",
            "^".repeat(self.underline_chars),
            width = number.len()
        )
    }
}

/// Why there is no [`crate::System`].
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// The file can't be read.
    #[error("{}: cannot read the system file: {cause}; give the path of a TOML or ARINC 653 XML file that this user may read", file.display())]
    Read {
        /// The file asked for.
        file: PathBuf,
        /// The operating system's answer.
        cause: std::io::Error,
    },
    /// The file is wrong: everything found, in the order of the file, warnings included; at least
    /// one is an error.
    #[error("{}", all(.0))]
    Invalid(Vec<Diagnostic>),
}

impl SystemError {
    /// What is wrong in the file; empty where it could not be read at all.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        match self {
            SystemError::Read { .. } => &[],
            SystemError::Invalid(diagnostics) => diagnostics,
        }
    }
}

fn all(diagnostics: &[Diagnostic]) -> String {
    diagnostics
        .iter()
        .map(Diagnostic::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// A place in one of the files that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceSpan {
    /// [`MAIN`], or what [`Notes::add_source`] gave.
    pub(crate) source: usize,
    /// Bytes in that file.
    pub(crate) span: Range<usize>,
}

/// The source of the system file itself; what it includes comes after.
pub(crate) const MAIN: usize = 0;

impl From<Range<usize>> for SourceSpan {
    /// In the system file itself.
    fn from(span: Range<usize>) -> Self {
        SourceSpan { source: MAIN, span }
    }
}

/// Makes diagnostics from places in the system file and in what it includes, and collects them.
pub(crate) struct Notes<'t> {
    file: &'t Path,
    text: &'t str,
    /// Files that the system file includes: sources 1 and on.
    included: Vec<(PathBuf, Rc<str>)>,
    /// With the place (source, byte offset) of each, to sort by.
    found: Vec<((usize, usize), Diagnostic)>,
    /// How many of them are errors.
    errors: usize,
}

impl<'t> Notes<'t> {
    pub(crate) fn new(file: &'t Path, text: &'t str) -> Self {
        Notes {
            file,
            text,
            included: Vec::new(),
            found: Vec::new(),
            errors: 0,
        }
    }

    /// Makes another file known. Returns its source number.
    pub(crate) fn add_source(&mut self, file: PathBuf, text: Rc<str>) -> usize {
        self.included.push((file, text));
        self.included.len()
    }

    pub(crate) fn error(
        &mut self,
        span: &Range<usize>,
        key: impl Into<String>,
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) {
        self.error_at(&span.clone().into(), key, problem, mend);
    }

    pub(crate) fn error_at(
        &mut self,
        place: &SourceSpan,
        key: impl Into<String>,
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) {
        self.add(Severity::Error, place, key.into(), problem.into(), mend.into());
    }

    pub(crate) fn warning(
        &mut self,
        span: &Range<usize>,
        key: impl Into<String>,
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) {
        self.warning_at(&span.clone().into(), key, problem, mend);
    }

    pub(crate) fn warning_at(
        &mut self,
        place: &SourceSpan,
        key: impl Into<String>,
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) {
        self.add(Severity::Warning, place, key.into(), problem.into(), mend.into());
    }

    fn add(&mut self, severity: Severity, place: &SourceSpan, key: String, problem: String, mend: String) {
        let included = place
            .source
            .checked_sub(1)
            .and_then(|index| self.included.get(index));
        let (file, text) = match included {
            Some((file, text)) => (file.as_path(), text.as_ref()),
            None => (self.file, self.text),
        };
        let span = &place.span;
        let start = floor_char_boundary(text, span.start);
        let end = floor_char_boundary(text, span.end.max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let source_line = text[line_start..line_end].trim_end_matches('\r').to_string();
        let diagnostic = Diagnostic {
            severity,
            file: file.to_path_buf(),
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            key,
            problem,
            mend,
            underline_chars: text[start..end.min(line_end).max(start)]
                .trim_end()
                .chars()
                .count()
                .max(1),
            source_line,
        };
        self.errors += usize::from(severity == Severity::Error);
        self.found.push(((place.source, start), diagnostic));
    }

    /// Everything noted, in the order of the file: `Err` if anything is an error, else the
    /// warnings.
    pub(crate) fn finish(mut self) -> Result<Vec<Diagnostic>, SystemError> {
        self.found.sort_by_key(|(place, _)| *place);
        let failed = self.has_errors();
        let diagnostics = self.found.into_iter().map(|(_, diagnostic)| diagnostic).collect();
        if failed {
            Err(SystemError::Invalid(diagnostics))
        } else {
            Ok(diagnostics)
        }
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.error_count() > 0
    }

    /// Errors so far: a reader compares it before and after to know whether it noted one.
    pub(crate) fn error_count(&self) -> usize {
        self.errors
    }
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0)
}

/// `a`, `b` or `c` in backticks, for the "what would be right".
pub(crate) fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => "nothing".to_string(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

/// The known word that was probably meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| {
            *distance <= candidate.chars().count().max(3) / 3 && *distance < word.chars().count()
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
