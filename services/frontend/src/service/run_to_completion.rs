//! Calls that must not be torn in the middle.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use dueline_runtime::TaskGroup;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs `work` in place. When the caller drops the call after it has begun (the client hung up, or its deadline
/// passed), the rest runs in `group`: between the write and the message that follows it nothing is lost.
pub(super) fn run_to_completion<T: Send + 'static>(
    group: &TaskGroup,
    work: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> + Send {
    RunToCompletion {
        group,
        work: Some(Box::pin(work)),
        begun: false,
    }
}

struct RunToCompletion<'a, T: Send + 'static> {
    group: &'a TaskGroup,
    work: Option<Work<T>>,
    begun: bool,
}

impl<T: Send + 'static> Future for RunToCompletion<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.begun = true;
        // Taken out while it runs: work that panics is not run again by the drop.
        let mut work = self.work.take().expect("polled after it was ready");
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<'_, T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        // Without a runtime the process is going, and the store's trigger times do the rest after a restart.
        if self.begun && tokio::runtime::Handle::try_current().is_ok() {
            self.group.spawn_infallible("detached call", async move {
                work.await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use super::*;

    #[tokio::test]
    async fn a_call_that_is_given_up_runs_to_its_end() {
        let group = TaskGroup::new();
        let (gate, entered) = tokio::sync::oneshot::channel::<()>();
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let mut call = Box::pin(run_to_completion(&group, async move {
            let _ = entered.await;
            seen.store(true, Ordering::SeqCst);
        }));
        assert!(futures_util::poll!(call.as_mut()).is_pending());
        drop(call);
        gate.send(()).unwrap();
        assert_eq!(group.wait().await, Ok(()));
        assert!(done.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_call_that_never_began_never_runs() {
        let group = TaskGroup::new();
        drop(run_to_completion(&group, async { panic!("it ran") }));
        assert_eq!(group.wait().await, Ok(()));
    }
}
