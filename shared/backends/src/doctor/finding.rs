//! One thing that was looked at.

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// As it should be.
    Ok,
    /// It cannot be told.
    Unknown,
    /// It works, but somebody should know.
    Warning,
    /// It does not work, or setup would change it.
    Defect,
}

impl State {
    /// All states, the worst last.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Unknown, Self::Warning, Self::Defect];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Defect => "defect",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it belongs to, such as `table`.
    pub area: &'static str,
    /// The thing, such as the name of a queue.
    pub name: String,
    /// How it is.
    pub state: State,
    /// What was seen.
    pub detail: String,
    /// What to do about it.
    pub mend: Option<String>,
}

impl Finding {
    fn new(
        area: &'static str,
        name: impl Into<String>,
        state: State,
        detail: impl Into<String>,
    ) -> Self {
        let (name, detail) = (name.into(), detail.into());
        Self {
            area,
            name,
            state,
            detail,
            mend: None,
        }
    }

    /// As it should be.
    pub fn ok(area: &'static str, name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(area, name, State::Ok, detail)
    }

    /// It cannot be told.
    pub fn unknown(area: &'static str, name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(area, name, State::Unknown, detail)
    }

    /// It works, but somebody should know.
    pub fn warning(
        area: &'static str,
        name: impl Into<String>,
        detail: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self::new(area, name, State::Warning, detail).mended_by(mend)
    }

    /// It does not work, or setup would change it.
    pub fn defect(
        area: &'static str,
        name: impl Into<String>,
        detail: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self::new(area, name, State::Defect, detail).mended_by(mend)
    }

    /// Says what to do about it.
    #[must_use]
    pub fn mended_by(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }
}
