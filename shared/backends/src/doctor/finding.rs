//! The result of one check.

/// The state of a checked item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The item is as it should be.
    Ok,
    /// The state could not be determined.
    Unknown,
    /// The item works, but the operator should know about it.
    Warning,
    /// The item does not work, or setup would change it.
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

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The area of the check, such as `table`.
    pub area: &'static str,
    /// The checked item, such as the name of a queue.
    pub name: String,
    /// The state of the item.
    pub state: State,
    /// What the check observed.
    pub detail: String,
    /// The proposed fix.
    pub fix: Option<String>,
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
            fix: None,
        }
    }

    /// The item is as it should be.
    pub fn ok(area: &'static str, name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(area, name, State::Ok, detail)
    }

    /// The state could not be determined.
    pub fn unknown(area: &'static str, name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(area, name, State::Unknown, detail)
    }

    /// The item works, but the operator should know about it.
    pub fn warning(
        area: &'static str,
        name: impl Into<String>,
        detail: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(area, name, State::Warning, detail).fixed_by(fix)
    }

    /// The item does not work, or setup would change it.
    pub fn defect(
        area: &'static str,
        name: impl Into<String>,
        detail: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(area, name, State::Defect, detail).fixed_by(fix)
    }

    /// Adds the proposed fix.
    #[must_use]
    pub fn fixed_by(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}
