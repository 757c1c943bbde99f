//! Submits whose key another task has: the key is looked up, taken over, or its holder is replaced.

use dueline_domain::{Meeting, TaskId, Timestamp};
use dueline_ports::{Command, Create, Created, StoreError};

use crate::{
    calls::{CallContext, ItemKey},
    create::{created, key_of},
    jobs::JobSnapshot,
    keyed::task_of_key,
    row::TaskRow,
    store::DynamoStore,
};

/// The task that was the last to take a key, which it does not hold any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyOwner {
    pub(crate) task: TaskId,
    /// Whether the task still exists.
    pub(crate) exists: bool,
}

/// What is known of a submit after its key was looked up.
pub(crate) enum LookedUp {
    /// The submit needs nothing more.
    Answer(Created),
    /// The key is free; this task had it.
    Owner(Option<KeyOwner>),
}

impl DynamoStore {
    /// Looks up the key of a submit: two consistent reads if another task has the key.
    pub(crate) async fn look_up_key(
        &self,
        now: Timestamp,
        jobs: &JobSnapshot,
        create: &Create,
    ) -> Result<LookedUp, StoreError> {
        let entry = jobs.open(&create.task.job)?;
        let (partitions, id) = (&entry.partitions, create.task.id);
        let context = CallContext::of_job(partitions.job.as_str(), "create");
        let Some(key) = key_of(&create.task) else {
            return Ok(LookedUp::Owner(None));
        };
        let key = ItemKey::new(partitions.of_key(&key), key.as_bytes());
        let Some(item) = self.table.get(context, &key, true).await? else {
            return Ok(LookedUp::Owner(None));
        };
        let task =
            task_of_key(&item).map_err(|invalid| invalid.into_error("an idempotency key"))?;
        let Some(row) = self.load(context, partitions, &task).await? else {
            let exists = false;
            return Ok(LookedUp::Owner(Some(KeyOwner { task, exists })));
        };
        // The id comes before the key: the submit may be one whose task has lost the key since.
        let own = match task == id {
            true => None,
            false => self.load(context, partitions, &id).await?,
        };
        self.meet(now, jobs, create, &own.unwrap_or(row)).await
    }

    /// Does what becomes of a submit that has met this task by its id or by its key.
    pub(crate) async fn meet(
        &self,
        now: Timestamp,
        jobs: &JobSnapshot,
        create: &Create,
        existing: &TaskRow,
    ) -> Result<LookedUp, StoreError> {
        let (holder, submit) = (&existing.task, &create.task);
        let (task, exists) = (holder.id, true);
        let owner = LookedUp::Owner(Some(KeyOwner { task, exists }));
        match holder.meet(submit, now) {
            Meeting::Free => Ok(owner),
            Meeting::Return => Ok(LookedUp::Answer(created(existing, true))),
            Meeting::Differs => Err(StoreError::Exists(holder.id)),
            Meeting::Held => Err(StoreError::KeyHeld {
                holder: holder.id,
                state: holder.kind(),
            }),
            Meeting::Replace => {
                let may_enqueue =
                    create.may_enqueue && jobs.open(&submit.job)?.job.enqueues_at_once();
                let event = submit
                    .clone()
                    .replacement(holder, now, create.token, may_enqueue);
                let command = Command {
                    job: submit.job.clone(),
                    id: holder.id,
                    event,
                    write: create.write,
                };
                match self.apply_one(now, jobs, &command).await {
                    Ok(applied) => Ok(LookedUp::Answer(Created {
                        task: applied.task,
                        existed: true,
                        replaced: true,
                    })),
                    // The holder was claimed, ended or deleted meanwhile: it is looked at again.
                    Err(StoreError::Rejected(_) | StoreError::NotFound { .. }) => {
                        Ok(LookedUp::Owner(None))
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }
}
