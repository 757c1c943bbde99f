//! `dueline task tree`.

use dueline_api::v1::{FamilyView, MemberView, PathStepView, Time};

use crate::{
    client::JsonAnswer,
    commands::reference::TaskReference,
    context::Context,
    exit::{CliError, Exit},
    sanitize::{clean, short},
};

/// Most members that the server returns in one page.
const PAGE_LEN_MAX: usize = 1_000;

/// Shows a task with everything that waits for it.
#[derive(Debug, clap::Args)]
pub struct Tree {
    /// The task
    #[arg(value_name = "JOB/ID")]
    task: TaskReference,

    /// Most members to show
    #[arg(long, value_name = "N", default_value_t = 200)]
    limit: usize,

    /// Cursor that an earlier call printed, to continue from there
    #[arg(long)]
    cursor: Option<String>,

    /// Show the chain of members that determined when the last one ended, or will determine that
    #[arg(long)]
    critical_path: bool,
}

impl Tree {
    pub(super) async fn run(mut self, context: &Context) -> Result<Exit, CliError> {
        if self.limit == 0 {
            return Err(CliError::invalid("--limit must be at least 1"));
        }
        let client = context.client()?;
        let id = self.task.id.to_string();
        let path = ["jobs", self.task.job.as_str(), "tasks", &id, "family"];
        let mut shown: Option<FamilyView> = None;
        loop {
            let count = shown.as_ref().map_or(0, |shown| shown.members.len());
            let limit = (self.limit - count).min(PAGE_LEN_MAX);
            let mut query = vec![("limit", limit.to_string())];
            if self.critical_path && shown.is_none() {
                query.push(("critical_path", "true".to_owned()));
            }
            query.extend(self.cursor.take().map(|cursor| ("cursor", cursor)));
            let page: FamilyView = client.get(&path, &query).await?.read()?;
            self.cursor = page.next.clone();
            let is_empty = page.members.is_empty();
            let all = match shown.take() {
                None => page,
                Some(mut all) => {
                    all.add(page);
                    all
                }
            };
            let is_enough = all.members.len() >= self.limit;
            shown = Some(all);
            if self.cursor.is_none() || is_enough || is_empty {
                break;
            }
        }
        let answer = JsonAnswer::of(&shown);
        context.output.show(&answer, context.now(), |_| {
            Ok(shown.as_ref().map_or_else(String::new, render))
        })?;
        Ok(Exit::Ok)
    }
}

fn render(family: &FamilyView) -> String {
    let mut lines: Vec<String> = family.members.iter().map(line).collect();
    let counts = family.by_state.iter();
    let counts: Vec<_> = counts
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    lines.push(format!(
        "{} shown: {}",
        family.members.len(),
        counts.join(", ")
    ));
    if !family.critical_path.is_empty() {
        lines.push("critical path:".to_owned());
        lines.extend(family.critical_path.iter().map(path_line));
    }
    if let Some(next) = &family.next {
        lines.push(format!("more with --cursor {next}"));
    }
    lines.join("\n")
}

/// A member as a line, as deep as it is below the first.
fn line(member: &MemberView) -> String {
    let depth = usize::try_from(member.level).unwrap_or(0);
    let mark = match member.relation.as_deref() {
        Some("child") => "+ ",
        Some("staged") => "* ",
        Some(_) => "> ",
        None => "",
    };
    let mut line = "  ".repeat(depth);
    line.push_str(&format!(
        "{mark}{}/{} {}",
        member.job, member.id, member.state
    ));
    match member.children.as_deref() {
        Some("closed") | None => {}
        Some(_) => line.push_str(" (children open)"),
    }
    for text in [&member.name, &member.error].into_iter().flatten() {
        line.push_str(&format!("  {}", short(text, 80)));
    }
    clean(&line).into_owned()
}

/// A member of the critical path as a line, with its times.
fn path_line(step: &PathStepView) -> String {
    let text = |time: &Option<Time>| time.map_or_else(|| "-".to_owned(), |time| time.to_string());
    let (word, end) = match &step.finished_at {
        Some(_) => ("ended", &step.finished_at),
        None => ("expected", &step.expected_at),
    };
    let (job, id, state) = (&step.job, step.id, step.state);
    let (started, end) = (text(&step.started_at), text(end));
    format!("  {job}/{id} {state}, started {started}, {word} {end}")
}

#[cfg(test)]
mod tests {
    use dueline_domain::{JobName, TaskId};

    use super::*;

    #[test]
    fn f_156_a_family_is_shown_as_a_tree_with_states_and_counts() {
        let member = |number, level, relation: Option<&str>, state: &str| MemberView {
            job: JobName::parse("mail").unwrap(),
            id: TaskId::from_bytes([number; 16]),
            level,
            relation: relation.map(str::to_owned),
            above: None,
            state: state.to_owned(),
            name: (number == 1).then(|| "nightly".to_owned()),
            error: (number == 3).then(|| "parent was cancelled".to_owned()),
            children: (number < 3).then(|| if number == 1 { "open" } else { "closed" }.to_owned()),
        };
        let mut family = FamilyView {
            members: vec![
                member(1, 0, None, "succeeded"),
                member(2, 1, Some("child"), "succeeded"),
            ],
            by_state: [("succeeded".to_owned(), 2)].into(),
            next: Some("2".into()),
            critical_path: vec![PathStepView {
                job: JobName::parse("mail").unwrap(),
                id: TaskId::from_bytes([4; 16]),
                state: dueline_domain::StateKind::Waiting,
                started_at: None,
                finished_at: None,
                expected_at: Some(dueline_domain::Timestamp::EPOCH.into()),
            }],
        };
        family.add(FamilyView {
            members: vec![
                member(3, 2, Some("child"), "cancelled"),
                member(4, 1, Some("follower"), "waiting"),
            ],
            by_state: [("cancelled".to_owned(), 1), ("waiting".to_owned(), 1)].into(),
            next: None,
            critical_path: Vec::new(),
        });
        let id = |number: u8| TaskId::from_bytes([number; 16]);
        let expected = [
            format!("mail/{} succeeded (children open)  nightly", id(1)),
            format!("  + mail/{} succeeded", id(2)),
            format!("    + mail/{} cancelled  parent was cancelled", id(3)),
            format!("  > mail/{} waiting", id(4)),
            "4 shown: 1 cancelled, 2 succeeded, 1 waiting".to_owned(),
            "critical path:".to_owned(),
            format!(
                "  mail/{} waiting, started -, expected 1970-01-01T00:00:00.000Z",
                id(4)
            ),
        ];
        assert_eq!(render(&family), expected.join("\n"));
    }
}
