//! What a handler submits from inside its run.

use std::{sync::Arc, time::Duration};

use dueline_api::{
    Call, Frontend,
    operation::{GetTask, Submit},
};
use dueline_domain::StateKind;
use dueline_executor::{Failure, RunningTask};

use crate::{EmbeddedNode, LONG, job, ok, task};

#[tokio::test(flavor = "multi_thread")]
async fn a_13_what_a_handler_stages_runs_when_its_run_succeeds_and_is_discarded_when_it_fails() {
    let (staged, staged_by_handler) = tokio::sync::mpsc::unbounded_channel();
    let frontend = Arc::new(std::sync::OnceLock::<Arc<dyn Frontend>>::new());
    let rig = EmbeddedNode::new(2, {
        let frontend = frontend.clone();
        move |run: RunningTask| {
            let (staged, frontend) = (staged.clone(), frontend.clone());
            async move {
                // Only the two tasks of the test stage another one, in their first run.
                let fails = match &run.input()[..] {
                    b"fails" => true,
                    b"succeeds" => false,
                    _ => return ok(),
                };
                let new = run.stage(task("staged"));
                staged.send((fails, new.id)).unwrap();
                let submit = Submit { tasks: vec![new] };
                let frontend = frontend.get().unwrap();
                let answer = frontend.call(&Call::default(), submit).await.unwrap();
                answer.into_iter().next().unwrap().unwrap();
                match fails {
                    true => Err(Failure::fatal("no")),
                    false => ok(),
                }
            }
        }
    })
    .await;
    assert!(frontend.set(rig.node.frontend()).is_ok());
    let mut staged_by_handler = staged_by_handler;
    for payload in ["fails", "succeeds"] {
        rig.submit(task(payload)).await;
        let (fails, id) = staged_by_handler.recv().await.unwrap();
        assert_eq!(fails, payload == "fails");
        let get = GetTask {
            job: job(),
            id,
            wait: Some(LONG),
        };
        // It may not be stored yet.
        let ended = loop {
            if let Ok(task) = rig
                .node
                .frontend()
                .call(&Call::default(), get.clone())
                .await
            {
                break task;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let expected = match fails {
            true => StateKind::Cancelled,
            false => StateKind::Succeeded,
        };
        assert_eq!(ended.kind(), expected, "{:?}", ended.error);
    }
    rig.stop().await;
}
