//! Tests of the buffer.

use dueline_domain::{TaskRef, Weight, WorkerId};
use dueline_ports::conformance::queue::message;

use super::*;

fn name(job: &str) -> JobName {
    JobName::parse(job).unwrap()
}

fn delivery(task: TaskRef) -> Delivery {
    let (job, number) = (task.job.clone(), task.token.get());
    Delivery {
        task,
        receipt: Receipt::Local { job, number },
        received: 1,
    }
}

fn weighing(job: &str, n: u64, weight: i64) -> Delivery {
    delivery(TaskRef {
        weight: Weight::new(weight).unwrap(),
        ..message(&name(job), n)
    })
}

fn ranked(job: &str, n: u64, priority: i64) -> Delivery {
    delivery(TaskRef {
        priority: Priority::new(priority).unwrap(),
        ..message(&name(job), n)
    })
}

fn buffer(len_max: usize, jobs: &[&str]) -> MessageBuffer {
    let mut buffer = MessageBuffer::new(len_max);
    for job in jobs {
        open(&mut buffer, job, "worker");
    }
    buffer
}

fn open(buffer: &mut MessageBuffer, job: &str, handler: &str) -> usize {
    let returned = buffer.open(&name(job), &Arc::from(handler), Instant::now());
    returned.len()
}

fn put(buffer: &mut MessageBuffer, job: &str, deliveries: Vec<Delivery>) -> usize {
    buffer.put(&name(job), deliveries, Instant::now()).len()
}

fn poll(jobs: &[&str], tasks_max: usize, weight_max: u32) -> PollRequest {
    PollRequest {
        worker: WorkerId::new("w", 1).unwrap(),
        jobs: jobs.iter().map(|job| name(job)).collect(),
        handlers: Vec::new(),
        tasks_max,
        weight_max,
        task_weight_max: 10,
        wait: Duration::ZERO,
        start: false,
    }
}

/// The numbers of the dispatched messages.
fn pop(buffer: &mut MessageBuffer, poll: &PollRequest) -> Vec<u64> {
    let popped = buffer.pop(poll);
    popped.iter().map(|d| d.task.token.get() - 1).collect()
}

#[tokio::test]
async fn f_026_the_highest_rank_of_all_polled_jobs_goes_first() {
    let mut buffer = buffer(100, &["a", "b", "c"]);
    put(&mut buffer, "a", vec![ranked("a", 1, 0), ranked("a", 2, 9)]);
    put(&mut buffer, "b", vec![ranked("b", 3, 5), ranked("b", 4, 0)]);
    put(&mut buffer, "c", vec![ranked("c", 5, 99)]);
    assert_eq!(pop(&mut buffer, &poll(&["a", "b"], 3, 100)), [2, 3, 1]);
    assert_eq!(pop(&mut buffer, &poll(&["a", "b"], 9, 100)), [4]);
    assert_eq!(buffer.len(), 1);
}

#[tokio::test]
async fn a_backlog_of_one_job_does_not_delay_another_job() {
    let mut buffer = buffer(1_000, &["flood", "quiet"]);
    let flood = (0..100).map(|n| ranked("flood", n, 0)).collect();
    put(&mut buffer, "flood", flood);
    let both = poll(&["flood", "quiet"], 50, 100);
    assert_eq!(pop(&mut buffer, &both).len(), 50);
    put(
        &mut buffer,
        "quiet",
        vec![ranked("quiet", 500, 0), ranked("quiet", 501, 0)],
    );
    let next = pop(&mut buffer, &poll(&["flood", "quiet"], 4, 100));
    assert!(next.contains(&500) && next.contains(&501), "{next:?}");
    // The turns it missed while empty do not give it more than its half.
    let quiet = (600..700).map(|n| ranked("quiet", n, 0)).collect();
    put(&mut buffer, "quiet", quiet);
    let next = pop(&mut buffer, &poll(&["flood", "quiet"], 10, 100));
    assert_eq!(next.iter().filter(|n| **n < 100).count(), 5, "{next:?}");
}

#[tokio::test]
async fn a_poll_for_a_kind_of_handler_gets_the_tasks_of_all_its_jobs() {
    let mut buffer = buffer(100, &["a"]);
    open(&mut buffer, "shell", "exec");
    put(&mut buffer, "a", vec![ranked("a", 1, 0)]);
    put(&mut buffer, "shell", vec![ranked("shell", 2, 0)]);
    let exec = PollRequest {
        handlers: vec![Arc::from("exec")],
        ..poll(&[], 9, 9)
    };
    assert_eq!(pop(&mut buffer, &exec), [2]);
}

#[tokio::test]
async fn f_122_the_buffer_is_never_above_its_limit_and_each_job_has_its_share() {
    let mut buffer = buffer(10, &["a"]);
    let flood = |n| (0..n).map(|n| ranked("a", n, 0)).collect::<Vec<_>>();
    assert_eq!(put(&mut buffer, "a", flood(12)), 2);
    assert_eq!((buffer.len(), buffer.room(&name("a"))), (10, 0));
    let returned = open(&mut buffer, "b", "worker");
    assert_eq!((returned, buffer.len()), (5, 5));
    assert_eq!(buffer.room(&name("b")), 5);
    let kept: Vec<u64> = (0..5).collect();
    assert_eq!(
        pop(&mut buffer, &poll(&["a"], 99, 99)),
        kept,
        "the highest ranks stay"
    );
    // A job that is not served has no room.
    assert_eq!(put(&mut buffer, "c", vec![ranked("c", 1, 0)]), 1);
    put(&mut buffer, "b", vec![ranked("b", 1, 0)]);
    assert_eq!(buffer.close(&name("b")).len(), 1);
    assert_eq!(buffer.len(), 0);
}

#[tokio::test]
async fn f_034_no_more_weight_is_dispatched_than_is_free() {
    let mut buffer = buffer(100, &["a"]);
    let ten = (0..10).map(|n| weighing("a", n, 3)).collect();
    put(&mut buffer, "a", ten);
    assert_eq!(pop(&mut buffer, &poll(&["a"], 99, 10)).len(), 3);
    assert_eq!(pop(&mut buffer, &poll(&["a"], 99, 1)).len(), 0);
    assert_eq!(pop(&mut buffer, &poll(&["a"], 2, 10)).len(), 2);
}

#[tokio::test]
async fn d_06_a_heavy_task_lets_some_lighter_ones_pass_and_then_waits_for_room() {
    let mut buffer = buffer(100, &["a"]);
    put(&mut buffer, "a", vec![weighing("a", 1_000, 8)]);
    let light = (0..50).map(|n| weighing("a", n, 1)).collect();
    put(&mut buffer, "a", light);
    // Five are free: light tasks pass, but only PASSES_MAX of them.
    let mut passed = 0;
    loop {
        let got = pop(&mut buffer, &poll(&["a"], 99, 5));
        if got.is_empty() {
            break;
        }
        assert!(!got.contains(&1_000));
        passed += got.len();
    }
    assert_eq!(passed, PASSES_MAX as usize);
    // A worker that could never run the heavy task is not blocked by it.
    let small = PollRequest {
        task_weight_max: 5,
        ..poll(&["a"], 3, 5)
    };
    assert_eq!(pop(&mut buffer, &small).len(), 3);
    // Eight are free: the heavy task goes first.
    assert_eq!(pop(&mut buffer, &poll(&["a"], 1, 8)), [1_000]);
    assert_eq!(pop(&mut buffer, &poll(&["a"], 99, 5)).len(), 5);
}

#[tokio::test]
async fn a_task_that_waits_for_weight_counts_and_one_that_the_worker_cannot_run_does_not() {
    let mut buffer = buffer(100, &["a", "b"]);
    put(&mut buffer, "a", vec![weighing("a", 1, 8)]);
    let busy = poll(&["a"], 9, 5);
    assert!(pop(&mut buffer, &busy).is_empty());
    assert!(buffer.has_message_for(&busy));
    let other_job = poll(&["b"], 9, 5);
    assert!(!buffer.has_message_for(&other_job), "not polled for");
    let weak = PollRequest {
        task_weight_max: 5,
        ..poll(&["a"], 9, 5)
    };
    assert!(!buffer.has_message_for(&weak), "too heavy for this worker");
    assert_eq!(buffer.clear(&name("a")).len(), 1);
    assert!(!buffer.has_message_for(&busy));
    assert_eq!(buffer.len(), 0);
}

#[tokio::test]
async fn a_job_that_is_served_again_has_no_waiting_receive_yet() {
    let mut buffer = buffer(100, &["a", "b"]);
    let (both, now) = (poll(&["a", "b", "nowhere"], 9, 9), Some(Instant::now()));
    let since = |buffer: &MessageBuffer| buffer.receiving_since(&both).collect::<Vec<_>>();
    assert_eq!(since(&buffer), [None, None]);
    buffer.set_receiving(&name("a"), now);
    assert_eq!(since(&buffer), [now, None]);
    buffer.close(&name("a"));
    open(&mut buffer, "a", "worker");
    assert_eq!(since(&buffer), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn f_022_no_more_is_received_than_waiting_polls_have_room_for() {
    let (mut buffer, job) = (buffer(100, &["a"]), name("a"));
    let wanted = |tasks, buffer: &mut MessageBuffer| {
        let weight_max = 5;
        buffer.wanted(&job, PolledRoom { tasks, weight_max }, Instant::now())
    };
    assert_eq!(wanted(0, &mut buffer), 0);
    assert_eq!(wanted(7, &mut buffer), 7);
    assert_eq!(wanted(500, &mut buffer), 100);
    put(
        &mut buffer,
        "a",
        vec![weighing("a", 1, 1), weighing("a", 2, 9)],
    );
    assert_eq!(
        wanted(7, &mut buffer),
        6,
        "the heavy one fits no waiting poll"
    );
    assert_eq!(wanted(1, &mut buffer), 0);
}

#[tokio::test(start_paused = true)]
async fn f_022_messages_are_received_ahead_only_for_the_time_of_a_receive() {
    let (mut buffer, job) = (buffer(100, &["a"]), name("a"));
    let (no_poll, one) = (PolledRoom::default(), poll(&["a"], 1, 9));
    let ms = Duration::from_millis;
    for n in 0..100 {
        put(&mut buffer, "a", vec![ranked("a", n, 0)]);
        assert_eq!(pop(&mut buffer, &one).len(), 1);
        tokio::time::advance(ms(10)).await;
    }
    assert_eq!(buffer.wanted(&job, no_poll, Instant::now()), 0);
    // A hundred a second, and a receive takes 5 ms: eight receives take as long as four tasks.
    buffer.record_receive(&job, ms(5));
    assert_eq!(buffer.wanted(&job, no_poll, Instant::now()), 4);
    put(
        &mut buffer,
        "a",
        (0..3).map(|n| ranked("a", n, 0)).collect(),
    );
    assert_eq!(buffer.wanted(&job, no_poll, Instant::now()), 0);
    pop(&mut buffer, &one);
    assert_eq!(buffer.wanted(&job, no_poll, Instant::now()), 2);
    tokio::time::advance(ms(5_000)).await;
    assert_eq!(buffer.wanted(&job, no_poll, Instant::now()), 0);
}

#[tokio::test(start_paused = true)]
async fn unused_messages_leave_the_buffer_unless_lighter_ones_have_passed() {
    let (mut buffer, job) = (buffer(100, &["a"]), name("a"));
    assert_eq!(buffer.unused_until(&job), None);
    put(
        &mut buffer,
        "a",
        vec![weighing("a", 1, 9), ranked("a", 2, -1)],
    );
    assert_eq!(pop(&mut buffer, &poll(&["a"], 1, 5)), [2]);
    assert_eq!(
        buffer.unused_until(&job),
        None,
        "the heavy one keeps its turn"
    );
    put(&mut buffer, "a", vec![ranked("a", 3, -1)]);
    buffer.record_receive(&job, Duration::ZERO);
    let until = buffer.unused_until(&job).unwrap();
    assert_eq!(until, Instant::now() + Duration::from_millis(20));
    assert!(buffer.take_unused(&job, Instant::now()).is_empty());
    assert_eq!(buffer.take_unused(&job, until).len(), 1);
    assert_eq!(buffer.len(), 1);
}

#[tokio::test]
async fn tasks_too_heavy_for_every_worker_can_be_removed() {
    let mut buffer = buffer(100, &["a"]);
    let mixed = vec![weighing("a", 1, 11), weighing("a", 2, 10)];
    put(&mut buffer, "a", mixed);
    assert_eq!(buffer.take_heavier(&name("a"), 10).len(), 1);
    assert_eq!(pop(&mut buffer, &poll(&["a"], 9, 10)), [2]);
}

#[tokio::test(start_paused = true)]
async fn each_message_is_renewed_by_its_own_visibility_timeout() {
    let mut buffer = buffer(100, &["a"]);
    let start = Instant::now();
    let later = start + Duration::from_secs(10);
    buffer.put(&name("a"), vec![ranked("a", 1, 0)], start);
    buffer.put(&name("a"), vec![ranked("a", 2, 0)], later);
    assert_eq!(buffer.renew_hidden_since(start, later).len(), 1);
    assert_eq!(buffer.renew_hidden_since(start, later).len(), 0);
    assert_eq!(buffer.renew_hidden_since(later, later).len(), 2);
}
