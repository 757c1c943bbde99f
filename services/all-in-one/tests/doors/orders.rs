//! The order of lists through each door.

use std::time::Duration;

use dueline_api::{
    Call, Callable, TaskIter,
    operation::{ListTasks, Submit},
};
use dueline_domain::{Due, TaskId, TaskOptions};
use dueline_ports::{ListOrder, ListQuery};
use reqwest::Method;

use crate::node::{TASK, TestNode, mail, new_task};

fn query(order: ListOrder) -> ListQuery {
    ListQuery {
        order,
        limit: 7,
        ..ListQuery::of(mail())
    }
}

/// The ids of all pages through REST.
async fn by_rest(node: &TestNode, order: ListOrder) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("jobs/mail/tasks?order={order}&limit=7{cursor}");
        let page = node.send(Method::GET, &path, None).await;
        let tasks = page["tasks"].as_array().unwrap_or_else(|| panic!("{page}"));
        ids.extend(
            tasks
                .iter()
                .map(|task| task["id"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}

async fn by_grpc(node: &TestNode, order: ListOrder) -> Vec<String> {
    let (client, mut query) = (node.grpc(), query(order));
    let mut ids = Vec::new();
    loop {
        let list = ListTasks(query.clone());
        let page = client.call(&Call::default(), list).await.unwrap();
        ids.extend(page.tasks.iter().map(|task| task.id.to_string()));
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => return ids,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_024_lists_have_one_order_through_each_door() {
    let node = TestNode::start().await;
    // The task of the node is due in ten minutes.
    let mut posted = vec![TASK.to_owned()];
    let mut due = vec![(600, TASK.to_owned())];
    for n in 0..20_u64 {
        let after = 60 + (n * 7) % 20;
        let task = new_task(
            Due::After(Duration::from_secs(after)),
            TaskOptions::default(),
        );
        let tasks = vec![task];
        let (frontend, call) = (node.frontend(), Call::default());
        let mut answer = frontend.call(&call, Submit { tasks }).await.unwrap();
        let id: TaskId = answer.remove(0).unwrap().id;
        posted.push(id.to_string());
        due.push((after, id.to_string()));
    }
    due.sort();
    let due: Vec<String> = due.into_iter().map(|(_, id)| id).collect();
    for order in ListOrder::ALL {
        let mut expected = if order.is_by_due_time() {
            due.clone()
        } else {
            posted.clone()
        };
        if order.is_descending() {
            expected.reverse();
        }
        assert_eq!(by_rest(&node, order).await, expected, "{order}");
        assert_eq!(by_grpc(&node, order).await, expected, "{order}");
        let mut tasks = TaskIter::of(node.frontend(), query(order));
        let mut embedded = Vec::new();
        while let Some(task) = tasks.next().await.unwrap() {
            embedded.push(task.id.to_string());
        }
        assert_eq!(embedded, expected, "{order}");
    }
    // A cursor of another order is refused.
    let path = "jobs/mail/tasks?limit=7";
    let page = node.send(Method::GET, path, None).await;
    let path = format!(
        "{path}&order=posted&cursor={}",
        page["next"].as_str().unwrap()
    );
    let refused = node.send(Method::GET, &path, None).await;
    assert_eq!(refused["kind"], "invalid", "{refused}");
}
